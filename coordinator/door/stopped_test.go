package door_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestWhatAStopDropsIsToldSoAtOnce: while what is out is waited for, what is staged after it is said to
// be dropped, and not to be delivered: nothing makes it any more.
func TestWhatAStopDropsIsToldSoAtOnce(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	out, hold := make(chan struct{}), make(chan struct{})
	l.publish(contract.Contract{Capability: "card.post", Class: contract.Irreversible,
		Deliver: &contract.Deliver{With: map[string]any{"to": "=input.to"}, Dedupe: time.Hour}})
	if err := l.work.Handle("card.post", func(context.Context, api.Command) (worker.Result, error) {
		close(out)
		<-hold
		return worker.Result{}, nil
	}); err != nil {
		t.Fatal(err)
	}
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	l.good(l.post, "tripper", "plan.act",
		`{"plan":"p","action":"card","capability":"card.post","input":{"to":"cy"},"stage":true}`)
	l.good(l.post, "tripper", "plan.act", stagedNote)
	l.good(l.post, "tripper", "plan.act", stagedLetter)
	l.good(l.post, "tripper", "plan.commit", `{"plan":"p"}`)
	<-out
	l.good(l.post, "boss", "verdict.give", `{"id":"v","plan":"p","action":"letter","verdict":"block","reason":"no"}`)
	s := l.good(l.post, "tripper", "plan.wait", `{"plan":"p","wait":"1ms"}`)
	if d := deliveryOf(s); d["state"] != "delivering" || !reflect.DeepEqual(d["waiting"], []any{"card"}) ||
		!reflect.DeepEqual(d["dropped"], []any{"note", "letter"}) {
		t.Errorf("%v", s)
	}
	for _, plan := range []string{"p", "p~0"} {
		acts := map[string]any{}
		for _, one := range l.good(l.post, "tripper", "plan.get", `{"plan":"`+plan+`"}`)["acts"].([]any) {
			act, _ := one.(map[string]any)
			acts[act["action"].(string)] = act["delivery"]
		}
		want := map[string]any{"card": "delivering", "note": "dropped", "letter": "dropped"}
		if !reflect.DeepEqual(acts, want) {
			t.Errorf("%s: %v", plan, acts)
		}
	}
	close(hold)
	s = l.good(l.post, "tripper", "plan.wait", `{"plan":"p","delivered":true,"wait":"60s"}`)
	if d := deliveryOf(s); !reflect.DeepEqual(d["dropped"], []any{"note", "letter"}) || len(l.undos("p~0")) > 0 {
		t.Errorf("%v, and sent %q", s, l.undos("p~0"))
	}
}
