package audit

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// I29: nothing lands after a plan's end. What is known of a forward comes from its
// outcome and from probes. As long as neither says whether the effect is there, it may
// still come: until its provider has refused it, or until its time is over.

// unsure reports whether the effect of an action may be there or not.
func (a *action) unsure() bool {
	known := a.outcome == completed || a.outcome == failed
	return a.child == nil && !a.isStaged() && !known && !a.undone &&
		a.presence == pb.Presence_PRESENCE_UNSPECIFIED
}

// barred reports whether the provider refuses the forward once its undo is there.
func (a *action) barred() bool { return a.forward.GetLate() == pb.Late_LATE_REFUSED }

// span is a duration of the registration, or what it means when it is 0.
func span(ns int64, otherwise int64) int64 {
	if ns == 0 {
		return otherwise
	}
	return ns
}

// sum adds a duration to an instant; instants end well before they overflow.
func sum(at, d int64) int64 { return min(at, math.MaxInt64-2*int64(ledger.SettleMax)) + d }

// lastWord is when whoever called the forward has had its last chance to give it up: it
// ran out of time, or has let it run for the grace of an unwind.
func (p *plan) lastWord(a *action, slack bool) int64 {
	began, f := a.atNs, a.forward
	again := a.atNs <= p.writerSinceNs                     // another process may have called it since
	if (f.GetReview() || again) && p.unwindingNs > began { // it waited for its verdict
		began = p.unwindingNs
	}
	grace := span(f.GetGraceNs(), int64(ledger.GraceDefault))
	if slack {
		return sum(max(began, p.unwindingNs), grace+min(grace, 500e6))
	}
	if f.GetTimeoutNs() != 0 {
		return sum(began, grace+f.GetTimeoutNs())
	}
	return sum(max(began, p.unwindingNs), grace)
}

// landed is the instant from which on the forward can no longer land.
func (p *plan) landed(a *action) int64 {
	settle := span(a.forward.GetSettleNs(),
		span(a.forward.GetTimeoutNs(), int64(ledger.SettleDefault)))
	local := a.forward.GetLate() == pb.Late_LATE_NEVER // it ends with the call
	switch {
	case a.outcome == inDoubt && local:
		return a.outcomeNs
	case a.outcome == inDoubt:
		return sum(a.outcomeNs, settle)
	case a.undo == held && a.doubt == "" && endless(p, a):
		return math.MaxInt64
	case local: // when that was, three clocks say
		settle = int64(ledger.NeverSettles)
	}
	return sum(p.lastWord(a, false), settle)
}

// tooEarly reports whether a question asked at an instant could not see what comes.
func (p *plan) tooEarly(a *action, askedNs int64) bool {
	return a.unsure() && askedNs < p.landed(a)
}

// What the contract does about doubt.
const (
	doubtAsk   = "ask"
	doubtUndo  = "undo"
	doubtOwner = "owner"
)

// policy is what the contract wants of an action whose effect may be there or not.
func (a *action) policy() string {
	c := a.compensation
	switch {
	case a.forward.GetClass() == pb.Class_CLASS_IRREVERSIBLE || c.GetCapability() == "":
		return doubtOwner
	case c.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_QUARANTINE && !a.approved:
		return doubtOwner
	case c.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_COMPENSATE ||
		c.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_QUARANTINE:
		return doubtUndo
	case c.Probe == nil:
		return doubtUndo
	case a.barred() && a.absentNs != 0:
		return doubtUndo // what comes after it is refused
	default:
		return doubtAsk
	}
}

// settlesBy is the instant before which nothing is done about an action; 0: none.
func (p *plan) settlesBy(a *action) int64 {
	if !a.unsure() || a.late || a.forward.GetClass() == pb.Class_CLASS_EFFECTLESS {
		return 0
	}
	switch policy := a.policy(); {
	case policy != doubtOwner && a.barred():
		return 0
	case policy == doubtUndo, policy == doubtAsk && a.absentNs != 0:
		return p.landed(a)
	case a.outcome == unheardOf:
		return p.lastWord(a, true)
	}
	return 0
}

func (b *book) asksNext(p *plan, a *action, k *pb.ProbeAsked, isReady bool) bool {
	again := a.undo == waiting && a.asking == k.Question
	switch k.Question {
	case pb.Question_QUESTION_EFFECT:
		return again || isReady && b.next(p, a) == doProbe
	case pb.Question_QUESTION_UNDO, pb.Question_QUESTION_DELIVERED:
		delivers := k.Question == pb.Question_QUESTION_DELIVERED
		resend := (a.undo == waiting || isReady && a.attempt > 0) && delivers == p.isDelivery(a)
		return again || a.asking == pb.Question_QUESTION_UNSPECIFIED && resend
	case pb.Question_QUESTION_UNCHANGED:
		waits := isReady || a.undo == waiting && a.asking == pb.Question_QUESTION_UNSPECIFIED
		return again || waits && b.next(p, a) == doDispatch && comparesFirst(b, a)
	case pb.Question_QUESTION_VERIFY:
		done := k.Done.GetAttempt()
		return again || a.asking != pb.Question_QUESTION_VERIFY && a.mayStillEnd(done)
	default:
		return false
	}
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

// nothingFound asks again as often as the contract says; then it is its owner's.
func (b *book) nothingFound(a *action, k *pb.ProbeAnswered) {
	switch {
	case !k.Unserved && k.Attempt-a.askedFrom < cmp.Or(questionCall(a.compensation,
		k.Question).Attempts,
		3):
		a.undo = waiting
	case k.Question == pb.Question_QUESTION_VERIFY:
		a.hear(pb.Answer_ANSWER_STOP)
	default:
		a.dropCall()
		a.undo = exhausted
	}
}

// noteName keeps the name of an effect that a probe found. After an attempt it names only what
// had no name of its own; by the rules of earlier holders it named nothing then, and elsewhere it
// took the place of what the forward had said.
func noteName(b *book, a *action, k *pb.ProbeAnswered) {
	if k.ExternalRef == "" {
		return
	}
	afterAttempt := k.Question == pb.Question_QUESTION_UNDO
	if b.rules < ledger.FoundSince {
		if !afterAttempt {
			a.externalRef = k.ExternalRef
		}
		return
	}
	if !afterAttempt || a.externalRef == "" {
		a.foundRef = k.ExternalRef
	}
}

// nameOf is the name of the effect that bindings read.
func (a *action) nameOf() string {
	if a.foundRef != "" {
		return a.foundRef
	}
	return a.externalRef
}

// attemptFound goes on after an attempt of which no one knows whether it happened.
func (b *book) attemptFound(p *plan, a *action, k *pb.ProbeAnswered) {
	absent, unseen := k.Presence == pb.Presence_PRESENCE_ABSENT,
		a.presence == pb.Presence_PRESENCE_UNSPECIFIED
	early := absent && p.tooEarly(a, a.askedNs)
	if absent && !early {
		a.confirmed = true
		a.hear(pb.Answer_ANSWER_DONE)
		return
	}
	noteName(b, a, k)
	toSend := a.askedToSend
	switch {
	case k.Presence == pb.Presence_PRESENCE_DUPLICATE:
		b.noteExtraRefs(p, a, k.Duplicates)
	case k.Presence == pb.Presence_PRESENCE_PRESENT && unseen:
		a.presence = k.Presence
	}
	if !absent {
		a.sighted(b, true)
	}
	if early && (a.askedToSend || a.noTriesLeft()) && !a.overtaken() {
		a.undo, a.askedFrom = waiting,
			a.asked // for the same question, once it has landed or never will
		return
	}
	a.asking, a.askedToSend = pb.Question_QUESTION_UNSPECIFIED, false
	switch {
	case a.overtaken():
		a.dropCall()
		a.undo = owed
	case a.isForeign(), a.noTriesLeft():
		a.dropCall()
		a.undo = exhausted
	default:
		a.undo = waiting
		if !toSend { // it may be another until the next attempt
			a.change = pb.Change_CHANGE_UNSPECIFIED
		}
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
	d.input, d.image, d.facts, d.factsLost = origin.input, origin.image, origin.facts,
		origin.factsLost
	return p.addAction(d)
}

func (p *plan) hasDutyFor(a *action, ref string) bool {
	origin := p.originOf(a)
	return slices.ContainsFunc(p.actions,
		func(d *action) bool { return d.dutyOf == origin.n && d.nameOf() == ref })
}

// noteExtraRefs notes extra effects, for which a lease fires.
func (b *book) noteExtraRefs(p *plan, a *action, refs []string) {
	a.duplicates, a.surplus = nil, nil
	for _, ref := range refs {
		if ref != a.nameOf() && !p.hasDutyFor(a, ref) {
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

// completedAfterAll deals with a forward that reports completion after the unwind has
// begun to deal with its action without knowing: the effect is never silently held. other: it is
// another effect than the one that is undone.
func (b *book) completedAfterAll(e ledger.Entry, p *plan, a *action, other bool) {
	if a.presence == pb.Presence_PRESENCE_ABSENT && a.undo != compensated && a.undo != skipped &&
		a.undo != resolved {
		a.presence = pb.Presence_PRESENCE_UNSPECIFIED // the probe was too early
	}
	switch {
	case a.forward.GetClass() == pb.Class_CLASS_EFFECTLESS || a.late:
	case other:
		owesOther(b, e, p, a)
	case undoesSeen(b, p, a): // that one has completed, and no other
	case a.undo == dispatched && a.blindly && a.barred() && a.asking == pb.Question_QUESTION_UNDO:
		// An undo that had come first would have barred it: the question is put once more.
		a.undo, a.askedFrom = waiting, a.asked
	case a.isOut() && !a.blindly: // a question about its effect is out: it is answered
		a.dropCall()
		a.undo = owed
	case a.dealtWith():
		a.owedElse = a.dutyOf != 0 && !a.isSettled() && b.rules >= ledger.OwnerFirstSince
		asks := a.compensation.GetOnLate() == pb.OnLate_ON_LATE_QUARANTINE
		b.owedAgain(e, p, a, &action{
			outcome: completed, externalRef: a.externalRef, lifted: a.lifted, late: true,
			approved: a.approved && !asks, output: e.Record.Payload.GetOutput(),
			incomplete: a.incomplete, unnamed: a.unnamed}, noteLate)
	}
}

// doubtedAfterAll deals with a forward that is given up only after the unwind has dealt with
// its action without knowing: it may land after that.
func (b *book) doubtedAfterAll(e ledger.Entry, p *plan, a *action) {
	if a.presence == pb.Presence_PRESENCE_ABSENT && a.resolution == nil && a.undo == held {
		a.presence = pb.Presence_PRESENCE_UNSPECIFIED // a commit has asked about it before
	}
	if a.forward.GetClass() == pb.Class_CLASS_EFFECTLESS || a.late ||
		undoesSeen(b, p, a) || !a.dealtWith() {
		return
	}
	d := b.owedAgain(e, p, a, &action{outcome: inDoubt, outcomeNs: b.now, approved: a.approved},
		noteDoubted)
	a.doubtedAs = d.n
}

// dealtWith reports whether an action was undone blindly, skipped, or called undone by
// its owner, and ends what is still tried for it. An undo that bars its forward is no
// isBlind one.
func (a *action) dealtWith() bool {
	blindly := a.blindly && !a.barred()
	switch {
	case a.isOut() && blindly && (a.undo == waiting || a.asking == pb.Question_QUESTION_UNDO):
		a.dropCall()
		a.undo = owed
	case a.isOut() && blindly, a.undo == compensated && blindly, a.undo == skipped,
		a.undo == resolved && !reckonsWith(a.resolution):
	default:
		return false
	}
	a.late = true
	return true
}

// owedAgain adds the duty for what has become known of a forward too late.
func (b *book) owedAgain(e ledger.Entry, p *plan, a *action, duty *action, why string) *action {
	b.goOn(p)
	d := b.duty(p, a, e.Address, duty)
	switch p.phase {
	case ledger.StateOpen, ledger.StateCommitting: // what it did was rewound: rewind this too
		if p.signal == "" && p.fromAction == "" {
			b.wants(p, signalCancelled, why, back{savepoint: d.id})
		}
	case ledger.StateCommitted:
		b.reviewDoubt(p, d)
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

// Why a plan goes back for what came late, or is there more than once.
const (
	noteMore    = "its effect is there more than once: the extra one is undone"
	noteLate    = "its forward completed after it was undone or skipped: the effect may stand"
	noteDoubted = "its forward was given up after it was undone or skipped: " +
		"the effect may still come"
)

// noteQuestion asks the world: whether a doubtful effect is there, whether it is there
// after an attempt without an answer, whether it is gone after one that says done.
func noteQuestion(b *book, c *claim) {
	a, k := c.a, c.Record.GetProbeAsked()
	if a.asking != k.Question || c.p.isReady(a) {
		a.askedFrom = a.asked
	}
	if a.asking != k.Question {
		a.askedToSend = k.Question == pb.Question_QUESTION_UNDO &&
			a.asking == pb.Question_QUESTION_UNSPECIFIED
	}
	if k.Done != nil {
		a.pending = k.Done
		a.dropReport()
	}
	a.asking, a.asked, a.askedNs, a.undo = k.Question, k.Attempt, c.Record.EpochNs, dispatched
	a.failedForNow, a.change = false, pb.Change_CHANGE_UNSPECIFIED
	a.arguments = c.Record.Payload.GetArguments()
}

// noteFound is what a question found.
func noteFound(b *book, c *claim) {
	p, a, k := c.p, c.a, c.Record.GetProbeAnswered()
	asksOfEffect := k.Question == pb.Question_QUESTION_EFFECT ||
		k.Question == pb.Question_QUESTION_UNCHANGED
	noteChange(b, c)
	switch {
	case k.Presence == pb.Presence_PRESENCE_UNSPECIFIED:
		b.nothingFound(a, k)
	case asksOfEffect && k.Presence == pb.Presence_PRESENCE_ABSENT &&
		p.tooEarly(a, a.askedNs):
		a.absentNs = a.askedNs // it rules nothing out, and is asked once more
		a.dropCall()
		a.undo = owed
	case asksOfEffect:
		a.sighted(b, k.Presence != pb.Presence_PRESENCE_ABSENT)
		a.presence = k.Presence
		noteName(b, a, k)
		a.dropCall()
		a.undo = owed
		if k.Presence != pb.Presence_PRESENCE_ABSENT && a.isForeign() {
			a.undo = exhausted
		}
		if k.Presence == pb.Presence_PRESENCE_DUPLICATE {
			b.noteExtraRefs(p, a, k.Duplicates)
		}
	case k.Question == pb.Question_QUESTION_UNDO:
		b.attemptFound(p, a, k)
	case k.Question == pb.Question_QUESTION_DELIVERED:
		deliveryFound(b, p, a, k)
	case k.Presence == pb.Presence_PRESENCE_ABSENT:
		a.confirmed = true
		a.hear(pb.Answer_ANSWER_DONE)
	default:
		a.sighted(b, true)
		a.hear(pb.Answer_ANSWER_FAILED)
	}
}

// noteExtra owes the extra effects that a probe found.
func noteExtra(b *book, c *claim) {
	p, a := c.p, c.a
	findLease(a.leases, leaseDuplicate).fired = true
	refs := a.duplicates
	a.duplicates = nil
	for _, ref := range refs {
		if !p.hasDutyFor(a, ref) {
			oweExtraEffect(b, p, a, c.Address, ref)
		}
	}
}
