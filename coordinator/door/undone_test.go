package door_test

import (
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// TestWhatIsUndoneIsNotToldAsDone: plan.act of an action that was undone since says so, of one that
// this process knows and of one that it looks up, and plan.get has it.
func TestWhatIsUndoneIsNotToldAsDone(t *testing.T) {
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	acts := func(action string) string {
		return `{"plan":"p","action":"` + action + `","capability":"hotel.book"}`
	}
	for _, action := range []string{"a", "b"} {
		l.good(l.post, "tripper", "plan.act", acts(action))
		l.good(l.post, "tripper", "plan.outcome",
			`{"plan":"p","action":"`+action+`","outcome":"completed","output":{"booking":"1"}}`)
	}
	l.good(l.post, "boss", "verdict.give", `{"id":"v","plan":"p","action":"b","verdict":"block","reason":"no"}`)
	for end := time.Now().Add(testenv.Patience); ; <-time.After(20 * time.Millisecond) {
		got := l.good(l.post, "tripper", "plan.get", `{"plan":"p"}`)
		list, _ := got["acts"].([]any)
		a, _ := list[0].(map[string]any)
		b, _ := list[1].(map[string]any)
		if got["state"] == "open" && b["undone"] == true && a["undone"] == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(got)
		}
	}
	for _, reopened := range []bool{false, true} {
		if reopened {
			l.stop()
			l.open()
		}
		if got := l.good(l.post, "tripper", "plan.act", acts("a")); got["outcome"] != "completed" {
			t.Errorf("%v", got)
		}
		l.refused(l.post, "tripper", "plan.act", acts("b"), 409, "action")
	}
}
