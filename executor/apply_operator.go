package executor

import (
	"encoding/binary"
	"slices"

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
		return s.signal(e, p, pb.Signal_SIGNAL_CANCELLED, byActor(k.CancelRequested.Reason, k.CancelRequested.Actor), "")
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

// parkedAction finds a quarantined action, or says why there is none.
func (s *State) parkedAction(p *plan, id string) (*action, Result) {
	a := s.byName(p.id, id)
	switch {
	case a == nil:
		return nil, refused("action %s is not registered in plan %s", id, p.id)
	case a.fixed.Child != "":
		return nil, refused("%s is a plan of its own: answer its own quarantine", a.fixed.Child)
	case a.row.Undo == pb.Undo_UNDO_RESOLVED:
		return nil, refused("action %s was resolved as %s by %s", id, resolutionName(a.row.Resolution.Outcome), a.row.Resolution.Actor)
	case a.row.Undo != pb.Undo_UNDO_QUARANTINED:
		return nil, refused("action %s is not quarantined: its undo is %s", id, undoName(a.row.Undo))
	}
	return a, effective
}

// pointsBack refuses an answer that is about another registration, or to another
// quarantine of the action, than it names. A record may name none.
func pointsBack(r *pb.Record, a *action) Result {
	if r.About != nil && !sameAddress(r.About, a.fixed.Registered) {
		return refused("about: %s, but action %s was registered at %s", ledger.FormatAddress(r.About), a.fixed.Id, ledger.FormatAddress(a.fixed.Registered))
	}
	if r.Cause != nil && !sameAddress(r.Cause, a.row.Settled) {
		return refused("cause: %s, but action %s was quarantined at %s", ledger.FormatAddress(r.Cause), a.fixed.Id, ledger.FormatAddress(a.row.Settled))
	}
	return effective
}

// seconded reports whether an owner's answer counts now: at once, or, where the
// plan asks for a second approver, when another operator has given the same one.
// The subject names the operator; what a record says of its actor proves nothing.
func (s *State) seconded(e ledger.Entry, p *plan, a *action, answer *pb.Proposal) bool {
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
func confirms(e ledger.Entry, first, answer *pb.Proposal) bool {
	answer.Operator, answer.At = e.Source.Name, e.Address
	return first != nil && first.Operator != answer.Operator &&
		first.Answer == answer.Answer && first.Halt == answer.Halt && first.Force == answer.Force
}

// orphanSeconded is seconded for a forward that came without its registration, which
// has no row of its own.
func (s *State) orphanSeconded(e ledger.Entry, p *plan, answer *pb.Proposal) bool {
	if !p.row.Declared.SecondApprover {
		return true
	}
	at := slices.IndexFunc(p.row.Proposals, func(q *pb.Proposal) bool { return q.Orphan == answer.Orphan })
	var first *pb.Proposal
	if at >= 0 {
		first = p.row.Proposals[at]
		p.row.Proposals = slices.Delete(p.row.Proposals, at, at+1)
	}
	s.touch(p)
	if confirms(e, first, answer) {
		return true
	}
	p.row.Proposals = append(p.row.Proposals, answer)
	return false
}

// resolved ends a quarantine by its owner's word (S106). Unless the owner says
// halt, the unwind goes on with what the action came after.
func (s *State) resolved(e ledger.Entry, p *plan, k *pb.Resolved) Result {
	if s.byName(p.id, e.Record.Action) == nil && p.row.Phase == pb.Phase_PHASE_QUARANTINED {
		if r, ok := s.resolveOrphan(e, p, k); ok {
			return r
		}
	}
	a, refusal := s.parkedAction(p, e.Record.Action)
	if a == nil {
		return refusal
	}
	if other := pointsBack(e.Record, a); other.Verdict != Effective {
		return other
	}
	if !s.seconded(e, p, a, &pb.Proposal{Answer: resolutionName(k.Outcome), Halt: k.Halt, Actor: k.Actor}) {
		return effective
	}
	s.reopen(p)
	p.row.Resumed = e.Address
	a.row.Resolution, a.row.ResolvedBy = k, e.Source.Name
	s.unpage(p, a)
	s.settle(p, a, pb.Undo_UNDO_RESOLVED, e.Address)
	return effective
}

// resolveOrphan takes the owner's word on a forward that came without its
// registration.
func (s *State) resolveOrphan(e ledger.Entry, p *plan, k *pb.Resolved) (Result, bool) {
	id := e.Record.Action
	for i, orphan := range p.row.Orphans {
		if orphan == id {
			if !s.orphanSeconded(e, p, &pb.Proposal{Orphan: id, Answer: resolutionName(k.Outcome), Halt: k.Halt, Actor: k.Actor}) {
				return effective, true
			}
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

// retryRequested lets a quarantined action's undo go on by its owner's word, with
// its contract's attempts again. While an attempt without an answer may still be
// at work, that takes force (S29).
func (s *State) retryRequested(e ledger.Entry, p *plan, k *pb.RetryRequested) Result {
	a, refusal := s.parkedAction(p, e.Record.Action)
	if a == nil {
		return refusal
	}
	if other := pointsBack(e.Record, a); other.Verdict != Effective {
		return other
	}
	if class := a.fixed.Forward.Class; class == pb.Class_CLASS_IRREVERSIBLE || a.fixed.Compensation.GetCapability() == "" {
		return refused("there is nothing to retry: %s has no inverse", a.fixed.Forward.Capability)
	}
	if a.row.AliveUntilNs > s.meta.TimeNs && !k.Force {
		return refused("attempt %d of action %s had no answer and may be at work until %s: wait, or force the retry", a.row.Attempt, a.fixed.Id, instant(a.row.AliveUntilNs))
	}
	if !s.seconded(e, p, a, &pb.Proposal{Answer: "retry", Force: k.Force, Actor: k.Actor}) {
		return effective
	}
	s.reopen(p)
	p.row.Resumed = e.Address
	a.row.AttemptsFrom, a.row.Approved = a.row.Attempt, true
	a.row.Settled, a.row.SettledNs = nil, 0
	s.unpage(p, a)
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
		if k := k.CompensationProgressed; k.Key == s.key(a) && k.Attempt >= 1 && k.Attempt <= a.row.Attempt {
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
		asking := a.row.Asking != pb.Question_QUESTION_UNSPECIFIED
		current := a.row.Undo == pb.Undo_UNDO_DISPATCHED && report.Attempt == a.row.Attempt && !asking
		if !inFlight(a, report.Attempt) || !done && !current || a.row.Asking == pb.Question_QUESTION_VERIFY {
			return refused("attempt %d is not in flight: the undo of action %s is %s", report.Attempt, r.Action, undoName(a.row.Undo))
		}
		if a.row.Reported != nil && (!done || reportedDone(a)) { // the first word counts, but for one that it is done
			return repeated
		}
		s.heard(p, a, report, e.Address)
		return effective
	default:
		panic("executor: unknown worker record " + ledger.KindOf(r).Name)
	}
}
