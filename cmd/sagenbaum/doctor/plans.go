package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/quarantine"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/status"
)

// examineQuarantine names the stuck plans and what of them waits (S105).
func examineQuarantine(ctx context.Context, c *cli.Client, v api.Status) Finding {
	if v.Quarantined+v.Cut == 0 {
		return ok("quarantine", "nothing waits for its owner")
	}
	answer, err := c.Quarantine(ctx, status.StuckShown)
	if err != nil {
		return problem("quarantine", err)
	}
	wait := "wait for their owner"
	if v.Quarantined+v.Cut == 1 {
		wait = "waits for its owner"
	}
	f := warn("quarantine", "sagenbaum quarantine ls", "%s %s",
		cli.CountOf(int(v.Quarantined+v.Cut), "plan"), wait)
	for _, plan := range answer.Plans {
		for _, a := range render.Parked(plan) {
			f.Details = append(f.Details,
				fmt.Sprintf("%s %s, owner %s: %s", plan.Plan, render.EntryText(a),
					cli.Dash(plan.Owner), cli.Clip(render.WhyParked(a), 100)))
		}
		for _, cut := range plan.Cuts {
			f.Details = append(f.Details,
				fmt.Sprintf("%s %s, owner %s: %s", plan.Plan, render.CutName(cut),
					cli.Dash(plan.Owner), render.CutText(cut)))
		}
		for _, orphan := range plan.Orphans {
			f.Details = append(f.Details,
				fmt.Sprintf("%s %s, owner %s: %s", plan.Plan, orphan, cli.Dash(plan.Owner),
					render.WhyOrphan))
		}
	}
	if len(answer.Plans) > 0 {
		f.Next = "sagenbaum doctor --plan " + answer.Plans[0].Plan
		if first := answer.Plans[0]; len(first.Cuts) > 0 && first.Quarantined == 0 {
			f.Next = "sagenbaum plan why " + first.Plan
		}
	}
	if answer.Next != "" {
		f.Details = append(f.Details, "and further plans: sagenbaum quarantine ls")
	}
	return f.mayPass(len(answer.Plans) == 0) // it was answered meanwhile
}

// examineConditions warns of leases that hold in silence: their condition does not
// compile, or ends in an error as things are.
func examineConditions(v api.Status) Finding {
	if v.Faulty == 0 {
		return ok("conditions", "no lease is in error")
	}
	next := "sagenbaum plan ls"
	if len(v.FaultyPlans) > 0 {
		next = "sagenbaum trigger explain " + v.FaultyPlans[0]
	}
	f := warn("conditions", next, "%s in error: as things are, nothing makes it fire",
		cli.CountOf(int(v.Faulty), "condition"))
	for _, plan := range v.FaultyPlans {
		f.Details = append(f.Details, "plan "+plan+": sagenbaum trigger explain "+plan)
	}
	return f
}

// examineVerdicts names how many actions wait for a verdict. It is no fault that they do: a page
// that no one takes is.
func examineVerdicts(v api.Status, now time.Time) Finding {
	if v.Reviews == 0 {
		return ok("verdicts", "no action waits for a verdict")
	}
	f := ok("verdicts", "%s", render.ReviewsText(v, now))
	f.Next = "sagenbaum review ls"
	return f
}

// ExaminePages warns of calls to owners that no one has taken.
func ExaminePages(v api.Status, now time.Time) Finding {
	if v.Unpaged == 0 {
		return ok("pages", "every page was taken")
	}
	next := "have someone take pages: serve --webhook URL, or a receiver of page." + v.Tenant +
		".> that replies (docs/guide/pages.md, Who takes a page)"
	if o := v.OldestPage; o != nil {
		switch o.Kind {
		case api.PageQuarantined, api.PageCommitWaits, api.PageActClaimed:
			next = "sagenbaum quarantine ls; and " + next
		case api.PageVerdictWanted:
			next = "sagenbaum review ls; and " + next
		}
	}
	return warn("pages", next, "%s: an owner may not know", render.UnpagedText(v, now)).
		mayPass(v.OldestPage != nil && youngAt(v.OldestPage.AtNs, now))
}

const (
	windowSoon    = 24 * time.Hour // a window that closes within this is worth a look
	windowsLooked = 1000           // plans of each state that the doctor looks at
)

// windowStates are those in which an undo may still be owed.
var windowStates = []string{ledger.StateOpen, ledger.StateCommitting, ledger.StateUnwinding,
	ledger.StateQuarantined}

// ExamineWindows warns of plans of which something that is held cannot be undone
// for much longer, or not any more.
func ExamineWindows(ctx context.Context, c *cli.Client, now time.Time) Finding {
	var closing []api.Plan
	more := ""
	for _, state := range windowStates {
		answer, err := c.Plans(ctx, api.Filter{State: state}, windowsLooked)
		if err != nil {
			return problem("windows", err)
		}
		if answer.Next != "" {
			more = fmt.Sprintf(", among the latest %d plans of a state", windowsLooked)
		}
		for _, plan := range answer.Plans {
			if plan.WindowClosesNs != 0 && plan.WindowClosesNs <= now.Add(windowSoon).UnixNano() {
				closing = append(closing, plan)
			}
		}
	}
	if len(closing) == 0 {
		return ok("windows", "no undo window of a held action closes within a day%s", more)
	}
	slices.SortStableFunc(closing,
		func(a, b api.Plan) int { return cmp.Compare(a.WindowClosesNs, b.WindowClosesNs) })
	f := warn("windows", "sagenbaum plan preview "+closing[0].Plan,
		"an undo window of %s closes within a day, or has closed%s",
		cli.CountOf(len(closing), "plan"), more)
	for _, plan := range closing[:min(len(closing), status.StuckShown)] {
		f.Details = append(f.Details,
			fmt.Sprintf("%s %s, owner %s: %s", plan.Plan, plan.State, cli.Dash(plan.Owner),
				render.WindowWord(plan.WindowClosesNs, now)))
	}
	return f
}

// PlanDump is all that can be asked about one plan, as -o json prints it.
type PlanDump struct {
	Plan     api.Plan   `json:"plan"` // with its refused records
	Children []api.Plan `json:"children"`
	// what waits for the owner, of the plan and its children
	Obligations []quarantine.Obligation `json:"obligations"`
	Undos       []api.Undo              `json:"undos"`
	More        string                  `json:"more,omitempty"` // further attempts: undo ls --after
}

// DumpUndos bounds the attempts of one dump.
const DumpUndos = 1000

func dumpPlan(cmd *cobra.Command, s *cli.Settings, c *cli.Client, id string) error {
	ctx := cmd.Context()
	plan, err := c.Plan(ctx, id, 0)
	if err != nil {
		return err
	}
	f, err := c.Family(ctx, plan)
	if err != nil {
		return err
	}
	dump, err := dump(ctx, c, f)
	if err != nil {
		return err
	}
	err = s.Print(cmd, dump,
		func() { writeDump(cmd.OutOrStdout(), s.Pen(cmd), f, dump, time.Now()) })
	return cli.Look(err, f.Quarantined())
}

func dump(ctx context.Context, c *cli.Client, f cli.Family) (PlanDump, error) {
	dump := PlanDump{Plan: f.Root, Children: f.Plans()[1:], Obligations: []quarantine.Obligation{},
		Undos: []api.Undo{}}
	for _, plan := range f.Plans() {
		orphans := make([]api.Action, 0, len(plan.Orphans))
		for _, id := range plan.Orphans {
			orphans = append(orphans, render.Orphan(id))
		}
		for _, a := range append(render.Parked(plan), orphans...) {
			if a.Child != "" {
				continue // its own actions are there
			}
			o, err := quarantine.ObligationOf(ctx, c, plan, a)
			if err != nil {
				return dump, err
			}
			dump.Obligations = append(dump.Obligations, o)
		}
		if len(dump.Undos) >= DumpUndos {
			continue
		}
		answer, err := c.Undos(ctx, api.UndoQuery{Plan: plan.Plan}, DumpUndos-len(dump.Undos))
		if err != nil {
			return dump, err
		}
		dump.Undos = append(dump.Undos, answer.Undos...)
		if answer.Next != "" {
			dump.More = fmt.Sprintf("sagenbaum undo ls --plan %s --after %s", plan.Plan,
				answer.Next)
		}
	}
	return dump, nil
}

func writeDump(w io.Writer, p cli.Pen, f cli.Family, dump PlanDump, now time.Time) {
	render.WritePlan(w, p, f, now)
	for _, o := range dump.Obligations {
		fmt.Fprintf(w, "\n%s\n", p.Dim(strings.Repeat("─", 40)))
		quarantine.WriteObligation(w, p, o, now)
	}
	if len(dump.Undos) > 0 {
		fmt.Fprintf(w, "\n%s\n", p.Dim(strings.Repeat("─", 40)))
		render.WriteUndos(w, p, cli.ForPeople(dump.Undos), len(dump.Children) > 0)
	}
	if dump.More != "" {
		fmt.Fprintln(w, "there are more:", cli.Printable(dump.More))
	}
}
