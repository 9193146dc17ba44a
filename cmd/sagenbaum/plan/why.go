package plan

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func newPlanWhy(s *cli.Settings) *cobra.Command {
	return &cobra.Command{
		Use: "why PLAN [ACTION]",
		Short: "Tell why a plan unwinds, or what became of one action and why: every record, " +
			"with its address",
		Long: `Tell why a plan unwinds or has unwound: what happened first, which lease that
turned, what the undo of that plan made, which lease that turned in its turn, and
so on, with the address of each record. A chain that comes round is called a cycle.
What the owner has answered to a cut is told too. For a committed plan that was undone
it tells of the plan that undoes it.
Then the records themselves, in the order of the ledger: cause, lease with what it read
when it turned, decision, command, answer, outcome, each after its kind and address, and
what a record was caused by. Records that were refused or lost a race are told with the
reason. With an ACTION (its number or id) all of that action, and what led there.
For a plan with a lease that a cascade limit holds, it tells why that one is cut, and
the commands that answer it; exit code 1 then.`,
		Example: "  sagenbaum plan why 01JD3BX7\n  sagenbaum plan why 01JD3BX7 2\n  sagenbaum " +
			"plan why 01JD3BX7 -o json | jq -r '.records[].record'",
		Args: planAndAction,
		RunE: s.Connected(func(cmd *cobra.Command, args []string, c *cli.Client) error {
			why, err := why(cmd.Context(), c,
				api.WhyQuery{Plan: args[0], Action: append(args, "")[1]})
			if err != nil {
				return cli.Failed("tell why", err)
			}
			err = s.Print(cmd, why, func() { writeWhy(cmd.OutOrStdout(), s.Pen(cmd), why) })
			return cli.Look(err, len(why.Cuts) > 0)
		}),
	}
}

// planAndAction wants a plan, and perhaps one of its actions.
func planAndAction(cmd *cobra.Command, args []string) error {
	if len(args) == 2 {
		return nil
	}
	return cli.Exactly("PLAN")(cmd, args)
}

// why asks for the plan first, which waits until what was acknowledged is folded.
func why(ctx context.Context, c *cli.Client, q api.WhyQuery) (api.Why, error) {
	plan, err := c.Plan(ctx, q.Plan, 0)
	if err != nil {
		return api.Why{}, err
	}
	known := q.Action == "" || len(plan.Actions) < plan.ActionCount
	for _, a := range plan.Actions {
		known = known || a.Action == q.Action || fmt.Sprint(a.Number) == q.Action
	}
	if !known {
		return api.Why{}, cli.Fail(cli.ExitFailed, "sagenbaum plan tree "+q.Plan,
			"plan %s has no action %s; it has %d", q.Plan, q.Action, plan.ActionCount)
	}
	answer, err := cli.Ask(ctx, c, api.PlanWhy, q)
	return answer.Why, err
}

// writeWhy prints a chain of causes as a numbered story.
//
//	1 plan a was declared failed by traveller: the card was refused (9.0-547ab179)
//	  that turned lease plan.failed of plan a, and its plan was undone (14.0-0fd319a7)
//	2 the undo of action 3 of plan a asserted fact stock/7 (15.0-0a935aa2)
//	  that turned lease low of plan b, and its plan was undone (16.2-0fd319a7)
//	  condition: facts["stock/7"] < 1
func writeWhy(w io.Writer, p cli.Pen, why api.Why) {
	why = cli.ForPeople(why)
	fmt.Fprintf(w, "%s  %s%s\n", p.Bold(why.Plan), p.State(why.State), render.Because(why.Reason))
	if why.UndoneAs != "" {
		fmt.Fprintf(w, "plan %s is undone as plan %s\n", why.Plan, p.Bold(why.UndoneAs))
	}
	if why.Origin != "" {
		fmt.Fprintf(w, "it undoes the committed plan %s\n", why.Origin)
	}
	if len(why.Steps) == 0 {
		fmt.Fprintf(w, "no lease of it has fired; what it holds: sagenbaum plan show %s\n",
			why.Plan)
		writeAnswers(w, p, why)
		writeStory(w, p, why)
		return
	}
	if why.Omitted {
		fmt.Fprintln(w, p.Dim("more came before; these are the last 64 leases"))
	}
	for i, step := range why.Steps {
		before := api.WhyStep{}
		if i > 0 {
			before = why.Steps[i-1]
		}
		number := fmt.Sprintf("%3d ", i+1)
		for _, line := range whyLines(p, step, before, len(why.Cuts) > 0) {
			fmt.Fprintln(w, number+line)
			number = "    "
		}
	}
	last := why.Steps[len(why.Steps)-1]
	if last.Plan != why.Plan && why.UndoneAs == "" {
		fmt.Fprintf(w, "plan %s is a part of it, and is undone with it\n", why.Plan)
	}
	if why.Cycle != nil {
		fmt.Fprintln(w, p.Bold(why.Cycle.String()))
	}
	writeAnswers(w, p, why)
	writeStory(w, p, why)
	writeCuts(w, p, why)
}

// writeAnswers says what the owner has answered to leases that were cut.
func writeAnswers(w io.Writer, p cli.Pen, why api.Why) {
	for _, a := range why.Answers {
		name := render.CutName(api.Cut{Action: a.Action, Lease: a.Lease})
		fmt.Fprintf(w, "%s was cut %s, %s; %s, %s\n", name, p.Dim("("+a.Cut+")"), a.Why,
			answeredText(p, a.Word), cli.Moment(a.AtNs))
	}
}

// answeredText says "given up by ana: reason (18.0-0fd319a7)".
func answeredText(p cli.Pen, a api.Word) string {
	said := "given up"
	if a.Answer == cascadeVerb(true) {
		said = "resumed"
	}
	return said + by(a.By) + colon(a.Reason) + address(p, a.At)
}

// whyLines tell one step: what turned the lease, and that it fired, or is held.
func whyLines(p cli.Pen, step, before api.WhyStep, held bool) []string {
	lease := fmt.Sprintf("lease %s of plan %s", step.Lease, step.Plan)
	if step.Action != "" {
		lease = fmt.Sprintf("lease %s of action %s of plan %s", step.Lease, step.Action, step.Plan)
	}
	end := "and its plan was undone"
	if step.ToSavepoint != "" {
		end += " back to savepoint " + step.ToSavepoint
	} else if step.FromAction != "" {
		end = "and " + step.FromAction + " was undone, with what came after it"
	}
	end += address(p, step.Fired)
	switch {
	case step.Fired == "" && held:
		end = p.In("33", "and is held: the cascade was cut")
	case step.Fired == "":
		end = "and was held: the cascade was cut"
	}
	if step.Resumed != nil {
		end += "; " + answeredText(p, *step.Resumed) + ", depth counts from 1 again"
	}
	turned := fmt.Sprintf("that turned %s, %s", lease, end)
	condition := p.Dim("condition: " + cli.Clip(step.Condition, 160))
	switch step.By {
	case "fact":
		verb := "asserted"
		if step.Retracted {
			verb = "retracted"
		}
		began := fmt.Sprintf("the undo of %s of plan %s %s fact %s%s", undoneText(step),
			step.UndonePlan, verb, p.Bold(step.Key), address(p, step.Fact))
		return []string{began, turned, condition}
	case "part":
		return []string{fmt.Sprintf("plan %s is a part of plan %s: %s fired, %s", before.Plan,
			step.Plan, lease, end)}
	}
	if step.Key != "" {
		return []string{whyFact(p, step), turned, condition}
	}
	return []string{whyBegan(p, step), turned}
}

func undoneText(step api.WhyStep) string {
	if step.Undone == "" {
		return "an action"
	}
	return "action " + step.Undone
}

// whyFact tells the last fact that the condition of the first lease read.
func whyFact(p cli.Pen, step api.WhyStep) string {
	text := "fact " + p.Bold(step.Key) + " was asserted" +
		bySource(step.Source) + colon(cli.Clip(step.Value, 80))
	if step.Retracted {
		text = "fact " + p.Bold(step.Key) + " was retracted" + bySource(step.Source)
	}
	text += address(p, step.Fact)
	if step.TurnedNs > step.FactNs {
		text += "; what lease " + step.Lease + " waits for became true at " +
			cli.Moment(step.TurnedNs)
	}
	return text
}

func bySource(name string) string {
	if name == "" {
		return ""
	}
	return " by source " + name
}

// whyBegan says in words what the first lease of a chain turned at.
func whyBegan(p cli.Pen, step api.WhyStep) string {
	plan := "plan " + step.Plan
	said := by(step.Actor) + colon(cli.Clip(step.Reason, 160)) + address(p, step.At)
	switch {
	case step.Said == "failed" || step.Said == "" && step.Lease == "plan.failed":
		return plan + " was declared failed" + said
	case step.Said == "unwind" && step.ToSavepoint != "":
		return plan + " was told to unwind (back to savepoint " + step.ToSavepoint + ")" + said
	case step.Said == "unwind" && step.FromAction != "":
		return plan + " was told to undo " + step.FromAction + " and what came after it" + said
	case step.Said == "unwind":
		return plan + " was told to unwind" + said
	case step.Said == "late":
		return "action " + step.SaidOf + " of " + plan + " completed late" + said
	case step.Said == "block", step.Said == "redirect":
		return "a verdict on action " + cmp.Or(step.Action, step.SaidOf) + " of " + plan + " was " +
			step.Said + said
	case step.Lease == "plan.cancelled":
		return plan + " was cancelled" + said
	case step.Lease == "plan.deadline":
		return fmt.Sprintf("the deadline of plan %s passed: %s, set when it was opened%s",
			step.Plan, cli.Moment(step.DeadlineNs), address(p, step.At))
	case step.TurnedNs > 0:
		return "what it waits for became true at " + cli.Moment(step.TurnedNs) + ": " +
			cli.Clip(step.Condition, 160)
	default:
		return "what it waits for became true: " + cli.Clip(step.Condition, 160)
	}
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return " by " + who
}

// address is where a record is, after what is said of it.
func address(p cli.Pen, at string) string {
	if at == "" {
		return ""
	}
	return " " + p.Dim("("+at+")")
}

func colon(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// writeCuts says what of a plan waits for its owner after a cascade, and what to
// type.
func writeCuts(w io.Writer, p cli.Pen, why api.Why) {
	for _, cut := range why.Cuts {
		fmt.Fprintf(w, "%s %s since %s: %s, owner %s\n", render.CutName(cut), p.In("31;1", "waits"),
			cli.Moment(cut.AtNs), render.CutText(cut), cli.Dash(why.Owner))
	}
	if len(why.Cuts) == 0 {
		return
	}
	fmt.Fprintf(w, "  next: %s\n", resumeCommand(why.Plan, why.Cuts, true))
	fmt.Fprintf(w, "    or: %s\n", resumeCommand(why.Plan, why.Cuts, false))
	if why.State == ledger.StateOpen || why.State == ledger.StateCommitting {
		fmt.Fprintf(w, "    or: sagenbaum plan cancel %s --reason WHY --actor NAME\n", why.Plan)
	}
}
