// Package console is `sagenbaum console`: who may do what in the console of a server, and who
// has signed in there.
package console

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// Command is `sagenbaum console` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "console",
		Short: "Manage the users and sessions of the console in a browser",
		Example: "  sagenbaum console users add bo --role operator --on travel\n" +
			"  sagenbaum console sessions ls",
	}, users(s), sessions(s))
}

// refused turns a refusal into words about the command line.
func refused(doing string, err error) error {
	var r *ledger.Refused
	if errors.As(err, &r) {
		return cli.Fail(cli.ExitUsage, r.Want, "cannot %s: %s: %s", doing, r.Field, r.Problem)
	}
	return cli.Failed(doing, err)
}
