package audit

import (
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Calls that no one takes, and owners' answers.

// offeredUntil is the instant until which the call that is out is to be offered to
// workers: unserved_after after the record that made it, and after what a worker that
// may have it has asked for.
func (a *action) offeredUntil() int64 {
	since := a.askedNs
	if a.asking == pb.Question_QUESTION_UNSPECIFIED {
		since = max(a.dispatchedNs, a.aliveUntilNs)
	}
	return sum(since, span(a.compensation.GetUnservedAfterNs(), int64(ledger.UnservedDefault)))
}

// isLate: a word that this attempt is done comes after the action's quarantine or its
// owner's answer.
func (a *action) isLate(attempt uint32) bool {
	owners := a.undo == quarantined || a.undo == resolved
	return owners && a.child == nil && attempt >= 1 && attempt <= a.attempt && !a.makesFact()
}

const noteUndone = "its undo was carried out after all: see whether that was once too often"

// owes: an owner may answer for an action. It is quarantined, a commit waits for its
// owner, or it is owed and not dealt with.
func (p *plan) owes(a *action) bool {
	open := p.phase == ledger.StateUnwinding || p.phase == ledger.StateQuarantined
	due := []string{owed, dispatched, waiting, exhausted}
	return a.undo == quarantined || a.doubt == doubtGiven || open && slices.Contains(due, a.undo)
}

// noteResolved ends what is owed by its owner's word.
func noteResolved(b *book, c *claim) {
	p, a, k := c.p, c.a, c.Record.GetResolved()
	word := proposal{answer: k.Outcome.String(), halt: k.Halt}
	if at := p.claimNamed(c.Record.Action); at >= 0 {
		b.answerClaim(c, at, word)
		return
	}
	counts, waits := p.counts(c.Entry, a.proposal, word)
	switch a.proposal = waits; {
	case !counts:
		return
	case a.doubt != "":
		b.answerDoubt(p, a, k)
		return
	}
	b.goOn(p)
	p.resumed = c.Address
	if a.undo != quarantined {
		a.dropCall()
	}
	a.resolution = k
	delete(b.pages, page{p.id, a.n, api.PageQuarantined})
	b.closeAction(p, a, resolved, c.Address)
}

// noteRetry lets an undo go on, or a question about a doubt, by its owner's word.
func noteRetry(b *book, c *claim) {
	p, a, k := c.p, c.a, c.Record.GetRetryRequested()
	counts, waits := p.counts(c.Entry, a.proposal, proposal{answer: "retry", force: k.Force})
	switch a.proposal = waits; {
	case !counts:
		return
	case a.doubt != "":
		b.endDoubt(p, a)
		a.doubt = doubtDue
		return
	}
	a.attemptsFrom, a.approved, a.unserved, a.failedForNow = a.attempt, true, false, false
	switch a.undo {
	case quarantined:
		b.goOn(p)
		p.resumed = c.Address
		a.settled, a.settledNs = nil, 0
		delete(b.pages, page{p.id, a.n, api.PageQuarantined})
		a.undo = owed
	case owed:
	default: // what is in flight stays there for its next attempt, if that may be made at once
		again := a.isOut() && a.attempt > 0 && a.asking != pb.Question_QUESTION_EFFECT &&
			b.next(p, a) == doDispatch
		last := a.arguments
		a.dropCall()
		a.undo = owed
		if again { // as it stays in flight, so does what it was sent with
			a.undo, a.askedToSend, a.arguments = waiting, false, last
		}
	}
}

// saidDoneLate notes at a quarantine that an attempt was done. Behind the owner's answer it
// is a duty, of the owner's: the undo and the answer may both have been carried out.
func (b *book) saidDoneLate(c *claim, attempt uint32) {
	a := c.a
	a.saidDone = attempt
	if a.undo == resolved {
		b.owedAgain(c.Entry, c.p, a, &action{
			outcome: a.outcome, externalRef: a.externalRef, foundRef: a.foundRef, presence: a.presence,
			undone: true,
		}, noteUndone)
	}
}

// Erasure is a plan whose sealed values cannot be read any more, or will not be: what
// was in them is not proven by its records, and never can be. That the records are those
// which were written, and that every decision was right, is proven without them.
type Erasure struct {
	Plan      string      `json:"plan"`
	Erased    *pb.Address `json:"erased"`              // the operator's record
	Reason    string      `json:"reason"`              // as it says
	Actor     string      `json:"actor"`               // likewise
	Destroyed *pb.Address `json:"destroyed,omitempty"` // the holder's record; nil: none yet
	Sealed    int         `json:"sealed"`              // values of the plan that are erased
}

// erasureOf is what became of the sealed values of a plan; nil: it was not erased.
func erasureOf(p *plan) *Erasure {
	if p.erased == nil {
		return nil
	}
	return &Erasure{p.id, p.erased, p.erasure.GetReason(), p.erasure.GetActor(), p.shredded,
		p.sealed}
}

// sealedIn counts the sealed values of a record.
func sealedIn(r *pb.Record) (count int) {
	p := r.GetPayload()
	for _, document := range [][]byte{p.GetInput(), p.GetOutput(), p.GetArguments(), p.GetDetail(),
		p.GetBefore()} {
		count += len(seal.Values(document))
	}
	return count
}

// isOver: the plan has come to an end that only something new can open again.
func (p *plan) isOver() bool {
	return !p.canStop() && p.phase != ledger.StateUnwinding && p.phase != ledger.StateQuarantined
}

// isErased: what the undos of a plan take cannot be read any more.
func (b *book) isErased(p *plan) bool {
	if of := b.plan(p.origin); of != nil {
		p = of
	}
	return p.erased != nil
}
