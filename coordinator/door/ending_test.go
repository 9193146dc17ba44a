package door_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestAnUndoOfAPlanWhoseCommitWaits is said to begin once the host has read that it was asked for, and
// not of a plan whose commit came first; until the host has read it neither is said.
func TestAnUndoOfAPlanWhoseCommitWaits(t *testing.T) {
	for _, c := range []struct {
		verb, before, after string // answers about the plan, without what was stored and with it
		status              int
		want                string // of the answer: its state, or what is stored
	}{
		{"plan.fail", `{"state":"committing"}`, `{"state":"committing"}`, 200, "unwinding"},
		{"plan.cancel", `{"state":"committing"}`, `{"state":"unwinding"}`, 200, "unwinding"},
		{"plan.fail", `{"state":"open"}`, `{"state":"committed"}`, 409, "nothing"},
		{"plan.cancel", `{"state":"open"}`, `{"state":"open","writer":"two","refused":["of writer two"]}`, 409, "nothing"},
		{"plan.fail", `{"state":"open"}`, `{"error":"sequence 7 is not folded yet"}`, 503, "all"},
	} {
		l := newLive(t)
		l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
		l.lost("p", "a", "mail.send", `{"to":"ann"}`)
		if got := l.good(l.post, "tripper", "plan.commit", `{"plan":"p"}`); got["state"] != "committing" {
			t.Fatalf("%v", got)
		}
		l.halt()
		if _, err := l.root.Subscribe(api.PlanOutcome.Call.Subject(tenant), func(m *nats.Msg) {
			q, answer := api.OutcomeQuery{}, c.before
			if err := json.Unmarshal(m.Data, &q); err == nil && q.Sequence > 0 {
				answer = c.after
			}
			_ = m.Respond([]byte(answer))
		}); err != nil {
			t.Fatal(err)
		}
		if err := l.root.Flush(); err != nil {
			t.Fatal(err)
		}
		status, answer := l.post("tripper", c.verb, `{"plan":"p","reason":"no flight"}`)
		said := answer["state"]
		if e, refused := answer["error"].(map[string]any); refused {
			said = e["stored"]
		}
		if status != c.status || fmt.Sprint(said) != c.want {
			t.Errorf("%s, %s then %s: %d %v, want %d %s", c.verb, c.before, c.after, status, answer, c.status, c.want)
		}
	}
}
