package executor

import (
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The order of an unwind. Actions form a partial order: each names the ones it
// came after. An action may be undone when everything that came after it is
// settled (I21); what is quarantined is not settled, so the branch below it
// halts while independent branches finish.

// startUnwind turns the held set into what is owed. It is the one pass over a
// plan's actions; from here on the cost of a step is that step.
func (s *State) startUnwind(p *plan) {
	s.disarm(p)
	p.row.Phase, p.row.Turned = pb.Phase_PHASE_UNWINDING, nil
	s.meta.Open--
	s.meta.Unwinding++
	p.row.Unsettled = p.row.Actions
	for n := uint32(1); n <= p.row.Actions; n++ {
		a := s.action(p.id, n)
		a.row.Undo, a.row.Blockers = pb.Undo_UNDO_OWED, 0
		s.change(a)
		for _, m := range a.fixed.Before {
			s.action(p.id, m).row.Blockers++
		}
	}
	for n := uint32(1); n <= p.row.Actions; n++ {
		if a := s.action(p.id, n); a.row.Blockers == 0 {
			s.makeReady(p, a)
		}
	}
	s.touch(p)
}

func (s *State) makeReady(p *plan, a *action) {
	a.row.Undo = pb.Undo_UNDO_READY
	p.row.Ready = insert(p.row.Ready, a.id.n)
	s.change(a)
	s.touch(p)
}

// joinUnwind adds an action whose pair landed after the unwind began. What it
// came after, and has not been started, waits for it.
func (s *State) joinUnwind(p *plan, a *action) {
	s.reopen(p)
	p.row.Unsettled++
	a.row.Undo = pb.Undo_UNDO_OWED
	s.block(p, a)
	s.makeReady(p, a)
}

// reopen takes a plan that had ended back into its unwind: something is owed
// again, and a terminal state must mean what it says.
func (s *State) reopen(p *plan) {
	switch p.row.Phase {
	case pb.Phase_PHASE_COMPENSATED, pb.Phase_PHASE_FAILED:
		s.meta.Ended--
	case pb.Phase_PHASE_RESOLVED:
		s.meta.Ended--
		s.meta.Held += uint64(p.row.Unsettled)
	case pb.Phase_PHASE_QUARANTINED:
		s.meta.Quarantined--
		s.delete(planKey(keyOwner, p.id))
	default:
		return
	}
	s.meta.Unwinding++
	p.row.Phase = pb.Phase_PHASE_UNWINDING
	p.row.EndedNs, p.row.Ended = 0, nil
	s.touch(p)
}

// owe gives an action back to the unwind: ready, or waiting for what came after
// it and joined since.
func (s *State) owe(p *plan, a *action) {
	if a.row.Blockers == 0 {
		s.makeReady(p, a)
		return
	}
	a.row.Undo = pb.Undo_UNDO_OWED
	s.change(a)
	s.touch(p)
}

// failedLate handles a forward that is known to have failed while its blind undo
// waits for another attempt: there is nothing to undo (I20).
func (s *State) failedLate(p *plan, a *action) {
	if a.row.Undo == pb.Undo_UNDO_WAITING {
		s.land(p, a)
		s.owe(p, a)
	}
}

// completedLate handles a forward that reports completion after its action was
// undone blindly: the effect may stand, which is its owner's to see.
func (s *State) completedLate(p *plan, a *action) {
	if !a.row.Blind {
		return
	}
	switch a.row.Undo {
	case pb.Undo_UNDO_DISPATCHED, pb.Undo_UNDO_WAITING, pb.Undo_UNDO_EXHAUSTED:
		a.row.Late = true
	case pb.Undo_UNDO_COMPENSATED:
		a.row.Late = true
		s.unsettle(p, a)
	}
}

// unsettle takes back the settlement of a compensated action and parks it; what
// it came after, and has not been started, waits for it again.
func (s *State) unsettle(p *plan, a *action) {
	s.reopen(p)
	p.row.Compensated--
	p.row.InScope--
	p.row.Unsettled++
	s.meta.Held++
	if a.row.Blockers == 0 {
		s.block(p, a)
	}
	a.row.Note = noteLate
	s.park(p, a)
}

// Blockers counts the actions that came after an action and are not clear. An
// action is clear when it has passed and nothing blocks it: so what joins behind
// a settled action still holds back all that came before (I21).

// block makes the predecessors of an action that is not clear wait for it.
func (s *State) block(p *plan, a *action) {
	for _, m := range a.fixed.Before {
		b := s.action(p.id, m)
		if b.row.Undo == pb.Undo_UNDO_READY {
			b.row.Undo = pb.Undo_UNDO_OWED
			p.row.Ready = without(p.row.Ready, m)
		}
		b.row.Blockers++
		s.change(b)
		if b.row.Blockers == 1 && passed(b) {
			s.block(p, b)
		}
	}
}

// passed reports whether an action lets what it came after go.
func passed(a *action) bool {
	switch a.row.Undo {
	case pb.Undo_UNDO_COMPENSATED, pb.Undo_UNDO_SKIPPED:
		return true
	case pb.Undo_UNDO_RESOLVED:
		return !a.row.Resolution.GetHalt()
	default:
		return false
	}
}

const noteLate = "its forward completed after its undo ran: the effect may stand"

// park marks an action whose undo cannot go on by itself: Decide quarantines it.
func (s *State) park(p *plan, a *action) {
	a.row.Undo = pb.Undo_UNDO_EXHAUSTED
	p.row.Parked = insert(p.row.Parked, a.id.n)
	s.change(a)
	s.touch(p)
}

// settle ends an action's part in the unwind and releases what it came after.
func (s *State) settle(p *plan, a *action, undo pb.Undo, at *pb.Address) {
	a.row.Undo, a.row.Settled, a.row.SettledNs = undo, at, s.meta.TimeNs
	s.change(a)
	p.row.Unsettled--
	s.meta.Held--
	if a.row.Blockers == 0 {
		s.release(p, a)
	}
	s.touch(p)
}

// release lets the predecessors of an action that is clear now go.
func (s *State) release(p *plan, a *action) {
	for _, m := range a.fixed.Before {
		b := s.action(p.id, m)
		b.row.Blockers--
		s.change(b)
		switch {
		case b.row.Blockers > 0:
		case b.row.Undo == pb.Undo_UNDO_OWED:
			s.makeReady(p, b)
		case passed(b):
			s.release(p, b)
		}
	}
}

// crossed reports whether an action's effect crossed the boundary or may have.
func crossed(a *action) bool { return a.row.Outcome != pb.Outcome_OUTCOME_FAILED }

// step is what the unwind does with an action that is ready.
type step uint8

const (
	stepDispatch step = iota
	stepSkip
	stepQuarantine
)

// nextStep says what to do with a ready action, and why. Only what crossed or
// may have crossed is undone (S12, S13, S85); an irreversible effect is its
// owner's (S86, S87).
func nextStep(a *action) (step, string) {
	class, c := a.fixed.Forward.Class, a.fixed.Compensation
	known := a.row.Outcome == pb.Outcome_OUTCOME_COMPLETED
	switch {
	case a.row.Outcome == pb.Outcome_OUTCOME_FAILED:
		return stepSkip, "never crossed the boundary: the forward is known to have failed"
	case class == pb.Class_CLASS_EFFECTLESS:
		return stepSkip, "effectless: nothing to undo"
	case class == pb.Class_CLASS_IRREVERSIBLE && known:
		return stepQuarantine, "irreversible: " + a.fixed.Forward.Capability + " has no inverse"
	case class == pb.Class_CLASS_IRREVERSIBLE:
		return stepQuarantine, "irreversible and in doubt: " + a.fixed.Forward.Capability + " may have happened and has no inverse"
	case c == nil || c.Capability == "":
		return stepQuarantine, "no compensation is registered for " + a.fixed.Forward.Capability
	case known:
		return stepDispatch, ""
	}
	switch {
	case c.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_COMPENSATE, c.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_UNSPECIFIED && c.Probe == "":
		return stepDispatch, ""
	case c.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_QUARANTINE:
		return stepQuarantine, "in doubt: the contract asks its owner"
	default:
		return stepQuarantine, "in doubt: the contract asks for a probe, which this version does not ask"
	}
}

// attemptsDefault and the others stand in for a registration that leaves them 0.
const (
	attemptsDefault   = 3
	backoffDefault    = int64(1e9)
	backoffMaxDefault = int64(60e9)
	timeoutDefault    = int64(30e9)
)

func attemptsOf(c *pb.CompensationRegistered) uint32 {
	if c.Attempts == 0 {
		return attemptsDefault
	}
	return c.Attempts
}

func timeoutOf(c *pb.CompensationRegistered) int64 {
	if c.TimeoutNs == 0 {
		return timeoutDefault
	}
	return c.TimeoutNs
}

// backoffOf is the delay before the attempt after `attempt`: it doubles from
// backoff_ns up to backoff_max_ns.
func backoffOf(c *pb.CompensationRegistered, attempt uint32) int64 {
	delay, limit := c.BackoffNs, c.BackoffMaxNs
	if delay == 0 {
		delay = backoffDefault
	}
	if limit == 0 {
		limit = max(backoffMaxDefault, delay)
	}
	for i := uint32(1); i < attempt && delay < limit; i++ {
		delay *= 2
	}
	return min(delay, limit)
}
