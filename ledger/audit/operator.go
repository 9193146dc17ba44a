package audit

import (
	"bytes"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// operator folds what people and their tools asked for.
func (b *book) operator(e ledger.Entry) verdict {
	r := e.Record
	switch k := r.Kind.(type) {
	case *pb.Record_ContractPublished:
		c := k.ContractPublished
		if digest, known := b.contracts[c.Capability]; known && bytes.Equal(digest, c.Digest) {
			return repeated
		}
		b.contracts[c.Capability] = c.Digest
		return effective
	case *pb.Record_ClockConfirmed:
		return effective
	case *pb.Record_EvictRequested:
		return b.requested(e, k.EvictRequested.Keys, false)
	case *pb.Record_RestoreRequested:
		return b.requested(e, k.RestoreRequested.Keys, true)
	}
	p := b.plan(r.Plan)
	if p == nil {
		return refused("I6", "plan %s was never opened", r.Plan)
	}
	switch k := r.Kind.(type) {
	case *pb.Record_CancelRequested:
		return b.signal(p, signalCancelled, byActor(k.CancelRequested.Reason, k.CancelRequested.Actor), "")
	case *pb.Record_CompensationRequested:
		return b.compensationRequested(e, p, k.CompensationRequested)
	case *pb.Record_RetryRequested:
		return b.retry(e, p, k.RetryRequested)
	case *pb.Record_Resolved:
		return b.resolve(e, p, k.Resolved)
	case *pb.Record_PlanErased:
		return b.erase(e, p, k.PlanErased)
	case *pb.Record_CascadeAnswered:
		return b.cascadeAnswered(e, p, k.CascadeAnswered)
	default:
		return refused("I4", "no record of an operator")
	}
}

func byActor(reason, actor string) string {
	switch {
	case actor == "":
		return reason
	case reason == "":
		return "asked by " + actor
	default:
		return reason + " (" + actor + ")"
	}
}

func (b *book) compensationRequested(e ledger.Entry, p *plan, k *pb.CompensationRequested) verdict {
	reason := byActor(k.Reason, k.Actor)
	switch {
	case p.phase == ledger.StateCommitted:
		return b.undoCommitted(e, p, k.ToSavepoint, reason)
	case k.ToSavepoint != "" && p.phase == ledger.StateCommitting:
		return refused("I15", "plan %s is being committed", p.id)
	case k.ToSavepoint != "" && p.savepoint(k.ToSavepoint) == nil:
		return refused("I6", "plan %s has no savepoint %q", p.id, k.ToSavepoint)
	default:
		return b.signal(p, signalCancelled, reason, k.ToSavepoint)
	}
}

// worker folds the reports of a long undo.
func (b *book) worker(e ledger.Entry) verdict {
	r := e.Record
	p := b.plan(r.Plan)
	if p == nil {
		return refused("I6", "plan %s was never opened", r.Plan)
	}
	a := p.named(r.Action)
	if a == nil {
		return refused("I6", "action %s is not registered in plan %s", r.Action, p.id)
	}
	if k := r.GetCompensationProgressed(); k != nil {
		if k.Key == b.undoKey(p, a) && k.Attempt >= 1 && k.Attempt <= a.attempt {
			a.aliveUntilNs = max(a.aliveUntilNs, min(k.UntilNs, epochMax))
		}
		return effective
	}
	k := r.GetCompensationReported()
	if k.GetKey() != b.undoKey(p, a) {
		return refused("I19", "key %q is not the key of action %s", k.GetKey(), r.Action)
	}
	if k.GetAnswer() == pb.Answer_ANSWER_DONE && a.undo != compensated && a.undo != skipped && k.Attempt >= 1 && k.Attempt <= a.saidDone {
		return repeated
	}
	if k.GetAnswer() == pb.Answer_ANSWER_DONE && a.isLate(k.Attempt) {
		return b.doneLate(e, p, a, k.Attempt)
	}
	current := a.undo == dispatched && k.Attempt == a.attempt && a.asking == pb.Question_QUESTION_UNSPECIFIED
	if p.phase != ledger.StateUnwinding || !a.inFlight(k.Attempt) || k.Answer != pb.Answer_ANSWER_DONE && !current || a.asking == pb.Question_QUESTION_VERIFY {
		return refused("I18", "attempt %d is not in flight: the undo of action %s is %s", k.Attempt, r.Action, p.stateOf(a))
	}
	if a.reported != nil && (k.Answer != pb.Answer_ANSWER_DONE || a.reportedDone()) {
		return repeated
	}
	if a.reported = k; k.Answer == pb.Answer_ANSWER_DONE {
		a.saidDone = k.Attempt
	}
	return effective
}
