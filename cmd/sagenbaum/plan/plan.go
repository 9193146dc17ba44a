// Package plan is `sagenbaum plan`: see plans, undo, preview, explain and erase them.
package plan

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
)

var planStates = []string{
	ledger.StateOpen, ledger.StateCommitting, ledger.StateCommitted, ledger.StateUnwinding,
	ledger.StateCompensated,
	ledger.StateQuarantined, ledger.StateFailed, ledger.StateResolved,
}

// Command is `sagenbaum plan` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "plan",
		Short: "See plans, cancel or unwind them, decide about a cut cascade",
		Example: "  sagenbaum plan ls --state quarantined\n  sagenbaum plan tree 01JD3BX7\n  " +
			"sagenbaum plan preview 01JD3BX7",
	}, cli.Watchable(s, newPlanLs(s)), newPlanShow(s), newPlanTree(s), newPlanPreview(s),
		newPlanWhy(s), newPlanCancel(s), newPlanUnwind(s), newPlanErase(s),
		newPlanResume(s), newPlanGiveUp(s))
}

func newPlanLs(s *cli.Settings) *cobra.Command {
	var q view.Filter
	var limit int
	var only cli.ListFilter
	cmd := &cobra.Command{
		Use: "ls",
		Short: "List plans in the order of their ids, which is that of time unless an agent " +
			"chose them",
		Example: `  sagenbaum plan ls
  sagenbaum plan ls --state open --agent coder -o json | jq '.plans[].plan'
  sagenbaum plan ls --filter 'plan.held > 3 && plan.opened_ns / 1000000000 < int(now) - 86400'
  sagenbaum plan ls --state unwinding --watch`,
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if q.State != "" {
				if err := cli.OneOf("state", q.State, planStates...); err != nil {
					return err
				}
			}
			if limit < 1 {
				return cli.Fail(cli.ExitUsage, "--limit 100", "a limit of %d lists nothing", limit)
			}
			c, err := s.Connect()
			if err != nil {
				return err
			}
			defer c.Close()
			answer, err := c.PlansWhere(cmd.Context(), "plan.ls", q, limit, &only)
			if err != nil {
				return cli.Failed("list plans", err)
			}
			return s.Print(cmd, answer, func() { writePlans(cmd, s.Pen(cmd), answer) })
		},
	}
	cmd.Flags().StringVar(&q.State, "state", "",
		"only plans in this `STATE`: "+strings.Join(planStates, ", "))
	cmd.Flags().StringVar(&q.Label, "label", "", "only plans with this `LABEL`")
	cmd.Flags().StringVar(&q.Agent, "agent", "", "only plans of this `AGENT`")
	cmd.Flags().StringVar(&q.After, "after", "", "start after this `PLAN`")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most `N` plans")
	only.Flag(cmd, "plan", "plan.held > 3")
	cli.FixedCompletion(cmd, "state", planStates...)
	return cmd
}

func writePlans(cmd *cobra.Command, p cli.Pen, answer view.PlansAnswer) {
	answer = cli.ForPeople(answer)
	out, now := cmd.OutOrStdout(), time.Now()
	if len(answer.Plans) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no plans")
		return
	}
	t := cli.Table{Head: []string{"PLAN", "LABEL", "AGENT", "OWNER", "STATE", "ACTIONS", "HELD",
		"DEADLINE", "OPENED"}}
	t.Elastic, t.Spare = []string{"LABEL", "OWNER", "AGENT"}, []string{"ACTIONS", "OPENED", "AGENT",
		"OWNER"}
	t.Paint = cli.PaintColumn(4, p.State)
	for _, plan := range answer.Plans {
		deadline := "-"
		if plan.State == ledger.StateOpen {
			deadline = cli.Relative(plan.DeadlineNs, now)
		}
		t.Add(plan.Plan, cli.Dash(cli.Clip(plan.Label, 40)), plan.Agent, cli.Dash(plan.Owner),
			plan.State,
			fmt.Sprint(plan.ActionCount), fmt.Sprint(plan.Held), deadline,
			cli.Relative(plan.OpenedNs, now))
	}
	t.Write(out)
	if answer.Next != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "there are more: sagenbaum plan ls --after %s\n",
			answer.Next)
	}
}

func newPlanShow(s *cli.Settings) *cobra.Command {
	return planCommand(s, &cobra.Command{
		Use:   "show PLAN",
		Short: "Show everything about a plan: actions, addresses, leases, refused records",
		Long: `Show everything about a plan: its tree, every action with the addresses of its
records, its leases and the records that were refused or lost a race. Fields that a
contract marks sensitive show as [sealed FIELD]; with --reveal the host opens them, for
operators who may ask it (reveal.TENANT).
Exit code 1 when something in it is quarantined.`,
		Example: "  sagenbaum plan show 01JD3BX7\n  sagenbaum plan show 01JD3BX7 -o json\n  " +
			"sagenbaum plan show 01JD3BX7 --reveal",
	}, true, func(cmd *cobra.Command, f cli.Family) {
		render.WritePlan(cmd.OutOrStdout(), s.Pen(cmd), f, time.Now())
	})
}

func newPlanTree(s *cli.Settings) *cobra.Command {
	return planCommand(s, &cobra.Command{
		Use:   "tree PLAN",
		Short: "Show a plan's actions in order and what became of each compensation",
		Long: `Show a plan's actions in order and what became of each compensation.
Exit code 1 when something in it is quarantined.`,
		Example: "  sagenbaum plan tree 01JD3BX7\n  sagenbaum plan tree 01JD3BX7 --watch",
	}, false, func(cmd *cobra.Command, f cli.Family) {
		render.WriteTree(cmd.OutOrStdout(), s.Pen(cmd), f, time.Now())
	})
}

func planCommand(s *cli.Settings, cmd *cobra.Command, reveals bool,
	write func(*cobra.Command, cli.Family)) *cobra.Command {
	cmd.Args = cli.Exactly("PLAN")
	reveal := false
	if reveals {
		cmd.Flags().BoolVar(&reveal, "reveal", false, "show sensitive fields in the clear")
	}
	cmd.RunE = s.Connected(func(cmd *cobra.Command, args []string, c *cli.Client) error {
		ask := func(ctx context.Context, id string) (view.Plan,
			error) {
			return c.Plan(ctx, id, 0)
		}
		if reveal {
			ask = func(ctx context.Context, id string) (view.Plan,
				error) {
				return revealed(ctx, c, id)
			}
		}
		plan, err := ask(cmd.Context(), args[0])
		if err != nil {
			return cli.Failed("show the plan", err)
		}
		f, err := c.Family(cmd.Context(), plan)
		if err != nil {
			return cli.Failed("show its child plans", err)
		}
		if err := s.Print(cmd, plan, func() { write(cmd, f) }); err != nil {
			return err
		}
		var end error
		if f.Quarantined() {
			end = cli.ErrLook
		}
		if !Moving(plan.State) {
			return cli.Over(end)
		}
		return end
	})
	return cli.Watchable(s, cmd)
}
