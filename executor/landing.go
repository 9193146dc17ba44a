package executor

import (
	"cmp"
	"math"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// When a forward may still land. A caller that hangs up stops no provider: an effect
// that a probe does not find now may be there a moment later. So "absent" skips an undo,
// and a blind undo is sent, only once the forward can no longer land (I14, I29, S85):
// the provider refuses it because its undo came first, or it has had all the time that
// its registration allows.

// doubted reports whether no one knows if the effect of an action is there: its outcome
// is not known, and no probe has seen it or has ruled it out.
func doubted(a *action) bool {
	if a.fixed.Child != "" || a.row.Undone || a.row.Presence != pb.Presence_PRESENCE_UNSPECIFIED {
		return false
	}
	return a.row.Outcome == rowspb.Outcome_OUTCOME_UNKNOWN ||
		a.row.Outcome == rowspb.Outcome_OUTCOME_IN_DOUBT
}

// refusesLate reports whether the provider refuses a forward whose undo came first. A
// blind undo is final then, whenever it is sent.
func refusesLate(a *action) bool { return a.fixed.Forward.GetLate() == pb.Late_LATE_REFUSED }

// startedBy is the latest instant at which the forward of an action was called: soon
// after its registration, or any time until the unwind when it waited for a verdict, or
// when another process has resumed the plan since, which may have called it once more.
func startedBy(p *plan, a *action) int64 {
	if a.fixed.Forward.GetReview() || a.fixed.AtNs <= p.row.ResumedNs {
		return max(a.fixed.AtNs, p.row.UnwindingNs)
	}
	return a.fixed.AtNs
}

// graceOf is for how long the caller of a forward lets it run on once its plan unwinds.
func graceOf(a *action) int64 {
	return cmp.Or(a.fixed.Forward.GetGraceNs(), int64(ledger.GraceDefault))
}

// givenUpBy is the instant by which the caller of a forward without an outcome has given
// it up: when it runs out of time, and without a bound at the end of the grace, for an
// agent that lives has heard of the unwind by then.
func givenUpBy(p *plan, a *action) int64 {
	if timeout := a.fixed.Forward.GetTimeoutNs(); timeout > 0 {
		return plusNs(startedBy(p, a), graceOf(a)+timeout)
	}
	return plusNs(max(startedBy(p, a), p.row.UnwindingNs), graceOf(a))
}

// landsBy is the instant (unix ns) from which on a forward in doubt can no longer land. One
// that ends with its caller has ended when its record says so. Without that record, when its
// caller gives up is told by the caller's clock and the ledger's, and a decision by the
// holder's: NeverSettles is what they may differ by.
func landsBy(p *plan, a *action) int64 {
	f := a.fixed.Forward
	settle := ledger.SettleNs(f.GetSettleNs(), f.GetTimeoutNs())
	never, said := f.GetLate() == pb.Late_LATE_NEVER, a.row.Outcome == rowspb.Outcome_OUTCOME_IN_DOUBT
	switch {
	case said && never:
		return a.row.OutcomeNs
	case said:
		return plusNs(a.row.OutcomeNs, settle)
	case never:
		settle = int64(ledger.NeverSettles)
	}
	return plusNs(givenUpBy(p, a), settle)
}

// reportSlack is how long after the end of its grace a forward's outcome may reach the
// ledger, in ns; at most as long as the grace.
const reportSlack = int64(500e6)

// settlesAt is the instant (unix ns) before which an unwind does nothing about an action
// in doubt; 0: it may go on at once.
func (s *State) settlesAt(p *plan, a *action) int64 {
	class := a.fixed.Forward.GetClass()
	if !doubted(a) || a.row.Late || class == pb.Class_CLASS_EFFECTLESS {
		return 0
	}
	next := stepQuarantine
	asks := s.committing(p)
	if asks {
		next, _ = commitStep(a)
	} else if a.fixed.Compensation.GetCapability() != "" && class != pb.Class_CLASS_IRREVERSIBLE {
		next, _ = doubt(a)
	}
	switch owner := next == stepQuarantine; {
	case !owner && !asks && refusesLate(a):
		return 0
	case next == stepDispatch, next == stepProbe && a.row.AbsentNs != 0:
		return landsBy(p, a)
	case a.row.Outcome == rowspb.Outcome_OUTCOME_UNKNOWN:
		// Its caller may be about to say what came of it: no answer is better than that.
		grace := graceOf(a)
		return plusNs(max(startedBy(p, a), p.row.UnwindingNs), grace+min(grace, reportSlack))
	default:
		return 0
	}
}

// settles says why a decision about an action that settles comes too early, or "".
func (s *State) settles(e ledger.Entry, p *plan, a *action) string {
	if ns := s.settlesAt(p, a); a.row.Undo == rowspb.Undo_UNDO_SETTLING && e.Record.EpochNs < ns {
		return "the forward of action " + a.fixed.Id + " may land until " + instant(ns)
	}
	return ""
}

// mayLand reports whether a question that was asked at an instant was too early to rule
// the effect of an action out.
func mayLand(p *plan, a *action, askedNs int64) bool {
	return doubted(a) && askedNs < landsBy(p, a)
}

// plusNs adds a duration of at most 2 * SettleMax to an instant, both in ns, without an
// overflow.
func plusNs(ns, d int64) int64 { return min(ns, math.MaxInt64-2*int64(ledger.SettleMax)) + d }

// settleUntil lets an action wait until its forward can no longer land, or its caller
// has had the time to say what came of it.
func (s *State) settleUntil(p *plan, a *action, ns int64) {
	a.row.DueNs = ns
	s.setDue(ns, rows.DueRetry, rows.Lease{Plan: p.id, N: a.id.N})
	s.move(p, a, rowspb.Undo_UNDO_SETTLING)
}

// rouseSettled has the actions of a plan that settle looked at again: one whose time had
// come may have found no room among the undos in flight.
func (s *State) rouseSettled(p *plan) {
	for _, n := range p.row.Settling {
		s.rouse(rows.Due.Key(rows.Instant{
			Ns: s.action(p.id, n).row.DueNs, Kind: rows.DueRetry, Lease: rows.Lease{Plan: p.id, N: n},
		}))
	}
}

// settling says what an action in doubt waits for, and until when.
func settling(p *plan, a *action) string {
	until := " until " + instant(a.row.DueNs)
	switch {
	case a.row.Outcome == rowspb.Outcome_OUTCOME_IN_DOUBT:
		until += ": it was given up at " + instant(a.row.OutcomeNs)
	case a.row.DueNs < landsBy(p, a):
		return "the outcome of its forward" + until
	default:
		until += ": nobody has said what came of it"
	}
	return "its forward, which may still land" + until
}

// reconsider looks again at an action that is ready or settles: what is known of its
// forward has changed.
func (s *State) reconsider(p *plan, a *action) {
	if begins(a) {
		s.owe(p, a)
	}
}
