// Package plan is `sagenbaum plan`: see plans, undo, preview, explain and erase them.
package plan

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

var planStates = []string{
	ledger.StateOpen, ledger.StateCommitting, ledger.StateCommitted, ledger.StateUnwinding,
	ledger.StateCompensated,
	ledger.StateQuarantined, ledger.StateFailed, ledger.StateResolved,
	ledger.StateDelivering, ledger.StateDelivered,
}

// Command is `sagenbaum plan` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "plan",
		Short: "See plans, cancel or unwind them, decide about a cut cascade",
		Example: "  sagenbaum plan ls --state quarantined\n  sagenbaum plan tree 01JD3BX7\n  " +
			"sagenbaum plan preview 01JD3BX7",
	}, cli.Watchable(s, newPlanLs(s)), newPlanShow(s), newPlanTree(s), newPlanPreview(s),
		newPlanBlob(s), newPlanWhy(s), newPlanCancel(s), newPlanUnwind(s), newPlanErase(s),
		newPlanReport(s), newPlanDeadline(s), newPlanAdopt(s),
		newPlanResume(s), newPlanGiveUp(s))
}

func newPlanLs(s *cli.Settings) *cobra.Command {
	var q api.Filter
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List plans: those that are being undone, then all others, the latest first",
		Example: `  sagenbaum plan ls
  sagenbaum plan ls --state open --agent coder -o json | jq '.plans[].plan'
  sagenbaum plan ls --filter 'plan.held > 3 && plan.opened_ns / 1000000000 < int(now) - 86400'
  sagenbaum plan ls --state unwinding --watch`,
	}
	cmd.Flags().StringVar(&q.State, "state", "",
		"only plans in this `STATE`: "+strings.Join(planStates, ", "))
	cmd.Flags().StringVar(&q.Label, "label", "", "only plans with this `LABEL`")
	cmd.Flags().StringVar(&q.Agent, "agent", "", "only plans of this `AGENT`")
	cli.FixedCompletion(cmd, "state", planStates...)
	ask, place := cli.PlanList(&q)
	return cli.List[api.Plan]{
		Command: cmd, Doing: "list plans", Name: "plan", Filter: "plan.held > 3",
		Most: "at most `N` plans",
		From: "start after this `PLACE`: the next of a list before, or a plan",
		Check: func() error {
			if q.State == "" {
				return nil
			}
			return cli.OneOf("state", q.State, planStates...)
		},
		CheckAfter: view.CheckPlace,
		Ask:        ask, Place: place, Data: cli.PlansData,
		Empty: "no plans",
		Table: cli.Table{Head: []string{"PLAN", "LABEL", "AGENT", "OWNER", "STATE", "ACTIONS",
			"HELD", "DEADLINE", "OPENED"}, Elastic: []string{"LABEL", "OWNER", "AGENT"},
			Spare: []string{"ACTIONS", "OPENED", "AGENT", "OWNER"}},
		Paint: cli.Pen.State, Painted: 4,
		Row: addPlan,
		GoOn: func(next string) string {
			return "sagenbaum plan ls --after " + cli.Printable(next)
		},
	}.New(s)
}

func addPlan(t *cli.Table, plan api.Plan) {
	plan = cli.ForPeople(plan)
	now, deadline := time.Now(), "-"
	if plan.State == ledger.StateOpen {
		deadline = cli.Relative(plan.DeadlineNs, now)
	}
	t.Add(plan.Plan, cli.Dash(cli.Clip(plan.Label, 40)), plan.Agent, cli.Dash(plan.Owner),
		plan.State, fmt.Sprint(plan.ActionCount), fmt.Sprint(plan.Held), deadline,
		cli.Relative(plan.OpenedNs, now))
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
	}, true, func(out io.Writer, p cli.Pen, f cli.Family) {
		render.WritePlan(out, p, f, time.Now())
	})
}

func newPlanTree(s *cli.Settings) *cobra.Command {
	return planCommand(s, &cobra.Command{
		Use:   "tree PLAN",
		Short: "Show a plan's actions in order and what became of each compensation",
		Long: `Show a plan's actions in order and what became of each compensation.
Exit code 1 when something in it is quarantined.`,
		Example: "  sagenbaum plan tree 01JD3BX7\n  sagenbaum plan tree 01JD3BX7 --watch",
	}, false, func(out io.Writer, p cli.Pen, f cli.Family) {
		render.WriteTree(out, p, f, time.Now())
	})
}

func planCommand(s *cli.Settings, cmd *cobra.Command, reveals bool,
	write func(io.Writer, cli.Pen, cli.Family)) *cobra.Command {
	cmd.Args = cli.Exactly("PLAN")
	reveal := false
	if reveals {
		cmd.Flags().BoolVar(&reveal, "reveal", false, "show sensitive fields in the clear")
	}
	return cli.Watchable(s, cli.Show[cli.Family]{
		Command: cmd, Doing: "show the plan",
		Ask: func(ctx context.Context, c *cli.Client, args []string) (cli.Family, error) {
			var plan api.Plan
			var err error
			if reveal {
				plan, err = revealed(ctx, c, args[0])
			} else {
				plan, err = c.Plan(ctx, args[0], 0)
			}
			if err != nil {
				return cli.Family{}, err
			}
			f, err := c.Family(ctx, plan)
			return f, cli.Failed("show its child plans", err)
		},
		Write: write,
		Data:  func(f cli.Family) any { return f.Root },
		Look:  cli.Family.Quarantined,
		Over:  func(f cli.Family) bool { return !Moving(f.Root.State) },
	}.New(s))
}
