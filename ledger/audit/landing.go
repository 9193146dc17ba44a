package audit

import (
	"math"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// I29: nothing lands after a plan's end. What is known of a forward comes from its
// outcome and from probes. As long as neither says whether the effect is there, it may
// still come: until its provider has refused it, or until its time is over.

// unsure reports whether the effect of an action may be there or not.
func (a *action) unsure() bool {
	known := a.outcome == completed || a.outcome == failed
	return a.child == nil && !known && !a.undone && a.presence == pb.Presence_PRESENCE_UNSPECIFIED
}

// barred reports whether the provider refuses the forward once its undo is there.
func (a *action) barred() bool { return a.forward.GetLate() == pb.Late_LATE_REFUSED }

// span is a duration of the registration, or what it stands for when it is 0.
func span(ns int64, otherwise int64) int64 {
	if ns == 0 {
		return otherwise
	}
	return ns
}

// sum adds a duration to an instant; instants end well before they overflow.
func sum(at, d int64) int64 { return min(at, math.MaxInt64-2*int64(ledger.SettleMax)) + d }

// lastWord is when whoever called the forward has had its last chance to give it up: it
// ran out of time, or has let it run for the grace of an unwind.
func (p *plan) lastWord(a *action, slack bool) int64 {
	began, f := a.atNs, a.forward
	again := a.atNs <= p.writerSinceNs                     // another process may have called it since
	if (f.GetReview() || again) && p.unwindingNs > began { // it waited for its verdict
		began = p.unwindingNs
	}
	grace := span(f.GetGraceNs(), int64(ledger.GraceDefault))
	if slack {
		return sum(max(began, p.unwindingNs), grace+min(grace, 500e6))
	}
	if f.GetTimeoutNs() != 0 {
		return sum(began, grace+f.GetTimeoutNs())
	}
	return sum(max(began, p.unwindingNs), grace)
}

// landed is the instant from which on the forward can no longer land.
func (p *plan) landed(a *action) int64 {
	settle := span(a.forward.GetSettleNs(), span(a.forward.GetTimeoutNs(), int64(ledger.SettleDefault)))
	local := a.forward.GetLate() == pb.Late_LATE_NEVER // it ends with the call
	switch {
	case a.outcome == inDoubt && local:
		return a.outcomeNs
	case a.outcome == inDoubt:
		return sum(a.outcomeNs, settle)
	case local: // when that was, three clocks say
		settle = int64(ledger.NeverSettles)
	}
	return sum(p.lastWord(a, false), settle)
}

// tooEarly reports whether a question asked at an instant could not see what comes.
func (p *plan) tooEarly(a *action, askedNs int64) bool { return a.unsure() && askedNs < p.landed(a) }

// What the contract does about doubt.
const (
	doubtAsk   = "ask"
	doubtUndo  = "undo"
	doubtOwner = "owner"
)

// policy is what the contract wants of an action whose effect may be there or not.
func (a *action) policy() string {
	c := a.compensation
	switch {
	case a.forward.GetClass() == pb.Class_CLASS_IRREVERSIBLE || c.GetCapability() == "":
		return doubtOwner
	case c.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_QUARANTINE && !a.approved:
		return doubtOwner
	case c.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_COMPENSATE || c.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_QUARANTINE:
		return doubtUndo
	case c.Probe == nil:
		return doubtUndo
	case a.barred() && (c.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_UNSPECIFIED || a.absentNs != 0):
		return doubtUndo // what comes after it is refused
	default:
		return doubtAsk
	}
}

// settlesBy is the instant before which nothing is done about an action; 0: none.
func (p *plan) settlesBy(a *action) int64 {
	if !a.unsure() || a.late || a.forward.GetClass() == pb.Class_CLASS_EFFECTLESS {
		return 0
	}
	switch policy := a.policy(); {
	case policy != doubtOwner && a.barred():
		return 0
	case policy == doubtUndo, policy == doubtAsk && a.absentNs != 0:
		return p.landed(a)
	case a.outcome == unheardOf:
		return p.lastWord(a, true)
	}
	return 0
}

// settles reports whether a ready action waits for its forward at an epoch.
func (p *plan) settles(a *action, epochNs int64) bool {
	return p.isReady(a) && epochNs < p.settlesBy(a)
}
