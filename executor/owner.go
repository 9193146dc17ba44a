package executor

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/attempts"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The owner's word on what is owed. A quarantine asks for it; but it counts for whatever
// an unwind owes, also while a call is out that perhaps no one will ever take.

// answerable finds an action that its owner may answer for, or says why there is none.
func (p *plan) answerable(id string) (*action, Result) {
	a := p.s.byName(p.id, id)
	switch {
	case a == nil:
		return nil, refused("action %s is not registered in plan %s", id, p.id)
	case a.fixed.Child != "":
		return nil, refused("%s is a plan of its own: answer its own quarantine", a.fixed.Child)
	case a.row.Undo == rowspb.Undo_UNDO_RESOLVED:
		return nil, refused("action %s was resolved as %s by %s", id,
			resolutionName(a.row.Resolution.Outcome), a.row.Resolution.Actor)
	case a.row.Undo == rowspb.Undo_UNDO_QUARANTINED:
		return a, effective
	case !owing(a.row.Undo):
		return nil, refused("action %s is not owed: its undo is %s", id, undoName(a.row.Undo))
	case p.row.Phase != rowspb.Phase_PHASE_UNWINDING && p.row.Phase != rowspb.Phase_PHASE_QUARANTINED:
		return nil, refused("action %s is not owed: plan %s is %s", id, p.id, statusName(p.row))
	case a.attempts().ReportedDone():
		return nil, refused("the undo of action %s was reported done at %s", id,
			ledger.FormatAddress(a.row.ReportedAt))
	}
	return a, effective
}

// owing reports whether an unwind has yet to deal with an action.
func owing(u rowspb.Undo) bool {
	switch u {
	case rowspb.Undo_UNDO_OWED, rowspb.Undo_UNDO_READY, rowspb.Undo_UNDO_SETTLING,
		rowspb.Undo_UNDO_DISPATCHED, rowspb.Undo_UNDO_WAITING, rowspb.Undo_UNDO_EXHAUSTED:
		return true
	default:
		return false
	}
}

// pointsBack refuses an answer that is about another registration, or to another
// quarantine or dispatch of the action, than it names. A record may name none.
func pointsBack(r *pb.Record, a *action) Result {
	if r.About != nil && !sameAddress(r.About, a.fixed.Registered) {
		return refused("about: %s, but action %s was registered at %s", ledger.FormatAddress(r.About),
			a.fixed.Id, ledger.FormatAddress(a.fixed.Registered))
	}
	switch quarantined := a.row.Undo == rowspb.Undo_UNDO_QUARANTINED; {
	case r.Cause == nil:
		return effective
	case quarantined && !sameAddress(r.Cause, a.row.Settled):
		return refused("cause: %s, but action %s was quarantined at %s", ledger.FormatAddress(r.Cause),
			a.fixed.Id, ledger.FormatAddress(a.row.Settled))
	case !quarantined && (a.row.Dispatched == nil || !sameAddress(r.Cause, a.row.Dispatched)):
		return refused("cause: %s, but the undo of action %s is %s", ledger.FormatAddress(r.Cause),
			a.fixed.Id, undoName(a.row.Undo))
	}
	return effective
}

// answeredFor finds the action that a record answers for, or says why there is none.
func (p *plan) answeredFor(r *pb.Record) (*action, Result) {
	a, refusal := p.answerable(r.Action)
	if a == nil {
		return nil, refusal
	}
	if other := pointsBack(r, a); other.Verdict != Effective {
		return nil, other
	}
	return a, effective
}

// resolved ends what is owed by its owner's word (S106). Unless the owner says halt, the
// unwind goes on with what the action came after.
func (s *fold) resolved(p *plan, k *pb.Resolved) Result {
	if s.byName(p.id, s.e.Record.Action) == nil {
		if r, ok := s.resolveOrphan(p, k); ok {
			return r
		}
	}
	a, refusal := p.answeredFor(s.e.Record)
	if a == nil {
		return refusal
	}
	if p.committing() {
		return s.about(a).answeredAtCommit(k)
	}
	if !s.about(a).seconded(&rowspb.Proposal{Answer: resolutionName(k.Outcome), Halt: k.Halt,
		Actor: k.Actor}) {
		return effective
	}
	p.reopen()
	p.row.Resumed = s.e.Address
	s.about(a).giveUp()
	if a.row.Undo != rowspb.Undo_UNDO_QUARANTINED {
		a.land()
	}
	a.row.Resolution, a.row.ResolvedBy = k, s.e.Source.Name
	p.unpage(a, api.PageQuarantined)
	a.settle(rowspb.Undo_UNDO_RESOLVED, s.e.Address)
	return effective
}

// retryRequested lets an undo go on by its owner's word, with its contract's attempts
// again. While an attempt without an answer may still be at work, that takes force (S29).
func (s *fold) retryRequested(p *plan, k *pb.RetryRequested) Result {
	a, refusal := p.answeredFor(s.e.Record)
	if a == nil {
		return refusal
	}
	if p.committing() {
		return s.about(a).askedAgain(k)
	}
	if why := a.retryRefused(k); why != "" {
		return refused("%s", why)
	}
	answer := &rowspb.Proposal{Answer: "retry", Force: k.Force, Actor: k.Actor}
	if k.NewKey {
		answer.Answer = "retry --new-key"
	}
	if k.Overwrite {
		answer.Answer += " --overwrite"
	}
	if !s.about(a).seconded(answer) {
		return effective
	}
	if k.NewKey {
		a.row.Keys = append(slices.Clip(a.row.Keys), &rowspb.UndoKey{After: a.row.Attempt,
			Key: ledger.RetryKey(a.firstKey(), s.e.Address)})
	}
	a.row.AttemptsFrom, a.row.Approved, a.row.Unserved = a.row.Attempt, true, false
	a.row.Change, a.row.Overwrite = pb.Change_CHANGE_UNSPECIFIED, k.Overwrite
	if a.row.Undo != rowspb.Undo_UNDO_QUARANTINED {
		s.about(a).goOn()
		return effective
	}
	p.reopen()
	p.row.Resumed = s.e.Address
	a.row.Settled, a.row.SettledNs = nil, 0
	p.unpage(a, api.PageQuarantined)
	a.owe()
	return effective
}

// retryRefused says why an undo must not be tried again now, or "".
func (a *action) retryRefused(k *pb.RetryRequested) string {
	class, id := a.fixed.Forward.Class, a.fixed.Id
	waits := !flying(a.row.Undo) && a.row.Undo != rowspb.Undo_UNDO_QUARANTINED &&
		a.row.Undo != rowspb.Undo_UNDO_EXHAUSTED
	switch {
	case isDelivered(a):
		return "there is nothing to retry: " + a.fixed.Forward.Capability + " was delivered"
	case delivers(a) && a.plan.row.Stopped != nil:
		return "the deliveries of plan " + a.plan.row.Origin + " were stopped at " +
			ledger.FormatAddress(a.plan.row.Stopped)
	case class == pb.Class_CLASS_IRREVERSIBLE && !delivers(a) ||
		a.fixed.Compensation.GetCapability() == "":
		return "there is nothing to retry: " + a.fixed.Forward.Capability + " has no inverse"
	case a.row.Undone:
		return "there is nothing to retry: " + whyUndone(a)
	case k.NewKey && a.row.Attempt == 0:
		return "retry_requested.new_key: no attempt of action " + id + " was made: want none"
	case k.NewKey && a.key() != a.keyOf(a.row.Attempt):
		return "retry_requested.new_key: the next attempt of action " + id +
			" has a new key already: want none"
	case k.Overwrite && a.fixed.Compensation.Unchanged == "":
		return "retry_requested.overwrite: the contract of " + a.fixed.Forward.Capability +
			" has no unchanged: want none"
	case waits && a.row.Approved && a.row.AttemptsFrom == a.row.Attempt && !k.NewKey &&
		k.Overwrite == a.row.Overwrite:
		return "the undo of action " + id + " goes on already, as its owner said: it is " +
			undoName(a.row.Undo)
	case k.Force:
		return ""
	case a.row.Undo == rowspb.Undo_UNDO_DISPATCHED && a.row.Asking == pb.Question_QUESTION_UNSPECIFIED:
		return fmt.Sprintf("attempt %d of action %s is on its way since %s and has no answer: wait, or "+
			"force the retry", a.row.Attempt, id, instant(a.row.DispatchedNs))
	case a.row.AliveUntilNs > a.plan.s.meta.TimeNs:
		return fmt.Sprintf("attempt %d of action %s had no answer and may be at work until %s: wait, "+
			"or force the retry", a.row.Attempt, id, instant(a.row.AliveUntilNs))
	}
	return ""
}

// goOn takes an action that is not quarantined to its next attempt. What is owed before
// it, and a forward that may still land, hold that back as they did.
func (s about) goOn() {
	a := s.a
	if a.row.Undo == rowspb.Undo_UNDO_OWED {
		a.change()
		return
	}
	next, _ := a.nextStep()
	resend := flying(a.row.Undo) && a.row.Attempt > 0 && a.row.Asking != pb.Question_QUESTION_EFFECT &&
		(next == stepDispatch || next == stepCompare)
	s.giveUp()
	if !resend {
		a.land()
		a.owe()
		return
	}
	a.unheard()
	a.row.Asking, a.row.Pending, a.row.AskedToSend = pb.Question_QUESTION_UNSPECIFIED, nil, false
	// It stays in flight: the answer to the attempt that was given up still settles it.
	a.row.ReadyNs = s.meta.TimeNs
	a.wait(max(a.row.DispatchedNs, a.row.AskedNs))
}

// giveUp closes the attempt that is out: its owner waits for its answer no longer.
func (s about) giveUp() {
	a := s.a
	out := a.row.Undo == rowspb.Undo_UNDO_DISPATCHED && a.row.Attempt > 0
	if out && (a.row.Asking == pb.Question_QUESTION_UNSPECIFIED ||
		a.row.Asking == pb.Question_QUESTION_VERIFY) {
		s.attemptEnded(a.row.Attempt,
			attemptEnd{state: "in_doubt", message: "its owner has answered before it did"})
		a.attempts().Leave(min(s.meta.TimeNs, epochMax))
	}
}

// atOwner reports whether an action waits for its owner or has had the answer: nothing
// more is tried for it.
func atOwner(a *action) bool {
	return a.row.Undo == rowspb.Undo_UNDO_QUARANTINED || a.row.Undo == rowspb.Undo_UNDO_RESOLVED
}

// letStand reports whether an owner's answer reckons with an effect that is still there.
func letStand(r *pb.Resolved) bool {
	return r.GetOutcome() == pb.Resolution_RESOLUTION_LOST ||
		r.GetOutcome() == pb.Resolution_RESOLUTION_ACCEPTED
}

// late reports whether a word that an attempt is done would come after the action's
// quarantine or its owner's answer. An undo in working memory is a record: none is late.
// So does one under an earlier key than that of the undo which counts.
func late(a *action, attempt uint32) bool {
	return (atOwner(a) || a.attempts().Twice(attempt)) && made(a, attempt) && !inMemory(a)
}

// noteUndone is why a duty is its owner's from the start.
const noteUndone = "its undo was carried out after all: see whether that was once too often"

// noteTwice is that of a duty of a delivery.
const noteTwice = "it was delivered after all: see whether that was once too often"

// whyUndone is noteUndone, or noteTwice.
func whyUndone(a *action) string {
	if a.plan.row.Delivers {
		return noteTwice
	}
	return noteUndone
}

// doneLate takes a worker's word, after a quarantine or its owner's answer, that an
// attempt is done. A quarantine is not released by itself: its owner reads it there. An
// answer that did not know of it is held against it: that is a duty of the owner's.
func (s about) doneLate(end attemptEnd,
	attempt uint32) Result {
	a := s.a
	if a.attempts().HeardDone(attempt) {
		return void("action %s: attempt %d was said to be done already", a.fixed.Id, attempt)
	}
	said := fmt.Sprintf("attempt %d of it was carried out by %s, which said so only at %s", attempt,
		orWorker(end.worker), ledger.FormatAddress(s.e.Address))
	s.attemptEnded(attempt, end)
	a.attempts().NoteDone(attempt)
	a.change()
	if a.row.Undo == rowspb.Undo_UNDO_QUARANTINED {
		a.row.Note = clip(a.row.Note + "; " + said)
		return effective
	}
	s.owedUndone()
	a.row.Note = clip(said + noteOwed + dutyID(a.origin(), a.origin().row.Duties))
	return effective
}

// owedUndone has the owner look whether an action was undone once too often.
func (s about) owedUndone() {
	row := s.a.row
	s.owedAnew(&rowspb.ActionRow{Outcome: row.Outcome, ExternalRef: row.ExternalRef,
		FoundRef: row.FoundRef, Presence: row.Presence, Undone: true}, whyUndone(s.a))
}

func orWorker(name string) string {
	if name == "" {
		return "a worker"
	}
	return name
}

// waitingSince tells the owner of a part of a committed tree that conditions wait for its end.
func waitingSince(p *plan) string {
	if root := p.root(); root.row.Phase == rowspb.Phase_PHASE_COMMITTED && treeHoldsOn(root) {
		return "; until then no condition undoes plan " + root.id + ", which is committed"
	}
	return ""
}

// An irreversible act is often the last of its plan: what is announced, sent or paid when all else
// is done. That it cannot be undone is no reason to leave the rest as it is, so it lets go what it
// came after, unless its plan says that it halts. One after which something was undone does not:
// the unwind has come to it through effects that were built on it.

// lastGoes reports whether the irreversible last act of a plan that opens now lets go what it
// came after.
func (s *State) lastGoes(declared *pb.PlanOpened) bool {
	said := declared.GetOnUndoFailure()
	return said == pb.OnUndoFailure_ON_UNDO_FAILURE_HALT_UNLESS_LAST ||
		said == pb.OnUndoFailure_ON_UNDO_FAILURE_CONTINUE && s.meta.HolderFold >= ledger.LastActSince
}

// isLastAct reports whether an action that becomes its owner's lets go what it came after. A pivot
// is where its plan has said that it stops.
func isLastAct(a *action) bool {
	return a.plan.row.LastGoes && !a.row.UndoneAfter && !a.fixed.Forward.GetPivot() &&
		a.fixed.Forward.GetClass() == pb.Class_CLASS_IRREVERSIBLE
}

// entryQuarantined gives the entry of a child plan to the owner of the child. It lets go what it
// came after if all that the child has left does so in the child.
func entryQuarantined(a *action) {
	c, parent := a.plan.s.plan(a.fixed.Child).row, a.plan.row
	a.row.LetsGo = parent.LastGoes && !a.row.UndoneAfter && !c.Rewinding && !orphaned(c) &&
		c.LetGo == c.Unsettled
	if a.row.LetsGo && c.UndoneNow {
		undoneNow(a) // before what it lets go begins
	}
	a.move(rowspb.Undo_UNDO_QUARANTINED)
}

// reachOwner counts an action that becomes its owner's, and leaveOwner one that is it no more.
func reachOwner(a *action) {
	a.plan.row.Quarantined++
	if a.row.LetsGo {
		a.plan.row.LetGo++
	}
}

func leaveOwner(a *action) {
	a.plan.row.Quarantined--
	if a.row.LetsGo {
		a.plan.row.LetGo--
		a.row.LetsGo = false
	}
}

// undoneNow notes with all that an action came after, at any remove, that it was undone. Each is
// noted once in an unwind: what it came after was noted with it. What joins later comes before none
// of them.
func undoneNow(a *action) {
	p := a.plan
	if !ordered(p.row) {
		return
	}
	if p.row.UndoneNow = true; !p.row.MayLetGo {
		return
	}
	for left := []*action{a}; len(left) > 0; {
		last := left[len(left)-1]
		left = left[:len(left)-1]
		for _, m := range last.fixed.Before {
			if b := p.action(m); !b.row.UndoneAfter {
				b.row.UndoneAfter = true
				b.change()
				left = append(left, b)
			}
		}
	}
}

// toldAs is the action whose undo is of the effect that was reported of an action: that one, or the
// duty of it that the report has made, or has told.
func toldAs(a *action) *action {
	if a.row.DoubtedAs != 0 && !a.plan.action(a.row.DoubtedAs).row.Overtaken {
		return a.plan.action(a.row.DoubtedAs)
	}
	for d := range dutiesOf(a) {
		if !d.row.Extra && sameAddress(d.fixed.Registered, a.row.OutcomeAt) {
			return d
		}
	}
	return a
}

// lacks says what a report may still add to an earlier one until the undo of the effect is first
// sent: what it is called, and what its forward has returned.
func lacks(a *action) (name, output bool) {
	if !a.row.Told || isSent(toldAs(a)) {
		return false, false
	}
	return a.name() == "" && toldAs(a).name() == "", len(a.payload().Output) == 0
}

// reportedMore keeps what a report adds to an earlier one.
func (s about) reportedMore(k *pb.EffectReported, output []byte) {
	for _, a := range slices.Compact([]*action{s.a, toldAs(s.a)}) {
		if a.name() == "" {
			a.row.ExternalRef = k.ExternalRef
		}
		if len(a.payload().Output) == 0 {
			a.keepOutput(output)
		}
		a.row.WordAt = s.e.Address.Sequence
		a.change()
		a.evaluateAction(s.e.Address)
	}
}

// owedOther owes what a forward says that it has done besides what is undone already.
func (s about) owedOther(k *pb.ForwardCompleted) {
	s.owedAnew(&rowspb.ActionRow{
		Outcome: rowspb.Outcome_OUTCOME_COMPLETED, ExternalRef: k.ExternalRef,
		LiftedOutput: k.Lifted, OutputIncomplete: k.OutputIncomplete,
		ReferenceIncomplete: k.ReferenceIncomplete,
		Late:                true, Approved: s.a.row.Approved && !asksWhenLate(s.a),
	}, noteLate)
}

// attempts tells the attempts of its undo, or of its delivery, apart.
func (a *action) attempts() attempts.Of {
	c := a.fixed.Compensation
	return attempts.Of{Row: a.row, Delivers: delivers(a), DedupeNs: c.GetDedupeNs(),
		SettleNs: a.fixed.Forward.GetSettleNs(), TimeoutNs: cmp.Or(c.GetTimeoutNs(), timeoutDefault)}
}

func extraEffects(refs []string) string {
	text := "the probe found more than one effect"
	for i, ref := range refs {
		if i == 0 {
			text += ": also "
		} else {
			text += ", "
		}
		text += ref
	}
	return clip(text)
}
