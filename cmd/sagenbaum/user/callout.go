package user

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/access/callout"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// calling is what `user callout` was asked to do.
type calling struct {
	rules, key, issuer, audience, tokens string
	ttl                                  time.Duration
}

func newCallout(s *cli.Settings) *cobra.Command {
	v := new(calling)
	cmd := &cobra.Command{
		Use:   "callout",
		Short: "Answer NATS servers about connections with a token (auth callout)",
		Long: `Answer NATS servers about connections with a token, until it is interrupted. A token
is one of an OIDC provider, or of a file of hashes. The first rule that fits its claims
says which user it is; its rights are those of the table of roles, for 15 minutes.`,
		Example: `  sagenbaum user callout --creds callout.creds --issuer-key issuer.nk --rules rules.json ` +
			`--oidc https://id.example.com --audience sagenbaum
  sagenbaum user callout --creds callout.creds --issuer-key issuer.nk --rules rules.json --tokens tokens.json`,
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return v.run(cmd, s) },
	}
	f := cmd.Flags()
	f.StringVar(&v.rules, "rules", "", "`FILE` with the rules from claims to users: a list in JSON")
	f.StringVar(&v.key, "issuer-key", "", "`FILE` with the seed of the issuer, SA...")
	f.StringVar(&v.issuer, "oidc", "", "`URL` of an OIDC provider")
	f.StringVar(&v.audience, "audience", "", "`CLIENT-ID` that the provider's tokens must be for")
	f.StringVar(&v.tokens, "tokens", "", "`FILE` with hashes of tokens and their claims, in JSON")
	f.DurationVar(&v.ttl, "ttl", callout.TTLDefault, "`TIME` that a user lives")
	return cmd
}

func (v *calling) run(cmd *cobra.Command, s *cli.Settings) error {
	cfg, err := v.config(cmd.Context(), slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
	if err != nil {
		return err
	}
	c, err := callout.New(cfg)
	if err != nil {
		return refused(err)
	}
	if s.Self != nil {
		if err := cli.CheckRole("--creds", s.Creds, *s.Self, access.Callout); err != nil {
			return err
		}
	}
	return s.With(func(client *cli.Client) error {
		if _, err := c.Serve(client.Conn); err != nil {
			return err
		}
		if err := client.Conn.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(cmd.ErrOrStderr(), "answering", client.Server)
		<-cmd.Context().Done()
		return nil
	})
}

func (v *calling) config(ctx context.Context, log *slog.Logger) (cfg callout.Config, err error) {
	cfg = callout.Config{TTL: v.ttl, Logger: log}
	if (v.issuer == "") == (v.tokens == "") {
		return cfg, cli.Fail(cli.ExitUsage, "--oidc URL --audience CLIENT-ID, or --tokens FILE",
			"tokens are of a provider or of a file")
	}
	rules, err := access.ReadSecret("rules", v.rules)
	if err == nil {
		cfg.Key, err = access.ReadSecret("issuer-key", v.key)
	}
	if err != nil {
		return cfg, refused(err)
	}
	if err := json.Unmarshal(rules, &cfg.Rules); err != nil {
		return cfg, cli.Fail(cli.ExitFailed, `--rules FILE with [{"claim", "value", "tenant", "role"}]`,
			"cannot read the rules: %v", err)
	}
	if v.tokens != "" {
		text, err := access.ReadSecret("tokens", v.tokens)
		if err == nil {
			cfg.Verify, err = callout.Tokens(text)
		}
		return cfg, refused(err)
	}
	cfg.Verify, err = callout.OIDC(ctx, v.issuer, v.audience)
	return cfg, refused(err)
}
