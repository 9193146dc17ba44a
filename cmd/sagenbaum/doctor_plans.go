package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// examineQuarantine names the stuck plans and what of them waits (S105).
func examineQuarantine(ctx context.Context, c *client, v executor.StatusView) finding {
	if v.Quarantined+v.Cut == 0 {
		return ok("quarantine", "nothing waits for its owner")
	}
	answer, err := c.plans(ctx, "quarantine.ls", executor.Filter{}, stuckShown)
	if err != nil {
		return problem("quarantine", err)
	}
	wait := "wait for their owner"
	if v.Quarantined+v.Cut == 1 {
		wait = "waits for its owner"
	}
	f := warn("quarantine", "sagenbaum quarantine ls", "%s %s", countOf(int(v.Quarantined+v.Cut), "plan"), wait)
	for _, plan := range answer.Plans {
		for _, a := range parked(plan) {
			f.Details = append(f.Details, fmt.Sprintf("%s %s, owner %s: %s", plan.Plan, entryText(a), dash(plan.Owner), clip(whyParked(a), 100)))
		}
		for _, cut := range plan.Cuts {
			f.Details = append(f.Details, fmt.Sprintf("%s %s, owner %s: %s", plan.Plan, cutName(cut), dash(plan.Owner), cutText(cut)))
		}
		for _, orphan := range plan.Orphans {
			f.Details = append(f.Details, fmt.Sprintf("%s %s, owner %s: %s", plan.Plan, orphan, dash(plan.Owner), whyOrphan))
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
	return f
}

// examineConditions warns of leases that hold in silence: their condition does not
// compile, or ends in an error as things are.
func examineConditions(v executor.StatusView) finding {
	if v.Faulty == 0 {
		return ok("conditions", "no lease is in error")
	}
	next := "sagenbaum plan ls"
	if len(v.FaultyPlans) > 0 {
		next = "sagenbaum trigger explain " + v.FaultyPlans[0]
	}
	f := warn("conditions", next, "%s in error: as things are, nothing makes it fire", countOf(int(v.Faulty), "condition"))
	for _, plan := range v.FaultyPlans {
		f.Details = append(f.Details, "plan "+plan+": sagenbaum trigger explain "+plan)
	}
	return f
}

// examinePages warns of calls to owners that nobody has taken.
func examinePages(v executor.StatusView, now time.Time) finding {
	if v.Unpaged == 0 {
		return ok("pages", "every page was taken")
	}
	next := "let somebody listen: docs/guide/pages.md"
	if o := v.OldestPage; o != nil {
		switch o.Kind {
		case api.PageQuarantined, api.PageCommitWaits, api.PageActClaimed:
			next = "sagenbaum quarantine ls; and let somebody listen: docs/guide/pages.md"
		}
	}
	return warn("pages", next, "%s: an owner may not know", unpagedText(v, now))
}

// unpagedText counts the pages that nobody has taken and names the oldest.
func unpagedText(v executor.StatusView, now time.Time) string {
	text := countOf(v.Unpaged, "page") + " that nobody has taken"
	if o := v.OldestPage; o != nil {
		text += fmt.Sprintf("; the oldest, %s of plan %s", o.Kind, o.Plan)
		if o.Action != "" {
			text += " action " + o.Action
		}
		text += fmt.Sprintf(", for hook %s, was asked for %s", o.Hook, relative(o.AtNs, now))
	}
	return text
}

const (
	windowSoon    = 24 * time.Hour // a window that closes within this is worth a look
	windowsLooked = 1000           // plans of each state that the doctor looks at
)

// windowStates are those in which an undo may still be owed.
var windowStates = []string{ledger.StateOpen, ledger.StateCommitting, ledger.StateUnwinding, ledger.StateQuarantined}

// examineWindows warns of plans of which something that is held cannot be undone
// for much longer, or not any more.
func examineWindows(ctx context.Context, c *client, now time.Time) finding {
	var closing []executor.PlanView
	more := ""
	for _, state := range windowStates {
		answer, err := c.plans(ctx, "plan.ls", executor.Filter{State: state}, windowsLooked)
		if err != nil {
			return problem("windows", err)
		}
		if answer.Next != "" {
			more = fmt.Sprintf(", among the first %d plans of a state", windowsLooked)
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
	slices.SortStableFunc(closing, func(a, b executor.PlanView) int { return cmp.Compare(a.WindowClosesNs, b.WindowClosesNs) })
	f := warn("windows", "sagenbaum plan preview "+closing[0].Plan, "an undo window of %s closes within a day, or has closed%s", countOf(len(closing), "plan"), more)
	for _, plan := range closing[:min(len(closing), stuckShown)] {
		f.Details = append(f.Details, fmt.Sprintf("%s %s, owner %s: %s", plan.Plan, plan.State, dash(plan.Owner), windowWord(plan.WindowClosesNs, now)))
	}
	return f
}

// planDump is all that can be asked about one plan, as -o json prints it.
type planDump struct {
	Plan        executor.PlanView   `json:"plan"` // with its refused records
	Children    []executor.PlanView `json:"children"`
	Obligations []obligation        `json:"obligations"` // what waits for the owner, of the plan and its children
	Undos       []executor.UndoView `json:"undos"`
	More        string              `json:"more,omitempty"` // further attempts: undo ls --after
}

// dumpUndos bounds the attempts of one dump.
const dumpUndos = 1000

func dumpPlan(cmd *cobra.Command, s *settings, c *client, id string) error {
	ctx := cmd.Context()
	plan, err := c.plan(ctx, id, 0)
	if err != nil {
		return err
	}
	f, err := c.family(ctx, plan)
	if err != nil {
		return err
	}
	dump, err := c.dump(ctx, f)
	if err != nil {
		return err
	}
	if s.json() {
		err = printJSON(cmd.OutOrStdout(), dump)
	} else {
		writeDump(cmd.OutOrStdout(), s.pen(cmd), f, dump, time.Now())
	}
	if err == nil && f.quarantined() {
		return errLook
	}
	return err
}

func (c *client) dump(ctx context.Context, f family) (planDump, error) {
	dump := planDump{Plan: f.root, Children: f.plans()[1:], Obligations: []obligation{}, Undos: []executor.UndoView{}}
	for _, plan := range f.plans() {
		orphans := make([]executor.ActionView, 0, len(plan.Orphans))
		for _, id := range plan.Orphans {
			orphans = append(orphans, orphan(id))
		}
		for _, a := range append(parked(plan), orphans...) {
			if a.Child != "" {
				continue // its own actions are there
			}
			o, err := c.obligationOf(ctx, plan, a)
			if err != nil {
				return dump, err
			}
			dump.Obligations = append(dump.Obligations, o)
		}
		if len(dump.Undos) >= dumpUndos {
			continue
		}
		answer, err := c.undos(ctx, executor.UndoQuery{Plan: plan.Plan}, dumpUndos-len(dump.Undos))
		if err != nil {
			return dump, err
		}
		dump.Undos = append(dump.Undos, answer.Undos...)
		if answer.Next != "" {
			dump.More = fmt.Sprintf("sagenbaum undo ls --plan %s --after %s", plan.Plan, answer.Next)
		}
	}
	return dump, nil
}

func writeDump(w io.Writer, p pen, f family, dump planDump, now time.Time) {
	writePlan(w, p, f, now)
	for _, o := range dump.Obligations {
		fmt.Fprintf(w, "\n%s\n", p.dim(strings.Repeat("─", 40)))
		writeObligation(w, p, o, now)
	}
	if len(dump.Undos) > 0 {
		fmt.Fprintf(w, "\n%s\n", p.dim(strings.Repeat("─", 40)))
		writeUndos(w, p, forPeople(dump.Undos), len(dump.Children) > 0)
	}
	if dump.More != "" {
		fmt.Fprintln(w, "there are more:", printable(dump.More))
	}
}
