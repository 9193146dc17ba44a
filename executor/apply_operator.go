package executor

import (
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// applyOperator folds what people and their tools asked for. What cannot be done
// any more is refused with the reason, so that the second of two operators
// learns who was first.
func (s *State) applyOperator(e ledger.Entry) Result {
	r := e.Record
	switch k := r.Kind.(type) {
	case *pb.Record_ContractPublished:
		return s.contractPublished(e, k.ContractPublished)
	case *pb.Record_ClockConfirmed:
		return effective // the host reads it
	case *pb.Record_EvictRequested:
		return s.evictRequested(e, k.EvictRequested.Keys)
	case *pb.Record_RestoreRequested:
		return s.restoreRequested(e, k.RestoreRequested.Keys)
	}
	p := s.plan(r.Plan)
	if p == nil {
		return refused("plan %s was never opened", r.Plan)
	}
	switch k := r.Kind.(type) {
	case *pb.Record_CancelRequested:
		return s.signal(e, p, rowspb.Signal_SIGNAL_CANCELLED,
			byActor(k.CancelRequested.Reason, k.CancelRequested.Actor), "")
	case *pb.Record_CompensationRequested:
		return s.compensationRequested(e, p, k.CompensationRequested)
	case *pb.Record_RetryRequested:
		return s.retryRequested(e, p, k.RetryRequested)
	case *pb.Record_Resolved:
		return s.resolved(e, p, k.Resolved)
	case *pb.Record_PlanErased:
		return s.planErased(e, p, k.PlanErased)
	case *pb.Record_CascadeAnswered:
		return s.cascadeAnswered(e, p, k.CascadeAnswered)
	default:
		panic("executor: unknown operator record " + ledger.KindOf(r).Name)
	}
}

func byActor(reason, actor string) string {
	if reason == "" && actor != "" {
		return "asked by " + actor
	}
	if actor == "" {
		return reason
	}
	return reason + " (" + actor + ")"
}

// seconded reports whether an owner's answer counts now: at once, or, where the
// plan asks for a second approver, when another operator has given the same one.
// The subject names the operator; what a record says of its actor proves nothing.
func (s *State) seconded(e ledger.Entry, p *plan, a *action, answer *rowspb.Proposal) bool {
	if !p.row.Declared.SecondApprover {
		return true
	}
	if confirms(e, a.row.Proposal, answer) {
		a.row.Proposal = nil
		return true
	}
	a.row.Proposal = answer
	s.change(a)
	return false
}

// confirms reports whether an answer is the one that another operator has given
// first; otherwise it is a proposal itself.
func confirms(e ledger.Entry, first, answer *rowspb.Proposal) bool {
	answer.Operator, answer.At = e.Source.Name, e.Address
	return first != nil && first.Operator != answer.Operator &&
		first.Answer == answer.Answer && first.Halt == answer.Halt && first.Force == answer.Force
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
		if k := k.CompensationProgressed; k.Key == s.key(a) && k.Attempt >= 1 &&
			k.Attempt <= a.row.Attempt {
			a.row.AliveUntilNs = max(a.row.AliveUntilNs, min(k.UntilNs, epochMax))
			s.change(a)
		}
		return effective
	case *pb.Record_CompensationReported:
		report := k.CompensationReported
		if report.Key != s.key(a) {
			return refused("key %q is not the key of action %s", report.Key, r.Action)
		}
		done := report.Answer == pb.Answer_ANSWER_DONE
		if open := atOwner(a) || owing(a.row.Undo); done && open && made(a, report.Attempt) &&
			report.Attempt <= a.row.SaidDone {
			return repeated
		}
		if done && late(a, report.Attempt) {
			return s.doneLate(e, p, a,
				attemptEnd{state: "done", worker: e.Source.Name, timing: report.Timing}, report.Attempt)
		}
		asking := a.row.Asking != pb.Question_QUESTION_UNSPECIFIED
		current := a.row.Undo == rowspb.Undo_UNDO_DISPATCHED && report.Attempt == a.row.Attempt && !asking
		if p.row.Phase != rowspb.Phase_PHASE_UNWINDING || !inFlight(a, report.Attempt) || !done &&
			!current || a.row.Asking == pb.Question_QUESTION_VERIFY {
			return refused("attempt %d is not in flight: the undo of action %s is %s", report.Attempt,
				r.Action, undoName(a.row.Undo))
		}
		// the first word counts, but for one that it is done
		if a.row.Reported != nil && (!done || reportedDone(a)) {
			return repeated
		}
		if done {
			a.row.SaidDone = report.Attempt
		}
		s.heard(p, a, report, e.Address)
		return effective
	default:
		panic("executor: unknown worker record " + ledger.KindOf(r).Name)
	}
}
