package audit

import (
	"cmp"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// decided folds what a holder decided. Every record of it is a claim: it counts only
// if the plan still allows it where it stands.
func (b *book) decided(e ledger.Entry) verdict {
	r := e.Record
	if k := r.GetTermStarted(); k != nil {
		if r.Term <= b.term {
			return void("I26", "term %d has begun, held by %s", b.term, b.holder)
		}
		b.term, b.holder = r.Term, k.Holder
		return effective
	}
	if k := r.GetLedgerRepaired(); k != nil { // whoever repaired the ledger had no term
		if k.Through+1 != e.Address.Sequence || k.Size+1 != b.records {
			return void("I1", "it repairs up to sequence %d with %d records, and stands behind %d with %d", k.Through, k.Size, e.Address.Sequence-1, b.records-1)
		}
		return effective
	}
	if r.Term != b.term {
		return void("I26", "decided in term %d, but term %d has begun", r.Term, b.term)
	}
	if r.Folded != 0 && e.Address.Sequence != b.decidedAt {
		if r.Folded < b.decidedAt {
			return void("I5", "decided on what stood up to %d, and other decisions stand at %d since", r.Folded, b.decidedAt)
		}
		b.decidedAt = e.Address.Sequence
	}
	switch k := r.Kind.(type) {
	case *pb.Record_RecordRefused:
		return effective
	case *pb.Record_CheckpointSigned:
		return b.checkpoint(k.CheckpointSigned)
	case *pb.Record_KeyRotated:
		return b.rotation(k.KeyRotated)
	case *pb.Record_FactEvicted:
		return b.factEvicted(e, k.FactEvicted)
	case *pb.Record_FactReingested:
		return b.factReingested(e, k.FactReingested)
	}
	p := b.plan(r.Plan)
	if p == nil {
		return void("I6", "plan %s was never opened", r.Plan)
	}
	switch k := r.Kind.(type) {
	case *pb.Record_LeaseFired:
		return b.leaseFired(e, p, k.LeaseFired)
	case *pb.Record_CascadeCut:
		return b.cascadeCut(e, p, k.CascadeCut)
	case *pb.Record_UnwindStarted:
		return b.unwindStarted(e, p, k.UnwindStarted)
	case *pb.Record_HeldSetRetired:
		return b.retirement(p, k.HeldSetRetired)
	case *pb.Record_PlanEnded:
		return b.planEnded(e, p, k.PlanEnded)
	case *pb.Record_PlanRewound:
		return b.planRewound(p, k.PlanRewound)
	case *pb.Record_PlanErased:
		return b.shred(e, p)
	case *pb.Record_OwnerPaged:
		key := page{p.id, p.number(r.Action), k.OwnerPaged.Kind}
		if at := b.pages[key]; at == nil || !sameAddress(r.Cause, at) {
			return void("I6", "no such page of kind %s about plan %s is open", k.OwnerPaged.Kind, p.id)
		}
		delete(b.pages, key)
		return effective
	}
	return b.decidedAbout(e, p)
}

// decidedAbout folds the records about one action; each names it by address.
func (b *book) decidedAbout(e ledger.Entry, p *plan) verdict {
	r := e.Record
	a := p.named(r.Action)
	switch {
	case a == nil:
		return void("I6", "action %s is not registered in plan %s", r.Action, p.id)
	case !sameAddress(r.About, a.registered):
		return void("I6", "it names %s, but action %s was registered at %s", ledger.FormatAddress(r.About), a.id, ledger.FormatAddress(a.registered))
	}
	if k := r.GetUndoWindowClosing(); k != nil {
		if !p.armed() || a.undo != held || a.closesNs == 0 || a.warned || k.ClosesNs != a.closesNs {
			return void("I24", "action %s is %s, with no such window", a.id, a.undo)
		}
		a.warned = true
		b.page(p, a, api.PageWindowClosing, e.Address)
		return effective
	}
	if k := r.GetCompensationSucceeded(); k != nil && a.isLate(k.Attempt) {
		return b.doneLate(e, p, a, k.Attempt)
	}
	if p.committing() {
		return b.decidedDoubt(e, p, a)
	}
	if p.phase != ledger.StateUnwinding {
		return void("I15", "plan %s is %s", p.id, p.status())
	}
	switch k := r.Kind.(type) {
	case *pb.Record_CompensationDispatched:
		return b.dispatch(e, p, a, k.CompensationDispatched)
	case *pb.Record_CompensationSucceeded:
		return b.succeeded(e, p, a, k.CompensationSucceeded)
	case *pb.Record_CompensationFailed:
		return b.failure(e, p, a, k.CompensationFailed)
	case *pb.Record_FactAsserted, *pb.Record_FactRetracted:
		return b.undoByFact(e, a)
	case *pb.Record_CompensationSkipped:
		return b.skip(e, p, a)
	case *pb.Record_ActionQuarantined:
		return b.quarantine(e, p, a)
	case *pb.Record_ProbeAsked:
		return b.ask(e, p, a, k.ProbeAsked)
	case *pb.Record_ProbeAnswered:
		return b.answer(e, p, a, k.ProbeAnswered)
	default:
		return void("I4", "no record of a holder about an action")
	}
}

// stateOf is the undo of an action as people read it.
func (p *plan) stateOf(a *action) string {
	switch {
	case a.undo == owed && p.isReady(a) && p.settlesBy(a) != 0:
		return settling
	case a.undo == owed && p.isReady(a):
		return ready
	case a.doubt == doubtGiven:
		return quarantined
	case a.undo == held && p.phase == ledger.StateCommitted && !p.keeps():
		return retired
	}
	return a.undo
}

// What an unwind does next with an action that is ready.
const (
	doDispatch   = "dispatch"
	doProbe      = "probe"
	doSkip       = "skip"
	doQuarantine = "quarantine"
	doChild      = "unwind its child plan"
)

// superseded: an undo that has begun has nothing to do any more.
func (a *action) superseded() bool { return a.outcome == failed || a.late && a.dutyOf == 0 }

// next says what is to be done with a ready action now. Only what crossed or may have
// crossed is undone; an irreversible effect is its owner's; doubt is asked about first
// (I20).
func (b *book) next(p *plan, a *action) string {
	c, class := a.compensation, a.forward.GetClass()
	unsure := (a.blind() || a.late) && a.presence == pb.Presence_PRESENCE_UNSPECIFIED
	switch {
	case a.child != nil:
		return doChild
	case a.undone:
		return doQuarantine
	case a.superseded(), class == pb.Class_CLASS_EFFECTLESS, a.presence == pb.Presence_PRESENCE_ABSENT:
		return doSkip
	case class == pb.Class_CLASS_IRREVERSIBLE, c.GetCapability() == "":
		return doQuarantine
	case c.Sealed && b.isErased(p):
		return doQuarantine
	case a.late && a.dutyOf != 0 && c.OnLate == pb.OnLate_ON_LATE_QUARANTINE && !a.approved:
		return doQuarantine
	case unsure && a.late && c.Probe != nil:
		return doProbe
	case unsure && !a.late && a.policy() == doubtAsk:
		return doProbe
	case unsure && !a.late && a.policy() == doubtOwner:
		return doQuarantine
	case !a.approved && (b.windowClosed(a) || a.forward.Pivot || c.Approve):
		return doQuarantine
	default:
		return doDispatch
	}
}

// dispatch begins an attempt: when nothing that came after the action stands (I21),
// with what may have crossed (I20), with the registered undo and its key (I19).
func (b *book) dispatch(e ledger.Entry, p *plan, a *action, k *pb.CompensationDispatched) verdict {
	switch {
	case a.undo == owed && !p.isReady(a):
		return void("I21", "what came after action %s is not settled", a.id)
	case a.undo != owed && (a.undo != waiting || a.asking != pb.Question_QUESTION_UNSPECIFIED):
		return void("I19", "the undo of action %s is %s", a.id, a.undo)
	case k.Attempt != a.attempt+1:
		return void("I19", "attempt %d, but attempt %d is next", k.Attempt, a.attempt+1)
	}
	if next := b.next(p, a); next != doDispatch {
		return void("I20", "action %s must not be compensated: %s it", a.id, next)
	}
	switch {
	case k.Capability != a.compensation.Capability || k.Key != b.undoKey(p, a):
		return void("I19", "%s with key %q is not the compensation of action %s", k.Capability, k.Key, a.id)
	case k.BlindCleanup != a.blind():
		return void("I20", "the outcome of action %s is %s, and the dispatch says otherwise", a.id, a.outcome)
	case p.settles(a, e.Record.EpochNs):
		return void("I29", "the forward of action %s may still land", a.id)
	}
	a.attempt, a.blindly, a.dispatched = k.Attempt, k.BlindCleanup, e.Address
	a.dispatchedNs, a.unserved = e.Record.EpochNs, false
	a.undo, a.arguments = dispatched, e.Record.Payload.GetArguments()
	return effective
}

// inFlight: an answer about this attempt may still settle it. An earlier attempt that
// turns out to have succeeded did undo the effect.
func (a *action) inFlight(attempt uint32) bool {
	return (a.flying() || a.undo == owed) && a.child == nil && attempt >= 1 && attempt <= a.attempt
}

func (a *action) reportedDone() bool { return a.reported.GetAnswer() == pb.Answer_ANSWER_DONE }

// land takes an action out of flight.
func (a *action) land() {
	a.unheard()
	a.asking, a.pending, a.arguments = pb.Question_QUESTION_UNSPECIFIED, nil, nil
}

func (a *action) unheard() { a.reported, a.confirmed = nil, false }

// succeeded settles an action as undone: no success without its dispatch (I18), and
// with the check that the contract asks for.
func (b *book) succeeded(e ledger.Entry, p *plan, a *action, k *pb.CompensationSucceeded) verdict {
	claims := k.Verified || k.Probed
	switch {
	case !a.inFlight(k.Attempt) && a.isSettled():
		return void("I22", "attempt %d of action %s is not in flight: its undo is %s", k.Attempt, a.id, a.undo)
	case !a.inFlight(k.Attempt):
		return void("I18", "attempt %d of action %s is not in flight: its undo is %s", k.Attempt, a.id, p.stateOf(a))
	case claims && !a.confirmed:
		return void("I18", "no question found the effect of action %s gone", a.id)
	case !claims && a.compensation.GetVerify() != nil:
		return void("I18", "the contract of action %s asks for a check after the undo", a.id)
	case !b.changedItsFact(a):
		return void("I18", "the undo of action %s has changed no fact", a.id)
	}
	a.land()
	a.successes++
	b.settle(p, a, compensated, e.Address)
	return effective
}

func attemptsOf(c *pb.CompensationRegistered) uint32 { return cmp.Or(c.GetAttempts(), 3) }

func timeoutOf(c *pb.CompensationRegistered) int64 { return cmp.Or(c.GetTimeoutNs(), int64(30e9)) }

func (a *action) spent() bool {
	return a.unserved || a.attempt-a.attemptsFrom >= attemptsOf(a.compensation)
}

// failure ends an attempt: asked about, tried again, or its owner's (I23).
func (b *book) failure(e ledger.Entry, p *plan, a *action, k *pb.CompensationFailed) verdict {
	switch {
	case a.undo != dispatched || k.Attempt != a.attempt || a.asking != pb.Question_QUESTION_UNSPECIFIED:
		return void("I18", "attempt %d of action %s is not in flight: its undo is %s", k.Attempt, a.id, p.stateOf(a))
	case a.reportedDone() && k.Code != "unverified": // done, and the check behind it cannot be made
		return void("I18", "the undo of action %s was reported done", a.id)
	case k.Unserved && a.inMemory():
		return void("I23", "the undo of action %s needs no worker", a.id)
	case k.Unserved && e.Record.EpochNs < a.offeredUntil():
		return void("I23", "the undo of action %s was not offered for as long as its contract says", a.id)
	case k.Unserved && a.aliveUntilNs != 0 && !k.InDoubt:
		return void("I18", "an attempt of action %s may have come to a worker, and the record has no doubt", a.id)
	}
	a.pending = nil
	a.unserved = k.Unserved
	a.unheard()
	if k.InDoubt { // its worker may be at work for as long again
		a.aliveUntilNs = max(a.aliveUntilNs, min(e.Record.EpochNs, epochMax)+timeoutOf(a.compensation))
	}
	switch {
	case a.superseded():
		a.land()
		a.undo = owed
	case k.InDoubt && a.compensation.GetProbe() != nil && !a.inMemory():
		a.asking, a.askedFrom, a.undo = pb.Question_QUESTION_UNDO, a.asked, waiting
	case k.Final || a.spent():
		a.land()
		a.undo = exhausted
	default:
		a.undo = waiting
	}
	return effective
}

// skip settles an action of which nothing is to be undone (I20).
func (b *book) skip(e ledger.Entry, p *plan, a *action) verdict {
	switch {
	case a.undo == owed && !p.isReady(a):
		return void("I21", "what came after action %s is not settled", a.id)
	case a.undo != owed:
		return void("I22", "the undo of action %s is %s", a.id, a.undo)
	case b.next(p, a) != doSkip:
		return void("I22", "the effect of action %s may have crossed: it must not be skipped", a.id)
	}
	a.scoped = a.crossed()
	b.settle(p, a, skipped, e.Address)
	return effective
}

// quarantine gives an action to its owner (I23).
func (b *book) quarantine(e ledger.Entry, p *plan, a *action) verdict {
	switch {
	case p.isReady(a) && b.next(p, a) == doSkip: // its outcome came first
		return void("I23", "nothing of action %s is to be undone: it is not its owner's", a.id)
	case p.settles(a, e.Record.EpochNs):
		return void("I29", "the forward of action %s may still land", a.id)
	case a.undo == exhausted, p.isReady(a):
	case a.undo == waiting: // its next call cannot be built
		a.land()
	case a.undo == owed:
		return void("I21", "what came after action %s is not settled", a.id)
	default:
		return void("I23", "the undo of action %s is %s", a.id, a.undo)
	}
	a.proposal = nil
	b.settle(p, a, quarantined, e.Address)
	b.page(p, a, api.PageQuarantined, e.Address)
	return effective
}
