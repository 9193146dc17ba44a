package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// writeTree prints a plan as its actions in order: what is known of each
// forward, and what became of its compensation.
//
//	01JD3BX7  ship feature/x  quarantined since 14:02:12Z (plan failed: "tag exists")
//	├─ 1 git.branch.create  completed  ── held
//	├─ 2 git.push           completed  ── quarantined: the remote refused
//	└─ 3 git.tag.create     failed     ── skipped: known not to have happened
//	held 1 · compensated 0 · skipped 1 · quarantined 1 · owner release
func writeTree(w io.Writer, p pen, plan executor.PlanView, now time.Time) {
	plan = forPeople(plan)
	head := p.bold(plan.Plan)
	if plan.Label != "" {
		head += "  " + clip(plan.Label, 60)
	}
	fmt.Fprintf(w, "%s  %s\n", head, stateLine(p, plan, now))
	var forward, undo int
	for _, a := range plan.Actions {
		forward = max(forward, len(fmt.Sprint(a.Number))+1+len(a.Capability))
		undo = max(undo, len(outcomeWord(a)))
	}
	for i, a := range plan.Actions {
		branch := "├─"
		if i == len(plan.Actions)-1 {
			branch = "└─"
		}
		word := outcomeWord(a)
		fmt.Fprintf(w, "%s %-*s  %s%s  ── %s\n", branch, forward, fmt.Sprintf("%d %s", a.Number, a.Capability),
			p.state(word), strings.Repeat(" ", undo-len(word)), undoLine(p, a, now))
	}
	for _, o := range plan.Orphans {
		fmt.Fprintf(w, "!! %s came without its registration: nobody can undo it\n", o)
	}
	fmt.Fprintln(w, p.dim(countLine(plan)))
}

func stateLine(p pen, plan executor.PlanView, now time.Time) string {
	line := p.state(plan.State)
	switch {
	case plan.EndedNs != 0:
		line += " since " + clock(plan.EndedNs)
	case plan.State == ledger.StateOpen && plan.DeadlineNs != 0:
		line += ", deadline " + relative(plan.DeadlineNs, now)
	}
	if plan.Reason != "" {
		line += fmt.Sprintf(" (%s)", clip(plan.Reason, 120))
	}
	return line
}

func outcomeWord(a executor.ActionView) string { return strings.ReplaceAll(a.Outcome, "_", " ") }

// undoLine says what became of one action's compensation and why.
func undoLine(p pen, a executor.ActionView, now time.Time) string {
	line := p.state(a.Undo)
	switch a.Undo {
	case "compensated":
		line += " " + clock(a.SettledNs)
		if a.Attempt > 1 {
			line += fmt.Sprintf(", attempt %d", a.Attempt)
		}
	case "dispatched":
		line += fmt.Sprintf(" to %s, attempt %d of %d", a.Compensation, a.Attempt, a.Attempts)
	case "waiting":
		line += fmt.Sprintf(", attempt %d of %d %s", a.Attempt+1, a.Attempts, relative(a.DueNs, now))
	case "resolved":
		line += fmt.Sprintf(" as %s by %s %s", a.Resolution, a.ResolvedBy, clock(a.SettledNs))
		if a.Evidence != "" {
			line += ", evidence " + a.Evidence
		}
	}
	why := a.Note
	if why == "" && a.Undo != "compensated" {
		why = a.Failure
	}
	if why != "" {
		line += ": " + clip(why, 120)
	}
	if a.WaitsFor != "" {
		line += p.dim(" (waits for " + a.WaitsFor + ")")
	}
	if a.Class != "compensable" && a.Class != "" {
		line += p.dim(" (" + a.Class + ")")
	}
	if len(a.After) > 0 && !slices.Equal(a.After, []int{a.Number - 1}) {
		line += p.dim(" (after " + joinNumbers(a.After) + ")")
	}
	return line
}

func joinNumbers(numbers []int) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = fmt.Sprint(n)
	}
	return strings.Join(texts, ", ")
}

func countLine(plan executor.PlanView) string {
	line := fmt.Sprintf("held %d · compensated %d · skipped %d · quarantined %d", plan.Held, plan.Compensated, plan.Skipped, plan.Quarantined)
	if plan.Owner != "" {
		line += " · owner " + plan.Owner
	}
	return line
}

// writePlan prints everything that is known of a plan: the tree, then every
// action with the addresses of its records, then leases and refused records.
func writePlan(w io.Writer, p pen, plan executor.PlanView, now time.Time) {
	plan = forPeople(plan)
	writeTree(w, p, plan, now)
	fmt.Fprintf(w, "\nagent %s · opened %s %s", plan.Agent, moment(plan.OpenedNs), plan.Opened)
	if plan.DeadlineNs != 0 {
		fmt.Fprintf(w, " · deadline %s", moment(plan.DeadlineNs))
	}
	if plan.Fired != "" {
		fmt.Fprintf(w, " · fired %s", plan.Fired)
	}
	if plan.Ended != "" {
		fmt.Fprintf(w, " · ended %s %s", moment(plan.EndedNs), plan.Ended)
	}
	fmt.Fprintln(w)
	for _, a := range plan.Actions {
		writeAction(w, p, a)
	}
	writeLeases(w, p, "", plan.Leases)
	for _, r := range plan.Refused {
		fmt.Fprintf(w, "%s %d.%d %s on %s: %s\n", refusedWord(r), r.Sequence, r.Index, dash(r.Kind), r.Subject, r.Reason)
	}
}

func refusedWord(r executor.RefusedView) string {
	if r.Void {
		return "void"
	}
	return "refused"
}

func writeAction(w io.Writer, p pen, a executor.ActionView) {
	fmt.Fprintf(w, "\n%s  %s, %s, %s\n", p.bold(fmt.Sprintf("%d %s", a.Number, a.Capability)), a.Class, outcomeWord(a), p.state(a.Undo))
	line := func(name, format string, args ...any) {
		if text := strings.TrimSpace(fmt.Sprintf(format, args...)); text != "" && text != "-" {
			fmt.Fprintf(w, "    %-11s %s\n", name, text)
		}
	}
	line("action", "%s", a.Action)
	line("registered", "%s %s", moment(a.AtNs), a.Registered)
	line("outcome", "%s", a.OutcomeAt)
	line("undo by", "%s", a.Compensation)
	line("key", "%s", a.Key)
	if a.Attempt > 0 {
		line("attempt", "%d of %d", a.Attempt, a.Attempts)
	}
	line("dispatched", "%s", a.Dispatched)
	line("settled", "%s %s", moment(a.SettledNs), a.Settled)
	line("verdict", "%s", a.Verdict)
	line("note", "%s", a.Note)
	line("failure", "%s", a.Failure)
	if a.Resolution != "" {
		line("resolved", "%s by %s %s", a.Resolution, a.ResolvedBy, a.Evidence)
	}
	line("input", "%s", clip(string(a.Input), 400))
	line("output", "%s", clip(string(a.Output), 400))
	writeLeases(w, p, "    ", a.Leases)
}

func writeLeases(w io.Writer, p pen, indent string, leases []executor.LeaseView) {
	for _, l := range leases {
		state := l.Truth
		switch {
		case l.Fired:
			state = "fired"
		case l.Moot:
			state = "moot"
		}
		fmt.Fprintf(w, "%slease %s: %s  %s", indent, l.Name, clip(l.Condition, 120), p.bold(state))
		if len(l.Waits) > 0 && !l.Fired && !l.Moot {
			fmt.Fprintf(w, ", waits for %s", strings.Join(l.Waits, ", "))
		}
		if l.WakeNs != 0 && !l.Fired && !l.Moot {
			fmt.Fprintf(w, ", wakes %s", moment(l.WakeNs))
		}
		if l.Error != "" {
			fmt.Fprintf(w, ", error: %s", l.Error)
		}
		fmt.Fprintln(w)
	}
}
