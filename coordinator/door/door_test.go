package door_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/door"
)

// ways has a test ask over NATS and over HTTP.
func ways(t *testing.T, test func(t *testing.T, l *live, ask caller, plan string)) {
	l := newLive(t)
	nc := l.as("tripper")
	for name, ask := range map[string]caller{"nats": l.request(nc, "tripper"), "http": l.post} {
		t.Run(name, func(t *testing.T) { test(t, l, ask, "p-"+name) })
	}
}

func TestAPlanGoesFromItsBeginToItsUndo(t *testing.T) {
	ways(t, func(t *testing.T, l *live, ask caller, p string) {
		begin := fmt.Sprintf(`{"plan":%q,"label":"book trip","owner":"travel","deadline":"2h"}`, p)
		for range 2 {
			if a := l.good(ask, "tripper", "plan.begin", begin); a["state"] != "open" || a["deadline_at"] == nil {
				t.Fatalf("begun: %v", a)
			}
		}
		act := fmt.Sprintf(`{"plan":%q,"action":"a","capability":"hotel.book","input":{"city":"Rome","price":10.10}}`, p)
		first := l.good(ask, "tripper", "plan.act", act)
		if first["state"] != "accepted" || len(first["key"].(string)) != 32 || first["number"] != 1.0 ||
			first["repeated"] != nil {
			t.Fatalf("acted: %v", first)
		}
		if again := l.good(ask, "tripper", "plan.act", act); again["key"] != first["key"] || again["repeated"] != true ||
			again["sequence"] != first["sequence"] {
			t.Fatalf("acted again: %v", again)
		}
		outcome := fmt.Sprintf(`{"plan":%q,"action":"a","outcome":"completed","output":{"booking":"b1"}}`, p)
		for range 2 {
			if a := l.good(ask, "tripper", "plan.outcome", outcome); a["outcome"] != "completed" {
				t.Fatalf("told: %v", a)
			}
		}
		if a := l.good(ask, "tripper", "plan.act", act); a["state"] != "recorded" || a["outcome"] != "completed" ||
			fmt.Sprint(a["output"]) != "map[booking:b1]" {
			t.Fatalf("acted after it was done: %v", a)
		}
		l.other(ask, "tripper", "plan.outcome", strings.Replace(outcome, "b1", "b2", 1), "outcome", "output")
		fail := fmt.Sprintf(`{"plan":%q,"reason":"no flight"}`, p)
		for range 2 {
			l.good(ask, "tripper", "plan.fail", fail)
		}
		wait := l.good(ask, "tripper", "plan.wait", fmt.Sprintf(`{"plan":%q}`, p))
		if wait["state"] != "compensated" || wait["ended"] != true {
			t.Fatalf("waited: %v", wait)
		}
		if got := l.undos(p); len(got) != 1 || got[0] != `a {"booking":"b1","city":"Rome"}` {
			t.Fatalf("undone: %q", got)
		}
		l.refused(ask, "tripper", "plan.act", strings.Replace(act, `"a"`, `"b"`, 1), 409, "")
		l.refused(ask, "tripper", "plan.commit", fmt.Sprintf(`{"plan":%q}`, p), 409, "plan")
	})
}

// steps of a plan, each with what it answers once and again: a state or an outcome.
func steps(p string) []struct{ verb, body, key, want, again string } {
	q := fmt.Sprintf("%q", p)
	return []struct{ verb, body, key, want, again string }{
		{"plan.begin", `{"plan":` + q + `,"owner":"travel","deadline":"2h","labels":{"a":"b"}}`, "state", "open", "open"},
		{"plan.act", `{"plan":` + q + `,"action":"a","capability":"hotel.book","input":{"city":"Rome"}}`, "state", "accepted", "accepted"},
		{"plan.outcome", `{"plan":` + q + `,"action":"a","outcome":"completed","output":{"booking":"1"},"external_ref":"r"}`, "outcome", "completed", "completed"},
		{"plan.act", `{"plan":` + q + `,"action":"a","capability":"hotel.book","input":{"city":"Rome"}}`, "state", "recorded", "recorded"},
		{"plan.savepoint", `{"plan":` + q + `,"savepoint":"booked"}`, "actions", "1", "1"},
		{"plan.act", `{"plan":` + q + `,"action":"b","capability":"file.write","input":{"path":"x"}}`, "number", "2", "2"},
		{"plan.outcome", `{"plan":` + q + `,"action":"b","outcome":"in_doubt","message":"no answer"}`, "outcome", "in_doubt", "in_doubt"},
		{"plan.outcome", `{"plan":` + q + `,"action":"b","outcome":"completed"}`, "outcome", "completed", "completed"},
		{"plan.unwind_to", `{"plan":` + q + `,"savepoint":"booked","number":1,"reason":"the wrong file"}`, "state", "open", "open"},
		{"plan.act", `{"plan":` + q + `,"action":"c","capability":"hotel.book","input":{"city":"Bari"}}`, "number", "3", "3"},
		{"plan.outcome", `{"plan":` + q + `,"action":"c","outcome":"not_taken","message":"full"}`, "outcome", "failed", "failed"},
		{"plan.report", `{"plan":` + q + `,"action":"d","capability":"hotel.book","input":{"city":"Pisa"},"output":{"booking":"4"}}`, "state", "recorded", "recorded"},
		{"plan.act", `{"plan":` + q + `,"action":"e","capability":"page.read"}`, "state", "accepted", "accepted"},
		{"plan.outcome", `{"plan":` + q + `,"action":"e","outcome":"completed","output":[1]}`, "outcome", "completed", "completed"},
	}
}

// TestAHostThatDiesBetweenTwoStepsLeavesNothingByHalf: after each step the door forgets all that it
// knows, and the step is repeated, before the crash or after it.
func TestAHostThatDiesBetweenTwoStepsLeavesNothingByHalf(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	for name, repeat := range map[string][2]bool{"after": {false, true}, "before": {true, false},
		"both": {true, true}, "none": {}} {
		for _, end := range []string{"plan.commit", "plan.fail", "plan.cancel"} {
			p := name + "-" + end[5:]
			for i, s := range steps(p) {
				a := l.good(l.post, "tripper", s.verb, s.body)
				if got := fmt.Sprint(a[s.key]); got != s.want {
					t.Fatalf("%s, step %d, %s: %v, want %s", p, i, s.verb, a, s.want)
				}
				for _, crash := range []bool{false, true} {
					if crash {
						l.crash()
					}
					if !crash && !repeat[0] || crash && !repeat[1] {
						continue
					}
					again := l.good(l.post, "tripper", s.verb, s.body)
					if got := fmt.Sprint(again[s.key]); got != s.again || fmt.Sprint(a["key"]) != fmt.Sprint(again["key"]) {
						t.Fatalf("%s, step %d, %s again: %v, want %s as in %v", p, i, s.verb, again, s.again, a)
					}
				}
			}
			want := map[string]string{"plan.commit": "committed", "plan.fail": "compensated", "plan.cancel": "compensated"}[end]
			for range 2 {
				l.good(l.post, "tripper", end, fmt.Sprintf(`{"plan":%q}`, p))
				l.crash()
			}
			if a := l.good(l.post, "tripper", "plan.wait", fmt.Sprintf(`{"plan":%q}`, p)); a["state"] != want {
				t.Fatalf("%s: %v", p, a)
			}
			wantUndone := []string{`b {"before":{"text":"10.10"}}`}
			if end != "plan.commit" {
				wantUndone = append(wantUndone, `d {"booking":"4","city":"Pisa"}`, `a {"booking":"1","city":"Rome"}`)
			}
			if got := l.undos(p); fmt.Sprint(got) != fmt.Sprint(wantUndone) {
				t.Errorf("%s: undone %q, want %q", p, got, wantUndone)
			}
			plan := l.good(l.post, "tripper", "plan.get", fmt.Sprintf(`{"plan":%q}`, p))
			if n := len(plan["acts"].([]any)); n != 5 {
				t.Errorf("%s: %d actions", p, n)
			}
		}
	}
}

// TestAPartThatWasUndoneIsToldOnce, and the request may be made again.
func TestAPartThatWasUndoneIsToldOnce(t *testing.T) {
	e := door.Explain(fmt.Errorf("cannot commit: %w", &coordinator.PartUndone{Plan: "p", Action: "b"}))
	if e.Status != http.StatusConflict || e.Stored != door.StoredNothing ||
		!strings.Contains(e.Want, "the same request again") {
		t.Errorf("%+v", e)
	}
}
