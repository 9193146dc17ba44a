package executor

import (
	"bytes"
	"cmp"

	"github.com/sagenbaum/sagenbaum/executor/attempts"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Questions to the world: whether a doubtful effect is there (S97, S98, S104),
// whether it is still there after an attempt without an answer, whether it is gone
// after an undo that says done, and, before an attempt, whether someone else has
// changed what the forward left.

// callOf is the call that a question makes.
func callOf(c *pb.CompensationRegistered, q pb.Question) *pb.Call {
	if q == pb.Question_QUESTION_VERIFY {
		return c.GetVerify().GetCall()
	}
	return c.GetProbe().GetCall()
}

// mayAsk reports why a question must not be asked now, or "".
func (s about) mayAsk(k *pb.ProbeAsked) string {
	a := s.a
	first := a.row.Asking == pb.Question_QUESTION_UNSPECIFIED
	again := a.row.Undo == rowspb.Undo_UNDO_WAITING && a.row.Asking == k.Question
	switch k.Question {
	case pb.Question_QUESTION_EFFECT:
		next, why := a.nextStep()
		if again || begins(a) && next == stepProbe {
			return s.settles()
		}
		return "its effect is not in doubt " + why
	case pb.Question_QUESTION_UNDO, pb.Question_QUESTION_DELIVERED:
		resend := a.row.Undo == rowspb.Undo_UNDO_WAITING || begins(a) && a.row.Attempt > 0
		if again || first && resend && k.Question == questionOf(a) {
			return ""
		}
		return "no attempt of it waits to be sent again"
	case pb.Question_QUESTION_UNCHANGED:
		next, why := a.nextStep()
		resend := a.row.Undo == rowspb.Undo_UNDO_WAITING && first
		if again || (begins(a) || resend) && next == stepCompare {
			return s.settles()
		}
		return "whether it was changed decides nothing now " + why
	case pb.Question_QUESTION_VERIFY:
		other := a.row.Asking != pb.Question_QUESTION_VERIFY // a report needs no other question
		if again || other && inFlight(a, k.Done.GetAttempt()) {
			return ""
		}
		return "no attempt of it says that it is done"
	default:
		return "it asks nothing"
	}
}

func (s about) probeAsked(k *pb.ProbeAsked) Result {
	a := s.a
	call := callOf(a.fixed.Compensation, k.Question)
	if call == nil || call.Capability != k.Capability {
		return void("%s is not what the contract of action %s asks", k.Capability, a.fixed.Id)
	}
	if why := s.mayAsk(k); why != "" {
		return void("action %s must not be asked about: %s", a.fixed.Id, why)
	}
	if k.Attempt != a.row.Asked+1 {
		return void("question %d, but question %d is next", k.Attempt, a.row.Asked+1)
	}
	if a.row.Asking != k.Question || begins(a) {
		a.row.AskedFrom = a.row.Asked
	}
	a.row.AskedNs = s.e.Record.EpochNs
	if k.Done != nil {
		s.attemptEnded(k.Done.Attempt, attemptEnd{state: "verifying", worker: k.Done.Worker,
			code: k.Done.Code, timing: k.Done.Timing})
		a.row.Pending, a.row.Answered = k.Done, k.Done.Attempt
		a.unheard()
	}
	a.dropRetry()
	if a.row.Asking != k.Question {
		a.row.AskedToSend = k.Question == pb.Question_QUESTION_UNDO &&
			a.row.Asking == pb.Question_QUESTION_UNSPECIFIED
	}
	a.row.Asking, a.row.Asked = k.Question, k.Attempt
	a.row.Change = pb.Change_CHANGE_UNSPECIFIED
	a.move(rowspb.Undo_UNDO_DISPATCHED)
	row := &rowspb.CommandRow{Asked: k, Arguments: s.e.Record.Payload.GetArguments()}
	if row.Result = s.e.Record.Payload.GetOutput(); k.Done == nil {
		row.Result = a.commandRow().GetResult()
	}
	a.fly(row)
	return effective
}

func (s about) probeAnswered(k *pb.ProbeAnswered) Result {
	a := s.a
	if a.row.Undo != rowspb.Undo_UNDO_DISPATCHED || a.row.Asking != k.Question ||
		a.row.Asked != k.Attempt {
		return void("no such question about action %s is open: its undo is %s", a.fixed.Id,
			undoName(a.row.Undo))
	}
	if _, ok := pb.Presence_name[int32(k.Presence)]; !ok {
		return void("presence %d is none that this version knows", k.Presence)
	}
	if why := misjudged(a, k); why != "" {
		return void("%s", why)
	}
	if k.Unserved {
		if why := unservedQuestion(s.e, a, k); why != "" {
			return void("%s", why)
		}
	}
	if k.Presence == pb.Presence_PRESENCE_UNSPECIFIED {
		s.inconclusive(k)
		return effective
	}
	s.compared(k)
	switch k.Question {
	case pb.Question_QUESTION_EFFECT, pb.Question_QUESTION_UNCHANGED:
		s.effectFound(k)
	case pb.Question_QUESTION_UNDO:
		s.undoFound(k)
	case pb.Question_QUESTION_DELIVERED:
		s.deliveredFound(k)
	case pb.Question_QUESTION_VERIFY:
		s.verified(k)
	default:
		panic("executor: unknown question")
	}
	return effective
}

// inconclusive asks again, as often as the contract says; then the action is its
// owner's. A question that no one serves has waited long enough.
func (s about) inconclusive(k *pb.ProbeAnswered) {
	a := s.a
	call := callOf(a.fixed.Compensation, k.Question)
	epoch := min(s.e.Record.EpochNs, epochMax)
	if tries := k.Attempt - a.row.AskedFrom; tries < cmp.Or(call.Attempts, attemptsDefault) &&
		!k.Unserved {
		first := cmp.Or(call.BackoffNs, backoffDefault)
		a.wait(epoch + doubled(first, max(backoffMaxDefault, first), tries))
		return
	}
	why := "inconclusive"
	if k.Message != "" {
		why += ": " + k.Message
	}
	if k.Question == pb.Question_QUESTION_VERIFY {
		s.heardOf(pb.Answer_ANSWER_STOP, "the check after the undo is "+why)
		return
	}
	if k.Question == pb.Question_QUESTION_UNCHANGED {
		a.row.Note = also(a, "whether someone else has changed it is not known: the probe is "+why)
	} else {
		a.row.Note = also(a, attempts.NoteProbed+why)
	}
	a.land()
	a.park()
}

// effectFound goes on with an action whose effect was in doubt. Nothing found while the
// forward may still land rules nothing out: the world is asked once more after that.
func (s about) effectFound(k *pb.ProbeAnswered) {
	p, a := s.a.plan, s.a
	if k.Presence == pb.Presence_PRESENCE_ABSENT && mayLand(p, a, a.row.AskedNs) {
		a.row.AbsentNs = a.row.AskedNs
		a.land()
		a.owe()
		return
	}
	sighted(a, finds(k))
	if p.committing() {
		a.foundAtCommit(k)
		return
	}
	a.row.Presence = k.Presence
	a.named(k)
	a.land()
	if k.Presence == pb.Presence_PRESENCE_ABSENT || !parkChanged(a) {
		a.owe()
	}
	if k.Presence == pb.Presence_PRESENCE_DUPLICATE {
		s.foundDuplicates(k.Duplicates)
	}
}

// named keeps what a probe calls the effect, for the next call. After an attempt of the undo of
// what has a name of its own, of its forward or as an extra effect, that name stays: the attempt
// was sent with it, and the answer may be about the effect that the extra one came beside.
func (a *action) named(k *pb.ProbeAnswered) {
	found := a.plan.s.meta.HolderFold >= ledger.FoundSince
	switch undo := k.Question == pb.Question_QUESTION_UNDO; {
	case k.ExternalRef == "" || undo && (!found || a.row.ExternalRef != ""):
	case !found:
		a.row.ExternalRef = k.ExternalRef
	default:
		a.row.FoundRef = k.ExternalRef
	}
}

// says keeps what a forward says of its effect. Where it names none, what a probe has found stays.
func (a *action) says(k *pb.ForwardCompleted) {
	a.row.ExternalRef, a.row.LiftedOutput = k.ExternalRef, k.Lifted
	if k.ExternalRef != "" {
		a.row.FoundRef = ""
	}
	a.row.OutputIncomplete, a.row.ReferenceIncomplete = k.OutputIncomplete, k.ReferenceIncomplete
}

// name is what the provider calls the effect of an action, as far as it is known.
func (a *action) name() string { return cmp.Or(a.row.FoundRef, a.row.ExternalRef) }

// undoFound goes on after an attempt of which no one knows whether it happened. While the
// forward may still land, absent says nothing: only an undo that arrives keeps it from
// landing. Where the provider may have forgotten the key, or no attempt is left, the
// world is asked again once the forward can no longer land.
func (s about) undoFound(k *pb.ProbeAnswered) {
	p, a := s.a.plan, s.a
	absent, unseen := k.Presence == pb.Presence_PRESENCE_ABSENT,
		a.row.Presence == pb.Presence_PRESENCE_UNSPECIFIED
	early := absent && mayLand(p, a, a.row.AskedNs)
	if absent && !early {
		a.row.Confirmed = true
		s.heardOf(pb.Answer_ANSWER_DONE, "")
		return
	}
	a.named(k)
	switch {
	case k.Presence == pb.Presence_PRESENCE_DUPLICATE:
		s.foundDuplicates(k.Duplicates)
	case k.Presence == pb.Presence_PRESENCE_PRESENT && unseen:
		a.row.Presence = k.Presence
	}
	if finds(k) {
		sighted(a, true)
	}
	toSend := a.row.AskedToSend
	epoch := min(s.e.Record.EpochNs, epochMax)
	if early && (toSend || spent(a)) && !superseded(a) {
		a.row.Note = "nothing is there after an attempt without an answer, and its forward may still land"
		a.row.AskedFrom = a.row.Asked
		a.wait(max(landsBy(p, a), epoch))
		return
	}
	a.row.Asking, a.row.AskedToSend = pb.Question_QUESTION_UNSPECIFIED, false
	switch {
	case superseded(a):
		a.land()
		a.owe()
		return
	case a.row.Change == pb.Change_CHANGE_FOREIGN:
		a.land()
		parkChanged(a)
		return
	case spent(a):
		a.row.Note = also(a, "the effect still stands after an attempt without an answer")
		a.land()
		a.park()
		return
	case !early:
		// An attempt that is slow may still act after this answer, under a key that the
		// provider then remembers from there on: a later attempt asks again.
		a.row.SentNs = epoch
	}
	if toSend {
		a.wait(epoch)
	} else {
		a.row.Change = pb.Change_CHANGE_UNSPECIFIED // it may be another until then
		a.again(epoch)
	}
}

// verified goes on after a check of an undo that says done.
func (s about) verified(k *pb.ProbeAnswered) {
	if k.Presence == pb.Presence_PRESENCE_ABSENT {
		s.a.row.Confirmed = true
		s.heardOf(pb.Answer_ANSWER_DONE, "")
		return
	}
	sighted(s.a, true)
	s.heardOf(pb.Answer_ANSWER_FAILED,
		"its worker says done, and the check finds the effect still there")
}

// heardOf notes what a question said of an attempt; Decide records it as the
// attempt's outcome.
func (s about) heardOf(answer pb.Answer, message string) {
	a := s.a
	attempt := a.row.Attempt
	if a.row.Pending != nil && answer == pb.Answer_ANSWER_DONE {
		attempt = a.row.Pending.Attempt
	}
	code := ""
	if message != "" {
		code = codeUnverified
	}
	a.row.Asking = pb.Question_QUESTION_UNSPECIFIED
	a.heard(&pb.CompensationReported{Attempt: attempt, Answer: answer, Code: code,
		Message: message}, s.e.Address)
}

// codeUnverified is the code of an attempt that a check after it did not confirm.
const codeUnverified = "unverified"

// commandRow is the command in flight, or nil.
func (a *action) commandRow() *rowspb.CommandRow {
	return rows.Commands.Find(a.plan.s.tx, a.id)
}

// What the agent says of an effect that is known already, or that others have told of before.

// sameOutcome reports whether r says what is known of a, whose outcome has the
// kind of r.
func (a *action) sameOutcome(r *pb.Record, failure string) bool {
	k, ok := r.Kind.(*pb.Record_ForwardCompleted)
	if !ok {
		return a.row.Failure == failure
	}
	output := a.payload().Output
	return a.row.ExternalRef == k.ForwardCompleted.ExternalRef &&
		a.row.OutputIncomplete == k.ForwardCompleted.OutputIncomplete &&
		a.row.ReferenceIncomplete == k.ForwardCompleted.ReferenceIncomplete &&
		bytes.Equal(a.row.LiftedOutput, k.ForwardCompleted.Lifted) &&
		bytes.Equal(output, r.Payload.GetOutput())
}

func (a *action) keepOutput(output []byte) {
	if len(output) == 0 {
		return
	}
	payload := rows.ClonePayload(a.payload())
	payload.Output = output
	a.setPayload(payload)
	a.row.HasOutput = bindable(output)
}

// outcomeOfExtra takes a completion that names an effect which is owed already: that one is undone
// under its name, and the action's keeps the one that was found, if any. What it returned is of the
// extra effect, so that the undo of the action does not read it.
func (s about) outcomeOfExtra() Result {
	if s.a.row.Outcome == rowspb.Outcome_OUTCOME_COMPLETED {
		return repeated
	}
	bare := &fold{State: s.State, e: s.e, beforeNs: s.beforeNs}
	bare.e.Record = &pb.Record{Plan: s.e.Record.Plan, Action: s.e.Record.Action,
		Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{}}}
	return bare.about(s.a).outcomeOf()
}

// hasBegun reports whether a call of the undo of an action was made, or nothing is to be done for
// it any more.
func hasBegun(a *action) bool {
	return a.row.Attempt > 0 || a.row.Ahead != nil || flying(a.row.Undo) || settled(a.row.Undo)
}

// isSent is hasBegun, but for an undo before whose first attempt the world is asked: that reads
// what becomes known until then. Holders of before ReturnedSince made no such difference.
func isSent(a *action) bool {
	asks := a.row.Attempt == 0 && a.row.Ahead == nil && flying(a.row.Undo) &&
		a.plan.s.meta.HolderFold >= ledger.ReturnedSince
	return hasBegun(a) && !asks
}

// cannotReturn says why it is not taken what a forward has returned as a report says, or "".
func cannotReturn(a *action, output []byte) string {
	_, more := lacks(a)
	if len(output) == 0 || more || a.row.Outcome != rowspb.Outcome_OUTCOME_COMPLETED ||
		bytes.Equal(ledger.Compact(output), ledger.Compact(a.payload().Output)) {
		return ""
	}
	return "payload.output: what action " + a.fixed.Id + " has returned is known, or its undo was " +
		"sent without; report without an output"
}

// isOwners reports whether the undo of an action is its owner's, who answers for the effect that it
// has a name of.
func isOwners(a *action) bool {
	return a.row.Undo == rowspb.Undo_UNDO_QUARANTINED || a.row.Undo == rowspb.Undo_UNDO_EXHAUSTED
}

// ownWord takes what the agent says of a forward after an operator has reported its effect. No
// failure takes the effect away. What it returned counts until the undo is first sent. If it names
// another effect than the operator did, both are there: its own is the action's, and the reported
// one is owed as an extra one; but once an undo has been sent for that one, or it is its owner's,
// the agent's is owed.
func (s about) ownWord() Result {
	a, k := s.a, s.e.Record.GetForwardCompleted()
	if k == nil || isOwed(a, k.ExternalRef) != "" {
		return repeated
	}
	of := toldAs(a)
	reported := cmp.Or(a.name(), of.name())
	other := k.ExternalRef != "" && reported != "" && k.ExternalRef != reported
	begun := hasBegun(a) || other && isOwners(a)
	switch {
	case !other && isSent(of):
		return repeated
	case other && begun && a.row.Duties >= ownMax(s.State):
		return refused("%d duties of action %s are owed; want at most %d", a.row.Duties, a.fixed.Id,
			ownMax(s.State))
	case other && begun: // and what it says next is told likewise
		s.owedOther(k)
	default:
		a.row.Told = false
		s.returned(k, reported, other)
		if of != a {
			s.about(of).returned(k, reported, false)
			of.change()
		}
	}
	a.change()
	s.tellUndoer()
	return effective
}

// returned keeps what the agent says that a forward has returned, whose effect was reported under a
// name: of another effect than the one that was reported, or of the same.
func (s about) returned(k *pb.ForwardCompleted, reported string, other bool) {
	a := s.a
	a.says(k)
	a.row.WordAt = s.e.Address.Sequence
	if k.ExternalRef == "" {
		a.row.FoundRef = reported
	}
	if other {
		dropOutput(a)
	}
	a.keepOutput(s.e.Record.Payload.GetOutput())
	if other {
		s.duplicate(reported)
	}
	a.evaluateAction(s.e.Address)
}

// dropOutput forgets what an operator has reported that a forward returned.
func dropOutput(a *action) {
	payload := rows.ClonePayload(a.payload())
	payload.Output = nil
	a.setPayload(payload)
	a.row.HasOutput = false
}
