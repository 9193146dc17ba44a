package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
)

var planStates = []string{
	ledger.StateOpen, ledger.StateCommitting, ledger.StateCommitted, ledger.StateUnwinding, ledger.StateCompensated,
	ledger.StateQuarantined, ledger.StateFailed, ledger.StateResolved,
}

func newPlan(s *settings) *cobra.Command {
	return group(&cobra.Command{
		Use:     "plan",
		Short:   "Look at plans, cancel or unwind them, answer a cut cascade",
		Example: "  sagenbaum plan ls --state quarantined\n  sagenbaum plan tree 01JD3BX7\n  sagenbaum plan preview 01JD3BX7",
	}, watchable(s, newPlanLs(s)), newPlanShow(s), newPlanTree(s), newPlanPreview(s), newPlanWhy(s), newPlanCancel(s), newPlanUnwind(s), newPlanErase(s),
		newPlanResume(s), newPlanGiveUp(s))
}

// pageSize is how many plans one question asks for.
const pageSize = 200

func newPlanLs(s *settings) *cobra.Command {
	var q executor.Filter
	var limit int
	var only listFilter
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List plans in the order of their ids, which is that of time unless an agent chose them",
		Example: `  sagenbaum plan ls
  sagenbaum plan ls --state open --agent coder -o json | jq '.plans[].plan'
  sagenbaum plan ls --filter 'plan.held > 3 && plan.opened_ns / 1000000000 < int(now) - 86400'
  sagenbaum plan ls --state unwinding --watch`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if q.State != "" {
				if err := oneOf("state", q.State, planStates...); err != nil {
					return err
				}
			}
			if limit < 1 {
				return fail(exitUsage, "--limit 100", "a limit of %d lists nothing", limit)
			}
			if err := only.check(); err != nil {
				return err
			}
			c, err := s.connect()
			if err != nil {
				return err
			}
			defer c.close()
			answer, err := c.plansWhere(cmd.Context(), "plan.ls", q, limit, &only)
			if err != nil {
				return failed("list plans", err)
			}
			if s.json() {
				return printJSON(cmd.OutOrStdout(), answer)
			}
			writePlans(cmd, s.pen(cmd), answer)
			return nil
		},
	}
	cmd.Flags().StringVar(&q.State, "state", "", "only plans in this `STATE`: "+strings.Join(planStates, ", "))
	cmd.Flags().StringVar(&q.Label, "label", "", "only plans with this `LABEL`")
	cmd.Flags().StringVar(&q.Agent, "agent", "", "only plans of this `AGENT`")
	cmd.Flags().StringVar(&q.After, "after", "", "start behind this `PLAN`")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most `N` plans")
	only.flag(cmd, "plan", "plan.held > 3")
	fixedCompletion(cmd, "state", planStates...)
	return cmd
}

// plans asks page after page until it has limit plans or there are no more.
func (c *client) plans(ctx context.Context, verb string, q executor.Filter, limit int) (executor.PlansAnswer, error) {
	return c.plansWhere(ctx, verb, q, limit, nil)
}

// plansWhere is plans with those only that a filter picks.
func (c *client) plansWhere(ctx context.Context, verb string, q executor.Filter, limit int, only *listFilter) (executor.PlansAnswer, error) {
	all := executor.PlansAnswer{Plans: []executor.PlanView{}}
	for {
		q.Limit = pageOf(limit-len(all.Plans), only)
		var page executor.PlansAnswer
		if err := c.ask(ctx, verb, q, &page); err != nil {
			return all, err
		}
		all.Plans, all.Next = append(all.Plans, picked(only, page.Plans)...), page.Next
		if len(all.Plans) > limit {
			all.Plans = all.Plans[:limit]
			all.Next = all.Plans[limit-1].Plan
		}
		if page.Next == "" || len(all.Plans) >= limit {
			return all, nil
		}
		if page.Next <= q.After { // ids come in order, so this would never end
			return all, fail(exitFailed, "sagenbaum doctor", "the pages of %s go in a circle at %s", verb, page.Next)
		}
		q.After = page.Next
	}
}

func writePlans(cmd *cobra.Command, p pen, answer executor.PlansAnswer) {
	answer = forPeople(answer)
	out, now := cmd.OutOrStdout(), time.Now()
	if len(answer.Plans) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no plans")
		return
	}
	t := table{head: []string{"PLAN", "LABEL", "AGENT", "OWNER", "STATE", "ACTIONS", "HELD", "DEADLINE", "OPENED"}}
	t.elastic, t.spare = []string{"LABEL", "OWNER", "AGENT"}, []string{"ACTIONS", "OPENED", "AGENT", "OWNER"}
	t.paint = func(column int, cell string) string {
		if column == 4 {
			return p.state(cell)
		}
		return cell
	}
	for _, plan := range answer.Plans {
		deadline := "-"
		if plan.State == ledger.StateOpen {
			deadline = relative(plan.DeadlineNs, now)
		}
		t.add(plan.Plan, dash(clip(plan.Label, 40)), plan.Agent, dash(plan.Owner), plan.State,
			fmt.Sprint(plan.ActionCount), fmt.Sprint(plan.Held), deadline, relative(plan.OpenedNs, now))
	}
	t.write(out)
	if answer.Next != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "there are more: sagenbaum plan ls --after %s\n", answer.Next)
	}
}

func newPlanShow(s *settings) *cobra.Command {
	return planCommand(s, &cobra.Command{
		Use:   "show PLAN",
		Short: "Show everything about a plan: actions, addresses, leases, refused records",
		Long: `Show everything about a plan: its tree, every action with the addresses of its
records, its leases and the records that were refused or lost a race. Fields that a
contract marks sensitive show as [sealed FIELD]; with --reveal the host opens them, for
operators who may ask it (reveal.TENANT).
Exit code 1 when something in it is quarantined.`,
		Example: "  sagenbaum plan show 01JD3BX7\n  sagenbaum plan show 01JD3BX7 -o json\n  sagenbaum plan show 01JD3BX7 --reveal",
	}, true, func(cmd *cobra.Command, f family) {
		writePlan(cmd.OutOrStdout(), s.pen(cmd), f, time.Now())
	})
}

func newPlanTree(s *settings) *cobra.Command {
	return planCommand(s, &cobra.Command{
		Use:   "tree PLAN",
		Short: "Show a plan's actions in order and what became of each compensation",
		Long: `Show a plan's actions in order and what became of each compensation.
Exit code 1 when something in it is quarantined.`,
		Example: "  sagenbaum plan tree 01JD3BX7\n  sagenbaum plan tree 01JD3BX7 --watch",
	}, false, func(cmd *cobra.Command, f family) {
		writeTree(cmd.OutOrStdout(), s.pen(cmd), f, time.Now())
	})
}

func planCommand(s *settings, cmd *cobra.Command, reveals bool, write func(*cobra.Command, family)) *cobra.Command {
	cmd.Args = exactly("PLAN")
	cmd.ValidArgsFunction = completePlans(s, "plan.ls")
	reveal := false
	if reveals {
		cmd.Flags().BoolVar(&reveal, "reveal", false, "show sensitive fields in the clear")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := s.connect()
		if err != nil {
			return err
		}
		defer c.close()
		ask := func(ctx context.Context, id string) (executor.PlanView, error) { return c.plan(ctx, id, 0) }
		if reveal {
			ask = c.reveal
		}
		plan, err := ask(cmd.Context(), args[0])
		if err != nil {
			return failed("show the plan", err)
		}
		f, err := c.family(cmd.Context(), plan)
		if err != nil {
			return failed("show its child plans", err)
		}
		if s.json() {
			if err := printJSON(cmd.OutOrStdout(), plan); err != nil {
				return err
			}
		} else {
			write(cmd, f)
		}
		var end error
		if f.quarantined() {
			end = errLook
		}
		if !moving(plan.State) {
			return errOver{end}
		}
		return end
	}
	return watchable(s, cmd)
}

// fixedCompletion offers a closed set for a flag. It fails only for a flag that
// the command does not have.
func fixedCompletion(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic("sagenbaum: completion: " + err.Error())
	}
}
