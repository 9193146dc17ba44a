package door_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
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
	l.hasUndone("p", "b")
	for _, reopened := range []bool{false, true} {
		if reopened {
			l.stop()
			l.open()
			l.refused(l.post, "tripper", "plan.act", acts("a"), 409, "") // that b was undone
		}
		if got := l.good(l.post, "tripper", "plan.act", acts("a")); got["outcome"] != "completed" {
			t.Errorf("%v", got)
		}
		l.refused(l.post, "tripper", "plan.act", acts("b"), 409, "action")
	}
}

// TestACommitOfWhatWasUndoneIsRefusedAfterARestartToo: whether an agent has heard that a part of its
// plan was undone is known to no one once its door has gone, and it is told before it commits, or
// adds to the plan, once by each process.
func TestACommitOfWhatWasUndoneIsRefusedAfterARestartToo(t *testing.T) {
	for _, next := range []string{"plan.commit", "plan.act"} {
		for _, heard := range []bool{false, true} {
			l := newLive(t)
			l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
			for _, action := range []string{"a", "b"} {
				l.good(l.post, "tripper", "plan.report", `{"plan":"p","action":"`+action+
					`","capability":"hotel.book","output":{"booking":"1"}}`)
			}
			l.good(l.post, "boss", "verdict.give", `{"id":"v","plan":"p","action":"b","verdict":"block","reason":"no"}`)
			l.hasUndone("p", "b")
			body := `{"plan":"p"}`
			if next == "plan.act" {
				body = `{"plan":"p","action":"c","capability":"hotel.book"}`
			}
			if heard {
				l.refused(l.post, "tripper", next, body, 409, "")
			}
			l.stop()
			l.open()
			if e := l.refused(l.post, "tripper", next, body, 409, ""); !strings.Contains(
				fmt.Sprint(e), "action b and what came after it (verdict block on action b by boss: no)") {
				t.Errorf("%s: %v", next, e)
			}
			l.good(l.post, "tripper", next, body)
		}
	}
}

// hasUndone waits until an action of a plan was undone, and the plan is open again.
func (l *live) hasUndone(plan, action string) {
	l.t.Helper()
	l.shows(plan, func(got map[string]any) bool {
		list, _ := got["acts"].([]any)
		var gone []string
		for _, one := range list {
			if act, _ := one.(map[string]any); act["undone"] == true {
				gone = append(gone, fmt.Sprint(act["action"]))
			}
		}
		return got["state"] == "open" && slices.Equal(gone, []string{action})
	})
}
