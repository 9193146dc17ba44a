// Package lease is `sagenbaum lease`: the conditions of a plan.
package lease

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/executor/view"
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
	var only cli.ListFilter
	cmd := &cobra.Command{
		Use: "ls PLAN",
		Short: "List the leases of a plan and its actions: what each answers now, and what it " +
			"waits for",
		Example: "  sagenbaum lease ls 01JD3BX7\n  sagenbaum lease ls 01JD3BX7 --filter " +
			"'lease.truth == \"unknown\"'",
		Args: cli.Exactly("PLAN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var answer view.ExplainAnswer
			if err := s.Question(cmd, "list leases", "trigger.explain",
				view.ExplainQuery{Plan: args[0]}, &answer); err != nil {
				return err
			}
			answer.Explain.Leases = cli.Picked(&only, answer.Explain.Leases)
			if s.JSON() {
				return cli.PrintJSON(cmd.OutOrStdout(), answer.Explain)
			}
			now := time.Now()
			t := cli.Table{Head: []string{"ACTION", "LEASE", "ANSWERS", "WAKES", "WAITS FOR",
				"CONDITION"}, Elastic: []string{"WAITS FOR", "CONDITION", "ANSWERS"}}
			for _, l := range answer.Explain.Leases {
				t.Add(cli.Dash(l.Action), l.Name, render.LeaseWord(l.Lease),
					cli.Relative(l.WakeNs, now),
					cli.Dash(cli.Clip(strings.Join(l.Waits, ", "), 60)), cli.Clip(l.Condition, 80))
			}
			if len(t.Rows) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "no leases")
				return nil
			}
			t.Write(cmd.OutOrStdout())
			if answer.Explain.Omitted {
				fmt.Fprintf(cmd.ErrOrStderr(),
					"there are more: sagenbaum trigger explain %s --action NUMBER\n",
					cli.Printable(args[0]))
			}
			return nil
		},
	}
	only.Flag(cmd, "lease", `lease.truth == "unknown"`)
	return cmd
}

func newLeaseShow(s *cli.Settings) *cobra.Command {
	var q view.ExplainQuery
	cmd := &cobra.Command{
		Use:   "show PLAN LEASE",
		Short: "Show one lease of a plan: its truth, what it waits for and what it read",
		Example: "  sagenbaum lease show 01JD3BX7 deadline\n  sagenbaum lease show 01JD3BX7 late " +
			"--action 3",
		Args: cli.Exactly("PLAN", "LEASE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Plan, q.Lease = args[0], args[1]
			var answer view.ExplainAnswer
			if err := s.Question(cmd, "show the lease", "trigger.explain", q, &answer); err != nil {
				return err
			}
			if len(answer.Explain.Leases) == 0 {
				return cli.Fail(cli.ExitFailed, "sagenbaum lease ls "+args[0],
					"plan %s has no lease %q", args[0], args[1])
			}
			slices.SortStableFunc(answer.Explain.Leases,
				func(a, b view.HeldLease) int {
					return cmp.Compare(len(a.Action),
						len(b.Action))
				})
			return s.Print(cmd, answer.Explain,
				func() {
					render.WriteExplain(cmd.OutOrStdout(), s.Pen(cmd),
						cli.ForPeople(answer.Explain), time.Now())
				})
		},
	}
	cmd.Flags().StringVar(&q.Action, "action", "", "the lease of this `ACTION`, by number or id")
	return cmd
}
