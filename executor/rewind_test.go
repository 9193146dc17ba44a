package executor_test

import (
	"slices"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// TestAnAgentKnowsOfEveryRewindingThatAnOperatorHasAskedFor: it is a part like any other, whatever
// the agent has undone itself.
func TestAnAgentKnowsOfEveryRewindingThatAnOperatorHasAskedFor(t *testing.T) {
	playAll(t, []scheduled{
		{"another's", "open save:s a a+ undo:s turn !commit commit:1", "committed: a=compensated [a]"},
		{"its own", "open save:s a a+ back:s turn commit", "committed: a=compensated [a]"},
		{"its own, and another's",
			"open save:s a a+ back:s turn b b+ undo:s turn !commit c c+ undo:s turn !commit:1 commit:2",
			"committed: a=compensated b=compensated c=compensated [a b c]"},
		{"another's, asked for twice", "open save:s a a+ undo:s =undo:s turn !commit commit:1",
			"committed: a=compensated [a]"},
		{"another's, and a part", "open save:s a a+ b b+ judge:b=block turn !commit undo:s turn !commit:1 commit:2",
			"committed: a=compensated b=compensated [b a]"},
		{"another's, and then all of it", "open x x+ save:s a a+ undo:s a=lost,done turn undo @20s",
			"compensated: x=compensated a=compensated [a x]"},
	})
	s := newSchedule(t)
	s.play("open save:s a a+ undo:s turn")
	said := slices.DeleteFunc(s.state.Notices(), func(n Notice) bool { return !n.Counted })
	if len(said) != 1 || said[0].Savepoint != "s" || said[0].Parts != 1 || said[0].Reason == "" {
		t.Errorf("%+v", said)
	}
	list := view.NewReader(s.kv, "t", s).PartsAfter("p", 0)
	if len(list) != 1 || list[0].Savepoint != "s" || list[0].Action != "" || list[0].Number != 1 || list[0].At == 0 {
		t.Errorf("%+v", list)
	}
}

// TestAnEarlierHolderCountsNoRewinding: what was committed under it stays so.
func TestAnEarlierHolderCountsNoRewinding(t *testing.T) {
	s := newSchedule(t)
	s.underHolder(ledger.RewindsSince - 1)
	s.play("open save:s a a+ undo:s turn commit")
	s.wantState("p", ledger.StateCommitted, "a=compensated")
}
