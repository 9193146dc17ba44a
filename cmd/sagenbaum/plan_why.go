package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
)

func newPlanWhy(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "why PLAN",
		Short: "Tell why a plan unwinds: the chain of leases and undos behind it, oldest first",
		Long: `Tell why a plan unwinds or has unwound: what happened first, which lease that
turned, what the undo of that plan made, which lease that turned in its turn, and
so on, with the address of each record. A chain that comes round is called a cycle.
For a plan with a lease that a cascade limit holds, it tells why that one is cut, and
the commands that answer it; exit code 1 then.`,
		Example:           "  sagenbaum plan why 01JD3BX7\n  sagenbaum plan why 01JD3BX7 -o json | jq .steps",
		Args:              exactly("PLAN"),
		ValidArgsFunction: completePlans(s, "plan.ls"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.connect()
			if err != nil {
				return err
			}
			defer c.close()
			why, err := c.why(cmd.Context(), args[0])
			if err != nil {
				return failed("tell why", err)
			}
			if s.json() {
				err = printJSON(cmd.OutOrStdout(), why)
			} else {
				writeWhy(cmd.OutOrStdout(), s.pen(cmd), why)
			}
			if err == nil && len(why.Cuts) > 0 {
				return errLook
			}
			return err
		},
	}
}

func (c *client) why(ctx context.Context, id string) (executor.WhyView, error) {
	var answer executor.WhyAnswer
	if _, err := c.plan(ctx, id, 0); err != nil {
		return answer.Why, err
	}
	err := c.ask(ctx, "plan.why", executor.WhyQuery{Plan: id}, &answer)
	return answer.Why, err
}

// writeWhy prints a chain of causes as a numbered story.
//
//	1 plan a was declared failed: the card was refused (9.0-547ab179)
//	  that turned lease plan.failed of plan a, and its plan was undone (14.0-0fd319a7)
//	2 the undo of action 3 of plan a asserted fact stock/7 (15.0-0a935aa2)
//	  that turned lease low of plan b, and its plan was undone (16.2-0fd319a7)
//	  condition: facts["stock/7"] < 1
func writeWhy(w io.Writer, p pen, why executor.WhyView) {
	why = forPeople(why)
	fmt.Fprintf(w, "%s  %s%s\n", p.bold(why.Plan), p.state(why.State), because(why.Reason))
	if len(why.Steps) == 0 {
		fmt.Fprintf(w, "no lease of it has fired; what it holds: sagenbaum plan show %s\n", why.Plan)
		return
	}
	if why.Omitted {
		fmt.Fprintln(w, p.dim("more came before; these are the last 64 leases"))
	}
	for i, step := range why.Steps {
		before := executor.WhyStep{}
		if i > 0 {
			before = why.Steps[i-1]
		}
		number := fmt.Sprintf("%3d ", i+1)
		for _, line := range whyLines(p, step, before) {
			fmt.Fprintln(w, number+line)
			number = "    "
		}
	}
	last := why.Steps[len(why.Steps)-1]
	if last.Plan != why.Plan {
		fmt.Fprintf(w, "plan %s is a part of it, and is undone with it\n", why.Plan)
	}
	if why.Cycle != nil {
		fmt.Fprintln(w, p.bold(why.Cycle.String()))
	}
	writeCuts(w, p, why)
}

// whyLines tell one step: what turned the lease, and that it fired.
func whyLines(p pen, step, before executor.WhyStep) []string {
	lease := fmt.Sprintf("lease %s of plan %s", step.Lease, step.Plan)
	if step.Action != "" {
		lease = fmt.Sprintf("lease %s of action %s of plan %s", step.Lease, step.Action, step.Plan)
	}
	end := "and its plan was undone " + p.dim("("+step.Fired+")")
	if step.Fired == "" {
		end = p.in("33", "and is held: the cascade was cut")
	}
	if step.Depth == 1 && step.By != "" {
		end += ", as its owner said; depth counts from 1 again"
	}
	switch step.By {
	case "fact":
		verb := "asserted"
		if step.Retracted {
			verb = "retracted"
		}
		return []string{
			fmt.Sprintf("the undo of %s of plan %s %s fact %s %s", undoneText(step), step.UndonePlan, verb, p.bold(step.Key), p.dim("("+step.Fact+")")),
			fmt.Sprintf("that turned %s, %s", lease, end),
			p.dim("condition: " + clip(step.Condition, 160)),
		}
	case "part":
		return []string{fmt.Sprintf("plan %s is a part of plan %s: %s fired, %s", before.Plan, step.Plan, lease, end)}
	}
	return []string{whyBegan(p, step), fmt.Sprintf("that turned %s, %s", lease, end)}
}

func undoneText(step executor.WhyStep) string {
	if step.Undone == "" {
		return "an action"
	}
	return "action " + step.Undone
}

// whyBegan says in words what the first lease of a chain turned at.
func whyBegan(p pen, step executor.WhyStep) string {
	said := ""
	if step.At != "" {
		said = " " + p.dim("("+step.At+")")
	}
	switch step.Lease {
	case "plan.failed":
		return "plan " + step.Plan + " was declared failed" + colon(step.Reason) + said
	case "plan.cancelled":
		return "plan " + step.Plan + " was cancelled" + colon(step.Reason) + said
	case "plan.deadline":
		return "the deadline of plan " + step.Plan + " passed"
	case "action.verdict", "action.verdict.unheard":
		return "a supervisor's verdict on action " + step.Action + " of plan " + step.Plan + ": " + step.Reason
	default:
		return "what it waits for became true: " + clip(step.Condition, 160)
	}
}

func colon(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// writeCuts says what of a plan waits for its owner after a cascade, and what to
// type.
func writeCuts(w io.Writer, p pen, why executor.WhyView) {
	for _, cut := range why.Cuts {
		fmt.Fprintf(w, "%s %s since %s: %s, owner %s\n", cutName(cut), p.in("31;1", "waits"), moment(cut.AtNs), cutText(cut), dash(why.Owner))
	}
	if len(why.Cuts) == 0 {
		return
	}
	fmt.Fprintf(w, "  next: %s\n", resumeCommand(why.Plan, why.Cuts, true))
	fmt.Fprintf(w, "    or: %s\n", resumeCommand(why.Plan, why.Cuts, false))
	if why.State == ledger.StateOpen {
		fmt.Fprintf(w, "    or: sagenbaum plan cancel %s --reason WHY --actor NAME\n", why.Plan)
	}
}

func cutName(cut executor.CutView) string {
	if cut.Action != "" {
		return "lease " + cut.Lease + " of action " + cut.Action
	}
	return "lease " + cut.Lease
}

// cutText says why a lease is held, and what an owner has proposed.
func cutText(cut executor.CutView) string {
	text := "cascade cut, " + cut.Why
	if cut.Proposal != "" {
		text += "; proposed: " + cut.Proposal + ", waits for a second operator"
	}
	return text
}

// cutLines are what plan show and tree say of leases that are cut.
func cutLines(w io.Writer, p pen, plan executor.PlanView, now time.Time) {
	for _, cut := range plan.Cuts {
		fmt.Fprintf(w, "%s is held for its owner since %s: %s\n", p.in("31;1", cutName(cut)), relative(cut.AtNs, now), cutText(cut))
	}
	if len(plan.Cuts) > 0 {
		fmt.Fprintf(w, "  next: sagenbaum plan why %s\n", plan.Plan)
	}
}
