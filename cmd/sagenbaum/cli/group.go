package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Group makes a command that only holds others: without one it shows its help,
// with an unknown one it says which it might have been.
func Group(cmd *cobra.Command, children ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(children...)
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return UnknownCommand(cmd, args[0])
	}
	return cmd
}

// UnknownCommand is the usage error for a command that does not exist, with the nearest one.
func UnknownCommand(cmd *cobra.Command, name string) error {
	hint := cmd.CommandPath() + " --help"
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		hint = cmd.CommandPath() + " " + near[0]
	}
	return Fail(ExitUsage, hint, "unknown command %q for %q", name, cmd.CommandPath())
}

// planArgument is the name of an argument that is the id of a plan.
const planArgument = "PLAN"

// Exactly wants as many arguments as there are names, and says them. One that is named PLAN can
// be the id of a plan.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			for i, name := range names {
				if name == planArgument && !ledger.ValidDerived(args[i]) {
					return noPlanID(args[i])
				}
			}
			return nil
		}
		want := strings.Join(names, " ")
		if want == "" {
			want = "no arguments"
		}
		return Fail(ExitUsage, cmd.CommandPath()+" --help", "%s takes %s, got %d arguments",
			cmd.CommandPath(), want, len(args))
	}
}

func noPlanID(id string) error {
	return Fail(ExitUsage, "sagenbaum plan ls", "%.80q is not a plan id", id)
}

// PlanFlag adds a flag --plan, which takes the id of a plan.
func PlanFlag(cmd *cobra.Command, into *string, usage string) {
	cmd.Flags().Var((*planID)(into), "plan", usage)
}

// planID is the value of a flag that is the id of a plan.
type planID string

func (id *planID) String() string { return string(*id) }

func (id *planID) Type() string { return planArgument }

func (id *planID) Set(text string) error {
	if text != "" && !ledger.ValidDerived(text) {
		return fmt.Errorf("want the id of a plan, as sagenbaum plan ls lists them")
	}
	*id = planID(text)
	return nil
}
