package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
)

// TestWhoHasALeaseIsForPeople.
func TestWhoHasALeaseIsForPeople(t *testing.T) {
	s := jetstream.Standing{Holder: "host-c", Left: 9996990516}
	if got := fmt.Sprintf("host %s has it", s); got != "host host-c (for another 10s) has it" {
		t.Fatal(got)
	}
}

func openHolders(t *testing.T, conn *nats.Conn, ttl time.Duration) *jetstream.Holders {
	t.Helper()
	h, err := jetstream.NewHolders(jetstream.HoldersConfig{Conn: conn, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestOneHolderAtATimeAndTheSameHolderAgainAtOnce(t *testing.T) {
	t.Parallel()
	ctx := within(t, 20*time.Second)
	server := startServer(t, embedded.Config{Dir: t.TempDir()})
	h := openHolders(t, connect(t, server), 0)
	if h.TTL() != jetstream.LeaseTTL {
		t.Fatalf("TTL %v", h.TTL())
	}
	first, ok, current, err := h.Acquire(ctx, "t", "host1")
	if err != nil || !ok || current.Holder != "host1" {
		t.Fatalf("%v, %v, %v", ok, current, err)
	}
	if _, ok, current, err = h.Acquire(ctx, "t", "host2"); err != nil || ok || current.Holder != "host1" {
		t.Fatalf("a second holder: %v, %v, %v", ok, current, err)
	}
	if _, ok, _, err = h.Acquire(ctx, "another", "host2"); err != nil || !ok {
		t.Fatalf("another tenant: %v, %v", ok, err)
	}
	if _, err := h.Renew(ctx, first); err != nil {
		t.Fatal(err)
	}
	// The reply to a renewal may be lost: then the holder has the older value only.
	renewed, err := h.Renew(ctx, first)
	if err != nil {
		t.Fatalf("a renewal that was stored and not heard: %v", err)
	}
	restarted, ok, _, err := h.Acquire(ctx, "t", "host1")
	if err != nil || !ok {
		t.Fatalf("the same holder again: %v, %v", ok, err)
	}
	if _, err := h.Renew(ctx, renewed); !errors.Is(err, jetstream.ErrLeaseLost) {
		t.Fatalf("the process before the restart still holds: %v", err)
	}
	if err := h.Release(ctx, renewed); err != nil {
		t.Fatal(err)
	}
	if now, err := h.Current(ctx, "t"); err != nil || now.Holder != "host1" {
		t.Fatalf("releasing a lost lease took it from %q, %v", now.Holder, err)
	}
	if _, err := h.Renew(ctx, restarted); err != nil { // and its reply is lost
		t.Fatal(err)
	}
	if err := h.Release(ctx, restarted); err != nil {
		t.Fatal(err)
	}
	if now, err := h.Current(ctx, "t"); err != nil || now.Holder != "" {
		t.Fatalf("held by %q, %v", now.Holder, err)
	}
	if _, ok, _, err := h.Acquire(ctx, "t", "host2"); err != nil || !ok {
		t.Fatalf("after the release: %v, %v", ok, err)
	}
}

func TestALeaseThatIsNotRenewedRunsOut(t *testing.T) {
	t.Parallel()
	ctx := within(t, 30*time.Second)
	server := startServer(t, embedded.Config{Dir: t.TempDir()})
	h := openHolders(t, connect(t, server), time.Second)
	lease, ok, _, err := h.Acquire(ctx, "t", "host1")
	if err != nil || !ok {
		t.Fatalf("%v, %v", ok, err)
	}
	renewed, err := h.Renew(ctx, lease)
	if err != nil {
		t.Fatal(err)
	}
	until(t, ctx, "take over", func() error {
		_, ok, current, err := h.Acquire(ctx, "t", "host2")
		if err == nil && !ok {
			err = fmt.Errorf("held by %q", current.Holder)
		}
		return err
	})
	if _, err := h.Renew(ctx, renewed); !errors.Is(err, jetstream.ErrLeaseLost) {
		t.Fatalf("%v", err)
	}
}

func TestOfManyHostsOneAcquires(t *testing.T) {
	t.Parallel()
	ctx := within(t, 20*time.Second)
	server := startServer(t, embedded.Config{Dir: t.TempDir()})
	h := openHolders(t, connect(t, server), 0)
	var won atomic.Int32
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			_, ok, current, err := h.Acquire(ctx, "t", fmt.Sprint("host", i))
			if err != nil || current.Holder == "" {
				t.Errorf("host %d: current %v, %v", i, current, err)
			}
			if ok {
				won.Add(1)
			}
		})
	}
	group.Wait()
	if won.Load() != 1 {
		t.Fatalf("%d hosts hold the tenant", won.Load())
	}
}

func TestALeaseOutlivesTheLossOfItsBucketUnlessAnotherTookIt(t *testing.T) {
	t.Parallel()
	ctx := within(t, 60*time.Second)
	dir := t.TempDir()
	server := startServer(t, embedded.Config{Dir: dir})
	conn := patient(t, server)
	port := portOf(t, conn)
	h := openHolders(t, conn, 0)
	kept, _, _, err := h.Acquire(ctx, "kept", "host1")
	if err != nil {
		t.Fatal(err)
	}
	taken, _, _, err := h.Acquire(ctx, "taken", "host1")
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	startServer(t, embedded.Config{Dir: dir, Port: port})
	until(t, ctx, "renew", func() error {
		short, cancel := context.WithTimeout(ctx, 2*time.Second) // the restart may lose the question
		defer cancel()
		renewed, err := h.Renew(short, kept)
		if err == nil {
			kept = renewed
		}
		return err
	})
	if now, err := h.Current(ctx, "kept"); err != nil || now.Holder != "host1" {
		t.Fatalf("held by %q, %v", now.Holder, err)
	}
	if _, ok, _, err := h.Acquire(ctx, "taken", "host2"); err != nil || !ok {
		t.Fatalf("%v, %v", ok, err)
	}
	if _, err := h.Renew(ctx, taken); !errors.Is(err, jetstream.ErrLeaseLost) {
		t.Fatalf("%v", err)
	}
}

func TestBadLeasesAreRefused(t *testing.T) {
	t.Parallel()
	ctx := within(t, 20*time.Second)
	server := startServer(t, embedded.Config{Dir: t.TempDir()})
	conn := connect(t, server)
	for _, ttl := range []time.Duration{time.Millisecond, 1500 * time.Millisecond, 2 * time.Hour, -time.Second} {
		if _, err := jetstream.NewHolders(jetstream.HoldersConfig{Conn: conn, TTL: ttl}); !isRefused(err, "ttl") {
			t.Errorf("%v: %v", ttl, err)
		}
	}
	h := openHolders(t, conn, 0)
	for _, names := range [][2]string{{"", "h"}, {"t", ""}, {"a.b", "h"}, {"t", "h*"}} {
		if _, _, _, err := h.Acquire(ctx, names[0], names[1]); !isRefused(err, "holder") {
			t.Errorf("%q: %v", names, err)
		}
	}
}
