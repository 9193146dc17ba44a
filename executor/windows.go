package executor

import (
	"cmp"
	"math"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// When a forward may still land. A caller that hangs up stops no provider: an effect
// that a probe does not find now may be there a moment later. So "absent" skips an undo,
// and a blind undo is sent, only once the forward can no longer land (I14, I29, S85):
// the provider refuses it because its undo came first, or it has had all the time that
// its registration allows.

// doubted reports whether no one knows if the effect of an action is there: its outcome
// is not known, and no probe has seen it or has ruled it out.
func doubted(a *action) bool {
	if a.fixed.Child != "" || a.row.Undone || staged(a) ||
		a.row.Presence != pb.Presence_PRESENCE_UNSPECIFIED {
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
	p.row.Windows = rows.Insert(p.row.Windows, a.id.N)
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
	rest := rows.Without(p.row.Windows, a.id.N)
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

// Conditions that are held after the commit of a root, inside undo windows. Each ends when the
// first window of what it would undo closes, and all of them when the plan is undone: that it is
// once. Until then they are indexed as those of an open plan, and cost as little; the fold gives
// them up by one index of instants, and looks at no plan before.

// asOf is the instant at which a lease is asked: not after its last one.
func asOf(l *rowspb.LeaseRow, ns int64) int64 {
	if l.UntilNs != 0 {
		return min(ns, l.UntilNs-1)
	}
	return ns
}

// isHeld reports whether a lease is held: in an open plan, or after the commit.
func isHeld(p *plan, l *rowspb.LeaseRow) bool { return armed(p.row) || l.UntilNs != 0 }

// AfterCommit reports whether the lease is held after the commit of its plan, too.
func (l *Lease) AfterCommit() bool { return afterCommit(l.p, l.a, l.Row) }

// turnedSince reports whether a condition that is held after the commit has turned true.
func turnedSince(r *rowspb.PlanRow) bool {
	return r.HeldOn > 0 && r.Turned != nil && !r.Turned.Clocked
}

// waitsForPart reports whether a part of a committed tree is being undone by itself, for what its
// agent did after its end: nothing is undone beside it.
func waitsForPart(p *plan) bool { return p.root().unfinished() != nil }

// partAgain is when a condition on the clock is looked at again that waits for a part of its plan;
// 0: when all parts have ended, which may take its owner days.
func (d *decider) partAgain(p *plan) int64 {
	if waitsForPart(d.live.plan(p.id)) {
		return 0
	}
	return d.in.EpochNs + heldAgain // of this very commit, which may yet be lost
}

// treeHoldsOn reports whether a tree holds conditions after its commit.
func treeHoldsOn(root *plan) bool {
	return root.row.HeldOn > 0 || !root.descendants(func(c *plan) bool { return c.row.HeldOn == 0 })
}

// afterCommit reports whether a lease was declared to be held after the commit.
func afterCommit(p *plan, a *action, l *rowspb.LeaseRow) bool {
	declared := p.row.Declared.GetTriggers()
	if a != nil {
		declared = a.fixed.Compensation.GetTriggers()
	}
	return standing(l.Name) == "" && slices.ContainsFunc(declared,
		func(t *pb.Trigger) bool { return t.Name == l.Name && t.AfterCommit })
}

// holdOn has the conditions of a root and of its parts that say so held after the commit.
func holdOn(root *plan) {
	var closes []int64 // by the action of the root; at 0 that of the whole
	keep := func(p *plan, a *action, l *rowspb.LeaseRow) {
		if !afterCommit(p, a, l) || l.Fired || stopped(l) {
			return
		}
		if closes == nil {
			closes = closings(root)
		}
		ns := closes[0]
		if l.OfAction {
			_, part := a.committedAs(true)
			ns = closes[root.s.number(root.id, part.action)]
		}
		if ns != neverNs && ns > root.s.meta.TimeNs {
			l.UntilNs = ns
			p.row.HeldOn++
		}
	}
	holdPlanOn(root, keep)
	root.descendants(func(c *plan) bool {
		if keeps(c.row) {
			holdPlanOn(c, keep)
		}
		return true
	})
}

func holdPlanOn(p *plan, keep func(*plan, *action, *rowspb.LeaseRow)) {
	if !child(p.row) { // those of a child itself went with its own commit
		for _, l := range p.row.Leases {
			keep(p, nil, l)
		}
	}
	for _, n := range p.row.Watchers {
		if a := p.action(n); !settled(a.row.Undo) && crossed(a) {
			for _, l := range a.row.Leases {
				keep(p, a, l)
			}
		}
	}
	if p.row.HeldOn > 0 {
		p.row.Turned, p.row.Behind = nil, nil
		p.s.meta.Conditions += uint64(p.row.HeldOn)
		endsAt(p)
	}
}

// closings are when the first undo window closes of what an undo reaches: at 0 of the whole plan,
// at n of action n and what came after it; neverNs: it has none.
func closings(p *plan) []int64 {
	first := slices.Repeat([]int64{neverNs}, int(p.row.Actions)+1)
	always := int64(neverNs) // of the duties that every undo before them reaches
	for n := p.row.Actions; n >= 1; n-- {
		a := p.action(n)
		own := closesOf(a)
		first[0], first[n] = min(first[0], own), min(first[n], own, always)
		before := a.fixed.Before
		if of := a.fixed.DutyOf; of != 0 {
			before = append(slices.Clone(before), of)
			if settled(p.action(of).row.Undo) || a.row.Extra {
				always = first[n]
			}
		}
		for _, m := range before {
			first[m] = min(first[m], first[n])
		}
	}
	return first
}

// closesOf is when the undo window of an action closes, or the first one of a child plan.
func closesOf(a *action) int64 {
	switch {
	case settled(a.row.Undo):
	case a.fixed.Child != "":
		return closings(a.plan.s.plan(a.fixed.Child))[0]
	case crossed(a):
		return closesBy(a)
	}
	return neverNs
}

// closesBy is when the undo window of an action is taken to close that is committed now. One that
// counts from a completion of which no one knows counts from now: whatever becomes known later, it
// does not close before.
func closesBy(a *action) int64 {
	closes, c := a.row.ClosesNs, a.fixed.Compensation
	if closes == 0 {
		closes = neverNs
	}
	if c.GetValidForNs() > 0 && a.row.Outcome != rowspb.Outcome_OUTCOME_COMPLETED {
		now := a.plan.s.meta.TimeNs
		closes = min(closes, now+min(c.ValidForNs, epochMax-now))
	}
	return closes
}

// lookOn looks at what a tree holds after its commit: the plan has another status.
func lookOn(root *plan, at *pb.Address) {
	look := func(p *plan) bool {
		if p.row.HeldOn > 0 {
			p.evaluatePlan(at)
		}
		return true
	}
	look(root)
	root.descendants(look)
}

// dropLeases gives up leases that are not held after the commit.
func dropLeases(p *plan, a *action, list []*rowspb.LeaseRow) {
	for _, l := range list {
		if l.UntilNs == 0 {
			p.s.index(rows.Lease{Plan: p.id, N: number(a), Name: l.Name}, l, 0, nil, false)
		}
	}
}

// lastLook asks a condition on the clock which is not known to have turned true, as of an instant
// and of its last one: its holder may be late.
func lastLook(s *fold, p *plan, a *action, l *rowspb.LeaseRow, ns int64) {
	held := p.hold(a, l)
	if held == nil || !held.ReadsClock() || l.TurnedNs != 0 || stopped(l) {
		return
	}
	ref := rows.Lease{Plan: p.id, N: number(a), Name: l.Name}
	if last := held.Evaluate(asOf(l, ns), s.memory.View()); last.Truth == triggers.True {
		p.turn(ref, s.e.Address, true, last.Readings)
		p.noteTurning(ref, l, last.Keys)
		keepTurned(p, l)
		s.index(ref, l, wakeNow, nil, false)
		p.mark(a)
	}
}
