package user

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

func newTokenLs(s *cli.Settings, p *place) *cobra.Command {
	return &cobra.Command{
		Use:   "ls NAME",
		Short: "List the tokens of a user that were shown to the server, and those that are revoked",
		Long: `List the tokens of a user that were shown to the server, and those that are revoked.
Of a user with very many, those that were used last are told. A token that no one
has used yet is known to no server.`,
		Example: "  sagenbaum user token ls coder",
		Args:    cli.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := p.find(cmd.Context(), s, args[0])
			if err != nil {
				return err
			}
			a, err := p.ask(cmd.Context(), s, api.UserTokens, access.Request{User: u})
			if err != nil {
				return err
			}
			tokens := append([]access.Token{}, a.Tokens...) // an empty list is []
			return s.Print(cmd, map[string]any{"tokens": tokens}, func() { writeTokens(cmd, tokens) })
		},
	}
}

func writeTokens(cmd *cobra.Command, tokens []access.Token) {
	if len(tokens) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no token of this user was shown to the server")
		return
	}
	t := cli.Table{Head: []string{"TOKEN", "MADE", "EXPIRES", "USED", "REVOKED"}}
	for _, token := range tokens {
		expires := instantText(token.Expires)
		switch {
		case token.Expires.IsZero():
			expires = "with the user"
		case !time.Now().Before(token.Expires):
			expires = "expired"
		}
		t.Add(token.ID, instantText(token.Made), expires, instantText(token.Used),
			instantText(token.Revoked))
	}
	t.Write(cmd.OutOrStdout())
}

func instantText(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return cli.Relative(at.UnixNano(), time.Now())
}

func newTokenRevoke(s *cli.Settings, p *place) *cobra.Command {
	unseen := false
	cmd := &cobra.Command{
		Use:   "revoke NAME ID",
		Short: "End one token of a user, and the streams and requests that it has open",
		Long: `End one token of a user, and the streams and requests that it has open, at once. The
user, its key and its other tokens stay. 'user token ls' has the ids; that of a token
which was not used yet is printed when it is made.`,
		Example: `  sagenbaum user token revoke coder 4zq7k2mdx5rwtb3e
  sagenbaum user token revoke coder 4zq7k2mdx5rwtb3e --unseen`,
		Args: cli.Exactly("NAME", "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := access.CheckTokenID(args[1]); err != nil {
				return cli.Usage("ID", err)
			}
			u, err := p.find(cmd.Context(), s, args[0])
			if err != nil {
				return err
			}
			_, err = p.ask(cmd.Context(), s, api.UserRevoke,
				access.Request{User: u, Token: args[1], Unseen: unseen})
			if err != nil {
				return err
			}
			return s.Print(cmd, map[string]string{"user": u.Name, "tenant": u.Tenant,
				"revoked": args[1]}, func() {
				fmt.Fprintf(cmd.OutOrStdout(), "token %s of %s %s is revoked\n", args[1], u.Role, u.Name)
			})
		},
	}
	cmd.Flags().BoolVar(&unseen, "unseen", false, "also if it was not shown to the server yet")
	return cmd
}
