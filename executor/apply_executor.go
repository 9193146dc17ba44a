package executor

import (
	"bytes"
	"math"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// applyExecutor folds what a holder decided. Every record here is a claim: it
// counts only if the plan still allows it at this place in the log.
func (s *State) applyExecutor(e ledger.Entry) Result {
	r := e.Record
	if k, ok := r.Kind.(*pb.Record_TermStarted); ok {
		return s.termStarted(e, k.TermStarted)
	}
	if r.Term != s.meta.Term {
		return void("decided in term %d, but term %d has begun", r.Term, s.meta.Term)
	}
	switch k := r.Kind.(type) {
	case *pb.Record_RecordRefused:
		s.todo.remove(todoRefused + string(recordKey(0, k.RecordRefused.Sequence, k.RecordRefused.Index)[1:]))
		return effective
	case *pb.Record_FactEvicted, *pb.Record_FactReingested, *pb.Record_CheckpointSigned:
		return effective // no state of plans depends on them
	}
	p := s.plan(r.Plan)
	if p == nil {
		return void("plan %s was never opened", r.Plan)
	}
	p.row.LastNs = max(p.row.LastNs, e.StampNs)
	s.touch(p)
	switch k := r.Kind.(type) {
	case *pb.Record_LeaseFired:
		return s.leaseFired(e, p, k.LeaseFired)
	case *pb.Record_UnwindStarted:
		return s.unwindStarted(e, p)
	case *pb.Record_HeldSetRetired:
		return s.heldSetRetired(p)
	case *pb.Record_PlanEnded:
		return s.planEnded(e, p, k.PlanEnded)
	}
	return s.applyAboutAction(e, p)
}

// applyAboutAction folds the records about one action; each names it by address.
func (s *State) applyAboutAction(e ledger.Entry, p *plan) Result {
	r := e.Record
	a := s.byName(p.id, r.Action)
	if a == nil {
		return void("action %s is not registered in plan %s", r.Action, p.id)
	}
	if !sameAddress(r.About, a.fixed.Registered) {
		return void("it names %s, but action %s was registered at %s", ledger.FormatAddress(r.About), r.Action, ledger.FormatAddress(a.fixed.Registered))
	}
	if p.row.Phase != pb.Phase_PHASE_UNWINDING {
		return void("plan %s is %s", p.id, statusName(p.row))
	}
	switch k := r.Kind.(type) {
	case *pb.Record_CompensationDispatched:
		return s.dispatched(e, p, a, k.CompensationDispatched)
	case *pb.Record_CompensationSucceeded:
		return s.succeeded(e, p, a, k.CompensationSucceeded)
	case *pb.Record_CompensationFailed:
		return s.failed(e, p, a, k.CompensationFailed)
	case *pb.Record_CompensationSkipped:
		return s.skipped(e, p, a, k.CompensationSkipped)
	case *pb.Record_ActionQuarantined:
		return s.quarantined(e, p, a, k.ActionQuarantined)
	case *pb.Record_ProbeAsked, *pb.Record_ProbeAnswered:
		return void("this version of the fold asks no probes")
	default:
		panic("executor: unknown executor record " + ledger.KindOf(r).Name)
	}
}

func sameAddress(a, b *pb.Address) bool {
	return a.GetSequence() == b.GetSequence() && a.GetIndex() == b.GetIndex() && bytes.Equal(a.GetLeaf(), b.GetLeaf())
}

// samePlace compares places only; a reference within one commit has no leaf yet.
func samePlace(ref *pb.Address, at *pb.Address, e ledger.Entry) bool {
	sequence := ref.GetSequence()
	if sequence == 0 {
		sequence = e.Address.Sequence
	}
	return ref != nil && at != nil && sequence == at.Sequence && ref.Index == at.Index
}

// termStarted takes the first record of a higher term; a holder of a lower one
// is fenced from here on (I26).
func (s *State) termStarted(e ledger.Entry, k *pb.TermStarted) Result {
	if e.Record.Term <= s.meta.Term {
		return void("term %d has begun, held by %s", s.meta.Term, s.meta.Holder)
	}
	s.meta.Term, s.meta.Holder, s.meta.TermSequence = e.Record.Term, k.Holder, e.Address.Sequence
	return effective
}

func (s *State) leaseFired(e ledger.Entry, p *plan, k *pb.LeaseFired) Result {
	if p.row.Phase != pb.Phase_PHASE_OPEN {
		return void("plan %s is %s", p.id, statusName(p.row))
	}
	if p.row.Fired != nil {
		return void("plan %s unwinds already for %s", p.id, ledger.FormatAddress(p.row.Fired))
	}
	l, a := s.lease(p, leaseRef{p.id, s.number(p.id, e.Record.Action), k.Lease})
	if l == nil || a == nil && e.Record.Action != "" {
		return void("plan %s holds no lease %s", p.id, k.Lease)
	}
	l.Fired, l.Truth = true, pb.Truth_TRUTH_TRUE
	if a != nil {
		s.change(a)
	}
	p.row.Fired, p.row.Turned = e.Address, nil
	if p.row.Reason == "" {
		p.row.Reason = "lease " + k.Lease + ": " + conditionOf(l)
	}
	s.touch(p)
	return effective
}

func (s *State) unwindStarted(e ledger.Entry, p *plan) Result {
	switch {
	case p.row.Phase != pb.Phase_PHASE_OPEN:
		return void("plan %s is %s", p.id, statusName(p.row))
	case p.row.Fired == nil || !samePlace(e.Record.Cause, p.row.Fired, e):
		return void("no lease of plan %s fired at %s", p.id, ledger.FormatAddress(e.Record.Cause))
	}
	p.row.Unwinding = e.Address
	s.startUnwind(p)
	s.notices = append(s.notices, Notice{Plan: p.id, Agent: p.row.Agent, State: ledger.StateUnwinding, Reason: p.row.Reason})
	return effective
}

func (s *State) dispatched(e ledger.Entry, p *plan, a *action, k *pb.CompensationDispatched) Result {
	first := a.row.Undo == pb.Undo_UNDO_READY
	if !first && a.row.Undo != pb.Undo_UNDO_WAITING {
		return void("the undo of action %s is %s", a.fixed.Id, undoName(a.row.Undo))
	}
	if k.Attempt != a.row.Attempt+1 {
		return void("attempt %d, but attempt %d is next", k.Attempt, a.row.Attempt+1)
	}
	if next, why := nextStep(a); next != stepDispatch {
		return void("action %s must not be compensated: %s", a.fixed.Id, why)
	}
	if c := a.fixed.Compensation; k.Capability != c.Capability || k.Key != s.key(a) {
		return void("%s with key %q is not the compensation of action %s", k.Capability, k.Key, a.fixed.Id)
	}
	// Its arguments were resolved for another outcome; they are resolved again.
	if k.BlindCleanup != blind(a) {
		return void("the outcome of action %s became %s before the dispatch landed", a.fixed.Id, outcomeName(a.row.Outcome))
	}
	if first {
		p.row.Ready = without(p.row.Ready, a.id.n)
		p.row.InFlight++
	} else {
		s.dropDue(a.row.DueNs, dueRetry, leaseRef{plan: p.id, n: a.id.n})
	}
	a.row.Undo, a.row.Attempt, a.row.DueNs = pb.Undo_UNDO_DISPATCHED, k.Attempt, 0
	a.row.Blind, a.row.Dispatched = k.BlindCleanup, e.Address
	s.change(a)
	s.touch(p)
	arguments := e.Record.Payload.GetArguments()
	s.set(actionKey(keyCommand, p.id, a.id.n), encode(&pb.CommandRow{Dispatched: k, Arguments: arguments}))
	s.set(actionKey(keyFlight, p.id, a.id.n), nil)
	s.commands = append(s.commands, s.command(p, a, k, arguments))
	return effective
}

// inFlight reports whether an answer about this attempt may still settle it: an
// earlier attempt that turns out to have succeeded did undo the effect.
func inFlight(a *action, attempt uint32) bool {
	switch a.row.Undo {
	case pb.Undo_UNDO_DISPATCHED, pb.Undo_UNDO_WAITING:
		return attempt >= 1 && attempt <= a.row.Attempt
	default:
		return false
	}
}

// reportedDone reports whether a worker's word that the undo is done waits to be
// recorded.
func reportedDone(a *action) bool { return a.row.Reported.GetAnswer() == pb.Answer_ANSWER_DONE }

// epochMax leaves room behind an epoch for any backoff.
const epochMax = math.MaxInt64 - int64(ledger.BackoffMax)

// land takes an action out of flight.
func (s *State) land(p *plan, a *action) {
	if a.row.Undo == pb.Undo_UNDO_WAITING {
		s.dropDue(a.row.DueNs, dueRetry, leaseRef{plan: p.id, n: a.id.n})
		a.row.DueNs = 0
	}
	p.row.InFlight--
	p.row.Reported = without(p.row.Reported, a.id.n)
	a.row.Reported, a.row.ReportedAt = nil, nil
	s.delete(actionKey(keyCommand, p.id, a.id.n))
	s.delete(actionKey(keyFlight, p.id, a.id.n))
}

func (s *State) succeeded(e ledger.Entry, p *plan, a *action, k *pb.CompensationSucceeded) Result {
	if !inFlight(a, k.Attempt) {
		return void("attempt %d of action %s is not in flight: its undo is %s", k.Attempt, a.fixed.Id, undoName(a.row.Undo))
	}
	s.land(p, a)
	a.row.Note = ""
	if a.row.Late {
		a.row.Note = noteLate
		s.park(p, a)
		return effective
	}
	p.row.Compensated++
	p.row.InScope++
	s.settle(p, a, pb.Undo_UNDO_COMPENSATED, e.Address)
	return effective
}

func (s *State) failed(e ledger.Entry, p *plan, a *action, k *pb.CompensationFailed) Result {
	if a.row.Undo != pb.Undo_UNDO_DISPATCHED || k.Attempt != a.row.Attempt {
		return void("attempt %d of action %s is not in flight: its undo is %s", k.Attempt, a.fixed.Id, undoName(a.row.Undo))
	}
	if reportedDone(a) {
		return void("the undo of action %s was reported done at %s", a.fixed.Id, ledger.FormatAddress(a.row.ReportedAt))
	}
	a.row.Note = joinText(k.Code, k.Message)
	p.row.Reported = without(p.row.Reported, a.id.n)
	a.row.Reported, a.row.ReportedAt = nil, nil
	if a.row.Outcome == pb.Outcome_OUTCOME_FAILED {
		s.land(p, a)
		s.owe(p, a) // known by now never to have crossed: there is nothing to try again
		return effective
	}
	c := a.fixed.Compensation
	if k.Final || a.row.Late || a.row.Attempt-a.row.AttemptsFrom >= attemptsOf(c) {
		s.land(p, a)
		s.park(p, a)
		return effective
	}
	s.delete(actionKey(keyFlight, p.id, a.id.n))
	a.row.Undo = pb.Undo_UNDO_WAITING
	// From the holder's guarded clock: a server clock that jumped ahead and came
	// back must not delay the attempt.
	a.row.DueNs = min(e.Record.EpochNs, epochMax) + backoffOf(c, a.row.Attempt-a.row.AttemptsFrom)
	s.setDue(a.row.DueNs, dueRetry, leaseRef{plan: p.id, n: a.id.n})
	s.change(a)
	s.touch(p)
	return effective
}

func (s *State) skipped(e ledger.Entry, p *plan, a *action, k *pb.CompensationSkipped) Result {
	if a.row.Undo != pb.Undo_UNDO_READY {
		return void("the undo of action %s is %s", a.fixed.Id, undoName(a.row.Undo))
	}
	if next, _ := nextStep(a); next != stepSkip {
		return void("the effect of action %s may have crossed: it must not be skipped", a.fixed.Id)
	}
	p.row.Ready = without(p.row.Ready, a.id.n)
	p.row.Skipped++
	if crossed(a) {
		p.row.InScope++
	}
	a.row.Note = k.Reason
	s.settle(p, a, pb.Undo_UNDO_SKIPPED, e.Address)
	return effective
}

func (s *State) quarantined(e ledger.Entry, p *plan, a *action, k *pb.ActionQuarantined) Result {
	switch a.row.Undo {
	case pb.Undo_UNDO_READY, pb.Undo_UNDO_EXHAUSTED:
	case pb.Undo_UNDO_WAITING: // its next call cannot be built
		s.land(p, a)
	default:
		return void("the undo of action %s is %s", a.fixed.Id, undoName(a.row.Undo))
	}
	p.row.Ready, p.row.Parked = without(p.row.Ready, a.id.n), without(p.row.Parked, a.id.n)
	p.row.Quarantined++
	a.row.Undo, a.row.Settled, a.row.SettledNs, a.row.Note = pb.Undo_UNDO_QUARANTINED, e.Address, s.meta.TimeNs, k.Reason
	s.change(a)
	s.touch(p)
	return effective
}

func (s *State) heldSetRetired(p *plan) Result {
	if p.row.Phase != pb.Phase_PHASE_COMMITTED || p.row.Retired {
		return void("plan %s is %s and has nothing to retire", p.id, statusName(p.row))
	}
	p.row.Retired = true
	s.notices = append(s.notices, Notice{Plan: p.id, Agent: p.row.Agent, State: ledger.StateCommitted})
	s.touch(p)
	return effective
}

// planEnded accepts an end only if the state says the same.
func (s *State) planEnded(e ledger.Entry, p *plan, k *pb.PlanEnded) Result {
	direct := p.row.Phase == pb.Phase_PHASE_OPEN && p.row.Fired != nil && k.End == pb.PlanEnd_PLAN_END_FAILED && !s.inScope(p)
	if !direct && (k.End != endOf(p.row) || k.End == pb.PlanEnd_PLAN_END_UNSPECIFIED) {
		return void("plan %s is %s and does not end %s", p.id, statusName(p.row), endName(k.End))
	}
	if direct {
		s.skipAll(e, p)
	} else {
		s.meta.Unwinding--
	}
	p.row.Ended, p.row.EndedNs = e.Address, s.meta.TimeNs
	s.meta.Ended++
	switch k.End {
	case pb.PlanEnd_PLAN_END_COMPENSATED:
		p.row.Phase = pb.Phase_PHASE_COMPENSATED
	case pb.PlanEnd_PLAN_END_FAILED:
		p.row.Phase = pb.Phase_PHASE_FAILED
	case pb.PlanEnd_PLAN_END_RESOLVED:
		p.row.Phase = pb.Phase_PHASE_RESOLVED
		s.meta.Held -= uint64(p.row.Unsettled)
	case pb.PlanEnd_PLAN_END_QUARANTINED:
		p.row.Phase = pb.Phase_PHASE_QUARANTINED
		s.meta.Ended--
		s.meta.Quarantined++
		s.set(planKey(keyOwner, p.id), nil)
	default:
		panic("executor: unknown plan end")
	}
	s.touch(p)
	s.notices = append(s.notices, Notice{Plan: p.id, Agent: p.row.Agent, State: stateName(p.row), Reason: k.Reason})
	return effective
}

// skipAll ends an open plan of which nothing crossed the boundary.
func (s *State) skipAll(e ledger.Entry, p *plan) {
	s.disarm(p)
	for n := uint32(1); n <= p.row.Actions; n++ {
		a := s.action(p.id, n)
		a.row.Undo, a.row.Settled, a.row.SettledNs = pb.Undo_UNDO_SKIPPED, e.Address, s.meta.TimeNs
		_, a.row.Note = nextStep(a)
		s.change(a)
	}
	p.row.Skipped = p.row.Actions
	s.meta.Open--
	s.meta.Held -= uint64(p.row.Actions)
}

// inScope reports whether a plan has anything that an unwind would look at.
func (s *State) inScope(p *plan) bool {
	if len(p.row.Orphans) > 0 {
		return true
	}
	for n := uint32(1); n <= p.row.Actions; n++ {
		if crossed(s.action(p.id, n)) {
			return true
		}
	}
	return false
}
