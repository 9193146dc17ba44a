package door_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestAnActionThatIsGivenUpBeforeItIsCalled keeps its plan from nothing: while it waits for a verdict its
// process may say that it was not called, or that it does not know. It is not called any more, whatever
// the verdict, and the supervisor is not asked for one.
func TestAnActionThatIsGivenUpBeforeItIsCalled(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, l *live, ask caller, p string) {
		for _, c := range []struct{ tells, outcome string }{{"not_taken", "failed"}, {"in_doubt", "in_doubt"}} {
			p := p + "-" + c.tells
			l.good(ask, "tripper", "plan.begin", fmt.Sprintf(`{"plan":%q}`, p))
			act := fmt.Sprintf(`{"plan":%q,"action":"a","capability":"hotel.book","input":{"city":"Rome"},"review":true`, p)
			told := fmt.Sprintf(`{"plan":%q,"action":"a","outcome":%q,"message":"the caller has left"}`, p, c.tells)
			if a := l.good(ask, "tripper", "plan.act", act+`,"wait":"1ms"}`); a["state"] != "waiting" {
				t.Fatalf("%v", a)
			}
			for range 2 {
				if o := l.good(ask, "tripper", "plan.outcome", told); o["outcome"] != c.outcome {
					t.Errorf("%v", o)
				}
			}
			a := l.good(ask, "tripper", "plan.act", act+"}")
			if a["state"] != "recorded" || a["outcome"] != c.outcome || a["message"] != "the caller has left" {
				t.Errorf("asked again: %v", a)
			}
			given := l.good(l.post, "boss", "verdict.give", fmt.Sprintf(`{"plan":%q,"action":"a","verdict":"allow"}`, p))
			if note, _ := given["note"].(string); (c.outcome == "failed") != strings.Contains(note, "a has failed") {
				t.Errorf("allowed too late: %v", given)
			}
			if r := l.good(l.post, "boss", "review.list", `{}`)["reviews"]; len(r.([]any)) != 0 {
				t.Errorf("a verdict is still wanted: %v", r)
			}
			l.crash()
			if a := l.good(ask, "tripper", "plan.act", act+"}"); a["state"] != "recorded" || a["outcome"] != c.outcome {
				t.Errorf("asked another door: %v", a)
			}
			if c.outcome == "failed" {
				l.good(ask, "tripper", "plan.commit", fmt.Sprintf(`{"plan":%q}`, p))
			}
		}
	})
}

// TestAnActionIsGivenUpWhileItIsRegistered: what was there before is still asked for when its process says
// so, and the answer counts once it is.
func TestAnActionIsGivenUpWhileItIsRegistered(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	hold := make(chan struct{})
	l.publish(contract.Contract{Capability: "slow.write", Class: contract.Compensable,
		Before:  &contract.Before{Call: "slow.read", With: map[string]any{"path": "=input.path"}},
		Inverse: &contract.Inverse{Call: "file.restore", With: map[string]any{"before": "=before"}}})
	if err := l.work.Answer("slow.read", func(context.Context, api.Command) (worker.Answer, error) {
		<-hold
		return worker.Answer{Output: json.RawMessage(`{"text":"10.10"}`)}, nil
	}); err != nil {
		t.Fatal(err)
	}
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	const act = `{"plan":"p","action":"a","capability":"slow.write","input":{"path":"x"},"review":true,"wait":"1ms"}`
	if a := l.good(l.post, "tripper", "plan.act", act); a["state"] != "waiting" {
		t.Fatalf("%v", a)
	}
	told := make(chan map[string]any)
	go func() { // ends with the answer
		_, answer := l.post("tripper", "plan.outcome", `{"plan":"p","action":"a","outcome":"not_taken"}`)
		told <- answer
	}()
	l.good(l.post, "tripper", "plan.act", act)
	close(hold)
	if o := <-told; o["outcome"] != "failed" {
		t.Errorf("%v", o)
	}
	l.good(l.post, "tripper", "plan.commit", `{"plan":"p"}`)
}

// TestAPartOfNoPlanIsRefused, and the refusal names the parent, whenever it is asked for.
func TestAPartOfNoPlanIsRefused(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, l *live, ask caller, p string) {
		begin := fmt.Sprintf(`{"plan":%q,"parent":"no-such-plan"}`, p)
		for range 2 {
			for range 2 {
				e := l.refused(ask, "tripper", "plan.begin", begin, 422, "parent")
				if e["problem"] != "its parent plan no-such-plan was never opened" {
					t.Errorf("%v", e)
				}
			}
			l.crash()
		}
	})
}
