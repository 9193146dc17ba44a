// Package lease is `sagenbaum lease`: the conditions of a plan.
package lease

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Command is `sagenbaum lease` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:     "lease",
		Short:   "See the standing conditions of a plan",
		Example: "  sagenbaum lease ls 01JD3BX7\n  sagenbaum lease show 01JD3BX7 deadline",
	}, cli.Watchable(s, newLeaseLs(s)), cli.Watchable(s, newLeaseShow(s)))
}

func newLeaseLs(s *cli.Settings) *cobra.Command {
	var explain api.Explain
	return cli.List[api.HeldLease]{
		Command: &cobra.Command{
			Use: "ls PLAN",
			Short: "List the leases of a plan and its actions: what each answers now, and what it " +
				"waits for",
			Example: "  sagenbaum lease ls 01JD3BX7\n  sagenbaum lease ls 01JD3BX7 --filter " +
				"'lease.truth == \"unknown\"'",
			Args: cli.Exactly("PLAN"),
		},
		Doing: "list leases", Name: "lease", Filter: `lease.truth == "unknown"`,
		Ask: func(in cli.Listing) ([]api.HeldLease, string, error) {
			answer, err := cli.Ask(in.Ctx, in.Client, api.TriggerExplain,
				api.ExplainQuery{Plan: in.Args[0]})
			explain = answer.Explain
			return explain.Leases, "", err
		},
		Data: func(leases []api.HeldLease, _ string) any {
			explain.Leases = leases
			return explain
		},
		Empty: "no leases",
		Table: cli.Table{Head: []string{"ACTION", "LEASE", "ANSWERS", "WAKES", "WAITS FOR",
			"CONDITION"}, Elastic: []string{"WAITS FOR", "CONDITION", "ANSWERS"}},
		Row: func(t *cli.Table, l api.HeldLease) {
			t.Add(cli.Dash(l.Action), l.Name, render.LeaseWord(l.Lease),
				cli.Relative(l.WakeNs, time.Now()),
				cli.Dash(cli.Clip(strings.Join(l.Waits, ", "), 60)), cli.Clip(l.Condition, 80))
		},
		More: func([]api.HeldLease) string {
			return map[bool]string{true: fmt.Sprintf(
				"there are more: sagenbaum trigger explain %s --action NUMBER",
				cli.Printable(explain.Plan))}[explain.Omitted]
		},
	}.New(s)
}

func newLeaseShow(s *cli.Settings) *cobra.Command {
	var q api.ExplainQuery
	cmd := &cobra.Command{
		Use:   "show PLAN LEASE",
		Short: "Show one lease of a plan: its truth, what it waits for and what it read",
		Example: "  sagenbaum lease show 01JD3BX7 deadline\n  sagenbaum lease show 01JD3BX7 late " +
			"--action 3",
		Args: cli.Exactly("PLAN", "LEASE"),
	}
	cmd.Flags().StringVar(&q.Action, "action", "", "the lease of this `ACTION`, by number or id")
	return cli.Show[api.Explain]{
		Command: cmd, Doing: "show the lease",
		Ask: func(ctx context.Context, c *cli.Client, args []string) (api.Explain, error) {
			q.Plan, q.Lease = args[0], args[1]
			answer, err := cli.Ask(ctx, c, api.TriggerExplain, q)
			if err == nil && len(answer.Explain.Leases) == 0 {
				err = cli.Fail(cli.ExitFailed, "sagenbaum lease ls "+args[0],
					"plan %s has no lease %q", args[0], args[1])
			}
			slices.SortStableFunc(answer.Explain.Leases, func(a, b api.HeldLease) int {
				return cmp.Compare(len(a.Action), len(b.Action))
			})
			return answer.Explain, err
		},
		Write: func(out io.Writer, p cli.Pen, v api.Explain) {
			render.WriteExplain(out, p, cli.ForPeople(v), time.Now())
		},
	}.New(s)
}
