package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
)

// writePlan prints everything that is known of a plan: the tree, then every action
// with the addresses of its records, then leases and refused records. Child plans
// are in the tree; their actions are shown by their own id.
func writePlan(w io.Writer, p pen, f family, now time.Time) {
	writeTree(w, p, f, now)
	plan := forPeople(f.root)
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
	if plan.Erasure != nil {
		fmt.Fprintln(w, p.in("35", erasureText(plan.Erasure)))
	}
	for _, sp := range plan.Savepoints {
		fmt.Fprintf(w, "savepoint %s behind action %d %s\n", sp.Name, sp.Actions, sp.At)
	}
	for _, a := range plan.Actions {
		writeAction(w, p, a, now)
	}
	if len(plan.Leases)+len(plan.Refused) > 0 {
		fmt.Fprintln(w)
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

func writeAction(w io.Writer, p pen, a executor.ActionView, now time.Time) {
	l := lines{w: w, width: 11, indent: "    "}
	if a.Child != "" {
		fmt.Fprintf(w, "\n%s  %s\n", p.bold(entryText(a)), p.state(a.Undo))
		l.line("opened", "%s %s", moment(a.AtNs), a.Registered)
		if a.Undo == undoQuarantined {
			l.line("note", "%s", a.Note)
		}
		l.line("see", "sagenbaum plan show %s", a.Child)
		return
	}
	fmt.Fprintf(w, "\n%s  %s, %s, %s\n", p.bold(entryText(a)), classText(a), outcomeWord(a), p.state(a.Undo))
	l.line("action", "%s", a.Action)
	l.line("registered", "%s %s", moment(a.AtNs), a.Registered)
	l.line("outcome", "%s", a.OutcomeAt)
	if a.DutyOf != "" {
		l.line("owed for", "%s, once more", a.DutyOf)
	}
	l.line("contract", "%s", a.Contract)
	l.line("window", "%s", windowText(a, now))
	l.line("undo by", "%s", a.Compensation)
	if a.Compensation != "" {
		l.line("key", "%s", a.Key)
	}
	if a.Attempt > 0 {
		l.line("attempt", "%d of %d", a.Attempt, a.Attempts)
	}
	l.line("dispatched", "%s", a.Dispatched)
	if a.Asking != "" {
		l.line("asking", "%s", askingText(a.Asking))
	}
	l.line("probe", "%s", presenceText(a))
	if alive(a, now) {
		l.line("alive", "an attempt may be at work until %s", moment(a.AliveNs))
	}
	l.line("settled", "%s %s", moment(a.SettledNs), a.Settled)
	l.line("verdict", "%s", a.Verdict)
	l.line("note", "%s", a.Note)
	l.line("failure", "%s", a.Failure)
	l.line("proposed", "%s", a.Proposal)
	if a.Resolution != "" {
		l.line("resolved", "%s by %s: %s%s", a.Resolution, a.ResolvedBy, a.ResolvedReason, evidenceText(a))
	}
	l.line("input", "%s", clip(string(a.Input), 400))
	l.line("before", "%s", clip(string(a.Before), 400))
	l.line("output", "%s", clip(string(a.Output), 400))
	l.line("arguments", "%s", clip(string(a.Arguments), 400))
	writeLeases(w, p, "    ", a.Leases)
}

func writeLeases(w io.Writer, p pen, indent string, leases []executor.LeaseView) {
	for _, l := range leases {
		fmt.Fprintf(w, "%slease %s: %s  %s", indent, l.Name, clip(l.Condition, 120), p.bold(leaseWord(l)))
		if len(l.Waits) > 0 && asked(l) {
			fmt.Fprintf(w, ", waits for %s", strings.Join(l.Waits, ", "))
		}
		if l.WakeNs != 0 && asked(l) {
			fmt.Fprintf(w, ", wakes %s", moment(l.WakeNs))
		}
		if l.Moot {
			fmt.Fprintf(w, ": %s", mootWhy(l))
		}
		if l.FiredAt != "" {
			fmt.Fprintf(w, " %s", l.FiredAt)
		}
		if l.Error != "" {
			fmt.Fprintf(w, ", error: %s", l.Error)
		}
		fmt.Fprintln(w)
	}
}
