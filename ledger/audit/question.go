package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// callOf is the call that a question makes.
func callOf(c *pb.CompensationRegistered, q pb.Question) *pb.Call {
	if q == pb.Question_QUESTION_VERIFY {
		return c.GetVerify().GetCall()
	}
	return c.GetProbe().GetCall()
}

// ask asks the world: whether a doubtful effect is there, whether it still stands
// after an attempt without an answer, whether it is gone after one that says done.
func (b *book) ask(e ledger.Entry, p *plan, a *action, k *pb.ProbeAsked) verdict {
	call := callOf(a.compensation, k.Question)
	isReady := p.isReady(a)
	switch {
	case call == nil || call.Capability != k.Capability:
		return void("I20", "%s is not what the contract of action %s asks", k.Capability, a.id)
	case !b.mayAsk(p, a, k, isReady):
		return void("I20", "action %s must not be asked about: its undo is %s", a.id, p.stateOf(a))
	case k.Question == pb.Question_QUESTION_EFFECT && p.settles(a, e.Record.EpochNs):
		return void("I29", "the forward of action %s may still land", a.id)
	case k.Attempt != a.asked+1:
		return void("I20", "question %d, but question %d is next", k.Attempt, a.asked+1)
	}
	if a.asking != k.Question || isReady {
		a.askedFrom = a.asked
	}
	if a.asking != k.Question {
		a.askedToSend = k.Question == pb.Question_QUESTION_UNDO && a.asking == pb.Question_QUESTION_UNSPECIFIED
	}
	if k.Done != nil {
		a.pending = k.Done
		a.unheard()
	}
	a.asking, a.asked, a.askedNs, a.undo = k.Question, k.Attempt, e.Record.EpochNs, dispatched
	a.arguments = e.Record.Payload.GetArguments()
	return effective
}

func (b *book) mayAsk(p *plan, a *action, k *pb.ProbeAsked, isReady bool) bool {
	again := a.undo == waiting && a.asking == k.Question
	switch k.Question {
	case pb.Question_QUESTION_EFFECT:
		return again || isReady && b.next(p, a) == doProbe
	case pb.Question_QUESTION_UNDO:
		resend := a.undo == waiting || isReady && a.attempt > 0
		return again || a.asking == pb.Question_QUESTION_UNSPECIFIED && resend
	case pb.Question_QUESTION_VERIFY:
		done := k.Done.GetAttempt()
		return again || a.asking != pb.Question_QUESTION_VERIFY && a.inFlight(done)
	default:
		return false
	}
}

// answer is what a question found.
func (b *book) answer(e ledger.Entry, p *plan, a *action, k *pb.ProbeAnswered) verdict {
	if a.undo != dispatched || a.asking != k.Question || a.asked != k.Attempt || k.Question == pb.Question_QUESTION_UNSPECIFIED {
		return void("I20", "no such question about action %s is open: its undo is %s", a.id, p.stateOf(a))
	}
	if _, ok := pb.Presence_name[int32(k.Presence)]; !ok {
		return void("I20", "presence %d is none that this version knows", k.Presence)
	}
	switch {
	case k.Unserved && k.Presence != pb.Presence_PRESENCE_UNSPECIFIED:
		return void("I20", "nobody answered the question about action %s, and yet it found something", a.id)
	case k.Unserved && e.Record.EpochNs < a.offeredUntil():
		return void("I23", "the question about action %s was not offered for as long as its contract says", a.id)
	}
	if k.Presence == pb.Presence_PRESENCE_UNSPECIFIED {
		b.inconclusive(a, k)
		return effective
	}
	switch k.Question {
	case pb.Question_QUESTION_EFFECT:
		if k.Presence == pb.Presence_PRESENCE_ABSENT && p.tooEarly(a, a.askedNs) {
			a.absentNs = a.askedNs // it rules nothing out, and is asked once more
			a.land()
			a.undo = owed
			break
		}
		a.presence = k.Presence
		if k.ExternalRef != "" {
			a.externalRef = k.ExternalRef
		}
		a.land()
		a.undo = owed
		if k.Presence == pb.Presence_PRESENCE_DUPLICATE {
			b.foundDuplicates(p, a, k.Duplicates)
		}
	case pb.Question_QUESTION_UNDO:
		b.undoFound(p, a, k)
	case pb.Question_QUESTION_VERIFY:
		if k.Presence == pb.Presence_PRESENCE_ABSENT {
			a.confirmed = true
			a.hear(pb.Answer_ANSWER_DONE)
		} else {
			a.hear(pb.Answer_ANSWER_FAILED)
		}
	}
	return effective
}

// hear notes what a question said of an attempt; the holder records it as its outcome.
func (a *action) hear(answer pb.Answer) {
	attempt := a.attempt
	if a.pending != nil && answer == pb.Answer_ANSWER_DONE {
		attempt = a.pending.Attempt
	}
	a.asking = pb.Question_QUESTION_UNSPECIFIED
	a.reported = &pb.CompensationReported{Attempt: attempt, Answer: answer}
	if answer != pb.Answer_ANSWER_DONE {
		a.reported.Code = "unverified"
	}
}

// inconclusive asks again as often as the contract says; then it is its owner's.
func (b *book) inconclusive(a *action, k *pb.ProbeAnswered) {
	switch {
	case !k.Unserved && k.Attempt-a.askedFrom < cmp.Or(callOf(a.compensation, k.Question).Attempts, 3):
		a.undo = waiting
	case k.Question == pb.Question_QUESTION_VERIFY:
		a.hear(pb.Answer_ANSWER_STOP)
	default:
		a.land()
		a.undo = exhausted
	}
}

// undoFound goes on after an attempt of which nobody knows whether it happened.
func (b *book) undoFound(p *plan, a *action, k *pb.ProbeAnswered) {
	absent, unseen := k.Presence == pb.Presence_PRESENCE_ABSENT, a.presence == pb.Presence_PRESENCE_UNSPECIFIED
	early := absent && p.tooEarly(a, a.askedNs)
	if absent && !early {
		a.confirmed = true
		a.hear(pb.Answer_ANSWER_DONE)
		return
	}
	switch {
	case k.Presence == pb.Presence_PRESENCE_DUPLICATE:
		b.foundDuplicates(p, a, k.Duplicates)
	case k.Presence == pb.Presence_PRESENCE_PRESENT && unseen:
		a.presence = k.Presence
	}
	if early && (a.askedToSend || a.spent()) && !a.superseded() {
		a.undo, a.askedFrom = waiting, a.asked // for the same question, once it has landed or never will
		return
	}
	a.asking, a.askedToSend = pb.Question_QUESTION_UNSPECIFIED, false
	switch {
	case a.superseded():
		a.land()
		a.undo = owed
	case a.spent():
		a.land()
		a.undo = exhausted
	default:
		a.undo = waiting
	}
}

// A duty is an effect of an action that is owed once more: an extra one that a probe
// found, or one whose forward reported after its action was undone or skipped. It is
// an action of its own, a~1, with the contract and the place in the order of its origin.

func (p *plan) originOf(a *action) *action {
	if a.dutyOf != 0 {
		return p.actions[a.dutyOf-1]
	}
	return a
}

func (b *book) duty(p *plan, of *action, at *pb.Address, d *action) *action {
	origin := p.originOf(of)
	origin.duties++
	d.id = fmt.Sprintf("%s~%d", origin.id, origin.duties)
	d.registered, d.atNs, d.forward, d.compensation = at, b.now, origin.forward, origin.compensation
	d.before, d.dutyOf, d.closesNs = origin.before, origin.n, of.closesNs
	d.input, d.image = origin.input, origin.image
	return p.enlist(d)
}

func (b *book) owedTo(p *plan, a *action, ref string) bool {
	origin := p.originOf(a)
	return slices.ContainsFunc(p.actions, func(d *action) bool { return d.dutyOf == origin.n && d.externalRef == ref })
}

// foundDuplicates notes extra effects, for which a lease fires.
func (b *book) foundDuplicates(p *plan, a *action, refs []string) {
	a.duplicates = nil
	for _, ref := range refs {
		if ref != a.externalRef && !b.owedTo(p, a, ref) {
			a.duplicates = append(a.duplicates, ref)
		}
	}
	if len(a.duplicates) == 0 {
		return
	}
	a.leases = slices.DeleteFunc(a.leases, func(l *lease) bool { return l.name == leaseDuplicate })
	a.leases = append(a.leases, &lease{name: leaseDuplicate, armedNs: b.now})
	a.presence = pb.Presence_PRESENCE_DUPLICATE
}

// duplicateFired owes the extra effects that a probe found.
func (b *book) duplicateFired(e ledger.Entry, p *plan) verdict {
	a := p.named(e.Record.Action)
	if p.phase != ledger.StateUnwinding || a == nil || len(a.duplicates) == 0 {
		return void("I11", "no extra effect of action %s of plan %s waits for its lease", e.Record.Action, p.id)
	}
	findLease(a.leases, leaseDuplicate).fired = true
	refs := a.duplicates
	a.duplicates = nil
	for _, ref := range refs {
		if b.owedTo(p, a, ref) {
			continue
		}
		b.reopen(p)
		d := b.duty(p, a, e.Address, &action{
			outcome: inDoubt, presence: pb.Presence_PRESENCE_PRESENT, externalRef: ref, approved: a.approved, undo: owed})
		reads := slices.ContainsFunc(d.compensation.GetBindings(), func(x *pb.Binding) bool { return strings.Contains(x.Expression, "external_ref") })
		if !reads && p.isReady(d) {
			d.undo = exhausted // its compensation would not know which
		}
	}
	return effective
}

// completedLate deals with a forward that reports completion after the unwind has
// begun to deal with its action without knowing: the effect is never silently held.
func (b *book) completedLate(e ledger.Entry, p *plan, a *action) {
	if a.presence == pb.Presence_PRESENCE_ABSENT && a.undo != compensated && a.undo != skipped && a.undo != resolved {
		a.presence = pb.Presence_PRESENCE_UNSPECIFIED // the probe was too early
	}
	switch {
	case a.forward.GetClass() == pb.Class_CLASS_EFFECTLESS || a.late:
	case a.flying() && !a.blindly: // a question about its effect is out: it is answered
		a.land()
		a.undo = owed
	case a.dealtWith():
		asks := a.compensation.GetOnLate() == pb.OnLate_ON_LATE_QUARANTINE
		b.owedAgain(e, p, a, &action{
			outcome: completed, externalRef: a.externalRef, lifted: a.lifted, late: true, approved: a.approved && !asks, output: e.Record.Payload.GetOutput(), incomplete: a.incomplete}, noteLate)
	}
}

// doubtedLate deals with a forward that is given up only after the unwind has dealt with
// its action without knowing: it may land after that.
func (b *book) doubtedLate(e ledger.Entry, p *plan, a *action) {
	if a.presence == pb.Presence_PRESENCE_ABSENT && a.resolution == nil && a.undo == held {
		a.presence = pb.Presence_PRESENCE_UNSPECIFIED // a commit has asked about it before
	}
	if a.forward.GetClass() == pb.Class_CLASS_EFFECTLESS || a.late || !a.dealtWith() {
		return
	}
	d := b.owedAgain(e, p, a, &action{outcome: inDoubt, outcomeNs: b.now, approved: a.approved}, noteDoubted)
	a.doubtedAs = d.n
}

// dealtWith reports whether an action was undone blindly, skipped, or called undone by
// its owner, and ends what is still tried for it. An undo that bars its forward is no
// blind one.
func (a *action) dealtWith() bool {
	lost := a.resolution.GetOutcome() == pb.Resolution_RESOLUTION_LOST || a.resolution.GetOutcome() == pb.Resolution_RESOLUTION_ACCEPTED
	blindly := a.blindly && !a.barred()
	switch {
	case a.flying() && blindly && (a.undo == waiting || a.asking == pb.Question_QUESTION_UNDO):
		a.land()
		a.undo = owed
	case a.flying() && blindly, a.undo == compensated && blindly, a.undo == skipped, a.undo == resolved && !lost:
	default:
		return false
	}
	a.late = true
	return true
}

// owedAgain adds the duty for what has become known of a forward too late.
func (b *book) owedAgain(e ledger.Entry, p *plan, a *action, duty *action, why string) *action {
	b.reopen(p)
	d := b.duty(p, a, e.Address, duty)
	switch p.phase {
	case ledger.StateOpen, ledger.StateCommitting: // what it did was rewound: rewind this too
		if p.signal == "" {
			b.signal(p, signalCancelled, why, d.id)
		}
	case ledger.StateCommitted:
		b.weigh(p, d)
		if p.undoneAs == "" {
			b.page(p, d, api.PageQuarantined, e.Address)
		}
	default:
		d.undo = owed
		if a.undo == resolved && p.isReady(d) { // against its owner's word
			d.undo = exhausted
		}
	}
	return d
}

// Why a plan goes back for what came late.
const (
	noteLate    = "its forward completed after it was undone or skipped: the effect may stand"
	noteDoubted = "its forward was given up after it was undone or skipped: the effect may still come"
)
