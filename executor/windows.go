package executor

import (
	"cmp"
	"math"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
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
	case !said && a.row.Undo == rowspb.Undo_UNDO_HELD && !p.committing() && unbounded(p, a):
		return neverNs
	case said && never:
		return a.row.OutcomeNs
	case said:
		return plusNs(a.row.OutcomeNs, settle)
	case never:
		settle = int64(ledger.NeverSettles)
	}
	return plusNs(givenUpBy(p, a), settle)
}

// neverNs is the instant at which a forward can no longer land of which no one knows when that is.
const neverNs = math.MaxInt64

// unbounded reports whether the forward of an action that is held may run for ever: its caller
// gives it up when it is to be undone, or may call it yet.
func unbounded(p *plan, a *action) bool {
	f := a.fixed.Forward
	return f.GetTimeoutNs() == 0 || f.GetReview() || a.fixed.AtNs <= p.row.ResumedNs
}

// reportSlack is how long after the end of its grace a forward's outcome may reach the
// ledger, in ns; at most as long as the grace.
const reportSlack = int64(500e6)

// settlesAt is the instant (unix ns) before which an unwind does nothing about an action
// in doubt; 0: it may go on at once.
func (a *action) settlesAt() int64 {
	p := a.plan
	class := a.fixed.Forward.GetClass()
	if !doubted(a) || a.row.Late || class == pb.Class_CLASS_EFFECTLESS {
		return 0
	}
	next := stepQuarantine
	asks := p.committing()
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
func (s about) settles() string {
	a := s.a
	if ns := a.settlesAt(); a.row.Undo == rowspb.Undo_UNDO_SETTLING && s.e.Record.EpochNs < ns {
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
func (a *action) settleUntil(ns int64) {
	a.row.DueNs = ns
	a.plan.s.due.Set(ns, rows.DueRetry, rows.Lease{Plan: a.plan.id, N: a.id.N})
	a.move(rowspb.Undo_UNDO_SETTLING)
}

// admit has the first action of a plan that settles and found no room among the undos in flight
// looked at again, where there is room.
func (p *plan) admit() {
	if p.row.InFlight < concurrency(p.row) {
		p.s.due.Admit(p.id)
	}
}

// reconsider looks again at an action that is ready or settles: what is known of its
// forward has changed.
func (a *action) reconsider() {
	if begins(a) {
		a.owe()
	}
}

// Undo windows. A provider takes an undo back only for so long: valid_for after
// completion, or until an instant that the registration names. After it an
// effect is its owner's; some time before it the owner of a held one is warned.

// windowOf sets the end of an action's undo window, when it is registered and
// again when it completes, and arms the warning.
func (a *action) windowOf() {
	s := a.plan.s
	c := a.fixed.Compensation
	closes := c.GetValidUntilNs()
	if c.GetValidForNs() > 0 && a.row.Outcome == rowspb.Outcome_OUTCOME_COMPLETED {
		if end := s.meta.TimeNs + min(c.ValidForNs, epochMax-s.meta.TimeNs); closes == 0 || end < closes {
			closes = end
		}
	}
	if closes == a.row.ClosesNs {
		return
	}
	a.dropWarning()
	a.row.ClosesNs, a.row.Warned = closes, false // it was warned of another end
	a.change()
	a.warnOf()
}

// warnMax is how long before the end of a window its owner is warned at most, when
// the contract does not say: a tenth of the window, and no more than a day.
const warnMax = int64(24 * 3600e9)

func warnNs(a *action) int64 {
	if w := a.fixed.Compensation.GetWarnNs(); w > 0 {
		return max(a.row.ClosesNs-w, 1)
	}
	return max(a.row.ClosesNs-min((a.row.ClosesNs-a.fixed.AtNs)/10, warnMax), 1)
}

// warnOf arms the warning of a held action.
func (a *action) warnOf() {
	p := a.plan
	if a.row.ClosesNs == 0 || settled(a.row.Undo) || !armed(p.row) {
		return
	}
	p.row.Windows = insert(p.row.Windows, a.id.N)
	if !a.row.Warned {
		p.s.due.Set(warnNs(a), rows.DueWindow, rows.Lease{Plan: p.id, N: a.id.N})
	}
	p.touch()
}

// dropWarning gives up the warning of an action. A page that no hook has taken yet is
// closed, and counts as never asked for: should the action be held again, it is warned of
// again.
func (a *action) dropWarning() {
	p := a.plan
	rest := without(p.row.Windows, a.id.N)
	if len(rest) == len(p.row.Windows) {
		return
	}
	p.row.Windows = rest
	p.touch()
	if !a.row.Warned {
		p.s.due.Drop(warnNs(a), rows.DueWindow, rows.Lease{Plan: p.id, N: a.id.N})
	} else if p.unpage(a, api.PageWindowClosing) {
		a.row.Warned = false
		a.change()
	}
}

// dropWarnings gives up all warnings of a plan: its held set is given up, or owed.
func (p *plan) dropWarnings() {
	for len(p.row.Windows) > 0 {
		p.action(p.row.Windows[len(p.row.Windows)-1]).dropWarning()
	}
}

// warns reports whether an action's owner is to be warned.
func warns(p *plan, a *action) bool {
	return armed(p.row) && !settled(a.row.Undo) && a.row.ClosesNs != 0 && !a.row.Warned
}

func (s about) windowClosing(k *pb.UndoWindowClosing) Result {
	p, a := s.a.plan, s.a
	if !warns(p, a) || k.ClosesNs != a.row.ClosesNs {
		return void("action %s is %s, with no such window", a.fixed.Id, undoName(a.row.Undo))
	}
	s.due.Drop(warnNs(a), rows.DueWindow, rows.Lease{Plan: p.id, N: a.id.N})
	a.row.Warned = true
	a.change()
	p.page(a, api.PageWindowClosing, "its undo window closes at "+instant(k.ClosesNs), s.e.Address)
	return effective
}
