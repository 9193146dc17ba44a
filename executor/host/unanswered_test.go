package host

import (
	"context"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestAHostThatCannotAskDoesNotSayWhoHolds: what a host that stands by has learned of the holder is
// true for as long as a lock lasts. Where it gets no answer after that, it says that it does not
// know.
func TestAHostThatCannotAskDoesNotSayWhoHolds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	k, _ := r.keeperOn()
	if _, ok, _, err := k.holders.Acquire(t.Context(), "t", "h2"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	a := foldingActor(t)
	a.lead.holders = k.holders
	looks := func(when string, held bool, problem string) {
		t.Helper()
		h := a.host.Health()[0]
		if h.Mode != api.ModeStandby || h.Held != held || h.Problem != problem {
			t.Errorf("%s: %+v, want held=%v, %q", when, h, held, problem)
		}
	}
	if event, _ := a.lead.turn(t.Context(), k); event.current != "h2" {
		t.Fatalf("%+v", event)
	}
	a.board.Enter(api.ModeStandby, "held by h2")
	looks("the bucket has answered", true, "held by h2")

	r.stopServer()
	unanswered := func(since time.Duration) {
		t.Helper()
		k.answered = time.Now().Add(-since)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if event, _ := a.lead.turn(ctx, k); event.held {
			t.Errorf("%+v", event)
		}
	}
	ttl := k.holders.TTL()
	unanswered(ttl / 2)
	looks("half of the lock is left", true, "held by h2")
	unanswered(ttl)
	const unknown = "not known which host holds it: JetStream does not answer"
	looks("the lock that was seen has run out", false, unknown)
	a.board.Enter(api.ModeStandby, "another holder has begun a term")
	looks("another term was seen once", false, unknown)
}
