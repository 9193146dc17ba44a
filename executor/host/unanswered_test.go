package host

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
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
		if h.Mode != api.ModeStandby || h.Held != held || !strings.HasPrefix(h.Problem, problem) {
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
	looks("the lock that was seen has run out", false, unknown)
	a.board.Enter(api.ModeStandby, "another holder has begun a term")
	looks("another term was seen once", false, unknown)
}

const unknown = "not known which host holds it: "

// TestALockThatHasRunOutIsNoOnes: servers without a leader answer what they have, and do not remove
// a lock that has run out.
func TestALockThatHasRunOutIsNoOnes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	k, _ := r.keeperOn()
	// The server keeps it for as long as its holder has asked for.
	long, err := jetstream.NewHolders(jetstream.HoldersConfig{Conn: r.conn, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	lease, ok, _, err := long.Acquire(t.Context(), "t", "h2")
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	a := foldingActor(t)
	a.lead.holders = k.holders
	a.board.Enter(api.ModeStandby, "held by h2")
	looks := func(when string, held bool, problem string) {
		t.Helper()
		if event, _ := a.lead.turn(t.Context(), k); event.held || event.current != "h2" {
			t.Fatalf("%s: %+v", when, event)
		}
		if h := a.host.Health()[0]; h.Held != held || !strings.HasPrefix(h.Problem, problem) {
			t.Errorf("%s: %+v, want held=%v, %q", when, h, held, problem)
		}
	}
	looks("it is seen", true, "held by h2")
	looks("it is seen again", true, "held by h2")
	k.answered = time.Now().Add(-k.holders.TTL())
	looks("it lives longer than those of this host", true, "held by h2")
	k.answered = time.Now().Add(-time.Hour)
	looks("it was not renewed in its time", false, unknown+"the lock of h2 has run out, and is still there")
	if _, err := long.Renew(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	looks("it was renewed", true, "held by h2")
}

// TestAHostThatHasTheLockNamesNoOther, also before its term has begun, which takes a ledger that has a
// leader.
func TestAHostThatHasTheLockNamesNoOther(t *testing.T) {
	t.Parallel()
	a := foldingActor(t)
	a.board.Enter(api.ModeStandby, "held by h2")
	a.leaseEvent(holderEvent{current: "h2"})
	if h := a.host.Health()[0]; h.Problem != "held by h2" {
		t.Errorf("%+v", h)
	}
	a.leaseEvent(holderEvent{held: true, current: "h1"})
	if h := a.host.Health()[0]; h.Mode != api.ModeStandby || h.Held || h.Problem != "" {
		t.Errorf("%+v", h)
	}
}
