package plan

import (
	"context"
	"fmt"
	"io"
	"strings"

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
	if err == nil && len(plan.Actions) == plan.ActionCount { // else only the host knows them all
		_, err = actionOf(plan, q.Action)
	}
	if err != nil {
		return api.Why{}, err
	}
	answer, err := cli.Ask(ctx, c, api.PlanWhy, q)
	return answer.Why, err
}

// writeWhy prints a chain of causes as a numbered story.
//
//	1 plan a was declared failed by traveller: the card was refused (9.0-547ab179)
//	  that turned lease plan.failed of plan a true, and the undo of its plan began (14.0-0fd319a7)
//	2 the undo of action 3 of plan a asserted fact stock/7 (15.0-0a935aa2)
//	  that turned lease low of plan b true, and the undo of its plan began (16.2-0fd319a7)
//	  condition: facts["stock/7"] < 1
func writeWhy(w io.Writer, p cli.Pen, why api.Why) {
	why = cli.ForPeople(why)
	fmt.Fprintf(w, "%s  %s%s\n", p.Bold(why.Plan), p.State(why.State), render.Because(why.Reason))
	for _, line := range why.Before() {
		fmt.Fprintln(w, inked(p, line))
	}
	if len(why.Steps) == 0 {
		fmt.Fprintf(w, "what it holds: sagenbaum plan show %s\n", why.Plan)
	}
	for i := range why.Steps {
		number := fmt.Sprintf("%3d ", i+1)
		for _, line := range why.Step(i) {
			fmt.Fprintln(w, number+inked(p, line))
			number = "    "
		}
	}
	for _, line := range why.After() {
		fmt.Fprintln(w, inked(p, line))
	}
	writeStory(w, p, why)
	writeCuts(w, p, why)
}

// inked is a line as a terminal shows it.
func inked(p cli.Pen, line api.Line) string {
	var text strings.Builder
	for _, part := range line {
		switch part.Names {
		case api.NamesFact:
			text.WriteString(p.Bold(part.Text))
		case api.NamesRecord, api.NamesCondition:
			text.WriteString(p.Dim(part.Text))
		case api.NamesCut:
			text.WriteString(p.In("33", part.Text))
		default:
			text.WriteString(part.Text)
		}
	}
	return text.String()
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
