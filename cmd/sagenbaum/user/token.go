package user

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

func newToken(s *cli.Settings, p *place) *cobra.Command {
	expires := ""
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Print a token for the door over HTTP, made of a file of credentials",
		Long: `Print a token for the door over HTTP, made of a file of credentials. It is signed
here with the key of the user, and no server is asked or told. It ends with the
user, with its key, and at its own time; whoever has it can do over HTTP what the
user may. The credentials of an agent, a source or a supervisor have one already,
which ends with the user. The id of the token, which is no secret, is printed to
stderr: 'user token revoke' ends that one token.`,
		Example: `  sagenbaum user token --creds coder.creds --expires 12h
  sagenbaum user token ls coder
  sagenbaum user token revoke coder 4zq7k2mdx5rwtb3e`,
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			until, err := expiry(expires, time.Now())
			if err != nil {
				return err
			}
			if s.Creds == "" {
				return cli.Fail(cli.ExitUsage, "--creds FILE, as 'user add' has printed it",
					"a token is made of credentials")
			}
			creds, err := access.ReadCredentials(s.Creds)
			var refused *ledger.Refused
			if errors.As(err, &refused) {
				return cli.Fail(cli.ExitUsage, refused.Want, "cannot read %s: %s", s.Creds, refused.Problem)
			}
			if err == nil && (creds.Token == "" || creds.JWT != "") {
				return cli.Fail(cli.ExitUsage, "credentials of an agent, a source or a supervisor of an "+
					"embedded server", "role %s may ask nothing of the door", creds.Role)
			}
			token := ""
			if err == nil {
				token, err = creds.Sign(until)
			}
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), token)
			}
			if err == nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "  token %s\n", creds.TokenID(token))
			}
			return err
		},
	}
	cmd.AddCommand(newTokenLs(s, p), newTokenRevoke(s, p))
	cmd.Flags().StringVar(&expires, "expires", "", "`TIME` after which the token is refused: 90d, "+
		"12h, or a date; default with the user")
	return cmd
}
