package tenant

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/tenancy"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// changing is a change of a tenant, as the command line asks for it.
type changing struct {
	verb     string
	request  api.TenantRequest
	reasoned bool // it needs a reason
}

// limitValue is a flag of one limit: a number, or "default".
type limitValue struct {
	limit tenancy.Limit
	into  *api.TenantRequest
}

const limitDefault = "default"

func (v *limitValue) String() string { return "" }

func (v *limitValue) Type() string { return "N" }

func (v *limitValue) Set(text string) error {
	if text == limitDefault {
		v.into.Reset = append(v.into.Reset, v.limit.Name)
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if d, span := time.ParseDuration(text); v.limit.IsSpan() && span == nil && d > 0 {
		n, err = uint64(d/time.Second), nil
	}
	if err != nil || n < v.limit.Min || n > v.limit.Max {
		return fmt.Errorf("want %d to %d %s, or %s", v.limit.Min, v.limit.Max, v.limit.What, limitDefault)
	}
	*v.limit.Of(&v.into.Limits) = n
	return nil
}

// limitFlags adds a flag for each limit.
func (c *changing) limitFlags(cmd *cobra.Command) {
	for _, l := range tenancy.Limits() {
		text, what := "no limit", l.What
		switch {
		case l.IsSpan():
			text, what = "none", what+", also as in 24h"
		case l.Default != 0:
			text = strconv.FormatUint(l.Default, 10)
		}
		cmd.Flags().Var(&limitValue{l, &c.request}, strings.TrimPrefix(l.Flag(), "--"),
			fmt.Sprintf("at most `N` %s, or %q: %s", what, limitDefault, text))
	}
	cmd.Flags().BoolFunc("require-names", "refuse plans without a writer, and facts, verdicts and "+
		"requests without an id; =false: take them", func(text string) error {
		is, err := strconv.ParseBool(text)
		c.request.RequireNames = &is
		return err
	})
}

func (c *changing) flags(cmd *cobra.Command, reason string) {
	f := cmd.Flags()
	f.StringVar(&c.request.Reason, "reason", "", reason)
	f.StringVar(&c.request.Actor, "actor", cli.DefaultActor(), "`NAME` of the person who asks for it")
	f.BoolVar(&c.request.DryRun, "dry-run", false, "say what would be so, and change nothing")
}

// changed is what a change has come to.
type changed struct {
	api.TenantEntry
	Effective api.TenantLimits `json:"effective"` // the limits with the defaults filled in
	Changed   bool             `json:"changed"`   // false: it was so already
	DryRun    bool             `json:"dry_run,omitempty"`
}

func (c *changing) run(cmd *cobra.Command, s *cli.Settings, tenant string) error {
	c.request.Tenant = tenant
	switch {
	case !ledger.ValidToken(tenant):
		return cli.Fail(cli.ExitUsage, "a name of "+ledger.TokenWanted,
			"%.80q cannot be a tenant", tenant)
	case c.reasoned && ledger.IsBlank(c.request.Reason):
		return cli.Fail(cli.ExitUsage, `--reason "the invoice is not paid"`,
			"a suspension needs a reason: agents are told")
	}
	if err := cli.CheckActor(c.request.Actor); err != nil {
		return err
	}
	a, err := ask(cmd.Context(), s, c.verb, c.request)
	if err != nil {
		return err
	}
	v := changed{*a.Entry, *a.Effective, a.Changed, c.request.DryRun}
	return s.Print(cmd, v, func() { writeChanged(cmd.OutOrStdout(), v) })
}

// ask puts a request about a tenant to the server.
func ask(ctx context.Context, s *cli.Settings, verb string,
	r api.TenantRequest) (a api.TenantAnswer, err error) {
	s.Everywhere(true)
	err = s.With(func(c *cli.Client) error {
		return c.Call(ctx, api.ServerSubject(verb), r, &a)
	})
	switch {
	case err != nil:
		return a, err
	case a.Error == "" && (a.Entry == nil || a.Effective == nil):
		return a, cli.Fail(cli.ExitFailed, "sagenbaum doctor", "the server's answer has no tenant")
	case a.Error == "":
		return a, nil
	}
	code := cli.ExitFailed
	if a.Field == "state" {
		code = cli.ExitConflict
	}
	hint := a.Want
	if limit, ok := strings.CutPrefix(a.Field, "limits."); ok {
		hint = "--" + strings.ReplaceAll(limit, "_", "-") + ": " + hint
	}
	if a.Field == "" { // it is the server that cannot
		return a, cli.Fail(code, "sagenbaum doctor", "%s", a.Error)
	}
	return a, cli.Fail(code, hint, "%s: %s", a.Field, a.Error)
}

func writeChanged(out io.Writer, v changed) {
	v = cli.ForPeople(v)
	switch {
	case !v.Changed:
		fmt.Fprintf(out, "tenant %s is so already\n", v.Tenant)
	case v.DryRun:
		fmt.Fprintf(out, "tenant %s would be changed; nothing is\n", v.Tenant)
	}
	fmt.Fprintf(out, "%-12s %s\n", "tenant", v.Tenant)
	state := v.State
	if v.Reason != "" {
		state += ": " + v.Reason
	}
	fmt.Fprintf(out, "%-12s %s\n", "state", state)
	fmt.Fprintf(out, "%-12s %s, by %s\n", "changed", cli.Relative(v.AtNs, time.Now()), v.By)
	writeLimits(out, v.TenantEntry, v.Effective)
}

// writeLimits writes what an entry sets of a tenant, in the words of the flags, and the defaults.
func writeLimits(out io.Writer, e api.TenantEntry, effective api.TenantLimits) {
	if e.RequireNames {
		fmt.Fprintf(out, "%-12s a writer for plans, an id for facts, verdicts and requests\n", "requires")
	}
	for _, l := range tenancy.Limits() {
		fmt.Fprintf(out, "%-12s %s\n", strings.ReplaceAll(l.Name, "_", " "),
			limitText(l, effective, e.Limits))
	}
}

func limitText(l tenancy.Limit, effective, set api.TenantLimits) string {
	n := *l.Of(&effective)
	text := fmt.Sprint(n)
	switch {
	case n == 0 && l.IsSpan():
		text = "none"
	case n == 0:
		text = "no limit"
	case l.IsSpan():
		text = (time.Duration(n) * time.Second).String()
	}
	if *l.Of(&set) == 0 {
		text += " (default)"
	}
	return text
}

func newTenantAdd(s *cli.Settings) *cobra.Command {
	c := &changing{verb: api.TenantAdd}
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a tenant, without a restart",
		Long: `Add a tenant. It is stored in the control stream, and every host attaches it at once,
without a restart; its ledger is made then. Limits that are not given have their default.

To add the same tenant again changes nothing, so that a command of which nothing was
heard can be repeated. The name of a tenant that was erased is never used again.`,
		Example: `  sagenbaum tenant add shops
  sagenbaum tenant add shops --open-plans 10000 --records 500 --reason "contract 4711"`,
		Args: cli.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd, s, args[0]) },
	}
	c.limitFlags(cmd)
	c.flags(cmd, "why, for the record")
	return cmd
}

func newTenantLimits(s *cli.Settings) *cobra.Command {
	c := &changing{verb: api.TenantLimit}
	cmd := &cobra.Command{
		Use:   "limits TENANT",
		Short: "Change what a tenant may use",
		Long: `Change what a tenant may use. What is not given stays as it is; "default" takes a limit
back. Hosts follow at once. A limit below what is used takes nothing away: no more is
let in until less is used.`,
		Example: `  sagenbaum tenant limits shops --open-plans 20000
  sagenbaum tenant limits shops --records default --dry-run`,
		Args: cli.Exactly("TENANT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := tenancy.CheckChange(c.request); err != nil {
				return cli.Usage("", err)
			}
			return c.run(cmd, s, args[0])
		},
	}
	c.limitFlags(cmd)
	c.flags(cmd, "why, for the record")
	return cmd
}

func newTenantSuspend(s *cli.Settings) *cobra.Command {
	c := &changing{verb: api.TenantSuspend, reasoned: true}
	cmd := &cobra.Command{
		Use:   "suspend TENANT --reason WHY",
		Short: "Let a tenant begin nothing new; what it owes is undone",
		Long: `Let a tenant begin nothing new: plans and facts of its agents and sources are refused,
by a record that says who has suspended it and why, and a plan that goes on all the same
fails and is undone. What is owed is undone as ever, and workers, operators, pagers and
auditors keep their rights. Its agents and sources may still connect: they tell what
became of their calls, and undo.`,
		Example: `  sagenbaum tenant suspend shops --reason "the invoice is not paid"`,
		Args:    cli.Exactly("TENANT"),
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run(cmd, s, args[0]) },
	}
	c.flags(cmd, "why; agents are told; required")
	return cmd
}

func newTenantResume(s *cli.Settings) *cobra.Command {
	c := &changing{verb: api.TenantResume}
	cmd := &cobra.Command{
		Use:     "resume TENANT",
		Short:   "Let a suspended tenant go on",
		Example: `  sagenbaum tenant resume shops --reason "it is paid"`,
		Args:    cli.Exactly("TENANT"),
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run(cmd, s, args[0]) },
	}
	c.flags(cmd, "why, for the record")
	return cmd
}
