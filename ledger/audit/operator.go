package audit

import (
	"bytes"
	"slices"

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
	case k.ToSavepoint != "" && p.savepoint(k.ToSavepoint) == nil:
		return refused("I6", "plan %s has no savepoint %q", p.id, k.ToSavepoint)
	default:
		return b.signal(p, signalCancelled, reason, k.ToSavepoint)
	}
}

// parked finds the quarantined action that an owner's answer is about.
func (p *plan) parked(r *pb.Record) (*action, verdict) {
	a := p.named(r.Action)
	switch {
	case a == nil:
		return nil, refused("I6", "action %s is not registered in plan %s", r.Action, p.id)
	case a.child != nil:
		return nil, refused("I23", "%s is a plan of its own: answer its own quarantine", a.id)
	case a.undo != quarantined:
		return nil, refused("I23", "action %s is not quarantined: its undo is %s", a.id, a.undo)
	case r.About != nil && !sameAddress(r.About, a.registered):
		return nil, refused("I6", "about: %s, but action %s was registered elsewhere", ledger.FormatAddress(r.About), a.id)
	case r.Cause != nil && !sameAddress(r.Cause, a.settled):
		return nil, refused("I6", "cause: %s, but action %s was quarantined elsewhere", ledger.FormatAddress(r.Cause), a.id)
	}
	return a, effective
}

// resolve ends a quarantine by its owner's word.
func (b *book) resolve(e ledger.Entry, p *plan, k *pb.Resolved) verdict {
	word := proposal{answer: k.Outcome.String(), halt: k.Halt}
	id := e.Record.Action
	if p.named(id) == nil && p.phase == ledger.StateQuarantined && slices.Contains(p.orphans, id) {
		b.resolveOrphan(e, p, word)
		return effective
	}
	a, v := p.parked(e.Record)
	if !v.ok() {
		return v
	}
	counts, waits := p.counts(e, a.proposal, word)
	if a.proposal = waits; !counts {
		return effective
	}
	b.reopen(p)
	p.resumed = e.Address
	a.resolution = k
	delete(b.pages, page{p.id, a.n, ledger.PageQuarantined})
	b.settle(p, a, resolved, e.Address)
	return effective
}

// resolveOrphan takes the owner's word on a forward that came without registration.
func (b *book) resolveOrphan(e ledger.Entry, p *plan, word proposal) {
	id := e.Record.Action
	counts, waits := p.counts(e, p.proposals[id], word)
	if delete(p.proposals, id); !counts {
		p.proposals[id] = waits
		return
	}
	b.reopen(p)
	p.resumed = e.Address
	p.orphans = slices.DeleteFunc(p.orphans, func(other string) bool { return other == id })
	p.answered[id], p.byHand = true, true
}

// retry lets a quarantined action's undo go on by its owner's word.
func (b *book) retry(e ledger.Entry, p *plan, k *pb.RetryRequested) verdict {
	a, v := p.parked(e.Record)
	switch {
	case !v.ok():
		return v
	case a.forward.GetClass() == pb.Class_CLASS_IRREVERSIBLE || a.compensation.GetCapability() == "":
		return refused("I23", "there is nothing to retry: action %s has no inverse", a.id)
	case a.aliveUntilNs > b.now && !k.Force:
		return refused("I19", "attempt %d of action %s may still be at work", a.attempt, a.id)
	}
	counts, waits := p.counts(e, a.proposal, proposal{answer: "retry", force: k.Force})
	if a.proposal = waits; !counts {
		return effective
	}
	b.reopen(p)
	p.resumed = e.Address
	a.attemptsFrom, a.approved = a.attempt, true
	a.settled, a.settledNs = nil, 0
	delete(b.pages, page{p.id, a.n, ledger.PageQuarantined})
	a.undo = owed
	return effective
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
	current := a.undo == dispatched && k.Attempt == a.attempt && a.asking == pb.Question_QUESTION_UNSPECIFIED
	if !a.inFlight(k.Attempt) || k.Answer != pb.Answer_ANSWER_DONE && !current || a.asking == pb.Question_QUESTION_VERIFY {
		return refused("I18", "attempt %d is not in flight: the undo of action %s is %s", k.Attempt, r.Action, p.stateOf(a))
	}
	if a.reported != nil && (k.Answer != pb.Answer_ANSWER_DONE || a.reportedDone()) {
		return repeated
	}
	a.reported = k
	return effective
}
