package executor

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// step is what the unwind does with an action that is ready.
type step uint8

const (
	stepDispatch   step = iota
	stepProbe           // ask the world first
	stepSkip            // nothing to undo
	stepQuarantine      // its owner's
	stepChild           // unwind the child plan
	stepCompare         // ask the world whether it is as the forward left it
)

// crossed reports whether an action's effect crossed the boundary or may have.
func crossed(a *action) bool {
	return !awaits(a) && a.row.Outcome != rowspb.Outcome_OUTCOME_FAILED &&
		a.row.Presence != pb.Presence_PRESENCE_ABSENT
}

// blind reports whether an undo runs without knowing that the forward completed.
func blind(a *action) bool {
	return a.row.Outcome != rowspb.Outcome_OUTCOME_COMPLETED && !staged(a)
}

// superseded reports whether an undo that has begun has nothing to do any more: the
// forward is known to have failed, or its late completion is a duty of its own.
func superseded(a *action) bool {
	return a.row.Outcome == rowspb.Outcome_OUTCOME_FAILED || a.row.Late && a.fixed.DutyOf == 0 ||
		a.row.Overtaken
}

// nextStep says what to do with a ready action at the logical time, and why.
// Only what crossed or may have crossed is undone (S12, S13, S85); an irreversible
// effect is its owner's (S86, S87); doubt is asked about first (S97, S104).
func (a *action) nextStep() (step, string) {
	s := a.plan.s
	if a.plan.committing() {
		return commitStep(a)
	}
	class, c := a.fixed.Forward.GetClass(), a.fixed.Compensation
	switch {
	case a.fixed.Child != "":
		return stepChild, ""
	case a.row.Undone:
		return stepQuarantine, whyUndone(a)
	case delivers(a):
		return deliveryStep(a)
	case staged(a):
		return stepSkip, "staged, and dropped: nothing was sent"
	case a.row.Outcome == rowspb.Outcome_OUTCOME_FAILED:
		return stepSkip, "never crossed the boundary: the forward is known to have failed"
	case superseded(a):
		return stepSkip,
			"what became known of its forward after its blind undo began is owed as a duty of its own"
	case class == pb.Class_CLASS_EFFECTLESS:
		return stepSkip, "effectless: nothing to undo"
	case a.row.Presence == pb.Presence_PRESENCE_ABSENT && a.row.Resolution != nil:
		return stepSkip, "its owner has said, when it was to be committed, that it is not there"
	case a.row.Presence == pb.Presence_PRESENCE_ABSENT:
		return stepSkip, "the probe found no effect"
	case class == pb.Class_CLASS_IRREVERSIBLE && blind(a) && !(anytime(s) && isSeen(a)):
		return stepQuarantine, "irreversible and in doubt: " + a.fixed.Forward.Capability +
			" may have happened and has no inverse"
	case class == pb.Class_CLASS_IRREVERSIBLE:
		return stepQuarantine, "irreversible: " + a.fixed.Forward.Capability + " has no inverse"
	case c == nil || c.Capability == "":
		return stepQuarantine, "no compensation is registered for " + a.fixed.Forward.Capability
	case c.Sealed && s.erased(a.id.Plan) != nil:
		return stepQuarantine, "what " + c.Capability + " takes was erased at " +
			ledger.FormatAddress(s.erased(a.id.Plan)) + ": nobody can read it any more"
	case a.row.Late && a.fixed.DutyOf != 0 && asksWhenLate(a) && !a.row.Approved:
		return stepQuarantine, noteLate
	case (blind(a) || a.row.Late) && a.row.Presence == pb.Presence_PRESENCE_UNSPECIFIED:
		switch next, why := doubt(a); {
		case next == stepProbe && a.nameless(c.Probe.GetCall().GetBindings()):
			return stepQuarantine, noteNameless // its absent would say nothing
		case next != stepDispatch:
			return next, why
		}
	}
	if a.nameless(c.Bindings) {
		if a.asksForName() {
			return stepProbe, ""
		}
		return stepQuarantine, noteNameless
	}
	if why := a.needsOwner(); why != "" && !a.row.Approved {
		return stepQuarantine, why
	}
	switch {
	case !compares(a) || unchanged(a):
		return stepDispatch, ""
	case a.nameless(c.Probe.GetCall().GetBindings()):
		return stepQuarantine, noteNameless // its answer would be about nothing
	}
	return stepCompare, ""
}

// doubt says what the contract wants when no one knows whether the effect is
// there.
func doubt(a *action) (step, string) {
	c, asks := a.fixed.Compensation, probesDoubt(a)
	switch {
	case a.row.Late: // it is known to have completed; the blind undo may have undone it
		if c.Probe != nil {
			return stepProbe, ""
		}
		return stepDispatch, ""
	case asks:
		return stepProbe, ""
	case c.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_QUARANTINE && !a.row.Approved:
		return stepQuarantine, "in doubt: the contract asks its owner"
	default:
		return stepDispatch, ""
	}
}

// probesDoubt reports whether the world is asked before an action in doubt is undone.
// Where the provider refuses what comes late, the undo says more than a probe that found
// nothing: it is sent after it.
func probesDoubt(a *action) bool {
	c := a.fixed.Compensation
	switch {
	case c.Probe == nil:
		return false
	case refusesLate(a) && a.row.AbsentNs != 0:
		return false
	case refusesLate(a) && a.plan.s.meta.HolderFold < ledger.NamedSince:
		return c.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_PROBE
	default:
		return c.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_PROBE ||
			c.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_UNSPECIFIED
	}
}

// nameless reports whether an undo, or a question, would be sent without the name of the effect
// that it is about (triggers.Nameless).
func (a *action) nameless(bindings []*pb.Binding) bool {
	c := a.fixed.Compensation
	if a.plan.s.meta.HolderFold < ledger.NamedSince || inMemory(a) || c.HandlerVersion != "" {
		return false
	}
	if flying(a.row.Undo) && a.row.Attempt > 0 {
		return false // it is out as it is
	}
	if refusesLate(a) && a.row.AbsentNs != 0 && doubted(a) {
		return false // nothing is there that had a name: the undo goes out to bar what may come
	}
	compiled := make([]*triggers.Binding, len(bindings))
	for i, b := range bindings {
		binding, err := a.argument(b)
		if err != nil {
			return false // its owner hears of that
		}
		compiled[i] = binding
	}
	return triggers.Nameless(compiled, a.vars)
}

// argument compiles an argument of a call. What a probe has found may be one where the probe is
// asked before each attempt.
func (a *action) argument(b *pb.Binding) (*triggers.Binding, error) {
	if a.fixed.Compensation.GetUnchanged() != "" {
		return a.plan.s.Programs.Reader(b.Expression)
	}
	return a.plan.s.Programs.Binding(b.Expression)
}

// noteNameless is why an undo that names nothing is its owner's.
const noteNameless = "nothing names its effect: the output and the reference that the undo reads " +
	"are not known"

// asksForName reports whether the world may still say which effect an undo is about, of which
// the question itself has to name something: else its absent says nothing.
func (a *action) asksForName() bool {
	probe := a.fixed.Compensation.Probe
	return probe != nil && a.row.Presence == pb.Presence_PRESENCE_UNSPECIFIED &&
		!a.nameless(probe.GetCall().GetBindings())
}

// needsOwner says why an undo must not begin without the owner's word.
func (a *action) needsOwner() string {
	switch {
	case a.row.Extra && a.unnamed() != "":
		return a.unnamed()
	case a.windowClosed():
		return "its undo window closed at " + instant(a.row.ClosesNs)
	case a.fixed.Forward.Pivot:
		return "a pivot: going back past it is its owner's decision"
	case a.fixed.Compensation.Approve:
		return "the contract asks for its owner's word before " + a.fixed.Compensation.Capability
	default:
		return ""
	}
}

func (a *action) windowClosed() bool {
	return a.row.ClosesNs != 0 && a.plan.s.meta.TimeNs >= a.row.ClosesNs
}

func instant(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339) }

// attemptsDefault and the others are what a registration means that leaves them 0.
const (
	attemptsDefault   = 3
	backoffDefault    = int64(1e9)
	backoffMaxDefault = int64(60e9)
	timeoutDefault    = int64(30e9)
)

func attemptsOf(c *pb.CompensationRegistered) uint32 { return cmp.Or(c.Attempts, attemptsDefault) }

func timeoutOf(c *pb.CompensationRegistered) int64 { return cmp.Or(c.TimeoutNs, timeoutDefault) }

// spent reports whether the contract allows no further attempt.
func spent(a *action) bool {
	return a.row.Unserved || a.row.Attempt-a.row.AttemptsFrom >= attemptsOf(a.fixed.Compensation)
}

// backoffOf is the delay before the next attempt of an undo: it doubles from
// backoff_ns up to backoff_max_ns and grows by up to jitter_percent, a share that
// key and attempt alone decide, so that the fold can draw it.
func backoffOf(c *pb.CompensationRegistered, key string, attempt uint32) int64 {
	first := cmp.Or(c.BackoffNs, backoffDefault)
	delay := doubled(first, cmp.Or(c.BackoffMaxNs, max(backoffMaxDefault, first)), attempt)
	if c.JitterPercent == 0 {
		return delay
	}
	h := sha256.Sum256(binary.BigEndian.AppendUint32([]byte(key), attempt))
	share := int64(binary.BigEndian.Uint32(h[:])) * int64(min(c.JitterPercent, 100)) / 100
	return delay + delay/(1<<16)*(share>>16)
}

// doubled is the delay after an attempt, counted from 1.
func doubled(delay, limit int64, attempt uint32) int64 {
	for i := uint32(1); i < attempt && delay < limit; i++ {
		delay *= 2
	}
	return min(delay, limit)
}

// A call that no one takes. It waits for a worker and spends no attempt; but not for
// ever: after unserved_after its action is its owner's (S50, S102). That no one serves a
// capability is seen by the host only, and its record says so. For how long, the fold
// counts itself, from the record that made the call.

func unservedAfter(c *pb.CompensationRegistered) int64 {
	return cmp.Or(c.GetUnservedAfterNs(), int64(ledger.UnservedDefault))
}

// unservedFrom is the epoch from which on the call that is out may be given up because
// no one takes it; 0: never.
func unservedFrom(a *action) int64 {
	out := a.row.Undo == rowspb.Undo_UNDO_DISPATCHED && a.fixed.Child == ""
	if !out && !asksOpenly(a) {
		return 0
	}
	switch {
	case a.row.Asking != pb.Question_QUESTION_UNSPECIFIED:
		return plusNs(a.row.AskedNs, unservedAfter(a.fixed.Compensation))
	case inMemory(a):
		return 0
	default: // not while a worker that has it may be at work
		return plusNs(max(a.row.DispatchedNs, a.row.AliveUntilNs), unservedAfter(a.fixed.Compensation))
	}
}

// reachedBefore reports whether an attempt before the present one, or a copy of it, may
// have come to a worker that has not said what became of it.
func reachedBefore(a *action) bool { return a.row.AliveUntilNs != 0 }

// unserved says why an attempt must not be given up for want of a worker, or "".
func unserved(e ledger.Entry, a *action, inDoubt bool) string {
	switch from := unservedFrom(a); {
	case from == 0:
		return "the undo of action " + a.fixed.Id + " needs no worker"
	case e.Record.EpochNs < from:
		return "a worker may take the undo of action " + a.fixed.Id + " until " + instant(from)
	case reachedBefore(a) && !inDoubt:
		return "an attempt of action " + a.fixed.Id +
			" may have come to a worker, and the record has no doubt"
	}
	return ""
}

// unservedQuestion is unserved for a question.
func unservedQuestion(e ledger.Entry, a *action, k *pb.ProbeAnswered) string {
	switch from := unservedFrom(a); {
	case k.Presence != pb.Presence_PRESENCE_UNSPECIFIED:
		return "nobody answered the question about action " + a.fixed.Id + ", and yet it found something"
	case e.Record.EpochNs < from:
		return "a worker may take the question about action " + a.fixed.Id + " until " + instant(from)
	}
	return ""
}

// unservedText says for how long no one has taken a call.
func unservedText(p *plan, a *action, capability string) string {
	c := a.fixed.Compensation
	who := "no worker serves " + capability
	if c.HandlerVersion != "" && capability == c.Capability {
		who = "no process offers " + api.HandlerText(a.fixed.Id, c.HandlerVersion, p.row.Agent)
	}
	return who + " for " + time.Duration(unservedAfter(c)).String()
}

// also puts what came of an attempt that no one served after why it was given up.
func also(a *action, note string) string {
	if !a.row.Unserved {
		return note
	}
	return clip(a.row.Note + "; " + note)
}

// What someone else has changed since the forward is not undone: the undo would overwrite it.
// Where the contract has a condition for that, the probe is asked right before each attempt; its
// answer to another question, if an attempt follows at once, is taken for both.

// compares reports whether an attempt needs an answer that what the forward left is as it left
// it: the contract has a condition, and the owner has not said that the undo goes out all the
// same. Where the undo only bars a forward of which nothing is there, there is nothing to compare.
func compares(a *action) bool {
	found := a.row.There && a.plan.s.meta.HolderFold >= ledger.ComparedSince
	bars := refusesLate(a) && a.row.AbsentNs != 0 && doubted(a) && !found
	return a.fixed.Compensation.GetUnchanged() != "" && !a.row.Overwrite && !bars
}

// unchangedNs is for how long, in ns of logical time, an answer that nothing was changed counts for
// the attempt that follows it, which as a rule is in the same commit.
const unchangedNs = int64(10e9)

// unchanged reports whether the answer to be had before an attempt is there.
func unchanged(a *action) bool {
	return a.row.Change == pb.Change_CHANGE_NONE &&
		a.plan.s.meta.TimeNs-a.row.ChangeNs <= unchangedNs
}

// finds reports whether an answer says that the effect is there.
func finds(k *pb.ProbeAnswered) bool {
	return k.Presence == pb.Presence_PRESENCE_PRESENT || k.Presence == pb.Presence_PRESENCE_DUPLICATE
}

// tellsChange reports whether an answer may say that an action was changed: its contract asks, and
// the question is about the effect before an undo.
func tellsChange(a *action, k *pb.ProbeAnswered) bool {
	return a.fixed.Compensation.GetUnchanged() != "" && !a.plan.committing() &&
		k.Question != pb.Question_QUESTION_VERIFY
}

// mustJudge reports whether an answer that finds the effect has to say whether it was changed:
// an attempt waits for that alone.
func mustJudge(a *action, k *pb.ProbeAnswered) bool {
	return finds(k) && compares(a) && (k.Question == pb.Question_QUESTION_UNCHANGED ||
		k.Question == pb.Question_QUESTION_UNDO && a.row.AskedToSend)
}

// misjudged says why what an answer says of a change cannot be said, or "".
func misjudged(a *action, k *pb.ProbeAnswered) string {
	_, known := pb.Change_name[int32(k.Change)]
	switch {
	case k.Change == pb.Change_CHANGE_UNSPECIFIED && mustJudge(a, k):
		return "whether action " + a.fixed.Id + " was changed is what was asked"
	case k.Change == pb.Change_CHANGE_UNSPECIFIED:
		return ""
	case !known:
		return fmt.Sprintf("change %d is none that this version knows", k.Change)
	case !tellsChange(a, k):
		return "nothing asks whether action " + a.fixed.Id + " was changed"
	case k.Presence == pb.Presence_PRESENCE_UNSPECIFIED:
		return "an inconclusive answer says nothing of a change of action " + a.fixed.Id
	}
	return ""
}

// compared keeps what an answer says of a change, and what was found: the attempt that follows
// may make its write conditional on it.
func (s about) compared(k *pb.ProbeAnswered) {
	a := s.a
	if !tellsChange(a, k) || a.row.Overwrite { // that goes out over what its owner has seen
		return
	}
	a.row.Change, a.row.ChangeNs = k.Change, s.meta.TimeNs
	keepFound(a, s.e.Record.Payload.GetOutput())
}

// changedAsTold takes a worker's word that someone else has changed what its undo is about, with
// what it has found there.
func (s about) changedAsTold(k *pb.CompensationFailed) {
	a := s.a
	sighted(a, true)
	a.row.Change, a.row.Overwrite = pb.Change_CHANGE_FOREIGN, false
	a.row.Note = clip(joinText(noteChanged+", as its worker says", a.row.Note))
	keepFound(a, s.e.Record.Payload.GetOutput())
}

// isChanged reports whether an action is its owner's because someone else has changed it.
func isChanged(a *action) bool {
	return a.row.Undo == rowspb.Undo_UNDO_EXHAUSTED && a.row.Change == pb.Change_CHANGE_FOREIGN
}

// keepFound keeps what is there now, as a probe or the worker of the undo says. Where that is not
// told, or too large to be kept, what was found before stays: an undo that is conditional on it is
// refused by its provider, and one without a condition would not be.
func keepFound(a *action, found []byte) {
	if len(found) == 0 || len(found) > ledger.FoundMax {
		return
	}
	payload := rows.ClonePayload(a.payload())
	payload.Found = found
	a.setPayload(payload)
}

// noteChanged is why what someone else has changed is its owner's.
const noteChanged = "changed by someone else: it is not as the forward left it, and the undo " +
	"would overwrite that"

// noteChangedOrTried is why an action is its owner's of which no one can tell whose change it was.
const noteChangedOrTried = "it is not as the forward left it: someone else has changed it, or an " +
	"attempt of its undo whose answer was lost"

// parkChanged gives what someone else has changed to its owner; false: it has not been.
func parkChanged(a *action) bool {
	if a.row.Change != pb.Change_CHANGE_FOREIGN {
		return false
	}
	if a.row.Note = noteChanged; a.row.Attempt > 0 {
		a.row.Note = noteChangedOrTried
	}
	a.park()
	return true
}
