package door_test

import (
	"fmt"
	"net/http/httptest"
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

// TestTheNextWriterMayKnowBetter: an earlier process has said that an action did not happen, and the
// one that goes on with the plan may have called its tool again, or found what it did. Of what it has
// said itself a doubt takes nothing back, also once its door was started again.
func TestTheNextWriterMayKnowBetter(t *testing.T) {
	l := newLive(t)
	tells := func(action, outcome, writer string) string {
		return `{"plan":"p","action":"` + action + `","outcome":` + outcome + `,"writer":"` + writer + `"}`
	}
	const booked = `"completed","output":{"booking":"1"}`
	refused := func(action, writer string) {
		t.Helper()
		e := l.refused(l.post, "tripper", "plan.outcome", tells(action, `"in_doubt"`, writer), 409, "outcome")
		if e["stored"] != "nothing" {
			t.Errorf("%v", e)
		}
	}
	recorded := func(want ...string) {
		t.Helper()
		plan := l.good(l.post, "tripper", "plan.get", `{"plan":"p"}`)
		for i, a := range plan["acts"].([]any) {
			if got := a.(map[string]any)["outcome"]; got != want[i] {
				t.Errorf("action %d: %v, want %s", i, got, want[i])
			}
		}
	}
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p","writer":"one"}`)
	for _, action := range []string{"a", "b"} {
		l.good(l.post, "tripper", "plan.act", `{"plan":"p","action":"`+action+
			`","capability":"hotel.book","input":{"city":"Rome"},"writer":"one"}`)
		l.good(l.post, "tripper", "plan.outcome", tells(action, `"not_taken"`, "one"))
		refused(action, "one")
	}
	l.good(l.post, "tripper", "plan.resume", `{"plan":"p","writer":"two"}`)
	recorded("failed", "failed")
	for range 2 {
		l.good(l.post, "tripper", "plan.outcome", tells("a", `"in_doubt"`, "two"))
		l.good(l.post, "tripper", "plan.outcome", tells("b", booked, "two"))
	}
	recorded("in_doubt", "completed")
	l.good(l.post, "tripper", "plan.outcome", tells("a", `"not_taken"`, "two"))
	refused("a", "two")
	refused("b", "two")
	l.crash()
	l.good(l.post, "tripper", "plan.resume", `{"plan":"p","writer":"two"}`)
	refused("a", "two")
	recorded("failed", "completed")
}

// TestAReplacedWriterOutlivesItsDoor: what its own action has done is taken from it also where the door
// was started again meanwhile; of another's action, and that its own has not happened, it is not.
func TestAReplacedWriterOutlivesItsDoor(t *testing.T) {
	l := newLive(t)
	tells := func(action, outcome string) string {
		return `{"plan":"p","action":"` + action + `","outcome":` + outcome + `,"writer":"one"}`
	}
	act := func(action, writer string) {
		l.good(l.post, "tripper", "plan.act", `{"plan":"p","action":"`+action+
			`","capability":"hotel.book","input":{"city":"Rome"},"writer":"`+writer+`"}`)
	}
	const booked = `"completed","output":{"booking":"1"}`
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p","writer":"one"}`)
	act("a", "one")
	act("b", "one")
	l.good(l.post, "tripper", "plan.resume", `{"plan":"p","writer":"two"}`)
	act("c", "two")
	l.crash()
	l.refused(l.post, "tripper", "plan.outcome", tells("a", `"not_taken"`), 409, "writer")
	l.refused(l.post, "tripper", "plan.outcome", tells("c", booked), 409, "writer")
	l.refused(l.post, "tripper", "plan.outcome", tells("d", booked), 409, "writer")
	for range 2 {
		l.good(l.post, "tripper", "plan.outcome", tells("a", booked))
		l.good(l.post, "tripper", "plan.outcome", tells("b", `"in_doubt"`))
	}
	l.refused(l.post, "tripper", "plan.outcome", tells("a", `"completed","output":{"booking":"2"}`), 409, "outcome")
	plan := l.good(l.post, "tripper", "plan.get", `{"plan":"p"}`)
	for i, want := range []string{"completed", "in_doubt", "unknown"} {
		if got := plan["acts"].([]any)[i].(map[string]any)["outcome"]; got != want {
			t.Errorf("action %d: %v, want %s", i, got, want)
		}
	}
	l.refused(l.post, "tripper", "plan.commit", `{"plan":"p","writer":"one"}`, 409, "writer")
}

// beside is another door of the same server, as another host has one.
func (l *live) beside() *live {
	l.t.Helper()
	other := &live{t: l.t, server: l.server, users: l.users, root: l.root}
	other.web = door.NewWeb(door.WebConfig{Version: "test", Users: l.users})
	l.t.Cleanup(other.web.Close)
	other.http = httptest.NewServer(other.web.Handler())
	l.t.Cleanup(other.http.Close)
	other.open()
	l.t.Cleanup(func() { other.stop() })
	return other
}

// TestWhatAReplacedWriterHasDoneIsDone for the writer that now has its plan and has asked to act, at the
// door that is told of it, also where that was started again meanwhile, and at another one: it gets the
// result and commits, and nothing is recorded twice.
func TestWhatAReplacedWriterHasDoneIsDone(t *testing.T) {
	for _, c := range []struct{ name, next string }{{"at once", "plan.act"}, {"at once", "plan.commit"},
		{"a door that was started again", "plan.act"}, {"another door", "plan.act"}, {"another door", "plan.commit"}} {
		one := newLive(t)
		two := one
		if c.name == "another door" {
			two = one.beside()
		}
		act := func(writer string) string {
			return `{"plan":"p","action":"a","capability":"hotel.book","input":{"city":"Rome"},"writer":"` + writer + `"}`
		}
		one.good(one.post, "tripper", "plan.begin", `{"plan":"p","writer":"one"}`)
		key := one.good(one.post, "tripper", "plan.act", act("one"))["key"]
		if c.name == "a door that was started again" {
			one.crash()
		}
		two.good(two.post, "tripper", "plan.resume", `{"plan":"p","writer":"two"}`)
		for range 2 {
			got := two.good(two.post, "tripper", "plan.act", act("two"))
			if got["state"] != "accepted" || got["repeated"] != true || got["key"] != key {
				t.Fatalf("%s: %v", c.name, got)
			}
		}
		one.good(one.post, "tripper", "plan.outcome", `{"plan":"p","action":"a","outcome":"completed",
			"output":{"booking":"late"},"external_ref":"L1","writer":"one"}`)
		if c.next == "plan.act" {
			got := two.good(two.post, "tripper", "plan.act", act("two"))
			if got["state"] != "recorded" || got["outcome"] != "completed" || fmt.Sprint(got["output"]) != "map[booking:late]" {
				t.Errorf("%s: %v", c.name, got)
			}
			two.refused(two.post, "tripper", "plan.outcome",
				`{"plan":"p","action":"a","outcome":"in_doubt","writer":"two"}`, 409, "outcome")
			two.good(two.post, "tripper", "plan.outcome", `{"plan":"p","action":"a","outcome":"completed",
				"output":{"booking":"late"},"external_ref":"L1","writer":"two"}`)
		}
		if got := two.good(two.post, "tripper", "plan.commit", `{"plan":"p","writer":"two"}`); got["state"] != "committed" {
			t.Errorf("%s: %v", c.name, got)
		}
		if n := one.records()["forward_completed"]; n != 1 {
			t.Errorf("%s: told %d times", c.name, n)
		}
	}
}
