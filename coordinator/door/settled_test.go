package door_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// lost has the tool of an action give no answer.
func (l *live) lost(plan, action, capability, input string) {
	l.t.Helper()
	l.good(l.post, "tripper", "plan.act",
		fmt.Sprintf(`{"plan":%q,"action":%q,"capability":%q,"input":%s}`, plan, action, capability, input))
	l.good(l.post, "tripper", "plan.outcome",
		fmt.Sprintf(`{"plan":%q,"action":%q,"outcome":"in_doubt","message":"no answer"}`, plan, action))
}

// TestAnAgentWaitsUntilItIsKnown whether what is in doubt has happened, and hears of what nothing asks
// about; of a plan that is being undone, or was, it does not wait.
func TestAnAgentWaitsUntilItIsKnown(t *testing.T) {
	l := newLive(t)
	l.hold = make(chan struct{})
	defer close(l.hold)
	waits := func(plan, wait string) map[string]any {
		t.Helper()
		return l.good(l.post, "tripper", "plan.wait", `{"plan":"`+plan+`","settled":true,"wait":"`+wait+`"}`)
	}
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	if got := waits("p", "20s"); got["settled"] != true || got["state"] != "open" || got["unknown"] != nil {
		t.Errorf("nothing is in doubt: %v", got)
	}
	l.lost("p", "a", "seat.hold", `{"seat":"12A"}`)
	if got := waits("p", "20s"); got["settled"] != true || got["unknown"] != nil || got["doubts"] != nil {
		t.Errorf("it is there: %v", got)
	}
	l.lost("p", "b", "mail.send", `{"to":"ann"}`)
	got := waits("p", "20s")
	if text := fmt.Sprint(got["unknown"]); got["settled"] != true || !strings.Contains(text, "action:b") ||
		!strings.Contains(text, "no probe") {
		t.Errorf("nothing asks about it: %v", got)
	}
	l.lost("p", "c", "seat.hold", `{"seat":"none"}`)
	if got = waits("p", "1ms"); got["settled"] != nil || !strings.Contains(fmt.Sprint(got["doubts"]), "action:c") ||
		!strings.Contains(fmt.Sprint(got["unknown"]), "action:b") || got["state"] != "open" {
		t.Errorf("it is asked about: %v", got)
	}
	l.refused(l.post, "tripper", "plan.wait", `{"plan":"p","settled":true,"delivered":true}`, 422, "settled")
	l.refused(l.post, "tripper", "plan.wait", `{"plan":"none","settled":true}`, 422, "plan")
	l.refused(l.post, "other", "plan.wait", `{"plan":"p","settled":true}`, 422, "plan")

	l.good(l.post, "tripper", "plan.begin", `{"plan":"q"}`)
	l.lost("q", "a", "seat.hold", `{"seat":"12B"}`)
	if got := waits("q", "20s"); got["settled"] != true {
		t.Errorf("it is there: %v", got)
	}
	l.good(l.post, "tripper", "plan.cancel", `{"plan":"q"}`)
	l.shows("q", func(got map[string]any) bool { return got["state"] == "unwinding" })
	if e := l.refused(l.post, "tripper", "plan.wait", `{"plan":"q","settled":true}`, 409, "plan"); !strings.Contains(
		fmt.Sprint(e), "settles what is in doubt") {
		t.Errorf("%v", e)
	}
	l.good(l.post, "tripper", "plan.begin", `{"plan":"r"}`)
	l.good(l.post, "tripper", "plan.commit", `{"plan":"r"}`)
	if got = waits("r", "20s"); got["settled"] != true || got["state"] != "committed" {
		t.Errorf("it is committed: %v", got)
	}
}

// TestACommitThatWaitsForItsOwnerIsSettled: nothing is asked any more, and the answer says for what it
// waits.
func TestACommitThatWaitsForItsOwnerIsSettled(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p","owner":"travel"}`)
	l.lost("p", "a", "mail.send", `{"to":"ann"}`)
	if got := l.good(l.post, "tripper", "plan.commit", `{"plan":"p"}`); got["state"] != "committing" {
		t.Fatalf("%v", got)
	}
	got := l.good(l.post, "tripper", "plan.wait", `{"plan":"p","settled":true,"wait":"20s"}`)
	if text := fmt.Sprint(got["unknown"]); got["settled"] != true || got["state"] != "committing" ||
		!strings.Contains(text, "action:a") || !strings.Contains(text, "owner:true") {
		t.Errorf("%v", got)
	}
}

// TestAHostThatIsBehindIsAskedAgain: that it has not read all yet says nothing about the plan.
func TestAHostThatIsBehindIsAskedAgain(t *testing.T) {
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	l.halt()
	var asked atomic.Int32
	for subject, answer := range map[string]func() string{
		api.PlanHistory("tripper").Call.Subject(tenant): func() string {
			return `{"agent":"tripper","state":"open","writer":"door"}`
		},
		api.PlanOutcome.Call.Subject(tenant): func() string {
			if asked.Add(1) < 4 {
				return `{"error":"sequence 7 is not folded yet"}`
			}
			return `{"state":"open","settled":true}`
		},
	} {
		if _, err := l.root.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte(answer())) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.root.Flush(); err != nil {
		t.Fatal(err)
	}
	l.refused(l.post, "tripper", "plan.wait", `{"plan":"p","settled":true,"wait":"1ms"}`, 503, "")
	if got := l.good(l.post, "tripper", "plan.wait", `{"plan":"p","settled":true}`); got["settled"] != true {
		t.Errorf("%v", got)
	}
}

// TestAnExecutorWithTooManyQuestionsIsAskedLater: that it refuses one says nothing about the plan.
func TestAnExecutorWithTooManyQuestionsIsAskedLater(t *testing.T) {
	l := newLive(t)
	l.halt()
	for _, v := range []api.Call{api.FactGet.Call, api.ReviewLs.Call, api.PlanOutcome.Call} {
		if _, err := l.root.Subscribe(v.Subject(tenant), func(m *nats.Msg) {
			_ = m.Respond([]byte(`{"error":"5000 are waiting","field":"questions","again":true}`))
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.root.Flush(); err != nil {
		t.Fatal(err)
	}
	l.refused(l.post, "boss", "review.list", `{}`, 429, "")
	l.refused(l.post, "scanner", "fact.put", `{"key":"k","value":1}`, 429, "")
	l.refused(l.post, "boss", "verdict.give", `{"plan":"p","action":"a","verdict":"allow"}`, 429, "")
}
