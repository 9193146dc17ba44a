package sim

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// aboutAction follows what is said of one action.
func (c *checker) aboutAction(e ledger.Entry, p *planCheck) {
	r, at := e.Record, e.Address.Sequence
	_, it := p.item(r.Action)
	p.saidBy(r)
	if it == nil { // an act whose record was refused
		c.answered(p, r, at)
		return
	}
	it.takes(r)
	switch k := r.Kind.(type) {
	case *pb.Record_ForwardCompleted:
		c.completed(p, it, r)
	case *pb.Record_ForwardFailed:
		if r.Writer != it.writer && r.Writer != p.writer {
			return // it takes back what it has claimed itself
		}
		c.outcome(p, it, rowspb.Outcome_OUTCOME_FAILED)
	case *pb.Record_ForwardInDoubt:
		c.outcome(p, it, rowspb.Outcome_OUTCOME_IN_DOUBT)
	case *pb.Record_CompensationDispatched:
		c.argued(at, p, it, r)
		c.dispatched(at, p, it, k.CompensationDispatched)
	case *pb.Record_ProbeAsked:
		c.argued(at, p, it, r)
		it.tryAgain = false
		if it.duty && p.phase == phaseEnded { // it came late, and the plan goes on for it
			c.reopen(p, at)
		}
		purpose := api.PurposeProbe
		switch k.ProbeAsked.Question {
		case pb.Question_QUESTION_VERIFY:
			purpose = api.PurposeVerify
		case pb.Question_QUESTION_UNDO: // with it an attempt begins
			if !it.started {
				c.inOrder(at, p, it)
			}
			it.started = true
		}
		c.call(at, p, it, attemptOf(p.id, it.id, purpose, k.ProbeAsked.Attempt), k.ProbeAsked.Key)
	case *pb.Record_ProbeAnswered:
		it.answered(k.ProbeAnswered)
	case *pb.Record_CompensationSucceeded, *pb.Record_CompensationReported:
		c.undone(at, p, it, r)
	case *pb.Record_CompensationSkipped:
		late := c.hasDuty(p, it) || it.blindBegun && it.outcome != rowspb.Outcome_OUTCOME_UNKNOWN
		if it.outcome != rowspb.Outcome_OUTCOME_FAILED && !it.effectless() && !it.absent && !late {
			c.fail("I22", at, "%s of plan %s is skipped, and may have crossed", it.id, p.id)
		}
		it.undo = undoSkipped
	case *pb.Record_CompensationFailed:
		it.tryAgain = !k.CompensationFailed.Final && !k.CompensationFailed.InDoubt && !p.opened.SecondApprover // whether a retry counts, the audit knows
	case *pb.Record_ActionQuarantined:
		if it.tryAgain && strings.Contains(k.ActionQuarantined.Reason, it.compensation.Capability+" failed: ") && it.attempt-it.from < cmp.Or(it.compensation.Attempts, 3) {
			c.fail("I23", at, "%s of plan %s is given up after %d of %d attempts", it.id, p.id, it.attempt-it.from, it.compensation.Attempts)
		}
		it.undo = undoQuarantined
	case *pb.Record_CommitWaits:
		it.asked = true
	case *pb.Record_Resolved:
		if it.answers(p, k.Resolved) {
			break
		}
		it.undo, it.halt = undoResolved, k.Resolved.Halt // where two must agree, what counts is seen at what follows
		c.word(p, at)
	case *pb.Record_RetryRequested:
		c.again(p, it, at)
	}
}

// completed notes a completion, and whether what its undo reads was kept.
func (c *checker) completed(p *planCheck, it *itemCheck, r *pb.Record) {
	c.outcome(p, it, rowspb.Outcome_OUTCOME_COMPLETED)
	it.lost = r.GetForwardCompleted().OutputIncomplete && len(r.Payload.GetOutput()) == 0
	if it.lost {
		c.w.options.Seen.commit("lost")
	}
}

// again follows an owner who has asked for another try.
func (c *checker) again(p *planCheck, it *itemCheck, at uint64) {
	if it.asked && p.root().waits != 0 {
		return // the world is asked again
	}
	it.approved, it.tryAgain, it.from = true, false, it.attempt
	it.started = it.started && it.undo != undoQuarantined // what is in flight stays there
	if !p.opened.SecondApprover {
		it.undo = undoHeld
	}
	c.word(p, at)
}

// undone follows a word that an undo is done.
func (c *checker) undone(at uint64, p *planCheck, it *itemCheck, r *pb.Record) {
	owners := it.undo == undoQuarantined || it.undo == undoResolved
	k, report := r.GetCompensationSucceeded(), r.GetCompensationReported()
	switch {
	case k != nil && owners:
		c.doneLate(at, p, it, k.Attempt)
	case k != nil:
		c.succeeded(at, p, it, k)
	case owners && report.Answer == pb.Answer_ANSWER_DONE:
		c.doneLate(at, p, it, report.Attempt)
	}
}

// doneLate: what a worker says behind the owner's answer is the owner's to know. It is
// told once, and an answer that came before it has a duty beside it.
func (c *checker) doneLate(at uint64, p *planCheck, it *itemCheck, attempt uint32) {
	if p.opened.SecondApprover { // whether the answer counted, the audit knows: it holds nothing back, in any case
		it.undo, it.halt = undoResolved, false
		return
	}
	if attempt <= it.toldLate {
		c.fail("I22", at, "the undo of %s of plan %s was said to be done before, behind its owner's answer", it.id, p.id)
	}
	it.toldLate = attempt
	if it.undo == undoResolved {
		it.owesWord = true
		c.reopen(p, at)
	}
}

// answered follows what a question has found.
func (it *itemCheck) answered(k *pb.ProbeAnswered) {
	it.gone = k.Presence == pb.Presence_PRESENCE_ABSENT
	effect := k.Question == pb.Question_QUESTION_EFFECT
	if effect {
		it.absent = it.gone // whether it was asked too early, the audit knows
	}
	first := k.Question == pb.Question_QUESTION_UNDO && k.Presence == pb.Presence_PRESENCE_PRESENT && it.presence == pb.Presence_PRESENCE_UNSPECIFIED
	if effect && !it.gone && k.Presence != pb.Presence_PRESENCE_UNSPECIFIED || first {
		it.presence = k.Presence
	}
}

// word notes that an owner has let a plan go on; where two must agree, that it may.
func (c *checker) word(p *planCheck, at uint64) {
	p.resumed = at
	for up := p; up != nil && p.opened.SecondApprover; up = up.parent {
		up.unsure = true
	}
	c.reopen(p, at)
}

// reopen: what had ended unwinds again, and all that it is a part of and whose unwind
// had come so far.
func (c *checker) reopen(p *planCheck, at uint64) {
	for p != nil {
		if p.phase == phaseEnded {
			p.phase, p.resumed = phaseUnwinding, at
		}
		parent := p.parent
		if parent != nil {
			if _, entry := parent.item("plan:" + p.id); entry == nil || c.holdsBack(parent, entry) != nil {
				for ; parent != nil; parent = parent.parent {
					parent.unsure = true // it goes on when what holds it back lets go
				}
				return
			}
		}
		p = parent
	}
}

func (c *checker) outcome(p *planCheck, it *itemCheck, outcome rowspb.Outcome) {
	if outcome == rowspb.Outcome_OUTCOME_COMPLETED && it.outcome == rowspb.Outcome_OUTCOME_FAILED {
		it.from = it.attempt // it was said to have failed behind a blind attempt, and is owed anew
	}
	it.outcome = outcome
	if outcome == rowspb.Outcome_OUTCOME_COMPLETED && it.undo != undoSkipped {
		it.absent = false // the probe was too early
	}
	if u := c.plans[p.id+"~1"]; u != nil { // what undoes a committed plan knows, too
		if _, copied := u.item(it.id); copied != nil {
			copied.outcome, copied.taken, copied.earlier = outcome, it.taken, it.earlier
		}
	}
}

// call notes a command that may be sent, with its key: that of its action, whatever
// the attempt, the term and the plan that undoes it (I19).
func (c *checker) call(at uint64, p *planCheck, it *itemCheck, id turn.Attempt, key string) {
	want := ledger.Key(tenant, planOf(p.id), it.id, ledger.PurposeUndo)
	if it.duty && key == ledger.Key(tenant, p.id, it.id, ledger.PurposeUndo) {
		want = key // a duty that came up in the plan that undoes a committed one
	}
	if key != want {
		c.fail("I19", at, "%s of %s %s has key %s; its action's is %s", id.Purpose, p.id, it.id, key, want)
	}
	c.calls[id] = &callCheck{at, key}
}

// dispatched: an undo begins only where it may (I18 to I21, I23).
func (c *checker) dispatched(at uint64, p *planCheck, it *itemCheck, k *pb.CompensationDispatched) {
	c.absorbed(p, at, "compensation_dispatched")
	c.call(at, p, it, attemptOf(p.id, it.id, ledger.PurposeUndo, k.Attempt), k.Key)
	contract := it.compensation
	if it.duty && p.phase == phaseEnded { // it came late, and the plan goes on for it
		c.reopen(p, at)
	}
	blind := it.outcome != rowspb.Outcome_OUTCOME_COMPLETED
	refused := it.forward.Late == pb.Late_LATE_REFUSED
	asks := contract.Probe != nil && !refused && (contract.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_PROBE || contract.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_UNSPECIFIED)
	switch {
	case p.phase != phaseUnwinding && !p.unsure && !hasParts(p): // with parts, the audit beside it knows
		c.fail("I18", at, "%s of plan %s is dispatched, and the plan does not unwind", it.id, p.id)
	case it.undo == undoDone || it.undo == undoSkipped || it.undo == undoResolved && !p.opened.SecondApprover:
		c.fail("I19", at, "%s of plan %s is dispatched, and its undo is settled", it.id, p.id)
	case it.class != pb.Class_CLASS_COMPENSABLE:
		c.fail("I23", at, "%s of plan %s is dispatched, and has no inverse: %s", it.id, p.id, it.class)
	case it.outcome == rowspb.Outcome_OUTCOME_FAILED:
		c.fail("I20", at, "%s of plan %s is dispatched, and is known to have failed", it.id, p.id)
	case blind && !it.duty && asks && it.presence == pb.Presence_PRESENCE_UNSPECIFIED:
		c.fail("I20", at, "%s of plan %s is dispatched in doubt, and its probe has found nothing yet", it.id, p.id)
	case blind && !it.duty && contract.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_QUARANTINE && it.presence == pb.Presence_PRESENCE_UNSPECIFIED && !it.approved:
		c.fail("I20", at, "%s of plan %s is dispatched in doubt, and its contract asks the owner", it.id, p.id)
	case (it.forward.Pivot || contract.Approve) && !it.approved && !it.duty:
		c.fail("I20", at, "%s of plan %s is dispatched without its owner's word", it.id, p.id)
	case it.lost && !blind && contract.Actuator != ledger.ActuatorMemory:
		c.fail("I37", at, "%s of plan %s is dispatched, and its output, which its arguments read, was not kept", it.id, p.id)
	case k.Attempt != it.attempt+1:
		c.fail("I19", at, "attempt %d of %s %s comes after attempt %d", k.Attempt, p.id, it.id, it.attempt)
	case k.Attempt-it.from > cmp.Or(contract.Attempts, 3) && !p.opened.SecondApprover:
		c.fail("I23", at, "attempt %d of %s %s, and its contract allows %d", k.Attempt, p.id, it.id, contract.Attempts)
	case !it.duty && k.BlindCleanup != blind:
		c.fail("I20", at, "%s of plan %s is dispatched with blind=%v, and its outcome is %s", it.id, p.id, k.BlindCleanup, it.outcome)
	}
	it.attempt = k.Attempt
	it.blindBegun = it.blindBegun || k.BlindCleanup
	if !it.started {
		c.inOrder(at, p, it)
	}
	it.started, it.undo = true, undoHeld
}

func hasParts(p *planCheck) bool {
	return slices.ContainsFunc(p.items, func(it *itemCheck) bool { return it.child != nil })
}

// inOrder: when an undo begins, all that came after its action is settled (I21).
func (c *checker) inOrder(at uint64, p *planCheck, it *itemCheck) {
	if other := c.holdsBack(p, it); other != nil {
		c.fail("I21", at, "the undo of %s of plan %s begins before that of %s, which came after it", it.id, p.id, other.id)
	}
}

// holdsBack is what came after an action and does not let its undo begin, or nil.
func (c *checker) holdsBack(p *planCheck, it *itemCheck) *itemCheck {
	place := slices.Index(p.items, it)
	after := make([]bool, len(p.items))
	after[place] = true
	for i := place + 1; i < len(p.items); i++ { // what came after stands behind
		for _, b := range p.items[i].before {
			after[i] = after[i] || after[b]
		}
		if other := p.items[i]; after[i] && !c.lets(p, other) {
			return other
		}
	}
	return nil
}

// lets reports whether an action lets what it came after go.
func (c *checker) lets(p *planCheck, it *itemCheck) bool {
	if it.child != nil {
		return it.apart || it.child.phase == phaseEnded || it.child.unsure
	}
	goesOn := p.opened.OnUndoFailure == pb.OnUndoFailure_ON_UNDO_FAILURE_CONTINUE
	switch it.undo {
	case undoDone, undoSkipped:
		return true
	case undoResolved:
		return !it.halt || p.opened.SecondApprover && goesOn // two may not agree: then it is quarantined as before
	case undoQuarantined:
		return goesOn
	default:
		return false
	}
}

// succeeded: one success for each key, checked where the contract says so, and the
// effect is gone (I19, I22, E2).
func (c *checker) succeeded(at uint64, p *planCheck, it *itemCheck, k *pb.CompensationSucceeded) {
	c.absorbed(p, at, "compensation_succeeded")
	key := ledger.Key(tenant, planOf(p.id), it.id, ledger.PurposeUndo)
	if before := c.wins[key]; before != 0 {
		c.fail("I19", at, "the undo of %s of plan %s succeeded before, at %d", it.id, p.id, before)
	}
	c.wins[key] = at
	if it.compensation.Verify != nil && (!k.Verified && !k.Probed || !it.gone) {
		c.fail("I22", at, "the undo of %s of plan %s succeeds unverified, and its contract asks for a check", it.id, p.id)
	}
	if k.Probed && !it.gone {
		c.fail("I22", at, "the undo of %s of plan %s succeeds by a probe that found nothing gone", it.id, p.id)
	}
	it.undo = undoDone
	s := c.w.workers.spec(p.id, it.id)
	if s == nil || it.duty || it.compensation.Actuator == ledger.ActuatorMemory || k.Probed && it.outcome != rowspb.Outcome_OUTCOME_COMPLETED {
		return
	}
	if slices.ContainsFunc(p.claims, func(k *claim) bool { return k.action == it.id }) {
		return // another process has called it too: what that made is its owner's (I31)
	}
	for _, effect := range c.w.provider.forward[s.key] {
		if effect.stands && !effect.extra && !c.clocksWrong() {
			c.fail("E2", at, "the undo of %s of plan %s succeeded, and %s stands", it.id, p.id, effect.ref)
		}
	}
}
