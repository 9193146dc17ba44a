package audit

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// stateOf is the undo of an action as people read it.
func (p *plan) stateOf(a *action) string {
	switch {
	case a.ahead != nil:
		return "ahead"
	case a.undo == owed && p.isReady(a) && p.settlesBy(a) != 0:
		return settling
	case a.undo == owed && p.isReady(a):
		return ready
	case a.doubt == doubtGiven:
		return quarantined
	case a.undo == held && p.phase == ledger.StateCommitted && !p.stillHolds():
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

// overtaken: an undo that has begun has nothing to do any more.
func (a *action) overtaken() bool {
	return a.outcome == failed || a.late && a.dutyOf == 0 || a.owedElse
}

// next says what is to be done with a ready action now. Only what crossed or may have
// mayHaveCrossed is undone; an irreversible effect is its owner's; doubt is asked about first
// (I20).
func (b *book) next(p *plan, a *action) string {
	c, class := a.compensation, a.forward.GetClass()
	unsure := (a.isBlind() || a.late) && a.presence == pb.Presence_PRESENCE_UNSPECIFIED
	switch {
	case a.child != nil:
		return doChild
	case a.undone:
		return doQuarantine
	case p.isDelivery(a):
		return deliveryNext(b, p, a)
	case a.isStaged(), a.overtaken(), class == pb.Class_CLASS_EFFECTLESS,
		a.presence == pb.Presence_PRESENCE_ABSENT:
		return doSkip
	case class == pb.Class_CLASS_IRREVERSIBLE, c.GetCapability() == "":
		return doQuarantine
	case c.Sealed && b.isErased(p):
		return doQuarantine
	case a.late && a.dutyOf != 0 && c.OnLate == pb.OnLate_ON_LATE_QUARANTINE && !a.approved:
		return doQuarantine
	case unsure && a.late && c.Probe != nil:
		return asking(b, p, a)
	case unsure && !a.late && a.policy() == doubtAsk && !trustsBar(b, a):
		return asking(b, p, a)
	case unsure && !a.late && a.policy() == doubtOwner:
		return doQuarantine
	case hasNoName(b, p, a, c.GetBindings()):
		if c.Probe != nil && a.presence == pb.Presence_PRESENCE_UNSPECIFIED {
			return asking(b, p, a)
		}
		return doQuarantine
	case !a.approved && a.extra && !namesEffect(b, a):
		return doQuarantine
	case !a.approved && (b.pastWindow(a) || a.forward.Pivot || c.Approve):
		return doQuarantine
	case comparesFirst(b, a) && hasNoName(b, p, a, c.GetProbe().GetCall().GetBindings()):
		return doQuarantine
	default:
		return doDispatch
	}
}

// hasGround reports whether an action that is quarantined is its owner's.
func hasGround(c *claim) bool {
	return c.a.undo == exhausted || c.b.next(c.p, c.a) == doQuarantine || isUnsendable(c.b, c.p, c.a)
}

// answerCounts is for how long an answer that nothing was changed counts for the next attempt, ns.
const answerCounts = int64(10e9)

// mustCompare: no attempt goes out unless a probe has said that what the forward left is as it
// left it, or the owner that it goes out all the same. What only bars a forward of which no one has
// found anything overwrites nothing.
func mustCompare(b *book, a *action) bool {
	found := a.there && b.rules >= ledger.ComparedSince
	return a.compensation.GetUnchanged() != "" && !a.overwrite &&
		!(a.barred() && a.absentNs != 0 && a.unsure() && !found)
}

// comparesFirst: that answer is still to be had.
func comparesFirst(b *book, a *action) bool {
	counts := a.change == pb.Change_CHANGE_NONE && b.now-a.changeNs <= answerCounts
	return mustCompare(b, a) && !counts
}

// noteChange keeps what an answer says of a change, and what is there.
func noteChange(b *book, c *claim) {
	a, k := c.a, c.Record.GetProbeAnswered()
	verifies := k.Question == pb.Question_QUESTION_VERIFY
	if a.compensation.GetUnchanged() == "" || a.overwrite || verifies ||
		k.Presence == pb.Presence_PRESENCE_UNSPECIFIED {
		return
	}
	a.change, a.changeNs = k.Change, b.now
	a.keepFound(c.Record.Payload.GetOutput())
}

// keepFound keeps what is there, where that is told and not too large; else what was found before.
func (a *action) keepFound(found []byte) {
	if len(found) > 0 && len(found) <= ledger.FoundMax {
		a.found = found
	}
}

// isForeign: someone else has changed what it is about.
func (a *action) isForeign() bool { return a.change == pb.Change_CHANGE_FOREIGN }

// trustsBar: by the rules of earlier holders the undo of a forward that its provider refuses
// went out unasked, unless its contract wanted a question in so many words.
func trustsBar(b *book, a *action) bool {
	return b.rules < ledger.NamedSince && a.barred() &&
		a.compensation.GetOnInDoubt() == pb.OnInDoubt_ON_IN_DOUBT_UNSPECIFIED
}

// asking is a question about an action, unless nothing in it says which effect is meant.
func asking(b *book, p *plan, a *action) string {
	if hasNoName(b, p, a, a.compensation.GetProbe().GetCall().GetBindings()) {
		return doQuarantine
	}
	return doProbe
}

// hasNoName: what an undo takes from the output or the reference of its forward is null, and
// nothing else of it tells which effect is meant: neither what the caller chose nor what was
// there before. A null that was given, and one that the text reckons with, are known.
// What takes the one where the other is missing is the name in any case.
func hasNoName(b *book, p *plan, a *action, bindings []*pb.Binding) bool {
	c := a.compensation
	switch {
	case b.rules < ledger.NamedSince:
		return false
	case c.GetActuator() == ledger.ActuatorMemory, c.GetHandlerVersion() != "":
		return false
	case a.isOut() && a.attempt > 0: // it is out as it is
		return false
	case a.barred() && a.absentNs != 0 && a.unsure(): // it only bars what may come
		return false
	}
	var named []*triggers.Binding // those that take a name from what the forward told
	chosen, both := false, false
	for _, x := range bindings {
		binding, err := argumentOf(b.programs, c, x)
		if err != nil {
			return false
		}
		chosen = chosen || binding.Reads("input") || binding.Reads("before") ||
			len(p.input) > 0 && binding.ReadsField("plan", "input")
		tellsOutput, tellsReference := told(binding)
		if tellsOutput || tellsReference || binding.Reads("actions") || binding.Reads("facts") {
			named = append(named, binding)
			both = both || tellsOutput && tellsReference
		}
	}
	if chosen && !both {
		return false
	}
	vars := readable(b, p, a, named...)
	empty, lost := 0, false
	for _, binding := range named {
		if !isNameless(binding, vars) {
			continue
		}
		empty++
		tellsOutput, tellsReference := told(binding)
		lost = lost || tellsOutput && tellsReference
	}
	return lost || !chosen && len(named) > 0 && empty == len(named)
}

// told says whether a binding takes something from the output, and from the reference.
func told(binding *triggers.Binding) (output, reference bool) {
	return binding.Reads("output"), slices.Contains(binding.Fields("meta"), "external_ref")
}

// isNameless: a binding is null since something is not there.
func isNameless(binding *triggers.Binding, vars triggers.BindingVars) bool {
	value, err := binding.Evaluate(vars)
	if err != nil || string(value) != "null" {
		return false
	}
	vars.Strict = true
	_, err = binding.Evaluate(vars)
	return errors.Is(err, triggers.ErrNotThere)
}

// mayStillEnd: an answer about this attempt may still settle it. An earlier attempt that
// turns out to have succeeded did undo the effect.
func (a *action) mayStillEnd(attempt uint32) bool {
	if a.isStaged() && a.outcome == completed {
		return false
	}
	return (a.isOut() || a.undo == owed) && a.child == nil && attempt >= 1 && attempt <= a.attempt
}

func (a *action) isSaidDone() bool { return a.reported.GetAnswer() == pb.Answer_ANSWER_DONE }

// dropCall takes an action out of flight.
func (a *action) dropCall() {
	a.dropReport()
	a.asking, a.pending, a.arguments = pb.Question_QUESTION_UNSPECIFIED, nil, nil
}

func (a *action) dropReport() { a.reported, a.confirmed = nil, false }

func triesOf(c *pb.CompensationRegistered) uint32 { return cmp.Or(c.GetAttempts(), 3) }

func callTimeout(c *pb.CompensationRegistered) int64 {
	return cmp.Or(c.GetTimeoutNs(), int64(30e9))
}

func (a *action) noTriesLeft() bool {
	return a.unserved || a.attempt-a.attemptsFrom >= triesOf(a.compensation)
}

// noteDispatch begins an attempt.
func noteDispatch(b *book, c *claim) {
	a, k := c.a, c.Record.GetCompensationDispatched()
	a.attempt, a.blindly, a.dispatched = k.Attempt, k.BlindCleanup && !isSeen(b, a), c.Address
	if a.sentNs == 0 {
		a.sentNs = c.Record.EpochNs
	}
	if c.p.isDelivery(a) {
		a.notesForgotten(c.Record.EpochNs)
	}
	a.dispatchedNs, a.unserved, a.change = c.Record.EpochNs, false, pb.Change_CHANGE_UNSPECIFIED
	a.undo, a.arguments = dispatched, c.Record.Payload.GetArguments()
	a.askToken(k)
}

func noteSuccess(b *book, c *claim) {
	if c.p.isDelivery(c.a) {
		noteDelivered(b, c)
		return
	}
	c.a.dropCall()
	c.a.successes++
	b.closeAction(c.p, c.a, compensated, c.Address)
	if done := c.Record.GetCompensationSucceeded().Attempt; c.a.ownKey(done) {
		c.a.noteSaid(done)
		b.followChildren(c.p.root()) // the unwind has come to them before what is owed now joins it
		if b.rules < ledger.OwnerFirstSince {
			b.followRuns(c.p.family, c.Record.EpochNs)
		}
		owesUndone(b, c)
	}
}

// noteFailure ends an attempt: asked about, tried again, or its owner's (I23).
func noteFailure(b *book, c *claim) {
	a, k := c.a, c.Record.GetCompensationFailed()
	a.pending = nil
	a.unserved, a.failedForNow = k.Unserved, !k.Final && !k.InDoubt
	a.dropReport()
	if k.Changed {
		a.sighted(b, true)
		a.change, a.overwrite = pb.Change_CHANGE_FOREIGN, false
		a.keepFound(c.Record.Payload.GetOutput())
	}
	if k.InDoubt { // its worker may be at work for as long again
		alive := callTimeout(a.compensation)
		if c.p.isDelivery(a) {
			alive = ledger.SettleNs(a.forward.SettleNs, alive)
		}
		a.aliveUntilNs = max(a.aliveUntilNs, min(c.Record.EpochNs, epochMax)+alive)
	}
	switch {
	case c.p.isDelivery(a):
		noteUndelivered(a, c.p, k, min(c.Record.EpochNs, epochMax))
	case a.overtaken():
		a.dropCall()
		a.undo = owed
	case k.InDoubt && a.compensation.GetProbe() != nil && !a.makesFact():
		a.asking, a.askedFrom, a.undo = pb.Question_QUESTION_UNDO, a.asked, waiting
	case k.Final || k.Changed || a.noTriesLeft():
		a.dropCall()
		a.undo = exhausted
	default:
		a.undo = waiting
	}
}

// noteSkip settles an action of which nothing is to be undone (I20).
func noteSkip(b *book, c *claim) {
	c.a.scoped = c.a.mayHaveCrossed()
	b.closeAction(c.p, c.a, skipped, c.Address)
}

// noteQuarantine gives an action to its owner (I23).
func noteQuarantine(b *book, c *claim) {
	if c.a.undo == waiting { // its next call cannot be built
		c.a.dropCall()
	}
	if !c.Record.GetActionQuarantined().Changed {
		c.a.change = pb.Change_CHANGE_UNSPECIFIED
	}
	c.a.proposal = nil
	c.a.letsGo = c.p.isLast(c.a)
	b.closeAction(c.p, c.a, quarantined, c.Address)
	b.page(c.p, c.a, api.PageQuarantined, c.Address)
}

// noteProgress hears that an attempt goes on.
func noteProgress(b *book, c *claim) {
	k, a := c.Record.GetCompensationProgressed(), c.a
	if k.Key == keyOf(b, c.p, a, k.Attempt) && a.isRecorded(k.Attempt) &&
		a.takesToken(k.Attempt, k.Token, c.Source.Name) {
		a.noteToken(k.Attempt, c.Source.Name)
		a.aliveUntilNs = max(a.aliveUntilNs, min(k.UntilNs, epochMax))
	}
}

// secret is the digest of the token that a worker's own records about one attempt show, and
// the worker that was the first to show it.
type secret struct {
	attempt uint32
	digest  []byte
	by      string
}

// askToken notes that a dispatch asks reports for a token.
func (a *action) askToken(k *pb.CompensationDispatched) {
	if len(k.ReportDigest) > 0 {
		a.secrets = append(a.secrets, secret{attempt: k.Attempt, digest: k.ReportDigest})
	}
}

// secretOf is what a dispatch asks for; nil: it asks for nothing.
func (a *action) secretOf(attempt uint32) *secret {
	for i := range a.secrets {
		if a.secrets[i].attempt == attempt {
			return &a.secrets[i]
		}
	}
	return nil
}

// takesToken: the token is that of the attempt, and no other worker has shown it.
func (a *action) takesToken(attempt uint32, token, worker string) bool {
	x := a.secretOf(attempt)
	if x == nil {
		return true
	}
	sum := sha256.Sum256([]byte(token))
	return bytes.Equal(sum[:], x.digest) && (x.by == "" || x.by == worker)
}

// noteToken: from now on the token is this worker's.
func (a *action) noteToken(attempt uint32, worker string) {
	if x := a.secretOf(attempt); x != nil {
		x.by = worker
	}
}

// noteReport keeps what a worker says of a long undo.
func noteReport(b *book, c *claim) {
	k, a := c.Record.GetCompensationReported(), c.a
	if k.Answer == pb.Answer_ANSWER_CHANGED {
		a.keepFound(c.Record.Payload.GetOutput())
	}
	if a.ahead != nil { // it was sent, and is done before its turn
		b.callBack(c.p, a)
	}
	switch done := k.Answer == pb.Answer_ANSWER_DONE; {
	case done && a.isLate(k.Attempt):
		b.saidDoneLate(c, k.Attempt)
	case done:
		a.noteSaid(k.Attempt)
		a.reported = k
	default:
		a.reported = k
	}
}

// ownMax bounds the duties of an action to which the agent's own word adds one.
func ownMax(b *book) uint32 {
	if b.rules < ledger.SeenSince {
		return extrasMax
	}
	return 2 * extrasMax
}
