package audit

import (
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Calls that nobody takes, and owners' answers.

// offeredUntil is the instant until which the call that is out is to be offered to
// workers: unserved_after behind the record that made it, and behind what a worker that
// may have it has asked for.
func (a *action) offeredUntil() int64 {
	since := a.askedNs
	if a.asking == pb.Question_QUESTION_UNSPECIFIED {
		since = max(a.dispatchedNs, a.aliveUntilNs)
	}
	return sum(since, span(a.compensation.GetUnservedAfterNs(), int64(ledger.UnservedDefault)))
}

// answerable finds the action that an owner's answer is about: quarantined, or owed and
// not dealt with yet.
func (p *plan) answerable(r *pb.Record) (*action, verdict) {
	a := p.named(r.Action)
	if a == nil {
		return nil, refused("I6", "action %s is not registered in plan %s", r.Action, p.id)
	}
	open := p.phase == ledger.StateUnwinding || p.phase == ledger.StateQuarantined
	cause, parked := a.dispatched, a.undo == quarantined || a.doubt == doubtGiven
	if parked {
		cause = a.settled
	}
	switch {
	case a.child != nil:
		return nil, refused("I23", "%s is a plan of its own: answer its own quarantine", a.id)
	case !parked && !(open && slices.Contains([]string{owed, dispatched, waiting, exhausted}, a.undo)):
		return nil, refused("I23", "action %s is not owed: its undo is %s", a.id, a.undo)
	case !parked && a.reportedDone():
		return nil, refused("I18", "the undo of action %s was reported done", a.id)
	case r.About != nil && !sameAddress(r.About, a.registered):
		return nil, refused("I6", "about: %s, but action %s was registered elsewhere", ledger.FormatAddress(r.About), a.id)
	case r.Cause != nil && (cause == nil || !sameAddress(r.Cause, cause)):
		return nil, refused("I6", "cause: %s, but action %s is %s since elsewhere", ledger.FormatAddress(r.Cause), a.id, a.undo)
	}
	return a, effective
}

// resolve ends what is owed by its owner's word.
func (b *book) resolve(e ledger.Entry, p *plan, k *pb.Resolved) verdict {
	word := proposal{answer: k.Outcome.String(), halt: k.Halt}
	if b.resolveOrphan(e, p, word) {
		return effective
	}
	a, v := p.answerable(e.Record)
	if !v.ok() {
		return v
	}
	if a.doubt != "" {
		return b.resolveDoubt(e, p, a, k, word)
	}
	counts, waits := p.counts(e, a.proposal, word)
	if a.proposal = waits; !counts {
		return effective
	}
	b.reopen(p)
	p.resumed = e.Address
	if a.undo != quarantined {
		a.land()
	}
	a.resolution = k
	delete(b.pages, page{p.id, a.n, api.PageQuarantined})
	b.settle(p, a, resolved, e.Address)
	return effective
}

// retry lets an undo go on by its owner's word.
func (b *book) retry(e ledger.Entry, p *plan, k *pb.RetryRequested) verdict {
	a, v := p.answerable(e.Record)
	switch {
	case !v.ok():
		return v
	case a.doubt != "":
		return b.retryDoubt(e, p, a, k)
	case a.forward.GetClass() == pb.Class_CLASS_IRREVERSIBLE || a.compensation.GetCapability() == "" || a.undone:
		return refused("I23", "there is nothing to retry of action %s", a.id)
	case a.undo == owed && a.approved && a.attemptsFrom == a.attempt:
		return refused("I23", "the undo of action %s goes on already", a.id)
	case !k.Force && a.undo == dispatched && a.asking == pb.Question_QUESTION_UNSPECIFIED:
		return refused("I19", "attempt %d of action %s is on its way", a.attempt, a.id)
	case !k.Force && a.aliveUntilNs > b.now:
		return refused("I19", "attempt %d of action %s may still be at work", a.attempt, a.id)
	}
	counts, waits := p.counts(e, a.proposal, proposal{answer: "retry", force: k.Force})
	if a.proposal = waits; !counts {
		return effective
	}
	a.attemptsFrom, a.approved, a.unserved = a.attempt, true, false
	switch a.undo {
	case quarantined:
		b.reopen(p)
		p.resumed = e.Address
		a.settled, a.settledNs = nil, 0
		delete(b.pages, page{p.id, a.n, api.PageQuarantined})
		a.undo = owed
	case owed:
	default: // what is in flight stays there for its next attempt, if that may be made at once
		again := a.flying() && a.attempt > 0 && a.asking != pb.Question_QUESTION_EFFECT && b.next(p, a) == doDispatch
		kept := a.arguments
		a.land()
		a.undo = owed
		if again { // as it stays in flight, so does what it was sent with
			a.undo, a.askedToSend, a.arguments = waiting, false, kept
		}
	}
	return effective
}

// isLate: a word that this attempt is done comes behind the action's quarantine or its
// owner's answer.
func (a *action) isLate(attempt uint32) bool {
	owners := a.undo == quarantined || a.undo == resolved
	return owners && a.child == nil && attempt >= 1 && attempt <= a.attempt && !a.inMemory()
}

// doneLate notes at a quarantine that an attempt was done. Behind the owner's answer it
// is a duty, of the owner's: the undo and the answer may both have been carried out.
func (b *book) doneLate(e ledger.Entry, p *plan, a *action, attempt uint32) verdict {
	if attempt <= a.saidDone {
		return void("I22", "attempt %d of action %s was said to be done already", a.saidDone, a.id)
	}
	a.saidDone = attempt
	if a.undo == resolved {
		b.owedAgain(e, p, a, &action{outcome: a.outcome, externalRef: a.externalRef, presence: a.presence, undone: true}, noteUndone)
	}
	return effective
}

const noteUndone = "its undo was carried out after all: see whether that was once too often"
