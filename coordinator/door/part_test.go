package door_test

import (
	"reflect"
	"testing"
)

// TestAPartHasItsActsStagedUntilItsRootCommits, and its answers name no plan that delivers them. One that
// waits for the deliveries waits for that commit, too.
func TestAPartHasItsActsStagedUntilItsRootCommits(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"root"}`)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p","parent":"root"}`)
	l.good(l.post, "tripper", "plan.act", stagedNote)
	for _, verb := range []string{"plan.commit", "plan.wait"} {
		want := map[string]any{"state": "staged", "waiting": []any{"note"}}
		if s := l.good(l.post, "tripper", verb, `{"plan":"p"}`); !reflect.DeepEqual(s["delivery"], want) {
			t.Errorf("%s: %v", verb, s)
		}
	}
	s := l.good(l.post, "tripper", "plan.wait", `{"plan":"p","delivered":true,"wait":"50ms"}`)
	if deliveryOf(s)["state"] != "staged" {
		t.Errorf("%v", s)
	}
	l.good(l.post, "tripper", "plan.commit", `{"plan":"root"}`)
	s = l.good(l.post, "tripper", "plan.wait", `{"plan":"p","delivered":true,"wait":"60s"}`)
	if d := deliveryOf(s); d["state"] != "delivered" || !reflect.DeepEqual(d["delivered"], []any{"note"}) {
		t.Errorf("%v", s)
	}
}
