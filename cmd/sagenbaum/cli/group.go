package cli

import (
	"strings"

	"github.com/spf13/cobra"
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

// Exactly wants as many arguments as there are names, and says them.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
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
