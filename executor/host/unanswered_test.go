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
		k.seen.at = time.Now().Add(-since)
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

// besideAnHour is a host with its keeper, beside others whose locks last for an hour: the server keeps
// one for as long as its holder has asked for.
func besideAnHour(t *testing.T) (*actor, *keeper, *jetstream.Holders) {
	t.Helper()
	r := newRig(t)
	k, _ := r.keeperOn()
	long, err := jetstream.NewHolders(jetstream.HoldersConfig{Conn: r.conn, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	a := foldingActor(t)
	a.lead.holders = k.holders
	return a, k, long
}

// TestALockThatHasRunOutIsNoOnes: servers without a leader answer what they have, and do not remove
// a lock that has run out.
func TestALockThatHasRunOutIsNoOnes(t *testing.T) {
	t.Parallel()
	a, k, long := besideAnHour(t)
	lease, ok, _, err := long.Acquire(t.Context(), "t", "h2")
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
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
	k.seen.at = time.Now().Add(-k.holders.TTL())
	looks("it lives longer than those of this host", true, "held by h2")
	k.seen.at = time.Now().Add(-time.Hour)
	looks("it was not renewed in its time", false, unknown+"the lock of h2 has run out, and is still there")
	if _, err := long.Renew(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	looks("it was renewed", true, "held by h2")
}

// TestAHaltedHostBelievesALockForItsTime: it asks for no lock, and answers where no other host does.
func TestAHaltedHostBelievesALockForItsTime(t *testing.T) {
	t.Parallel()
	a, k, long := besideAnHour(t)
	looks := func(when string, want bool) {
		t.Helper()
		if got := a.lead.elsewhere(t.Context()); got != want {
			t.Errorf("%s: held elsewhere %v, want %v", when, got, want)
		}
	}
	looks("no one has it", false)
	lease, ok, _, err := long.Acquire(t.Context(), "t", "h2")
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	looks("it is seen", true)
	a.lead.seen.at = time.Now().Add(-k.holders.TTL())
	looks("it lives longer than those of this host", true)
	a.lead.seen.at = time.Now().Add(-time.Hour)
	looks("it was not renewed in its time", false)
	if lease, err = long.Renew(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	looks("it was renewed", true)
	if err := long.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	looks("it was given back", false)
	if _, ok, _, err := long.Acquire(t.Context(), "t", a.lead.me); !ok || err != nil {
		t.Fatal(ok, err)
	}
	looks("it is its own", false)
}

// TestAnOldLockOfAnotherServerIsNoNews: of five servers two are left, each with what it had.
func TestAnOldLockOfAnotherServerIsNoNews(t *testing.T) {
	t.Parallel()
	var s sighting
	start := time.Now()
	for i, c := range []struct {
		holder   string
		revision uint64
		news     bool
	}{
		{"h2", 7, true}, {"h2", 8, true}, {"h2", 7, false}, {"h2", 8, false}, {"h3", 6, true},
		{"h2", 8, false}, {"h2", 7, false}, {"", 0, true}, {"", 0, true}, {"h3", 9, true}, {"h2", 7, false},
		{"h3", 10, true},
	} {
		asked := start.Add(time.Duration(i) * time.Second)
		was := s
		news := s.sees(jetstream.Standing{Holder: c.holder, Revision: c.revision, TTL: time.Minute}, asked)
		if news != c.news || news && (s.holder != c.holder || s.at != asked) || !news && s != was {
			t.Errorf("answer %d: news %v, %+v", i, news, s)
		}
	}
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
