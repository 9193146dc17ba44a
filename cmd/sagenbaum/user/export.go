package user

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// The forms of an export.
const (
	formatConf = "nats.conf"
	formatJWT  = "jwt"
)

// exporting is what `user export` was asked to do.
type exporting struct {
	format string
	with   []string
	limits access.Limits
	issuer string
}

func newExport(s *cli.Settings, p *place) *cobra.Command {
	e := new(exporting)
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the accounts and users for NATS servers that run elsewhere",
		Long: `Write the accounts and users for NATS servers that run elsewhere. As nats.conf, what is
printed is included in the servers' configuration and taken by a reload. As JWTs,
the folder of --operator gets an operator, an account for each tenant with limits of
its own, a signing key for each role, and resolver.conf to include. Keys that are there
stay; users that are gone are revoked.`,
		Example: `  sagenbaum user export --file users > accounts.conf
  sagenbaum user export --file users --format jwt --operator op --with shop --max-connections 100`,
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return e.run(cmd, s, p) },
	}
	f := cmd.Flags()
	f.StringVar(&e.format, "format", formatConf, "nats.conf or jwt")
	cli.FixedCompletion(cmd, "format", formatConf, formatJWT)
	f.StringArrayVar(&e.with, "with", nil,
		"`TENANT` that has no user yet; may be given more than once")
	f.StringVar(&e.issuer, "issuer", "",
		"public `KEY` of the account, A..., that signs what 'user callout' "+
			"decides; with nats.conf")
	f.Int64Var(&e.limits.Connections, "max-connections", 0, "with jwt: at most `N` connections of a "+
		"tenant; 0 is no limit")
	f.Int64Var(&e.limits.Subscriptions, "max-subscriptions", 0, "with jwt: at most `N` subscriptions "+
		"of a tenant; 0 is no limit")
	f.Int64Var(&e.limits.Payload, "max-payload", 0, "with jwt: at most `BYTES` of one message of a "+
		"tenant; 0 is no limit")
	return cmd
}

func (e *exporting) run(cmd *cobra.Command, s *cli.Settings, p *place) error {
	if err := cli.OneOf("format", e.format, formatConf, formatJWT); err != nil {
		return err
	}
	if e.format == formatJWT && p.operator == "" {
		return cli.Fail(cli.ExitUsage, "--operator DIR, which keeps the keys of operator and accounts",
			"JWTs need the folder of an operator")
	}
	if e.format == formatConf && e.limits != (access.Limits{}) {
		return cli.Fail(cli.ExitUsage, "--format jwt", "accounts of nats.conf have no limits")
	}
	a, err := p.ask(cmd.Context(), s, api.UserLs, access.Request{})
	if err != nil {
		return err
	}
	for _, tenant := range e.with {
		if !ledger.ValidToken(tenant) {
			return cli.Fail(cli.ExitUsage, "--with: "+ledger.TokenWanted, "%.80q is no tenant", tenant)
		}
	}
	users := slices.DeleteFunc(a.Users, func(u access.User) bool { return u.Role == access.Local })
	tenants := access.TenantsOf(users, e.with)
	if e.format == formatJWT {
		if err := access.OpenIssuer(p.operator).Write(tenants, users, e.limits); err != nil {
			return refused(err)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s for %s\n  next: include %s/resolver.conf in nats.conf, then "+
			"user add --operator %s\n", p.operator, cli.CountOf(len(tenants), "tenant"), p.operator,
			p.operator)
		return nil
	}
	text, err := access.Configuration{Tenants: tenants, Users: users,
		Issuer: e.issuer}.Format(time.Now())
	if err != nil {
		return refused(err)
	}
	_, err = cmd.OutOrStdout().Write(text)
	return err
}

// issue adds the JWT of an operator to credentials, where there is one.
func (p *place) issue(c *access.Credentials, u access.User) (err error) {
	if p.operator == "" {
		return nil
	}
	if c.JWT, err = access.OpenIssuer(p.operator).Issue(u); err != nil {
		return refused(err)
	}
	return nil
}
