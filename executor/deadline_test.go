package executor_test

import (
	"path/filepath"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// TestADeadlineIsMoved earlier and later, by an operator and by the plan's agent, until it has come
// or the plan has an end; whatever reads it is looked at again.
func TestADeadlineIsMoved(t *testing.T) {
	playAll(t, []scheduled{
		{"later", "open@10s a a+ @9s move:30s @29s", "open: a=held []"},
		{"later, and it comes", "open@10s a a+ @9s move:30s @30s", "compensated: a=compensated [a]"},
		{"earlier", "open@60s a a+ @2s moves:5s @5s", "compensated: a=compensated [a]"},
		{"earlier, and not before", "open@60s a a+ @2s moves:5s @4s", "open: a=held []"},
		{"more than once", "open@10s a a+ moves:20s moves:5s move:15s @14s", "open: a=held []"},
		{"more than once, and it comes", "open@10s a a+ moves:20s move:5s moves:15s @15s",
			"compensated: a=compensated [a]"},
		{"of a plan that has none", "open a a+ @9s move:30s @30s", "compensated: a=compensated [a]"},
		{"of a plan that has none, and again", "open a a+ @9s move:30s moves:40s @39s", "open: a=held []"},
		{"not to what has passed", "open@10s a a+ @9s !move:8s !moves:9s @10s", "compensated: a=compensated [a]"},
		{"not once it has come", "open@10s a a+ @10s !move:30s !moves:30s turn", "compensated: a=compensated [a]"},
		{"not once it has come, and has not fired", "open@10s a @10s fact:k=1 !moves:30s", "compensated: a=compensated [a]"},
		{"not once it fails", "open@10s a a+ fail !move:30s !moves:30s turn", "compensated: a=compensated [a]"},
		{"not once a condition has fired", "open@10s a:own* a+ b b+ fact:a=1 b=late turn !move:30s turn",
			"unwinding: a=owed b=dispatched []"},
		{"not after the commit", "open@10s a a+ commit turn !move:30s !moves:30s", "committed: a=retired []"},
		{"not while the commit waits", "open@10s a:probe a? a.probe=nobody commit turn !move:30s",
			"committing: a=held []"},
		{"but when it is back at a savepoint", "open@10s a a+ save:s b b+ back:s turn turn move:30s @29s",
			"open: a=held b=compensated [b]"},
		{"and comes after that", "open@10s a a+ save:s b b+ back:s turn turn move:30s @30s",
			"compensated: a=compensated b=compensated [b a]"},
		{"a copy that comes late", "open@10s a a+ moves:20s moves:40s !moves:20s#2 @39s", "open: a=held []"},
		{"a copy", "open@10s a a+ moves:20s =again @19s", "open: a=held []"},
		{"a copy of an operator's", "open@10s a a+ move:20s#2 =again @19s", "open: a=held []"},
		{"one that follows another", "open@10s a a+ moves:20s !move:30s#2 @20s", "compensated: a=compensated [a]"},
		{"a condition that was moot", "open:due=5s a a+ @9s move:30s @25s", "compensated: a=compensated [a]"},
		{"a condition that was moot, and not before", "open:due=5s a a+ @9s move:30s @24s", "open: a=held []"},
		{"a condition of an action", "open@10s a:due=5s a+ @4s move:30s @24s", "open: a=held []"},
		{"a condition of an action, and it comes", "open@10s a:due=5s a+ @4s move:30s @25s",
			"compensated: a=compensated [a]"},
		{"what has turned by it stays so", "open@10s a:due=5s a+ @5s", "compensated: a=compensated [a]"},
		{"of a part", "open a a+ q/open^ q/move:10s q/b q/b+ q/move:30s @29s", "open: a=held plan:q=held []"},
		{"of a part, and it comes", "open a a+ q/open^ q/move:10s q/b q/b+ q/move:30s @30s",
			"open: a=held plan:q=compensated [b]"},
		{"not of a part of what is undone", "open a a+ q/open^ q/move:10s q/b q/b+ b=late fail turn !q/move:30s",
			"unwinding: a=owed plan:q=dispatched []"},
		{"it shows that its plan is not idle", "open:idle=1m a a+ @50s moves:10h @109s", "open: a=held []"},
		{"an operator's does not", "open:idle=1m a a+ @50s move:10h @60s", "compensated: a=compensated [a]"},
	})
}

// TestWhoMovesADeadlineSaysWhat: an agent what it follows, everyone why; and what is refused says so.
func TestWhoMovesADeadlineSaysWhat(t *testing.T) {
	for words, want := range map[string]string{
		"open@10s a move:5s#9":            "deadline_moved.follows: 9, and the deadline of plan p is another one since 2",
		"open@10s a moves:20s moves:5s#2": "since 4, by a1; want a look at it",
		"open@10s a moves:20s#0":          "deadline_moved.follows: missing; want the sequence of the plan_opened",
		"open@10s a @2s move:1s":          "has passed; want an instant to come",
		"open@10s a fail move:20s":        "plan p is failed, and its deadline is not moved any more",
	} {
		s := newSchedule(t)
		list := strings.Fields(words)
		s.play(strings.Join(list[:len(list)-1], " "))
		got := s.word(list[len(list)-1])
		if got[0].Verdict != Refused || !strings.Contains(got[0].Reason, want) {
			t.Errorf("%s: %+v, want %q", words, got[0], want)
		}
	}
}

// TestAnEarlierHolderKnowsOfNoMovedDeadline, and what is stored under it stays refused.
func TestAnEarlierHolderKnowsOfNoMovedDeadline(t *testing.T) {
	for version, want := range map[uint32]Verdict{ledger.MovedSince - 1: Refused, ledger.MovedSince: Effective} {
		s := newSchedule(t)
		s.underHolder(version)
		s.play("open@10s a a+")
		if got := s.word("move:30s"); got[0].Verdict != want {
			t.Errorf("under fold %d: %+v", version, got[0])
		}
		s.wantRefolded()
	}
}

// TestANoticeSaysThatTheDeadlineWasMoved, to when, by whom and why.
func TestANoticeSaysThatTheDeadlineWasMoved(t *testing.T) {
	s := newSchedule(t)
	s.play("open@10s a a+")
	s.state.Notices()
	s.play("move:30s")
	got := s.state.Notices()
	if len(got) != 1 || got[0].Agent != "a1" || got[0].DueNs != epoch0+30*second || got[0].By != "ops" ||
		got[0].Reason != "it takes longer" || got[0].State != ledger.StateOpen {
		t.Fatalf("%+v", got)
	}
}

func TestTheStoryOfAMovedDeadline(t *testing.T) {
	runScript(t, filepath.Join("testdata", "acceptance", "moved.txt"), nil)
}
