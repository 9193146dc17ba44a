// Package render says in words what plans, actions, undos, leases and hosts are, for the
// commands that show them.
package render

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// WritePlan prints everything that is known of a plan: the tree, then every action
// with the addresses of its records, then leases and refused records. Child plans
// are in the tree; their actions are shown by their own id.
func WritePlan(w io.Writer, p cli.Pen, f cli.Family, now time.Time) {
	WriteTree(w, p, f, now)
	plan := cli.ForPeople(f.Root)
	fmt.Fprintf(w, "\nagent %s%s · opened %s %s", plan.Agent, adoptedText(plan),
		cli.Moment(plan.OpenedNs), plan.Opened)
	if plan.DeadlineNs != 0 {
		fmt.Fprintf(w, " · deadline %s", cli.Moment(plan.DeadlineNs))
		if plan.DefaultDeadline {
			fmt.Fprint(w, ", the tenant's default")
		}
		if m := plan.DeadlineMoved; m != nil {
			fmt.Fprintf(w, ", moved by %s %s (%s)", m.By, m.At, m.Reason)
		}
	}
	if plan.Fired != "" {
		fmt.Fprintf(w, " · fired %s", plan.Fired)
	}
	if plan.Ended != "" {
		fmt.Fprintf(w, " · ended %s %s", cli.Moment(plan.EndedNs), plan.Ended)
	}
	fmt.Fprintln(w)
	if plan.Erasure != nil {
		fmt.Fprintln(w, p.In("35", ErasureText(plan.Erasure)))
	}
	for _, sp := range plan.Savepoints {
		fmt.Fprintf(w, "savepoint %s after action %d %s\n", sp.Name, sp.Actions, sp.At)
	}
	for _, a := range plan.Actions {
		writeAction(w, p, a, now)
	}
	if len(plan.Leases)+len(plan.Refused) > 0 {
		fmt.Fprintln(w)
	}
	writeLeases(w, p, "", plan.Leases)
	for _, r := range plan.Refused {
		fmt.Fprintf(w, "%s %d.%d %s on %s: %s\n", refusedWord(r), r.Sequence, r.Index,
			cli.Dash(r.Kind), r.Subject, ledger.WhyRefused(r.Reason))
	}
}

func refusedWord(r api.Refused) string {
	if r.Void {
		return "void"
	}
	return "refused"
}

func writeAction(w io.Writer, p cli.Pen, a api.Action, now time.Time) {
	l := Lines{W: w, Width: 11, Indent: "    "}
	if a.Child != "" {
		fmt.Fprintf(w, "\n%s  %s\n", p.Bold(EntryText(a)), p.State(a.Undo))
		l.Line("opened", "%s %s", cli.Moment(a.AtNs), a.Registered)
		if a.Undo == cli.UndoQuarantined {
			l.Line("note", "%s", a.Note)
		}
		l.Line("see", "sagenbaum plan show %s", a.Child)
		return
	}
	undo := a.Undo
	switch {
	case a.ToDrop:
		undo = ToBeDropped
	case Delivers(a) && (undo == "owed" || undo == "ready"):
		undo = toBeDelivered
	}
	fmt.Fprintf(w, "\n%s  %s, %s, %s\n", p.Bold(EntryText(a)), ClassText(a), outcomeWord(a),
		p.State(undo))
	l.Line("action", "%s", a.Action)
	l.Line("registered", "%s %s", cli.Moment(a.AtNs), a.Registered)
	l.Line("outcome", "%s", a.OutcomeAt)
	if a.DutyOf != "" {
		l.Line("owed for", "%s, once more", a.DutyOf)
	}
	l.Line("contract", "%s", a.Contract)
	l.Line("window", "%s", WindowText(a, now))
	by := "undo by"
	if Delivers(a) {
		by = "made by"
	}
	l.Line(by, "%s", a.Compensation)
	if a.Compensation != "" {
		l.Line("key", "%s", a.Key)
	}
	if a.Attempt > 0 {
		l.Line("attempt", "%d of %d", a.Attempt, a.Attempts)
	}
	if a.Blind {
		l.Line("blind", "its undo was sent without knowing whether it had happened")
	}
	l.Line("dispatched", "%s", a.Dispatched)
	if a.Asking != "" {
		l.Line("asking", "%s", askingText(a.Asking))
	}
	l.Line("effect", "%s", EffectText(a))
	if Alive(a, now) {
		l.Line("alive", "an attempt may be at work until %s", cli.Moment(a.AliveNs))
	}
	if a.Progress != "" {
		l.Line("progress", "%s, said %s", a.Progress, cli.Relative(a.ProgressNs, now))
	}
	l.Line("settled", "%s %s", cli.Moment(a.SettledNs), a.Settled)
	l.Line("verdict", "%s", a.Verdict)
	l.Line("note", "%s", a.Note)
	l.Line("failure", "%s", a.Failure)
	l.Line("proposed", "%s", a.Proposal)
	if a.Resolution != "" {
		l.Line("resolved", "%s by %s: %s%s", a.Resolution, a.ResolvedBy, a.ResolvedReason,
			EvidenceText(a))
	}
	l.Line("input", "%s", cli.Clip(string(a.Input), 400))
	l.Line("before", "%s", cli.Clip(string(a.Before), 400))
	l.Line("output", "%s", cli.Clip(string(a.Output), 400))
	l.Line("arguments", "%s", cli.Clip(string(a.Arguments), 400))
	writeLeases(w, p, "    ", a.Leases)
}

func writeLeases(w io.Writer, p cli.Pen, indent string, leases []api.Lease) {
	for _, l := range leases {
		fmt.Fprintf(w, "%slease %s: %s  %s", indent, l.Name, cli.Clip(l.Condition, 120),
			p.Bold(LeaseWord(l)))
		if len(l.Waits) > 0 && asked(l) {
			fmt.Fprintf(w, ", waits for %s", strings.Join(l.Waits, ", "))
		}
		if l.WakeNs != 0 && asked(l) {
			fmt.Fprintf(w, ", wakes %s", cli.Moment(l.WakeNs))
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

// EntryText names an action of a plan by its number, its id and capability.
func EntryText(a api.Action) string {
	return NumberText(a) + " " + CapabilityOf(a)
}

// adoptedText says how a plan got to the agent that has it.
func adoptedText(plan api.Plan) string {
	text := ""
	for _, a := range plan.Adopted {
		text += fmt.Sprintf(", from %s by %s %s (%s)", a.From, a.By, a.At, a.Reason)
	}
	if plan.Awaited {
		text += ", which has not resumed it yet"
	}
	return text
}
