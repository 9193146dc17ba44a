package attempts_test

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/attempts"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

func TestADoneUnderAnotherKeyTellsOfAnotherUndo(t *testing.T) {
	row := &rowspb.ActionRow{Attempt: 4, Keys: []*rowspb.UndoKey{{After: 2, Key: "k2"}}}
	of := attempts.Of{Row: row}
	if of.Key(2) != "" || of.Key(3) != "k2" {
		t.Errorf("the keys of attempts 2 and 3 are %q and %q", of.Key(2), of.Key(3))
	}
	of.NoteDone(3)
	if !of.HeardDone(3) || of.HeardDone(4) || of.HeardDone(2) {
		t.Error("attempt 3 was called done, and another one counts, too, or that one does not")
	}
	of.NoteDone(1)
	if !of.HeardDone(1) || !of.HeardDone(3) || of.HeardDone(2) {
		t.Error("attempts 3 and 1 were called done, and one is forgotten, or a later one counts")
	}
	if !of.SentAnew(2) || of.SentAnew(3) {
		t.Error("attempt 2 was followed by one under another key, attempt 3 was not")
	}
	if of.Twice(2) {
		t.Error("attempt 2 is told to be done twice, and no word waits")
	}
	row.Reported = &pb.CompensationReported{Attempt: 4, Answer: pb.Answer_ANSWER_DONE}
	if !of.Twice(2) || of.Twice(3) {
		t.Error("a word on attempt 2 is of another undo than attempt 4, one on attempt 3 is not")
	}
}

func TestADeliveryIsAnotherOnceItsProviderMayHaveForgottenTheKey(t *testing.T) {
	row := &rowspb.ActionRow{Attempt: 3, SentNs: 100}
	of := attempts.Of{Row: row, Delivers: true}
	of.MayForget(2, 149, 50)
	if of.SentAnew(1) {
		t.Error("attempt 2 within 50 ns is the same act")
	}
	of.MayForget(3, 150, 50)
	if !of.SentAnew(1) || !of.SentAnew(2) {
		t.Error("attempt 3 after 50 ns is another act")
	}
	of.NoteDone(3)
	if of.HeardDone(1) || of.HeardDone(2) {
		t.Error("a word on attempt 3 tells of the attempts before it")
	}
	row.Outcome = rowspb.Outcome_OUTCOME_COMPLETED
	if !of.Twice(1) || of.Twice(3) {
		t.Error("attempt 1 beside attempt 3 was delivered twice, attempt 3 alone was not")
	}
	undo := attempts.Of{Row: &rowspb.ActionRow{Attempt: 3, SentNs: 100}}
	undo.MayForget(3, 150, 0)
	if undo.SentAnew(1) {
		t.Error("an undo's provider remembers for ever without dedupe")
	}
}
