package door_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// undoneBy names the actions of a plan that plan.get says to be undone.
func undoneBy(plan map[string]any) (names []string) {
	acts, _ := plan["acts"].([]any)
	for _, one := range acts {
		if act, _ := one.(map[string]any); act["undone"] == true {
			names = append(names, fmt.Sprint(act["action"]))
		}
	}
	return names
}

// undoneLater commits plan p with the actions a and b, and has b undone by p~1.
func undoneLater(l *live) {
	l.t.Helper()
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p","label":"book"}`)
	for _, action := range []string{"a", "b"} {
		l.good(l.post, "tripper", "plan.report", `{"plan":"p","action":"`+action+
			`","capability":"hotel.book","output":{"booking":"1"}}`)
	}
	l.good(l.post, "tripper", "plan.commit", `{"plan":"p"}`)
	l.good(l.post, "boss", "verdict.give", `{"plan":"p","action":"b","verdict":"block","reason":"no"}`)
	for end := time.Now().Add(testenv.Patience); len(l.undos("p~1")) != 1; <-time.After(20 * time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatal(l.undos("p~1"))
		}
	}
}

// TestACommittedPlanThatWasUndoneSaysSo in every answer about it, also of a door that has forgotten it.
func TestACommittedPlanThatWasUndoneSaysSo(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	undoneLater(l)
	l.good(l.post, "tripper", "plan.wait", `{"plan":"p~1"}`)
	for _, when := range []string{"at once", "after a crash"} {
		for _, verb := range []string{"plan.get", "plan.wait", "plan.commit", "plan.resume"} {
			got := l.good(l.post, "tripper", verb, `{"plan":"p"}`)
			if got["state"] != "committed" || got["ended"] != true || got["undone_as"] != "p~1" {
				t.Errorf("%s, %s: %v", when, verb, got)
			}
			if acts := undoneBy(got); got["acts"] != nil && !slices.Equal(acts, []string{"b"}) {
				t.Errorf("%s, %s: undone are %v", when, verb, acts)
			}
		}
		l.crash()
	}
}

// TestThePlanThatUndoesIsReadByItsAgent, and by no other one; no request writes it.
func TestThePlanThatUndoesIsReadByItsAgent(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	undoneLater(l)
	if got := l.good(l.post, "tripper", "plan.wait", `{"plan":"p~1"}`); got["state"] != "compensated" {
		t.Errorf("plan.wait: %v", got)
	}
	got := l.good(l.post, "tripper", "plan.get", `{"plan":"p~1"}`)
	origin := l.good(l.post, "tripper", "plan.get", `{"plan":"p"}`)
	if got["state"] != "compensated" || got["ended"] != true || !slices.Equal(undoneBy(got), []string{"b"}) {
		t.Errorf("plan.get: %v", got)
	}
	for _, field := range []string{"action", "key"} {
		if now, was := keysOf(got, field), keysOf(origin, field); now != was {
			t.Errorf("%s of the acts: %s, in the plan that is undone %s", field, now, was)
		}
	}
	l.good(l.post, "tripper", "plan.preview", `{"plan":"p~1"}`)
	if status, text := l.stream("tripper", "p~1"); status != 200 || !strings.Contains(text, `"state":"compensated"`) {
		t.Errorf("events: %d %s", status, text)
	}
	if status, text := l.stream("other", "p~1"); status != 422 {
		t.Errorf("events of another agent: %d %s", status, text)
	}
	for _, verb := range []string{"plan.get", "plan.wait", "plan.preview"} {
		l.refused(l.post, "other", verb, `{"plan":"p~1"}`, 422, "plan")
		l.refused(l.post, "tripper", verb, `{"plan":"p~2"}`, 422, "plan")
		l.refused(l.post, "tripper", verb, `{"plan":"p~"}`, 422, "plan")
	}
	before := l.records()
	for verb, body := range writes("p~1", 1) {
		l.refused(l.post, "tripper", verb, body, 422, "plan")
	}
	l.refused(l.post, "tripper", "plan.resume", `{"plan":"p~1"}`, 422, "plan")
	if after := l.records(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("stored %v, and before %v", after, before)
	}
}

// TestThePlanThatDeliversIsReadByItsAgent, which hears its id in delivery.
func TestThePlanThatDeliversIsReadByItsAgent(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	l.good(l.post, "tripper", "plan.act", stagedNote)
	l.good(l.post, "tripper", "plan.commit", `{"plan":"p"}`)
	s := l.good(l.post, "tripper", "plan.wait", `{"plan":"p","delivered":true,"wait":"60s"}`)
	plan := fmt.Sprint(deliveryOf(s)["plan"])
	for _, verb := range []string{"plan.get", "plan.wait"} {
		if got := l.good(l.post, "tripper", verb, fmt.Sprintf(`{"plan":%q}`, plan)); got["ended"] != true {
			t.Errorf("%s: %v", verb, got)
		}
	}
	l.refused(l.post, "other", "plan.get", fmt.Sprintf(`{"plan":%q}`, plan), 422, "plan")
}

// keysOf are the values of a field of the acts of a plan.
func keysOf(plan map[string]any, field string) string {
	var found []string
	acts, _ := plan["acts"].([]any)
	for _, one := range acts {
		act, _ := one.(map[string]any)
		found = append(found, fmt.Sprint(act[field]))
	}
	slices.Sort(found)
	return strings.Join(found, " ")
}

// stream reads the events of a plan that has ended.
func (l *live) stream(user, plan string) (status int, text string) {
	l.t.Helper()
	r, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet,
		l.http.URL+"/v1/"+tenant+"/"+user+"/plans/"+plan+"/events", nil)
	if err != nil {
		l.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+l.token(user))
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
