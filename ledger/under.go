package ledger

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// How a record is read depends on the holder under which it is stored: what earlier holders have
// refused, or taken, stays so.

// Under returns the entries of a message as a holder with this version of the fold reads them:
// those of before TextsSince refused a record for a text that people read, and took a value that is
// not exact; those of before NewKeySince knew of no new key, those of before CopiesSince of no ids,
// those of before UnchangedSince of no undo that is asked whether someone else has changed
// something, those of before AfterCommitSince of no condition that is held after the commit, those
// of before EffectsSince of no effect that operators report, those of before LastActSince of no
// plan that halts unless it is at its last act, those of before StagedSince of no act that is
// staged, those of before MovedSince of no deadline that is moved, and those of before AdoptedSince
// of no plan that is handed to another agent. What is stored under them stays as it was. Fold 0 is
// for what comes before a tenant's first holder; see Knows.
func Under(entries []Entry, fold uint32) []Entry {
	if !slices.ContainsFunc(entries, func(e Entry) bool {
		return e.strict != nil && fold < TextsSince ||
			e.unheld != nil && !Knows(fold, AfterCommitSince) ||
			e.unstaged != nil && !Knows(fold, StagedSince) || e.hasStaged(fold) ||
			e.asksNewKey(fold) || e.hasUnknownID(fold) || e.hasUnchanged(fold) ||
			e.hasHeld(fold) || e.isNewKind(fold) || e.saysLast(fold)
	}) {
		return entries
	}
	entries = slices.Clone(entries)
	for i, e := range entries {
		entries[i] = e.Under(fold)
	}
	return entries
}

// Under is Under of one entry.
func (e Entry) Under(fold uint32) Entry {
	if e.unstaged != nil && !Knows(fold, StagedSince) {
		e.Record, e.Err, e.Pair = e.unstaged.record, e.unstaged.err, e.unstaged.pair
	}
	if e.unheld != nil && !Knows(fold, AfterCommitSince) {
		e.Record, e.Err, e.Pair = e.unheld.record, e.unheld.err, e.unheld.pair
	}
	if strict := e.strict; strict != nil && fold < TextsSince {
		if fold == 0 && e.first != nil {
			strict = e.first
		}
		e.Record, e.Err, e.Pair = strict.record, strict.err, strict.pair
		e.Partial = false
	}
	if e.hasUnknownID(fold) {
		e = e.withoutID()
	}
	switch {
	case !e.asksNewKey(fold):
	case e.json, e.Reader >= readerOfKeys: // in JSON they refuse such a field
		e.Err = firstOf(e.Err, Refuse("retry_requested.new_key", "the holder of this tenant does not "+
			"know of it", "a retry without it, or a holder of a later version"))
	default:
		e.Record = proto.CloneOf(e.Record)
		e.Record.GetRetryRequested().NewKey = false
	}
	if e.hasUnchanged(fold) {
		e = e.withoutUnchanged()
	}
	if e.hasHeld(fold) {
		e = e.withoutHeld(fold)
	}
	if e.saysLast(fold) {
		e = e.withoutLast()
	}
	if e.hasStaged(fold) {
		e = e.withoutStaged(fold)
	}
	if e.isNewKind(fold) {
		e.Err = firstOf(e.Err, Refuse(KindOf(e.Record).Name, "the holder of this tenant does not know "+
			"of it", "a holder of a later version"))
	}
	return e
}

// Knows reports whether a holder with a version of the fold knows of what came with a later one:
// conditions that are held after the commit, for one. Fold 0 is for what comes to a tenant before
// its first holder: it is read as if that one does, as executors are upgraded before agents; if it
// does not, it has refused what later ones find to count.
func Knows(fold, since uint32) bool { return fold == 0 || fold >= since }

// isNewKind reports whether a record is of a kind that a holder with this version does not know.
func (e Entry) isNewKind(fold uint32) bool {
	return !Knows(fold, EffectsSince) && e.Record.GetEffectReported() != nil ||
		!Knows(fold, MovedSince) && e.Record.GetDeadlineMoved() != nil ||
		!Knows(fold, AdoptedSince) && e.Record.GetPlanAdopted() != nil
}

// saysLast reports whether a plan opens in a way of which a holder with this version does not know.
func (e Entry) saysLast(fold uint32) bool {
	return !Knows(fold, LastActSince) && saysLast(e.Record)
}

func saysLast(r *pb.Record) bool {
	return r.GetPlanOpened().GetOnUndoFailure() == pb.OnUndoFailure_ON_UNDO_FAILURE_HALT_UNLESS_LAST
}

// withoutLast is an entry as such a holder reads it: it refuses the number. In JSON it does not
// know the name, and reads what is left of the record.
func (e Entry) withoutLast() Entry {
	e.Err = firstOf(e.Err, Refuse("plan_opened.on_undo_failure",
		fmt.Sprint(int32(e.Record.GetPlanOpened().OnUndoFailure)), "halt or continue"))
	return e
}

// saysUnchanged reports whether a record is about an undo that overwrites nothing of anybody
// else's, or about the doubt of an open plan, of which readers of before readerOfChanges do not
// know.
func saysUnchanged(r *pb.Record) bool {
	if len(r.GetPayload().GetFound()) > 0 {
		return true
	}
	switch k := r.GetKind().(type) {
	case *pb.Record_CompensationRegistered:
		return k.CompensationRegistered.Unchanged != "" || k.CompensationRegistered.AskAfterNs != 0
	case *pb.Record_RetryRequested:
		return k.RetryRequested.Overwrite
	case *pb.Record_CompensationReported:
		return k.CompensationReported.Answer == pb.Answer_ANSWER_CHANGED
	case *pb.Record_ProbeAsked:
		return k.ProbeAsked.Question == pb.Question_QUESTION_UNCHANGED
	case *pb.Record_ProbeAnswered:
		return k.ProbeAnswered.Change != pb.Change_CHANGE_UNSPECIFIED
	case *pb.Record_CompensationFailed:
		return k.CompensationFailed.Changed
	case *pb.Record_ActionQuarantined:
		return k.ActionQuarantined.Changed
	}
	return false
}

// hasUnchanged reports whether an entry, or the other half of its pair, says of a change what a
// holder with this version does not know.
func (e Entry) hasUnchanged(fold uint32) bool {
	return fold < UnchangedSince && e.Source.Class != ClassExecutor &&
		(saysUnchanged(e.Record) || saysUnchanged(e.Pair))
}

// withoutUnchanged is an entry as such a holder reads it: it refuses what needs a later reader, and
// what in JSON has a field that it does not know, and else does not see the field.
func (e Entry) withoutUnchanged() Entry {
	told := e.Record.GetCompensationReported() != nil
	if e.json || e.Reader >= readerOfChanges || told {
		e.Err = firstOf(e.Err, Refuse(KindOf(e.Record).Name, "the holder of this tenant does not know "+
			"of undos that are asked whether something was changed", "a holder of a later version"))
		return e
	}
	e.Record, e.Pair = clearUnchanged(e.Record), clearUnchanged(e.Pair)
	return e
}

func clearUnchanged(r *pb.Record) *pb.Record {
	if !saysUnchanged(r) {
		return r
	}
	r = proto.CloneOf(r)
	if r.Payload != nil {
		r.Payload.Found = nil
	}
	if c := r.GetCompensationRegistered(); c != nil {
		c.Unchanged, c.AskAfterNs = "", 0
	}
	if c := r.GetRetryRequested(); c != nil {
		c.Overwrite = false
	}
	return r
}

// holdsAfter reports whether a record has a condition that is held after the commit, of which
// readers of before readerOfHeld do not know.
func holdsAfter(r *pb.Record) bool {
	declared := r.GetPlanOpened().GetTriggers()
	if c := r.GetCompensationRegistered(); c != nil {
		declared = c.Triggers
	}
	return slices.ContainsFunc(declared, (*pb.Trigger).GetAfterCommit)
}

// hasHeld reports whether an entry, or the other half of its pair, has such a condition under a
// holder that does not know of it.
func (e Entry) hasHeld(fold uint32) bool {
	return !Knows(fold, AfterCommitSince) && (holdsAfter(e.Record) || holdsAfter(e.Pair))
}

// withoutHeld is an entry as a holder with this version reads it: what is wrong with the condition
// alone it did not see.
func (e Entry) withoutHeld(fold uint32) Entry {
	if e.json || e.Reader >= readerOfHeld {
		e.Err = firstOf(e.Err, Refuse(KindOf(e.Record).Name, "the holder of this tenant does not know "+
			"of conditions that are held after the commit", "none, or a holder of a later version"))
		return e
	}
	e.Record, e.Pair = clearHeld(e.Record), clearHeld(e.Pair)
	switch {
	case !refusesHeld(e.Err):
	case fold < TextsSince:
		e.Err = firstOf(wellFormed(e.Record, e.Source), textFault(e.Record))
	default:
		e.Err = checkForm(e.Record, e.Source)
	}
	return e
}

// refusesHeld reports whether a record was refused for a condition that is held after the commit.
func refusesHeld(err error) bool {
	r, ok := err.(*Refused)
	return ok && strings.HasSuffix(r.Field, ".after_commit")
}

// hidesHeld reports whether an entry was refused for such a condition, which its message hides from
// readers that do not know of it.
func (e Entry) hidesHeld() bool {
	return e.hasHeld(1) && !e.json && e.Reader < readerOfHeld && refusesHeld(e.Err)
}

func clearHeld(r *pb.Record) *pb.Record {
	if !holdsAfter(r) {
		return r
	}
	r = proto.CloneOf(r)
	for _, t := range slices.Concat(r.GetPlanOpened().GetTriggers(),
		r.GetCompensationRegistered().GetTriggers()) {
		t.AfterCommit = false
	}
	return r
}

// isStaged reports whether a record registers an act that is staged, of which readers of before
// readerOfStaged do not know.
func isStaged(r *pb.Record) bool { return r.GetForwardRegistered().GetDeliver() != nil }

// hasStaged reports whether an entry, or the other half of its pair, is of a staged act under a
// holder that does not know of them.
func (e Entry) hasStaged(fold uint32) bool {
	return !Knows(fold, StagedSince) && (isStaged(e.Record) || isStaged(e.Pair))
}

// hidesStaged reports whether the message of a staged act hides that from readers that do not know
// of them.
func (e Entry) hidesStaged() bool {
	return isStaged(e.Record) && !e.json && e.Reader < readerOfStaged
}

// withoutStaged is an entry as a holder with this version reads it: it refuses the pair, or does
// not see how the act is made, nor what is wrong with that.
func (e Entry) withoutStaged(fold uint32) Entry {
	if e.json || e.Reader >= readerOfStaged {
		e.Err = firstOf(e.Err, Refuse(KindOf(e.Record).Name, "the holder of this tenant does not know "+
			"of staged acts", "none, or a holder of a later version"))
		return e
	}
	e.Record, e.Pair = clearStaged(e.Record), clearStaged(e.Pair)
	switch r, ok := e.Err.(*Refused); {
	case !ok || !strings.HasPrefix(r.Field, kindDeliver):
	case fold < TextsSince:
		e.Err = firstOf(wellFormed(e.Record, e.Source), textFault(e.Record))
	default:
		e.Err = checkForm(e.Record, e.Source)
	}
	return e
}

func clearStaged(r *pb.Record) *pb.Record {
	if !isStaged(r) {
		return r
	}
	r = proto.CloneOf(r)
	r.GetForwardRegistered().Deliver = nil
	return r
}

// asksNewKey reports whether an entry asks for what a holder with this version does not know.
func (e Entry) asksNewKey(fold uint32) bool {
	return fold < NewKeySince && e.Record.GetRetryRequested().GetNewKey()
}

// earlier is what holders of before a version read.
type earlier struct {
	record *pb.Record
	err    error
	pair   *pb.Record
}

// pairUp is checkPairs of the entries of a message, also as earlier holders read them where that
// may make another pair of them.
func pairUp(entries []Entry) {
	if !slices.ContainsFunc(entries, Entry.mayPairOtherwise) {
		checkPairs(entries)
		return
	}
	old, first := Under(entries, 1), slices.Clone(Under(entries, 0))
	checkPairs(old)
	checkPairs(first)
	var unheld []Entry
	if slices.ContainsFunc(entries, Entry.hidesHeld) {
		unheld = Under(entries, AfterCommitSince-1)
		checkPairs(unheld)
	}
	var unstaged []Entry
	if slices.ContainsFunc(entries, Entry.hidesStaged) {
		unstaged = Under(entries, StagedSince-1)
		checkPairs(unstaged)
	}
	checkPairs(entries)
	for i := range entries {
		if unstaged != nil {
			entries[i].unstaged = &earlier{unstaged[i].Record, unstaged[i].Err, unstaged[i].Pair}
		}
		entries[i].strict = &earlier{old[i].Record, old[i].Err, old[i].Pair}
		entries[i].first = &earlier{first[i].Record, first[i].Err, first[i].Pair}
		if unheld != nil {
			entries[i].unheld = &earlier{unheld[i].Record, unheld[i].Err, unheld[i].Pair}
		}
	}
}

// mayPairOtherwise reports whether earlier holders read more out of an entry than a sound record,
// or less. They do not see an id in protobuf, which has no part in a pair.
func (e Entry) mayPairOtherwise() bool {
	return e.strict != nil || e.asksNewKey(0) || e.hasUnchanged(0) || e.hasHeld(1) ||
		e.hasStaged(1) ||
		e.hasUnknownID(0) && (e.json || e.Err != nil)
}

// judge cuts the texts of an entry's record, leaves out what is not exact, and checks it.
func (e *Entry) judge() {
	if hasLongText(e.Record) || hasInexact(e.Record) {
		if e.strict == nil {
			e.strict = &earlier{record: proto.CloneOf(e.Record),
				err: firstOf(wellFormed(e.Record, e.Source), textFault(e.Record))}
		}
		CutTexts(e.Record)
		leaveOut(e.Record)
		e.Err = checkForm(e.Record, e.Source)
		return
	}
	e.Err = wellFormed(e.Record, e.Source) // that it is exact was seen above
}

// mend is judge for a record in JSON that could not be read, where its texts are why.
func (e *Entry) mend(raw json.RawMessage) {
	if record := readMended(raw); record != nil {
		e.strict = &earlier{record: e.Record, err: e.Err}
		e.Record = record
		e.judge()
	}
}

// textFault is why a record was refused before TextsSince.
func textFault(r *pb.Record) (err error) {
	eachText(r, func(field string, s *string) {
		if err == nil {
			err = text(KindOf(r).Name+"."+field, *s)
		}
	})
	return err
}
