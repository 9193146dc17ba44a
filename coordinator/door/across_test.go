package door_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator"
)

// TestAPlanGoesBetweenTheDoorAndAProcessBesideIt, whose account at the server is another one: neither
// is asked to let the plan go, and of the two one acts.
func TestAPlanGoesBetweenTheDoorAndAProcessBesideIt(t *testing.T) {
	l := newLive(t)
	beside, err := coordinator.New(coordinator.Config{Conn: l.as("tripper"), Tenant: tenant, Agent: "tripper",
		Writer: "beside", Published: true, Accepted: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = beside.Close(context.Background()) })
	ran := 0
	do := func(p *coordinator.Plan, action string) error {
		_, err := p.Do(t.Context(), coordinator.Action{ID: action, Capability: "hotel.book",
			Input: map[string]string{"city": "Rome"}},
			func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
				ran++
				return coordinator.Outcome{}, nil
			})
		return err
	}
	p, err := beside.Begin(t.Context(), coordinator.PlanSpec{ID: "p"})
	if err == nil {
		err = do(p, "a")
	}
	if err != nil {
		t.Fatal(err)
	}
	resumed := l.good(l.post, "tripper", "plan.resume", `{"plan":"p","writer":"one"}`)
	if a := resumed["acts"].([]any)[0].(map[string]any); a["outcome"] != "completed" {
		t.Errorf("resumed: %v", resumed)
	}
	if err := do(p, "b"); !errors.Is(err, coordinator.ErrSuperseded) || ran != 1 {
		t.Errorf("the process that had the plan: %d forwards, %v", ran, err)
	}
	l.good(l.post, "tripper", "plan.commit", `{"plan":"p","writer":"one"}`)

	act := func(action string) string {
		return `{"plan":"q","action":"` + action + `","capability":"hotel.book","input":{"city":"Rome"},"writer":"one"}`
	}
	l.good(l.post, "tripper", "plan.begin", `{"plan":"q","writer":"one"}`)
	l.good(l.post, "tripper", "plan.act", act("a"))
	q, err := beside.Resume(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	l.refused(l.post, "tripper", "plan.act", act("b"), 409, "writer")
	l.good(l.post, "tripper", "plan.outcome", `{"plan":"q","action":"a","outcome":"completed","writer":"one"}`)
	if err := do(q, "c"); err != nil || ran != 2 {
		t.Errorf("the process that has the plan: %d forwards, %v", ran, err)
	}
	if err := q.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}
