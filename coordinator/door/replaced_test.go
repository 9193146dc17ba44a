package door_test

import (
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/door"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// TestAnOutcomeOfAReplacedWriterIsNoYes where the action is not its own, or where it says that its
// own has not happened, for the plan's writer may have called it once more: nothing of it is
// recorded. That an action that it has registered has happened still counts.
func TestAnOutcomeOfAReplacedWriterIsNoYes(t *testing.T) {
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p","writer":"one"}`)
	act := `{"plan":"p","action":"a","capability":"hotel.book","input":{"city":"Rome"},"writer":"one"}`
	l.good(l.post, "tripper", "plan.act", act)
	for _, next := range []string{"two", "three"} {
		l.good(l.post, "tripper", "plan.resume", `{"plan":"p","writer":"`+next+`"}`)
	}
	for range 2 {
		e := l.refused(l.post, "tripper", "plan.outcome",
			`{"plan":"p","action":"a","outcome":"completed","output":{"booking":"1"},"writer":"two"}`, 409, "writer")
		if e["stored"] != "nothing" {
			t.Errorf("%v", e)
		}
	}
	l.refused(l.post, "tripper", "plan.outcome",
		`{"plan":"p","action":"a","outcome":"not_taken","writer":"one"}`, 409, "writer")
	l.good(l.post, "tripper", "plan.outcome",
		`{"plan":"p","action":"a","outcome":"completed","output":{"booking":"1"},"writer":"one"}`)
	plan := l.good(l.post, "tripper", "plan.get", `{"plan":"p"}`)
	if got := plan["acts"].([]any)[0].(map[string]any); got["outcome"] != "completed" {
		t.Errorf("recorded: %v", got)
	}
}

// TestAnotherOutcomeOfAReplacedWriterIsNoYes: what the plan's writer has said of its action is said.
func TestAnotherOutcomeOfAReplacedWriterIsNoYes(t *testing.T) {
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p","writer":"one"}`)
	l.good(l.post, "tripper", "plan.act",
		`{"plan":"p","action":"a","capability":"hotel.book","input":{"city":"Rome"},"writer":"one"}`)
	l.good(l.post, "tripper", "plan.resume", `{"plan":"p","writer":"two"}`)
	l.good(l.post, "tripper", "plan.outcome",
		`{"plan":"p","action":"a","outcome":"completed","output":{"booking":"2"},"writer":"two"}`)
	who := door.Caller{Tenant: tenant, Name: "tripper"}
	for end := time.Now().Add(testenv.Patience); !l.door.Superseded(who, "one", "p"); <-time.After(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not hear of it")
		}
	}
	status, answer := l.post("tripper", "plan.outcome",
		`{"plan":"p","action":"a","outcome":"completed","output":{"booking":"1"},"writer":"one"}`)
	if status != 409 {
		t.Errorf("told: %d %v", status, answer)
	}
}
