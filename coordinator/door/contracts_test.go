package door_test

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
)

// TestAContractReachesAnAgentThatIsBusy: what is published while it acts counts for its next plan at once,
// and within a moment for the actions of one that is open.
func TestAContractReachesAnAgentThatIsBusy(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	l.good(l.post, "tripper", "plan.act", `{"plan":"p","action":"a","capability":"page.read"}`)
	l.publish(contract.Contract{Capability: "page.read", Class: contract.Effectless, Review: true})
	l.good(l.post, "tripper", "plan.begin", `{"plan":"q"}`)
	if a := l.good(l.post, "tripper", "plan.act",
		`{"plan":"q","action":"a","capability":"page.read","wait":"100ms"}`); a["state"] != "waiting" {
		t.Errorf("in a new plan: %v", a)
	}
	if a := l.good(l.post, "tripper", "plan.act",
		`{"plan":"p","action":"b","capability":"page.read","wait":"100ms"}`); a["state"] != "waiting" {
		t.Errorf("in the plan that is open: %v", a)
	}
	if a := l.good(l.post, "tripper", "plan.act", `{"plan":"p","action":"a","capability":"page.read"}`); a["state"] !=
		"accepted" {
		t.Errorf("registered before: %v", a)
	}
}
