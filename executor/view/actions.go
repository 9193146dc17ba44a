package view

import (
	"cmp"
	"encoding/hex"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

func (r *Reader) action(p *executor.Plan, a *executor.Action) api.Action {
	f, c, row := a.Fixed.Forward, a.Fixed.Compensation, a.Row
	seen := api.Action{
		Number: int(a.N), Action: a.Fixed.Id, Capability: f.GetCapability(),
		Class: className(f.GetClass()), Staged: f.GetDeliver() != nil,
		Asking: questionName(row.Asking), Presence: a.Presence(), Fidelity: c.GetFidelity(),
		ExternalRef: cmp.Or(row.FoundRef, row.ExternalRef), ClosesNs: row.ClosesNs,
		Pivot: f.GetPivot(), Approve: c.GetApprove(), Child: a.Fixed.Child, AliveNs: row.AliveUntilNs,
		Contract: hex.EncodeToString(f.GetContractDigest()),
		Outcome:  a.Outcome(), Undo: a.Undo(), Compensation: c.GetCapability(),
		Handler: c.GetHandlerVersion(), Blind: row.Blind,
		Attempt: int(row.Attempt), AtNs: a.Fixed.AtNs, DueNs: row.DueNs, SettledNs: row.SettledNs,
		Note: row.Note, Failure: row.Failure, Incomplete: row.OutputIncomplete,
		Verdict:    a.Verdict(),
		Registered: ledger.FormatAddress(a.Fixed.Registered),
		Owed:       a.Answerable(),
		About:      ledger.FormatFullAddress(a.Fixed.Registered), Leases: r.leases(a.Leases()),
	}
	if c != nil {
		seen.Sealed, seen.Unchanged = c.Sealed, c.Unchanged
		seen.Key = a.Key()
		seen.Attempts = int(a.Attempts())
	}
	if a.Fixed.DutyOf != 0 {
		seen.DutyOf = p.Action(a.Fixed.DutyOf).Fixed.Id
	}
	if q := row.Proposal; q != nil {
		seen.Proposal = answerOf(q) + " by " + q.Operator + " at " + ledger.FormatAddress(q.At)
	}
	for _, n := range a.Fixed.Before {
		seen.After = append(seen.After, int(n))
	}
	for _, at := range []struct {
		to   *string
		from *pb.Address
	}{{&seen.OutcomeAt, row.OutcomeAt}, {&seen.Dispatched, row.Dispatched},
		{&seen.Settled, row.Settled}} {
		if at.from != nil {
			*at.to = ledger.FormatAddress(at.from)
		}
	}
	if row.Resolution != nil {
		seen.Resolution, seen.ResolvedBy, seen.Evidence = a.Resolution(),
			row.Resolution.Actor, row.Resolution.Evidence
		// the subject proves who; the text says whom they call themselves
		if by := row.ResolvedBy; by != row.Resolution.Actor {
			seen.ResolvedBy += " (operator " + by + ")"
		}
		seen.ResolvedReason = row.Resolution.Reason
	}
	if row.Undo == rowspb.Undo_UNDO_QUARANTINED && row.Settled != nil {
		seen.QuarantinedAt = ledger.FormatFullAddress(row.Settled)
	}
	seen.Changed = row.Change == pb.Change_CHANGE_FOREIGN && row.Undo == rowspb.Undo_UNDO_QUARANTINED
	if row.Undo == rowspb.Undo_UNDO_HELD && row.Outcome == rowspb.Outcome_OUTCOME_COMPLETED &&
		strings.HasPrefix(row.Note, "in doubt") { // as it was, until its agent said so
		seen.Note = ""
	}
	if a.NamedSince() {
		seen.Note += "; reported since: retry has what it needs"
	}
	seen.ToDrop = a.ToDrop()
	seen.WaitsFor, seen.Faster = r.waitOf(p, a), faster(p, a)
	if row.Undo == rowspb.Undo_UNDO_DISPATCHED { // of an attempt that has ended it says nothing
		seen.Progress, seen.ProgressNs = row.Progress.GetNote(), row.Progress.GetNs()
	}
	seen.ForCommit = row.Undo == rowspb.Undo_UNDO_QUARANTINED && p.Committing()
	seen.Probe = a.Fixed.Compensation.GetProbe().GetCall().GetCapability()
	return seen
}

// waitOf says what an undo, or a commit, waits for before it goes on with an action.
func (r *Reader) waitOf(p *executor.Plan, a *executor.Action) string {
	c, row := a.Fixed.Compensation, a.Row
	commits := p.Committing()
	if commits && a.Fixed.Child != "" && r.core.Plan(a.Fixed.Child).InDoubt() {
		return "what is in doubt in plan " + a.Fixed.Child
	}
	switch row.Undo {
	case rowspb.Undo_UNDO_OWED:
		if row.Ahead != nil {
			return "the undo of action " + p.Action(row.Behind).Fixed.Id + ", to be sent behind it"
		}
		if row.Blockers > 0 && p.Row.Delivers {
			return deliveredBefore(a)
		} else if row.Blockers > 0 {
			return "what came after it"
		}
	case rowspb.Undo_UNDO_HELD:
		if a.WaitsForVerdict() {
			return verdictWait(p, a)
		}
		what, _ := r.openDoubt(p, a)
		return what
	case rowspb.Undo_UNDO_SETTLING:
		return settling(a)
	case rowspb.Undo_UNDO_QUARANTINED:
		if commits {
			return "its owner's word, before the plan is committed"
		}
	case rowspb.Undo_UNDO_WAITING, rowspb.Undo_UNDO_READY:
		if commits {
			return "the next question to " + a.Call(pb.Question_QUESTION_EFFECT).GetCapability()
		}
	case rowspb.Undo_UNDO_DISPATCHED:
		switch {
		case a.Fixed.Child != "" && p.Row.Delivers:
			return "the deliveries of plan " + a.Fixed.Child
		case a.Fixed.Child != "":
			return "the unwind of plan " + a.Fixed.Child
		case row.Asking != pb.Question_QUESTION_UNSPECIFIED:
			return "an answer of " + a.Call(row.Asking).GetCapability()
		case c.GetHandlerVersion() != "":
			return "an answer of " + api.HandlerText(a.Fixed.Id, c.GetHandlerVersion(), p.Row.Agent)
		}
		return "a worker of " + c.GetCapability()
	}
	return ""
}

// deliveredBefore is what an act that is to be delivered waits for, or one that was and is to be
// undone.
func deliveredBefore(a *executor.Action) string {
	if a.Row.Outcome == rowspb.Outcome_OUTCOME_COMPLETED {
		return "what was delivered before it"
	}
	return "what is delivered before it"
}

// verdictWait says of an action that waits for a verdict since when, who wants it, and until when.
func verdictWait(p *executor.Plan, a *executor.Action) string {
	text := "a verdict since " + instant(a.Fixed.AtNs) + ", which agent " + p.Row.Agent + " wants"
	if ns, _ := p.Deadline(); ns != 0 {
		text += " before its plan's deadline at " + instant(ns)
	}
	return text
}

// openDoubt says what the doubt about an action of an open plan, or of what is committed with one,
// waits for. It stays where nothing asks about it any more while the plan is open.
func (r *Reader) openDoubt(p *executor.Plan, a *executor.Action) (what string, stays bool) {
	if !r.isOpen(p) || a.Fixed.Child != "" || !a.Unanswered() {
		return "", false
	}
	probe := a.Call(pb.Question_QUESTION_EFFECT).GetCapability()
	if p.Keeps() {
		return keptDoubt(p.Root(), probe), true
	}
	first := "its outcome, or "
	if a.Row.Outcome == rowspb.Outcome_OUTCOME_IN_DOUBT {
		first = ""
	}
	switch why := a.CannotAsk(); {
	case a.Row.Asking == pb.Question_QUESTION_EFFECT:
		return "an answer of " + probe + ", whether it has happened", false
	case why != "":
		return first + "the end of its plan: " + probe + " cannot be asked: " + why, true
	case a.Row.AskNs != 0 && a.Row.AskNs <= r.nowNs() && a.AsksLater():
		return first + "a question to " + probe + ", whether it has happened, once one of those that " +
			"are out is answered", false
	case a.Row.AskNs != 0:
		return first + "a question to " + probe + " at " + instant(a.Row.AskNs) +
			", whether it has happened", false
	case a.WaitsForVerdict():
		return "", true // its forward has not begun: the verdict comes first
	case probe != "":
		return first + "the end of its plan, which asks " + probe + " whether it has happened", true
	case first == "" || r.nowNs()-a.Fixed.AtNs >= int64(ledger.AskAfterDefault):
		return first + "the end of its plan" + noProbe, true
	default:
		return "", true // it may just be under way
	}
}

// noProbe is why a doubt stays that nothing asks about.
const noProbe = ": it has no probe, and nothing else can be asked whether it has happened"

// keptDoubt says what a doubt of a child waits for that is committed, while its root is open.
func keptDoubt(root, probe string) string {
	if probe == "" {
		return "the end of plan " + root + noProbe
	}
	return "the commit of plan " + root + ", which asks " + probe + " whether it has happened"
}

// isOpen reports whether a plan is open, or is committed with its root, which is.
func (r *Reader) isOpen(p *executor.Plan) bool {
	if p.Keeps() {
		p = r.core.Plan(p.Root())
	}
	return p.Row.Phase == rowspb.Phase_PHASE_OPEN
}

// settling says what an action in doubt waits for, and until when.
func settling(a *executor.Action) string {
	until := " until " + instant(a.Row.DueNs)
	switch {
	case a.Row.Outcome == rowspb.Outcome_OUTCOME_IN_DOUBT:
		until += ": it was given up at " + instant(a.Row.OutcomeNs)
	case a.Row.DueNs < a.LandsBy():
		return "the outcome of its forward" + until
	default:
		until += ": nobody has said what came of it"
	}
	return "its forward, which may still land" + until
}

// slowNs is how long an undo waits for its forward before it is said what would have been faster.
const slowNs = 2_000_000_000

// faster says which words of its contract let an undo wait, or have let it, until its forward could
// no longer land, and which would not; "": it did not wait, or nothing would.
func faster(p *executor.Plan, a *executor.Action) string {
	f, row, ns := a.Fixed.Forward, a.Row, a.LandsBy()
	waited := "it waits "
	switch row.Undo {
	case rowspb.Undo_UNDO_SETTLING:
		if row.DueNs < ns { // its outcome is waited for, which an agent is about to record
			return ""
		}
	case rowspb.Undo_UNDO_COMPENSATED, rowspb.Undo_UNDO_SKIPPED:
		waited = "it has waited "
		if row.SettledNs < ns || row.Attempt > 0 && (row.Attempt > 1 || row.DispatchedNs < ns) {
			return ""
		}
	default:
		return ""
	}
	known := row.Outcome == rowspb.Outcome_OUTCOME_COMPLETED ||
		row.Outcome == rowspb.Outcome_OUTCOME_FAILED
	since := max(p.Row.UnwindingNs, a.Fixed.AtNs)
	if known || a.Fixed.DutyOf != 0 || f.GetLate() == pb.Late_LATE_NEVER || p.Committing() ||
		p.Row.UnwindingNs == 0 || ns-since < slowNs {
		return ""
	}
	why := "settle: " + span(ledger.SettleNs(f.GetSettleNs(), f.GetTimeoutNs()))
	if f.GetSettleNs() == 0 {
		why = "neither late nor settle"
	}
	return waited + span(ns-since) + " because its contract has " + why + "; late: refused needs no " +
		"wait, where the provider can refuse, and a shorter settle less of it"
}

// span is a duration in ns as people read it, by the second.
func span(ns int64) string {
	return time.Duration(ns).Round(time.Second).String()
}
