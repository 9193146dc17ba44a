package attempts_test

import (
	"math"
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
	of := attempts.Of{Row: row, Delivers: true, TimeoutNs: 9, DedupeNs: 50}
	of.MayForget(2, 140)
	if of.SentAnew(1) {
		t.Error("attempt 2 within 50 ns is the same act")
	}
	of.MayForget(3, 141)
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
	undo.MayForget(3, 150)
	if undo.SentAnew(1) {
		t.Error("an undo's provider remembers for ever without dedupe")
	}
}

func TestWhatMayHaveBeenDeliveredIsSentAgainWhileItsKeyIsKnown(t *testing.T) {
	row := &rowspb.ActionRow{Attempt: 2, SentNs: 100}
	of := attempts.Of{Row: row, Delivers: true, TimeoutNs: 9, DedupeNs: 50}
	if !of.MayRepeat(math.MaxInt64 - 100) {
		t.Error("no attempt is in doubt, and the next one may make the act twice")
	}
	of.Leave(120)
	if !of.Unsure() || row.AliveUntilNs != 129 {
		t.Errorf("attempt 2 was left, and is not in doubt until 129, but %d", row.AliveUntilNs)
	}
	if !of.MayRepeat(140) || of.MayRepeat(141) || of.MayRepeat(math.MaxInt64) || !of.MayRepeat(0) {
		t.Error("what lands before 150 lands while the key is known, and nothing later does")
	}
	if of.ResendUntil() != 140 {
		t.Errorf("copies leave until %d, not 140", of.ResendUntil())
	}
	of.SettleNs = 20
	if of.LandsIn() != 20 || of.ResendUntil() != 129 {
		t.Error("a delivery lands within its settle, and no other time")
	}
	row.AttemptsFrom = 2
	if of.Unsure() {
		t.Error("the owner has asked for another attempt, and one before it is in doubt still")
	}
}

func TestCopiesLeaveWhileTheKeyIsKnown(t *testing.T) {
	row := &rowspb.ActionRow{Attempt: 1, SentNs: 100}
	for _, c := range []struct {
		of   attempts.Of
		want int64
	}{
		{attempts.Of{}, 0}, // for ever
		{attempts.Of{DedupeNs: 50, TimeoutNs: 9}, 150},
		{attempts.Of{DedupeNs: math.MaxInt64, TimeoutNs: 9}, math.MaxInt64},
		{attempts.Of{Delivers: true}, 1}, // by no clock
		{attempts.Of{Delivers: true, DedupeNs: 5, TimeoutNs: 900}, 1},
		{attempts.Of{Delivers: true, DedupeNs: math.MaxInt64, TimeoutNs: 9}, math.MaxInt64 - 10},
	} {
		if c.of.Row = row; c.of.ResendUntil() != c.want {
			t.Errorf("%+v: until %d, want %d", c.of, c.of.ResendUntil(), c.want)
		}
	}
}

func TestOnlyTheAgentSaysThatAForwardIsWhole(t *testing.T) {
	for _, c := range []struct {
		outcome  rowspb.Outcome
		reported bool
		want     bool
	}{
		{rowspb.Outcome_OUTCOME_COMPLETED, false, false}, {rowspb.Outcome_OUTCOME_COMPLETED, true, true},
		{rowspb.Outcome_OUTCOME_IN_DOUBT, false, true}, {rowspb.Outcome_OUTCOME_UNKNOWN, false, true},
	} {
		if got := attempts.FailedDirty(&rowspb.ActionRow{Outcome: c.outcome}, c.reported); got != c.want {
			t.Errorf("%v, reported %v: %v", c.outcome, c.reported, got)
		}
	}
}
