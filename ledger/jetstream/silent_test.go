package jetstream_test

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
)

// A server may deliver nothing to a reader and still answer it: its consumer stands on a
// replica that lacks what comes next. Here it is paused. The reader finds out by the head of
// the stream, and goes on.
func TestAReaderToWhichNothingIsDeliveredGoesOn(t *testing.T) {
	t.Parallel()
	ctx := within(t, time.Minute)
	server := startServer(t, embedded.Config{Dir: t.TempDir()})
	conn := connect(t, server)
	store := openOn(t, server, conn)
	next, stop := iter.Pull2(store.Read(ctx, 1))
	defer stop()
	mustAppend(t, ctx, store, commit("p", "one"))
	if m, err, ok := next(); !ok || err != nil || m.Sequence != 1 {
		t.Fatalf("read %+v, %v, %v", m, err, ok)
	}
	stream, err := admin(t, conn).Stream(ctx, jetstream.StreamName("t"))
	if err != nil {
		t.Fatal(err)
	}
	paused := 0
	for name := range stream.ConsumerNames(ctx).Name() {
		if _, err := stream.PauseConsumer(ctx, name, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		paused++
	}
	if paused != 1 {
		t.Fatalf("%d consumers are paused", paused)
	}
	for i := range 3 {
		mustAppend(t, ctx, store, commit("p", fmt.Sprint(i)))
	}
	for want := uint64(2); want <= 4; want++ {
		if m, err, ok := next(); !ok || err != nil || m.Sequence != want {
			t.Fatalf("read %+v, %v, %v; want %d", m, err, ok, want)
		}
	}
}

// A client drops messages for which it has no room; here the network does. A reader that
// meets the gap asks for what is missing, and goes on.
func TestAReaderFetchesWhatWasNotDelivered(t *testing.T) {
	t.Parallel()
	ctx := within(t, time.Minute)
	server := startServer(t, embedded.Config{Dir: t.TempDir()})
	store := openOn(t, server, connect(t, server))
	p, err := startProxy(func() string { return strings.TrimPrefix(server.URL(), "nats://") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	conn, err := nats.Connect("nats://"+p.address(), nats.IgnoreDiscoveredServers())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	next, stop := iter.Pull2(openOn(t, server, conn).Read(ctx, 1))
	defer stop()
	read := func(sequence uint64, data string) {
		t.Helper()
		if m, err, ok := next(); !ok || err != nil || m.Sequence != sequence || string(m.Data) != data {
			t.Fatalf("read %+v, %v, %v; want %d, %q", m, err, ok, sequence, data)
		}
	}
	mustAppend(t, ctx, store, commit("p", "first"))
	read(1, "first")
	for round := range uint64(2) {
		p.set(proxyDrops)
		mustAppend(t, ctx, store, commit("p", proxyDropped))
		until(t, ctx, "the message is dropped", func() error {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.mode != proxyOpen {
				return errors.New("it is not there yet")
			}
			return nil
		})
		mustAppend(t, ctx, store, commit("p", "next"))
		read(2+2*round, proxyDropped)
		read(3+2*round, "next")
	}
}
