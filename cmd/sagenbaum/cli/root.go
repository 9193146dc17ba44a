package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Prepare gives a root command what every binary has: the help command, usage errors with
// a next step, -o and --no-color.
func Prepare(root *cobra.Command, s *Settings) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(helpCommand(root))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Fail(ExitUsage, cmd.CommandPath()+" --help", "%v", err)
	})
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.Recall(cmd); err != nil {
			return err
		}
		if s.output == outputYAML {
			root.SetOut(&YamlOut{Writer: root.OutOrStdout()})
		}
		if root.PersistentFlags().Lookup("server") == nil { // a binary that asks no server
			return s.checkOutput()
		}
		return s.check()
	}

	flags := root.PersistentFlags()
	flags.StringVarP(&s.output, "output", "o", outputTable, "table, json or yaml")
	flags.BoolVar(&s.noColor, "no-color", false, "no colours, even on a terminal (env NO_COLOR)")
	FixedCompletion(root, "output", outputs...)
}

func (s *Settings) checkOutput() error {
	if slices.Contains(outputs, s.output) {
		return nil
	}
	return Fail(ExitUsage, "-o "+strings.Join(outputs, ", -o "), "unknown output %q", s.output)
}

func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Explain a command",
		Example: "  sagenbaum help plan show",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return UnknownCommand(root, strings.Join(args, " "))
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}
