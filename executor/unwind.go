package executor

import (
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The order of an unwind. Actions form a partial order: each names the ones it came after. An
// action may be undone when everything that came after it is clear (I21); what is quarantined is
// not, so the branch below it halts while independent branches finish, unless the plan says
// continue, or it is an irreversible act that nothing was undone after.

// passed reports whether an action lets what it came after go.
func passed(p *plan, a *action) bool {
	switch a.row.Undo {
	case rowspb.Undo_UNDO_COMPENSATED, rowspb.Undo_UNDO_SKIPPED:
		return true
	case rowspb.Undo_UNDO_RESOLVED:
		return !a.row.Resolution.GetHalt()
	case rowspb.Undo_UNDO_QUARANTINED:
		return a.row.LetsGo ||
			p.row.Declared.GetOnUndoFailure() == pb.OnUndoFailure_ON_UNDO_FAILURE_CONTINUE
	default:
		return false
	}
}

// isClear reports whether an action has passed and nothing blocks it: so what joins
// after a settled action still holds back all that came before.
func isClear(p *plan, a *action) bool { return passed(p, a) && a.row.Blockers == 0 }

// settled reports whether an action's part in the held set has ended.
func settled(u rowspb.Undo) bool {
	switch u {
	case rowspb.Undo_UNDO_COMPENSATED, rowspb.Undo_UNDO_SKIPPED, rowspb.Undo_UNDO_RESOLVED:
		return true
	default:
		return false
	}
}

// flying reports whether a call of an action is out, or waits for its next try.
func flying(u rowspb.Undo) bool {
	return u == rowspb.Undo_UNDO_DISPATCHED || u == rowspb.Undo_UNDO_WAITING
}

// ordered reports whether a plan keeps count of blockers: from its unwind on.
func ordered(r *rowspb.PlanRow) bool {
	switch r.Phase {
	case rowspb.Phase_PHASE_OPEN, rowspb.Phase_PHASE_COMMITTED, rowspb.Phase_PHASE_COMMITTING:
		return false
	default:
		return true
	}
}

// move takes an action into another state of its undo. Every list and counter of
// its plan that depends on the state is kept here and nowhere else.
func (a *action) move(to rowspb.Undo) {
	p, s := a.plan, a.plan.s
	r, n, from := p.row, a.id.N, a.row.Undo
	was := isClear(p, a)
	if a.row.Ahead != nil {
		a.callBack()
	}
	switch from {
	case rowspb.Undo_UNDO_DISPATCHED:
		if to != rowspb.Undo_UNDO_COMPENSATED && to != rowspb.Undo_UNDO_DISPATCHED {
			a.callBackBehind()
		}
		if s.base == nil {
			s.landed = append(s.landed, About{p.id, a.fixed.Id})
		}
	case rowspb.Undo_UNDO_READY:
		r.Ready = rows.Without(r.Ready, n)
	case rowspb.Undo_UNDO_SETTLING:
		r.Settling = rows.Without(r.Settling, n)
	case rowspb.Undo_UNDO_EXHAUSTED:
		r.Parked = rows.Without(r.Parked, n)
	case rowspb.Undo_UNDO_QUARANTINED:
		leaveOwner(a)
	case rowspb.Undo_UNDO_COMPENSATED:
		r.Compensated--
		r.InScope--
	case rowspb.Undo_UNDO_SKIPPED:
		r.Skipped--
	case rowspb.Undo_UNDO_RESOLVED:
		r.Resolved--
	}
	switch to {
	case rowspb.Undo_UNDO_READY:
		r.Ready = rows.Insert(r.Ready, n)
		a.row.ReadyNs = s.meta.TimeNs
	case rowspb.Undo_UNDO_SETTLING:
		r.Settling = rows.Insert(r.Settling, n)
	case rowspb.Undo_UNDO_EXHAUSTED:
		r.Parked = rows.Insert(r.Parked, n)
	case rowspb.Undo_UNDO_QUARANTINED:
		reachOwner(a)
	case rowspb.Undo_UNDO_COMPENSATED:
		r.Compensated++
		r.InScope++
	case rowspb.Undo_UNDO_SKIPPED:
		r.Skipped++
	case rowspb.Undo_UNDO_RESOLVED:
		r.Resolved++
		r.ByHand = true
	}
	a.row.Undo = to
	a.count(from, to)
	a.change()
	p.touch()
	if to == rowspb.Undo_UNDO_COMPENSATED || to == rowspb.Undo_UNDO_RESOLVED {
		undoneNow(a)
	}
	if now := isClear(p, a); now != was && ordered(r) {
		if now {
			a.release()
		} else {
			a.block()
		}
	}
}

// count keeps what is held and what is in flight.
func (a *action) count(from, to rowspb.Undo) {
	p := a.plan
	s := p.s
	if flying(to) && !flying(from) {
		p.row.InFlight++
	} else if flying(from) && !flying(to) {
		p.row.InFlight--
		p.admit()
	}
	if from == rowspb.Undo_UNDO_SETTLING {
		p.admit()
	}
	registration := a.fixed.Child == ""
	switch {
	case settled(to) && !settled(from):
		p.row.Unsettled--
		holds(p, -a.conditions())
		if registration {
			s.meta.Held--
		}
	case settled(from) && !settled(to):
		p.row.Unsettled++
		holds(p, a.conditions())
		if registration {
			s.meta.Held++
		}
	}
}

// settle ends an action's part in the unwind.
func (a *action) settle(undo rowspb.Undo, at *pb.Address) {
	a.row.Settled, a.row.SettledNs = at, a.plan.s.meta.TimeNs
	a.move(undo)
	if settled(undo) { // also what the move has called back
		a.row.AliveUntilNs = 0
	}
}

// block makes the predecessors of an action that is not clear wait for it.
func (a *action) block() {
	p := a.plan
	for _, m := range a.fixed.Before {
		b := p.action(m)
		was := isClear(p, b)
		b.row.Blockers++
		b.change()
		if b.row.Ahead != nil {
			b.callBack()
		} else {
			b.callBackBehind()
		}
		if b.row.Undo == rowspb.Undo_UNDO_READY || b.row.Undo == rowspb.Undo_UNDO_SETTLING {
			b.dropRetry()
			b.move(rowspb.Undo_UNDO_OWED)
		}
		if was {
			b.block()
		}
	}
}

// release lets the predecessors of an action that is clear now go.
func (a *action) release() {
	p := a.plan
	for _, m := range a.fixed.Before {
		b := p.action(m)
		b.row.Blockers--
		b.change()
		switch {
		case b.row.Blockers > 0:
		case b.row.Undo == rowspb.Undo_UNDO_OWED:
			b.makeReady()
		case passed(p, b):
			b.release()
		}
	}
}

// startUnwind turns the held set, or the part of it that is to be undone, into what is owed. It is
// the one pass over a plan's actions; from here on the cost of a step is that step.
func (p *plan) startUnwind() {
	s := p.s
	p.disarm()
	stopAsking(p)
	if p.row.Turned = nil; !p.row.Rewinding { // else it waits for the plan to be open again
		p.row.Behind = nil
	}
	p.row.UnwindingNs, p.row.UndoneNow = s.meta.TimeNs, false
	p.phase(rowspb.Phase_PHASE_UNWINDING)
	for n := uint32(1); n <= p.row.Actions; n++ {
		a := p.action(n)
		a.row.Blockers, a.row.UndoneAfter = 0, false
	}
	reached := p.reach(goesBack(p.row), p.row.Target+1)
	// Descending: everything that came after n is counted when n is looked at.
	for n := p.row.Actions; n >= 1; n-- {
		a := p.action(n)
		a.change()
		if a.row.Undo == rowspb.Undo_UNDO_HELD && reached(n) {
			a.row.Undo = rowspb.Undo_UNDO_OWED
		}
		if !isClear(p, a) {
			for _, m := range a.fixed.Before {
				p.action(m).row.Blockers++
			}
		}
	}
	for n := uint32(1); n <= p.row.Actions; n++ {
		if a := p.action(n); a.row.Blockers == 0 && a.row.Undo == rowspb.Undo_UNDO_OWED {
			a.makeReady()
		}
	}
	p.touch()
}

// makeReady lets an owed action's undo begin, now or once its forward can no longer
// land. An entry of a child plan follows that plan.
func (a *action) makeReady() {
	if a.fixed.Child == "" {
		if a.takeOff() {
			return
		}
		if ns := a.settlesAt(); ns != 0 {
			a.settleUntil(ns)
		} else {
			a.move(rowspb.Undo_UNDO_READY)
		}
		return
	}
	switch a.plan.s.plan(a.fixed.Child).row.Phase {
	case rowspb.Phase_PHASE_UNWINDING:
		a.move(rowspb.Undo_UNDO_DISPATCHED)
	case rowspb.Phase_PHASE_QUARANTINED:
		entryQuarantined(a)
	default:
		a.move(rowspb.Undo_UNDO_READY)
	}
}

// enlist gives a plan its next action, held, or the entry of a child plan.
func (p *plan) enlist(fixed *rowspb.ActionStatic, row *rowspb.ActionRow) *action {
	s := p.s
	p.row.Actions++
	p.row.Unsettled++
	if fixed.Child == "" {
		s.meta.Held++
	}
	p.row.MayLetGo = p.row.MayLetGo || p.row.LastGoes && (fixed.Child != "" ||
		fixed.Forward.GetClass() == pb.Class_CLASS_IRREVERSIBLE)
	p.touch()
	return s.addAction(p.id, p.row.Actions, fixed, row)
}

// joinUnwind adds an action that landed after the unwind began. What it came
// after, and has not been started, waits for it.
func (a *action) joinUnwind() {
	a.plan.reopen()
	a.row.Undo = rowspb.Undo_UNDO_OWED
	a.block()
	a.makeReady()
}

// owe gives an action back to the unwind: ready, or waiting for what came after it and joined.
func (a *action) owe() {
	if a.plan.committing() {
		a.weigh()
		return
	}
	a.dropRetry()
	a.move(rowspb.Undo_UNDO_OWED)
	if a.row.Blockers == 0 {
		a.makeReady()
	}
}

// park marks an action whose undo cannot go on by itself: Decide quarantines it.
func (a *action) park() { a.move(rowspb.Undo_UNDO_EXHAUSTED) }

// phase takes a plan into another phase, and its entry in a parent with it.
func (p *plan) phase(to rowspb.Phase) {
	s := p.s
	from, was := p.row.Phase, armed(p.row)
	*s.counter(from)--
	*s.counter(to)++
	p.row.Phase = to
	turnsArmed(p, was)
	if from == rowspb.Phase_PHASE_QUARANTINED || to == rowspb.Phase_PHASE_QUARANTINED ||
		len(p.row.Orphans) > 0 {
		p.listOwner()
	}
	p.touch()
	p.follow(from)
}

// counter is where a phase is counted.
func (s *State) counter(phase rowspb.Phase) *uint64 {
	switch phase {
	case rowspb.Phase_PHASE_OPEN, rowspb.Phase_PHASE_COMMITTING:
		return &s.meta.Open
	case rowspb.Phase_PHASE_UNWINDING:
		return &s.meta.Unwinding
	case rowspb.Phase_PHASE_QUARANTINED:
		return &s.meta.Quarantined
	default:
		return &s.meta.Ended
	}
}

// reopen takes a plan that had ended back into its unwind: something is owed
// again, and a terminal state must mean what it says.
func (p *plan) reopen() {
	switch p.row.Phase {
	case rowspb.Phase_PHASE_RESOLVED:
		p.s.meta.Held += uint64(p.registrations())
	case rowspb.Phase_PHASE_COMPENSATED, rowspb.Phase_PHASE_FAILED, rowspb.Phase_PHASE_QUARANTINED:
	default:
		return
	}
	for i := range p.s.notices {
		if n := &p.s.notices[i]; n.Plan == p.id && n.At == p.row.Ended.GetSequence() {
			n.At = 0 // it is over before it is told
		}
	}
	p.row.EndedNs, p.row.Ended = 0, nil
	p.phase(rowspb.Phase_PHASE_UNWINDING)
}

// registrations counts the unsettled actions of a plan that are not entries of child plans.
func (p *plan) registrations() uint32 {
	count := p.row.Unsettled
	for _, n := range p.row.Children {
		if !settled(p.action(n).row.Undo) {
			count--
		}
	}
	return count
}

// extra is the duty for an extra effect of an action.
func (s about) extra(ref string) *action {
	a := s.a
	return a.duty(s.e.Address, &rowspb.ActionRow{
		Outcome: rowspb.Outcome_OUTCOME_IN_DOUBT, Presence: pb.Presence_PRESENCE_PRESENT,
		ExternalRef: ref, ClosesNs: a.row.ClosesNs, Approved: a.row.Approved, Extra: armed(a.plan.row) ||
			a.plan.row.Phase == rowspb.Phase_PHASE_COMMITTED && anytime(s.State),
	}, nil)
}

// namedOtherwise is the name under which a probe has seen the effect of an action, of which a
// record completes another one before its undo has begun, or "": both are there.
func namedOtherwise(a *action, r *pb.Record) string {
	ref, seen := r.GetForwardCompleted().GetExternalRef(), a.row.FoundRef
	if ref == "" || ref == a.name() || !isThere(a) || a.row.Late || settled(a.row.Undo) ||
		undoesSeen(a) || refusesLate(a) {
		return ""
	}
	return seen
}

// beside owes what a probe has seen of an action beside what its forward says. While its plan is
// open it is held with it: a provider may have two names for one thing.
func (s about) beside(seen string) {
	switch phase := s.a.plan.row.Phase; {
	case foundTooMuch(s.a):
		if extras := extrasBeside(s.a, append([]string{seen}, s.a.row.Duplicates...)); extras != nil {
			s.a.row.Duplicates, s.a.row.Note = extras, extraEffects(extras)
		}
	case seen == "":
	case phase == rowspb.Phase_PHASE_OPEN, phase == rowspb.Phase_PHASE_COMMITTING:
		s.extra(seen)
	default:
		s.duplicate(seen)
	}
}

// foundTooMuch reports whether a commit has found more than one effect of an action, and its owner
// has yet to say what becomes of them. That one of them is its agent's own is no answer to that.
func foundTooMuch(a *action) bool {
	pending := slices.Contains(a.plan.row.Duplicated, a.id.N) // for a lease
	return len(a.row.Duplicates) > 0 && !pending && a.asksForCommit() &&
		a.plan.s.meta.HolderFold >= ledger.SurplusSince
}

// extrasBeside are, of the effects that were found of an action, those that are neither its own nor
// owed.
func extrasBeside(a *action, found []string) (extras []string) {
	for _, ref := range found {
		if ref != "" && ref != a.name() && !a.owedTo(ref) && !slices.Contains(extras, ref) {
			extras = append(extras, ref)
		}
	}
	return extras
}

// oweFound owes, in an unwind that begins, what a commit has found of a plan beside what its agent
// calls its own: no one looks for that again.
func oweFound(s *fold, p *plan) {
	for n := uint32(1); n <= p.row.Actions; n++ {
		a := p.action(n)
		out := a.row.Undo == rowspb.Undo_UNDO_HELD || settled(a.row.Undo) ||
			slices.Contains(p.row.Duplicated, n)
		if out || len(a.row.Duplicates) == 0 || s.meta.HolderFold < ledger.SurplusSince {
			continue
		}
		extras := extrasBeside(a, a.row.Duplicates)
		a.row.Duplicates = nil
		a.change()
		for _, ref := range extras {
			s.about(a).duplicate(ref)
		}
	}
}

// lastPart says which part of a plan was undone last.
func lastPart(r *rowspb.PlanRow) string {
	last := r.PartWords[len(r.PartWords)-1]
	if last.Savepoint != "" {
		return "back to savepoint " + last.Savepoint
	}
	return "from action " + last.Action + " on"
}
