package executor

import (
	"bytes"
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// applyAgent folds what a coordinator wrote, in life-cycle order.
func (s *State) applyAgent(e ledger.Entry) Result {
	r := e.Record
	if opened, ok := r.Kind.(*pb.Record_PlanOpened); ok {
		return s.planOpened(e, opened.PlanOpened)
	}
	p := s.plan(r.Plan)
	if p == nil {
		if _, ok := r.Kind.(*pb.Record_ForwardRegistered); !ok {
			return refused("plan %s was never opened", r.Plan)
		}
		// The forward may be crossing the boundary by now: its undo must not be lost.
		p = s.openPlan(e, &pb.PlanOpened{})
		p.row.Implicit = true
	}
	if p.row.Agent != e.Source.Name {
		return refused("plan %s belongs to agent %s", p.id, p.row.Agent)
	}
	p.row.LastNs = max(p.row.LastNs, e.StampNs)
	s.touch(p)
	switch k := r.Kind.(type) {
	case *pb.Record_ForwardRegistered:
		return s.forwardRegistered(e, p, k.ForwardRegistered)
	case *pb.Record_CompensationRegistered:
		return s.compensationRegistered(e, p, k.CompensationRegistered)
	case *pb.Record_ForwardCompleted, *pb.Record_ForwardFailed, *pb.Record_ForwardInDoubt:
		return s.outcome(e, p)
	case *pb.Record_SavepointSet:
		return effective // a mark in the log; unwinding to it is asked for by name
	case *pb.Record_PlanCommitted:
		return s.planCommitted(e, p)
	case *pb.Record_PlanFailed:
		return s.signal(e, p, pb.Signal_SIGNAL_FAILED, k.PlanFailed.Reason)
	case *pb.Record_PlanCancelled:
		return s.signal(e, p, pb.Signal_SIGNAL_CANCELLED, k.PlanCancelled.Reason)
	default:
		panic("executor: unknown agent record " + ledger.KindOf(r).Name)
	}
}

func (s *State) planOpened(e ledger.Entry, declared *pb.PlanOpened) Result {
	if p := s.plan(e.Record.Plan); p != nil {
		if p.row.Agent == e.Source.Name && bytes.Equal(encode(p.row.Declared), encode(declared)) {
			return repeated
		}
		return refused("plan %s was opened before, by agent %s at %s", p.id, p.row.Agent, ledger.FormatAddress(p.row.Opened))
	}
	s.openPlan(e, declared)
	return effective
}

func (s *State) openPlan(e ledger.Entry, declared *pb.PlanOpened) *plan {
	p := s.addPlan(e.Record.Plan, &pb.PlanRow{
		Agent: e.Source.Name, Opened: e.Address, OpenedNs: s.meta.TimeNs, LastNs: e.StampNs,
		Declared: declared, Phase: pb.Phase_PHASE_OPEN,
	})
	s.meta.Open++
	s.armPlan(p, e.Address)
	return p
}

func (s *State) forwardRegistered(e ledger.Entry, p *plan, f *pb.ForwardRegistered) Result {
	r := e.Record
	if n := s.number(p.id, r.Action); n != 0 {
		input := s.payload(actionKey(keyPayload, p.id, n)).Input
		if bytes.Equal(encode(s.action(p.id, n).fixed.Forward), encode(f)) && bytes.Equal(input, r.Payload.GetInput()) {
			return repeated
		}
		return refused("action %s was registered before, differently, at %s", r.Action, ledger.FormatAddress(s.action(p.id, n).fixed.Registered))
	}
	if !takesActions(p.row) {
		return s.lateForward(e, p)
	}
	before, missing := s.predecessors(p, f)
	if missing != "" {
		s.noteOrphan(e)
		return refused("after: action %s is not registered in plan %s", missing, p.id)
	}
	p.row.Orphans = slices.DeleteFunc(p.row.Orphans, func(id string) bool { return id == r.Action })
	p.row.Actions++
	n := p.row.Actions
	fixed := &pb.ActionStatic{Id: r.Action, Registered: e.Address, AtNs: s.meta.TimeNs, Forward: f, Before: before}
	s.addAction(p.id, n, fixed, &pb.ActionRow{})
	if input := r.Payload.GetInput(); len(input) > 0 {
		s.set(actionKey(keyPayload, p.id, n), encode(&pb.Payload{Input: input}))
	}
	s.meta.Held++
	s.evaluateDeclared(p, e.Address)
	if p.row.Phase != pb.Phase_PHASE_OPEN {
		s.joinUnwind(p, s.action(p.id, n))
	}
	return effective
}

// takesActions reports whether a pair may still join: while open, and also when
// the plan unwinds or has unwound, because a forward that is on its way must be
// undone like the others (failure model: late pair after unwind began).
func takesActions(r *pb.PlanRow) bool {
	return r.Phase != pb.Phase_PHASE_COMMITTED && r.Phase != pb.Phase_PHASE_RESOLVED
}

// lateForward remembers an act that its agent began after the plan's end.
func (s *State) lateForward(e ledger.Entry, p *plan) Result {
	result := refused("plan %s has ended (%s)", p.id, stateName(p.row))
	s.noteOrphan(e)
	return result
}

// predecessors resolves after; by default an action comes after the one
// registered before it.
func (s *State) predecessors(p *plan, f *pb.ForwardRegistered) (before []uint32, missing string) {
	if !f.Branch && p.row.Actions > 0 {
		before = append(before, p.row.Actions)
	}
	for _, id := range f.After {
		n := s.number(p.id, id)
		if n == 0 {
			return nil, id
		}
		before = insert(before, n)
	}
	return before, ""
}

func (s *State) compensationRegistered(e ledger.Entry, p *plan, c *pb.CompensationRegistered) Result {
	a := s.byName(p.id, e.Record.Action)
	if a == nil {
		return refused("its forward_registered was refused, or does not stand before it")
	}
	if a.fixed.Compensation != nil {
		if bytes.Equal(encode(a.fixed.Compensation), encode(c)) {
			return repeated
		}
		return refused("action %s has a registered compensation that differs", e.Record.Action)
	}
	if a.fixed.Registered.Sequence != e.Address.Sequence {
		return refused("action %s was registered without it, at %s", e.Record.Action, ledger.FormatAddress(a.fixed.Registered))
	}
	a.fixed = &pb.ActionStatic{
		Id: a.fixed.Id, Registered: a.fixed.Registered, AtNs: a.fixed.AtNs,
		Forward: a.fixed.Forward, Compensation: c, Before: a.fixed.Before,
	}
	a.begun = true
	s.change(a)
	s.armAction(p, a, e.Address)
	return effective
}

// outcome folds what became of a forward. The first definite outcome stands;
// in doubt may still become known.
func (s *State) outcome(e ledger.Entry, p *plan) Result {
	a := s.byName(p.id, e.Record.Action)
	if a == nil {
		return refused("action %s is not registered in plan %s", e.Record.Action, p.id)
	}
	now, failure := pb.Outcome_OUTCOME_COMPLETED, ""
	switch k := e.Record.Kind.(type) {
	case *pb.Record_ForwardFailed:
		now, failure = pb.Outcome_OUTCOME_FAILED, joinText(k.ForwardFailed.Code, k.ForwardFailed.Message)
	case *pb.Record_ForwardInDoubt:
		now, failure = pb.Outcome_OUTCOME_IN_DOUBT, joinText(k.ForwardInDoubt.Code, k.ForwardInDoubt.Message)
	}
	switch a.row.Outcome {
	case now:
		if !s.sameOutcome(a, e.Record, failure) {
			return refused("action %s is already %s, with another result", a.fixed.Id, outcomeName(now))
		}
		return repeated
	case pb.Outcome_OUTCOME_COMPLETED, pb.Outcome_OUTCOME_FAILED:
		return refused("the outcome of action %s is already %s", a.fixed.Id, outcomeName(a.row.Outcome))
	}
	a.row.Outcome, a.row.Failure, a.row.OutcomeAt = now, failure, e.Address
	if k, ok := e.Record.Kind.(*pb.Record_ForwardCompleted); ok {
		a.row.ExternalRef, a.row.LiftedOutput = k.ForwardCompleted.ExternalRef, k.ForwardCompleted.Lifted
		s.keepOutput(a, e.Record.Payload.GetOutput())
	}
	s.change(a)
	switch now {
	case pb.Outcome_OUTCOME_COMPLETED:
		s.completedLate(p, a)
	case pb.Outcome_OUTCOME_FAILED:
		s.failedLate(p, a)
	}
	s.evaluateAction(p, a, e.Address)
	return effective
}

// sameOutcome reports whether r says what is known of a, whose outcome has the
// kind of r.
func (s *State) sameOutcome(a *action, r *pb.Record, failure string) bool {
	k, ok := r.Kind.(*pb.Record_ForwardCompleted)
	if !ok {
		return a.row.Failure == failure
	}
	output := s.payload(actionKey(keyPayload, a.id.plan, a.id.n)).Output
	return a.row.ExternalRef == k.ForwardCompleted.ExternalRef &&
		bytes.Equal(a.row.LiftedOutput, k.ForwardCompleted.Lifted) && bytes.Equal(output, r.Payload.GetOutput())
}

func (s *State) keepOutput(a *action, output []byte) {
	if len(output) == 0 {
		return
	}
	key := actionKey(keyPayload, a.id.plan, a.id.n)
	payload := s.payload(key)
	payload.Output = output
	s.set(key, encode(payload))
}

func (s *State) payload(key []byte) *pb.Payload {
	payload := new(pb.Payload)
	if v, ok := s.get(key); ok {
		if err := payload.UnmarshalVT(v); err != nil {
			panic(&StoreError{"get", err})
		}
	}
	return payload
}

// planCommitted retires the whole held set at once (S62), if the plan is still
// open where the record lands.
func (s *State) planCommitted(e ledger.Entry, p *plan) Result {
	switch {
	case p.row.Committed != nil:
		return repeated
	case p.row.Phase != pb.Phase_PHASE_OPEN:
		return refused("plan %s is %s: it was not open any more when the commit landed", p.id, stateName(p.row))
	case p.row.Signal != pb.Signal_SIGNAL_NONE || p.row.Fired != nil:
		return refused("plan %s was declared %s before the commit landed", p.id, statusName(p.row))
	case p.row.Turned != nil && !p.row.Turned.Clocked:
		return refused("lease %s of plan %s turned true at %s, before the commit landed", p.row.Turned.Lease, p.id, ledger.FormatAddress(p.row.Turned.At))
	}
	s.disarm(p)
	p.row.Phase, p.row.Committed, p.row.Turned = pb.Phase_PHASE_COMMITTED, e.Address, nil
	p.row.EndedNs = s.meta.TimeNs
	s.meta.Held -= uint64(p.row.Actions)
	s.meta.Open--
	s.meta.Ended++
	s.touch(p)
	return effective
}

// signal records that a plan failed or was cancelled. It undoes nothing by
// itself: the leases that read plan.status do (S70).
func (s *State) signal(e ledger.Entry, p *plan, signal pb.Signal, reason string) Result {
	switch {
	case p.row.Signal == signal && p.row.Signalled != nil:
		return repeated
	case p.row.Phase != pb.Phase_PHASE_OPEN || p.row.Signal != pb.Signal_SIGNAL_NONE:
		return refused("plan %s is already %s", p.id, statusName(p.row))
	}
	p.row.Signal, p.row.Reason, p.row.Signalled = signal, reason, e.Address
	s.touch(p)
	s.evaluatePlan(p, e.Address)
	return effective
}

func joinText(code, message string) string {
	if code == "" || message == "" {
		return code + message
	}
	return code + ": " + message
}
