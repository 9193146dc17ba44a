package door_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestAVerdictThatIsRefusedSaysWhatIsSo: its record is in the ledger, without effect, and the field is
// what is wrong.
func TestAVerdictThatIsRefusedSaysWhatIsSo(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	l.good(l.post, "tripper", "plan.act", stagedNote)
	l.good(l.post, "tripper", "plan.commit", `{"plan":"p"}`)
	l.good(l.post, "tripper", "plan.wait", `{"plan":"p","delivered":true,"wait":"60s"}`)
	for _, c := range []struct{ plan, action, field, problem string }{
		{"p", "note", "verdict", ""},
		{"p", "none", "action", "action none is not registered"},
		{"nope", "note", "plan", "nope"},
	} {
		before := l.records()["verdict_given"]
		e := l.refused(l.post, "boss", "verdict.give", fmt.Sprintf(
			`{"plan":%q,"action":%q,"verdict":"block","reason":"no","scope":"plan"}`, c.plan, c.action), 422, c.field)
		stored := l.records()["verdict_given"] - before
		if e["stored"] != "all" || stored != 1 || !strings.Contains(fmt.Sprint(e["problem"]), c.problem) ||
			c.field == "verdict" && strings.Contains(fmt.Sprint(e["want"]), "registered") {
			t.Errorf("%v, and %d stored", e, stored)
		}
	}
	for _, verb := range []string{"fact.put", "fact.retract"} {
		body := `{"key":"k","value":1,"plan":"p","action":"none"}`
		if verb == "fact.retract" {
			body = `{"key":"k","plan":"p","action":"none"}`
		}
		if e := l.refused(l.post, "scanner", verb, body, 422, "action"); e["stored"] != "all" {
			t.Errorf("%s: %v", verb, e)
		}
	}
}

// TestANameThatIsGivenTwiceIsRefusedAtAnyDepth: readers take the one value or the other.
func TestANameThatIsGivenTwiceIsRefusedAtAnyDepth(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	for _, c := range []struct{ user, verb, body, field string }{
		{"tripper", "plan.act", `"plan":"p","action":"a","capability":"hotel.book","input":{"path":"a","path":"b"}`,
			"input.path"},
		{"tripper", "plan.act", `"plan":"p","action":"a","capability":"hotel.book","input":{"x":[1e999,{"a":1,"\u0061":2}]}`,
			"input.x[1].a"},
		{"tripper", "plan.report", `"plan":"p","action":"a","capability":"hotel.book","input":{"x":{"a":1,"a":1}}`,
			"input.x.a"},
		{"tripper", "plan.begin", `"plan":"q","input":{"a":{"b":1,"b":2}}`, "input.a.b"},
		{"scanner", "fact.put", `"key":"k","value":{"a":1,"a":2}`, "value.a"},
	} {
		e := l.refused(l.post, c.user, c.verb, "{"+c.body+"}", 422, c.field)
		if e["problem"] != "given twice" || e["stored"] != "nothing" {
			t.Errorf("%s: %v", c.body, e)
		}
	}
	l.good(l.post, "tripper", "plan.act",
		`{"plan":"p","action":"a","capability":"hotel.book","input":{"x":[{"a":1},{"a":2}],"a":{"x":null}}}`)
	// What has happened is told, however its tool writes it, and no undo reads it.
	got := l.good(l.post, "tripper", "plan.outcome",
		`{"plan":"p","action":"a","outcome":"completed","output":{"booking":"1","booking":"2"}}`)
	if problem, _ := got["problem"].(string); !strings.Contains(problem, `a name is given twice at ".booking"`) {
		t.Errorf("%v", got)
	}
	acts, _ := l.good(l.post, "tripper", "plan.get", `{"plan":"p"}`)["acts"].([]any)
	if act, _ := acts[0].(map[string]any); act["incomplete"] != true || act["output"] != nil {
		t.Errorf("%v", acts)
	}
}
