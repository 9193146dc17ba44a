package executor

import (
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The order of an unwind. Actions form a partial order: each names the ones it
// came after. An action may be undone when everything that came after it is
// clear (I21); what is quarantined is not, so the branch below it halts while
// independent branches finish, unless the plan says continue.

// passed reports whether an action lets what it came after go.
func passed(p *plan, a *action) bool {
	switch a.row.Undo {
	case rowspb.Undo_UNDO_COMPENSATED, rowspb.Undo_UNDO_SKIPPED:
		return true
	case rowspb.Undo_UNDO_RESOLVED:
		return !a.row.Resolution.GetHalt()
	case rowspb.Undo_UNDO_QUARANTINED:
		return p.row.Declared.GetOnUndoFailure() == pb.OnUndoFailure_ON_UNDO_FAILURE_CONTINUE
	default:
		return false
	}
}

// isClear reports whether an action has passed and nothing blocks it: so what joins
// behind a settled action still holds back all that came before.
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
func (s *State) move(p *plan, a *action, to rowspb.Undo) {
	r, n, from := p.row, a.id.N, a.row.Undo
	was := isClear(p, a)
	switch from {
	case rowspb.Undo_UNDO_DISPATCHED:
		if s.base == nil {
			s.landed = append(s.landed, About{p.id, a.fixed.Id})
		}
	case rowspb.Undo_UNDO_READY:
		r.Ready = without(r.Ready, n)
	case rowspb.Undo_UNDO_SETTLING:
		r.Settling = without(r.Settling, n)
	case rowspb.Undo_UNDO_EXHAUSTED:
		r.Parked = without(r.Parked, n)
	case rowspb.Undo_UNDO_QUARANTINED:
		r.Quarantined--
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
		r.Ready = insert(r.Ready, n)
		a.row.ReadyNs = s.meta.TimeNs
	case rowspb.Undo_UNDO_SETTLING:
		r.Settling = insert(r.Settling, n)
	case rowspb.Undo_UNDO_EXHAUSTED:
		r.Parked = insert(r.Parked, n)
	case rowspb.Undo_UNDO_QUARANTINED:
		r.Quarantined++
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
	s.count(p, a, from, to)
	s.change(a)
	s.touch(p)
	if now := isClear(p, a); now != was && ordered(r) {
		if now {
			s.release(p, a)
		} else {
			s.block(p, a)
		}
	}
}

// count keeps what is held and what is in flight.
func (s *State) count(p *plan, a *action, from, to rowspb.Undo) {
	if flying(to) && !flying(from) {
		p.row.InFlight++
	} else if flying(from) && !flying(to) {
		p.row.InFlight--
		s.rouseSettled(p)
	}
	registration := a.fixed.Child == ""
	switch {
	case settled(to) && !settled(from):
		p.row.Unsettled--
		if registration {
			s.meta.Held--
		}
	case settled(from) && !settled(to):
		p.row.Unsettled++
		if registration {
			s.meta.Held++
		}
	}
}

// settle ends an action's part in the unwind.
func (s *State) settle(p *plan, a *action, undo rowspb.Undo, at *pb.Address) {
	a.row.Settled, a.row.SettledNs = at, s.meta.TimeNs
	if settled(undo) {
		a.row.AliveUntilNs = 0
	}
	s.move(p, a, undo)
}

// block makes the predecessors of an action that is not clear wait for it.
func (s *State) block(p *plan, a *action) {
	for _, m := range a.fixed.Before {
		b := s.action(p.id, m)
		was := isClear(p, b)
		b.row.Blockers++
		s.change(b)
		if b.row.Undo == rowspb.Undo_UNDO_READY || b.row.Undo == rowspb.Undo_UNDO_SETTLING {
			s.dropRetry(p, b)
			s.move(p, b, rowspb.Undo_UNDO_OWED)
		}
		if was {
			s.block(p, b)
		}
	}
}

// release lets the predecessors of an action that is clear now go.
func (s *State) release(p *plan, a *action) {
	for _, m := range a.fixed.Before {
		b := s.action(p.id, m)
		b.row.Blockers--
		s.change(b)
		switch {
		case b.row.Blockers > 0:
		case b.row.Undo == rowspb.Undo_UNDO_OWED:
			s.makeReady(p, b)
		case passed(p, b):
			s.release(p, b)
		}
	}
}

// startUnwind turns the held set, or what of it came after a savepoint, into what
// is owed. It is the one pass over a plan's actions; from here on the cost of a
// step is that step.
func (s *State) startUnwind(p *plan) {
	s.disarm(p)
	p.row.Turned, p.row.Behind = nil, nil
	p.row.UnwindingNs = s.meta.TimeNs
	s.phase(p, rowspb.Phase_PHASE_UNWINDING)
	for n := uint32(1); n <= p.row.Actions; n++ {
		s.action(p.id, n).row.Blockers = 0
	}
	// Descending: everything that came after n is counted when n is looked at.
	for n := p.row.Actions; n >= 1; n-- {
		a := s.action(p.id, n)
		s.change(a)
		if a.row.Undo == rowspb.Undo_UNDO_HELD && n > p.row.Target {
			a.row.Undo = rowspb.Undo_UNDO_OWED
		}
		if !isClear(p, a) {
			for _, m := range a.fixed.Before {
				s.action(p.id, m).row.Blockers++
			}
		}
	}
	for n := uint32(1); n <= p.row.Actions; n++ {
		if a := s.action(p.id, n); a.row.Blockers == 0 && a.row.Undo == rowspb.Undo_UNDO_OWED {
			s.makeReady(p, a)
		}
	}
	s.touch(p)
}

// makeReady lets an owed action's undo begin, now or once its forward can no longer
// land. An entry of a child plan follows that plan.
func (s *State) makeReady(p *plan, a *action) {
	if a.fixed.Child == "" {
		if ns := s.settlesAt(p, a); ns != 0 {
			s.settleUntil(p, a, ns)
		} else {
			s.move(p, a, rowspb.Undo_UNDO_READY)
		}
		return
	}
	switch s.plan(a.fixed.Child).row.Phase {
	case rowspb.Phase_PHASE_UNWINDING:
		s.move(p, a, rowspb.Undo_UNDO_DISPATCHED)
	case rowspb.Phase_PHASE_QUARANTINED:
		s.move(p, a, rowspb.Undo_UNDO_QUARANTINED)
	default:
		s.move(p, a, rowspb.Undo_UNDO_READY)
	}
}

// enlist gives a plan its next action, held, or the entry of a child plan.
func (s *State) enlist(p *plan, fixed *rowspb.ActionStatic, row *rowspb.ActionRow) *action {
	p.row.Actions++
	p.row.Unsettled++
	if fixed.Child == "" {
		s.meta.Held++
	}
	s.touch(p)
	return s.addAction(p.id, p.row.Actions, fixed, row)
}

// joinUnwind adds an action that landed after the unwind began. What it came
// after, and has not been started, waits for it.
func (s *State) joinUnwind(p *plan, a *action) {
	s.reopen(p)
	a.row.Undo = rowspb.Undo_UNDO_OWED
	s.block(p, a)
	s.makeReady(p, a)
}

// owe gives an action back to the unwind: ready, or waiting for what came after
// it and joined since.
func (s *State) owe(p *plan, a *action) {
	if s.committing(p) {
		s.weigh(p, a)
		return
	}
	s.dropRetry(p, a)
	s.move(p, a, rowspb.Undo_UNDO_OWED)
	if a.row.Blockers == 0 {
		s.makeReady(p, a)
	}
}

// park marks an action whose undo cannot go on by itself: Decide quarantines it.
func (s *State) park(p *plan, a *action) { s.move(p, a, rowspb.Undo_UNDO_EXHAUSTED) }

// phase takes a plan into another phase, and its entry in a parent with it.
func (s *State) phase(p *plan, to rowspb.Phase) {
	from := p.row.Phase
	*s.counter(from)--
	*s.counter(to)++
	p.row.Phase = to
	if from == rowspb.Phase_PHASE_QUARANTINED || to == rowspb.Phase_PHASE_QUARANTINED ||
		len(p.row.Orphans) > 0 {
		s.listOwner(p)
	}
	s.touch(p)
	s.follow(p, from)
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
func (s *State) reopen(p *plan) {
	switch p.row.Phase {
	case rowspb.Phase_PHASE_RESOLVED:
		s.meta.Held += uint64(s.registrations(p))
	case rowspb.Phase_PHASE_COMPENSATED, rowspb.Phase_PHASE_FAILED, rowspb.Phase_PHASE_QUARANTINED:
	default:
		return
	}
	p.row.EndedNs, p.row.Ended = 0, nil
	s.phase(p, rowspb.Phase_PHASE_UNWINDING)
}

// registrations counts the unsettled actions of a plan that are not entries of
// child plans.
func (s *State) registrations(p *plan) uint32 {
	count := p.row.Unsettled
	for _, n := range p.row.Children {
		if !settled(s.action(p.id, n).row.Undo) {
			count--
		}
	}
	return count
}
