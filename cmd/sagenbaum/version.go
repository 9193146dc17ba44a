package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

func newVersion(s *cli.Settings) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this binary and what it is built from",
		Example: "  sagenbaum version\n  sagenbaum version -o json",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := cli.ReadVersion()
			if s.JSON() {
				return cli.PrintJSON(cmd.OutOrStdout(), v)
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "sagenbaum %s %s %s\n", v.Version, v.Go, v.Platform)
			fmt.Fprintf(out, "reader %d, fold %d, nats-server %s\n", v.Reader, v.Fold,
				cli.Dash(v.NATS))
			if v.Commit != "" {
				fmt.Fprintf(out, "commit %s\n", v.Commit)
			}
			return nil
		},
	}
}
