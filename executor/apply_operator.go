package executor

import (
	"encoding/binary"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// applyOperator folds what people and their tools asked for. What cannot be done
// any more is refused with the reason, so that the second of two operators
// learns who was first.
func (s *State) applyOperator(e ledger.Entry) Result {
	r := e.Record
	switch r.Kind.(type) {
	case *pb.Record_ContractPublished, *pb.Record_ClockConfirmed:
		return effective // the host reads ClockConfirmed; registrations freeze their contract
	}
	p := s.plan(r.Plan)
	if p == nil {
		return refused("plan %s was never opened", r.Plan)
	}
	switch k := r.Kind.(type) {
	case *pb.Record_CancelRequested:
		return s.signal(e, p, pb.Signal_SIGNAL_CANCELLED, byActor(k.CancelRequested.Reason, k.CancelRequested.Actor))
	case *pb.Record_CompensationRequested:
		return s.signal(e, p, pb.Signal_SIGNAL_CANCELLED, byActor(k.CompensationRequested.Reason, k.CompensationRequested.Actor))
	case *pb.Record_RetryRequested:
		return s.retryRequested(e, p)
	case *pb.Record_Resolved:
		return s.resolved(e, p, k.Resolved)
	default:
		panic("executor: unknown operator record " + ledger.KindOf(r).Name)
	}
}

func byActor(reason, actor string) string {
	if actor == "" {
		return reason
	}
	return reason + " (" + actor + ")"
}

// parkedAction finds a quarantined action, or says why there is none.
func (s *State) parkedAction(p *plan, id string) (*action, Result) {
	a := s.byName(p.id, id)
	switch {
	case a == nil:
		return nil, refused("action %s is not registered in plan %s", id, p.id)
	case a.row.Undo == pb.Undo_UNDO_RESOLVED:
		return nil, refused("action %s was resolved as %s by %s", id, resolutionName(a.row.Resolution.Outcome), a.row.Resolution.Actor)
	case a.row.Undo != pb.Undo_UNDO_QUARANTINED:
		return nil, refused("action %s is not quarantined: its undo is %s", id, undoName(a.row.Undo))
	}
	return a, effective
}

// resolved ends a quarantine by its owner's word (S106). Unless the owner says
// halt, the unwind goes on with what the action came after.
func (s *State) resolved(e ledger.Entry, p *plan, k *pb.Resolved) Result {
	if s.byName(p.id, e.Record.Action) == nil && p.row.Phase == pb.Phase_PHASE_QUARANTINED {
		if r, ok := s.resolveOrphan(e, p); ok {
			return r
		}
	}
	a, refusal := s.parkedAction(p, e.Record.Action)
	if a == nil {
		return refusal
	}
	s.reopen(p)
	p.row.Resumed = e.Address
	p.row.Quarantined--
	p.row.Resolved++
	p.row.ByHand = true
	a.row.Resolution = k
	if k.Halt {
		a.row.Undo, a.row.Settled, a.row.SettledNs = pb.Undo_UNDO_RESOLVED, e.Address, s.meta.TimeNs
		p.row.Unsettled--
		s.meta.Held--
		s.change(a)
		s.touch(p)
		return effective
	}
	s.settle(p, a, pb.Undo_UNDO_RESOLVED, e.Address)
	return effective
}

// resolveOrphan takes the owner's word on a forward that came without its
// registration.
func (s *State) resolveOrphan(e ledger.Entry, p *plan) (Result, bool) {
	id := e.Record.Action
	for i, orphan := range p.row.Orphans {
		if orphan == id {
			s.reopen(p)
			p.row.Resumed = e.Address
			p.row.Orphans = append(p.row.Orphans[:i:i], p.row.Orphans[i+1:]...)
			s.set(numberKey(p.id, id), binary.BigEndian.AppendUint32(nil, 0)) // a copy of it is nothing new
			p.row.Resolved++
			p.row.ByHand = true
			s.touch(p)
			return effective, true
		}
	}
	return Result{}, false
}

// retryRequested gives a quarantined action its contract's attempts again.
func (s *State) retryRequested(e ledger.Entry, p *plan) Result {
	a, refusal := s.parkedAction(p, e.Record.Action)
	if a == nil {
		return refusal
	}
	if next, why := nextStep(a); next != stepDispatch || a.row.Late {
		if why == "" {
			why = noteLate
		}
		return refused("there is nothing to retry: %s", why)
	}
	s.reopen(p)
	p.row.Resumed = e.Address
	p.row.Quarantined--
	a.row.AttemptsFrom = a.row.Attempt
	a.row.Settled, a.row.SettledNs = nil, 0
	s.owe(p, a)
	return effective
}

// applyWorker folds the report of a long undo; Decide turns it into its outcome.
func (s *State) applyWorker(e ledger.Entry) Result {
	r := e.Record
	p := s.plan(r.Plan)
	if p == nil {
		return refused("plan %s was never opened", r.Plan)
	}
	a := s.byName(p.id, r.Action)
	if a == nil {
		return refused("action %s is not registered in plan %s", r.Action, p.id)
	}
	switch k := r.Kind.(type) {
	case *pb.Record_CompensationProgressed:
		return effective
	case *pb.Record_CompensationReported:
		report := k.CompensationReported
		if report.Key != s.key(a) {
			return refused("key %q is not the key of action %s", report.Key, r.Action)
		}
		done := report.Answer == pb.Answer_ANSWER_DONE
		if !inFlight(a, report.Attempt) || !done && (a.row.Undo != pb.Undo_UNDO_DISPATCHED || report.Attempt != a.row.Attempt) {
			return refused("attempt %d is not in flight: the undo of action %s is %s", report.Attempt, r.Action, undoName(a.row.Undo))
		}
		if reportedDone(a) {
			return repeated
		}
		a.row.Reported, a.row.ReportedAt = report, e.Address
		p.row.Reported = insert(p.row.Reported, a.id.n)
		s.change(a)
		s.touch(p)
		return effective
	default:
		panic("executor: unknown worker record " + ledger.KindOf(r).Name)
	}
}
