package door_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// TestAVerdictSaysWhatItUndoes: the action and what came after it, or the whole plan.
func TestAVerdictSaysWhatItUndoes(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	for scope, c := range map[string]struct {
		state string
		undos int
	}{"": {"open", 1}, `,"scope":"action"`: {"open", 1}, `,"scope":"plan"`: {"compensated", 2}} {
		p := fmt.Sprintf("p%d", len(scope))
		l.good(l.post, "tripper", "plan.begin", `{"plan":"`+p+`"}`)
		for _, action := range []string{"a", "b"} {
			l.good(l.post, "tripper", "plan.report",
				`{"plan":"`+p+`","action":"`+action+`","capability":"hotel.book","output":{"booking":"1"}}`)
		}
		l.good(l.post, "boss", "verdict.give",
			`{"id":"`+p+`","plan":"`+p+`","action":"b","verdict":"block","reason":"no"`+scope+`}`)
		if scope != "" {
			l.other(l.post, "boss", "verdict.give", `{"id":"`+p+`","plan":"`+p+`","action":"b","verdict":"block","reason":"no"}`,
				"id", "scope")
		}
		l.shows(p, func(got map[string]any) bool { return len(l.undos(p)) == c.undos && got["state"] == c.state })
	}
}

// TestAVerdictReachesACommittedPlan, and names the plan that undoes it; of what has nothing to undo it
// says so, which its record alone does not.
func TestAVerdictReachesACommittedPlan(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	l.good(l.post, "tripper", "plan.report",
		`{"plan":"p","action":"a","capability":"hotel.book","output":{"booking":"1"}}`)
	got := l.good(l.post, "tripper", "plan.preview", `{"plan":"p","action":"a"}`)
	if undoable, _ := got["undoable"].(map[string]any); undoable["can"] != true || undoable["class"] != "compensable" {
		t.Errorf("%v", got)
	}
	l.good(l.post, "tripper", "plan.act", `{"plan":"p","action":"b","capability":"hotel.book"}`)
	l.good(l.post, "tripper", "plan.outcome", `{"plan":"p","action":"b","outcome":"not_taken","message":"full"}`)
	l.good(l.post, "tripper", "plan.commit", `{"plan":"p"}`)
	for _, c := range []struct {
		action, verdict string
		note            bool
		undoneAs        any
	}{{"a", "allow", false, nil}, {"b", "block", true, nil}, {"a", "block", false, "p~1"},
		{"a", "redirect", false, "p~1"}} {
		given := l.good(l.post, "boss", "verdict.give", `{"plan":"p","action":"`+c.action+`","verdict":"`+
			c.verdict+`","reason":"no"}`)
		if noted := strings.Contains(fmt.Sprint(given["note"]), "plan p is committed"); noted != c.note ||
			given["state"] != "committed" || given["undone_as"] != c.undoneAs {
			t.Errorf("%s of %s: %v", c.verdict, c.action, given)
		}
	}
	for end := time.Now().Add(testenv.Patience); len(l.undos("p~1")) != 1; <-time.After(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(l.undos("p~1"))
		}
	}
}

// TestAPreviewKnowsOfASequence: it waits for what it must know of, and says so if it does not come.
func TestAPreviewKnowsOfASequence(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	a := l.good(l.post, "tripper", "plan.act", `{"plan":"p","action":"a","capability":"hotel.book"}`)
	got := l.good(l.post, "tripper", "plan.preview", fmt.Sprintf(`{"plan":"p","sequence":%v}`, a["sequence"]))
	if steps, _ := got["steps"].([]any); len(steps) != 1 {
		t.Errorf("%v", got)
	}
	l.refused(l.post, "tripper", "plan.preview", `{"plan":"p","sequence":1000000}`, 503, "")
}

// TestOneActionThatWaitsIsShownWhole: an input that is too large for the list is in the answer about
// its action.
func TestOneActionThatWaitsIsShownWhole(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	l.waits("p", `{"plan":"p","action":"a","capability":"hotel.book",`+
		`"review":true,"wait":"100ms","input":{"city":"`+strings.Repeat("o", 9<<10)+`"}}`)
	for request, whole := range map[string]bool{`{}`: false, `{"plan":"p","action":"a"}`: true} {
		got := l.good(l.post, "boss", "review.list", request)
		reviews, _ := got["reviews"].([]any)
		if len(reviews) != 1 {
			t.Fatalf("%s: %v", request, got)
		}
		review, _ := reviews[0].(map[string]any)
		if (review["input"] != nil) != whole || (review["omitted"] != nil) == whole || (review["block"] != nil) != whole {
			t.Errorf("%s: %v", request, review)
		}
	}
	if got := l.good(l.post, "boss", "review.list", `{"plan":"p","action":"1"}`); len(got["reviews"].([]any)) > 0 {
		t.Errorf("by a number, which is no id: %v", got)
	}
}

// TestAVerdictReachesACommittedChild: its root is not committed, so all of the child is undone there, and
// the supervisor is told so. Only of what has not happened it is told that nothing is undone.
func TestAVerdictReachesACommittedChild(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	for i, c := range []struct{ action, scope, note, state string }{
		{"full", "", "has undone nothing", "open"},
		{"a", "", "is undone with all of its child plan in plan ", "open"},
		{"note", "", "is undone with all of its child plan in plan ", "open"},
		{"a", "plan", "is undone with all of its child plan in plan ", "compensated"},
	} {
		root, child := fmt.Sprintf("p%d", i), fmt.Sprintf("c%d", i)
		l.good(l.post, "tripper", "plan.begin", `{"plan":"`+root+`"}`)
		l.good(l.post, "tripper", "plan.begin", `{"plan":"`+child+`","parent":"`+root+`"}`)
		l.good(l.post, "tripper", "plan.report",
			`{"plan":"`+child+`","action":"a","capability":"hotel.book","output":{"booking":"1"}}`)
		l.good(l.post, "tripper", "plan.act", `{"plan":"`+child+`","action":"full","capability":"hotel.book"}`)
		l.good(l.post, "tripper", "plan.outcome", `{"plan":"`+child+`","action":"full","outcome":"not_taken"}`)
		l.good(l.post, "tripper", "plan.act", strings.Replace(stagedNote, `"p"`, `"`+child+`"`, 1))
		l.good(l.post, "tripper", "plan.commit", `{"plan":"`+child+`"}`)
		body := `{"plan":"` + child + `","action":"` + c.action + `","verdict":"block","reason":"no"`
		if c.scope != "" {
			body += `,"scope":"` + c.scope + `"`
		}
		given := l.good(l.post, "boss", "verdict.give", body+"}")
		undone := c.action != "full"
		note, state := fmt.Sprint(given["note"]), given["state"]
		if state == "committed" && (!strings.Contains(note, c.note) || (given["undone_in"] == root) != undone) ||
			state != "committed" && (!undone || given["note"] != nil) {
			t.Errorf("%s of %s: %v", body, root, given)
		}
		if undone {
			l.shows(child, func(got map[string]any) bool { return got["state"] == "compensated" })
		}
		l.shows(root, func(got map[string]any) bool { return got["state"] == c.state })
	}
}
