package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
)

func TestReopeningAfterARestartKeepsEverything(t *testing.T) {
	t.Parallel()
	ctx := within(t, 30*time.Second)
	dir := t.TempDir()
	server := startServer(t, embedded.Config{Dir: dir})
	store := openOn(t, server, connect(t, server))
	var before []ledger.Message
	for i := range 50 {
		mustAppend(t, ctx, store, commit("p", fmt.Sprint(i)))
	}
	before = take(t, ctx, store, 1, 50)
	head := headOf(t, store)
	server.Close()
	server = startServer(t, embedded.Config{Dir: dir})
	store = openOn(t, server, connect(t, server))
	if again := headOf(t, store); again != head {
		t.Fatalf("head %+v, was %+v", again, head)
	}
	for i, m := range take(t, ctx, store, 1, 50) {
		if fmt.Sprint(m) != fmt.Sprint(before[i]) {
			t.Fatalf("message %+v, was %+v", m, before[i])
		}
	}
	if seq := mustAppend(t, ctx, store, commit("p", "next")); seq != 51 {
		t.Fatalf("next is %d", seq)
	}
}

// patient keeps a client connecting while its server restarts.
func patient(t *testing.T, server *embedded.Server) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect(server.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.ReconnectJitter(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

func portOf(t *testing.T, conn *nats.Conn) int {
	t.Helper()
	var port int
	if _, err := fmt.Sscanf(conn.ConnectedAddr(), "127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	return port
}

func TestAnAppendToAStoppedServerIsInDoubtAndItsRetryHasOneEffect(t *testing.T) {
	t.Parallel()
	ctx := within(t, 60*time.Second)
	dir := t.TempDir()
	server := startServer(t, embedded.Config{Dir: dir})
	conn := patient(t, server)
	port := portOf(t, conn)
	store := openOn(t, server, conn)
	// Appends run while the server stops, so that some are in flight.
	var all, doubtful []ledger.Append
	acknowledged := map[string]uint64{}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		server.Close()
	}()
	for len(doubtful) < 3 {
		a := commit("p", fmt.Sprint(len(all)))
		all = append(all, a)
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		seq, err := store.Append(short, a)
		cancel()
		switch {
		case err == nil:
			acknowledged[a.ID] = seq
		case errors.Is(err, ledger.ErrInDoubt):
			doubtful = append(doubtful, a)
		case errors.Is(err, ledger.ErrBusy):
			all = all[:len(all)-1]
		default:
			t.Fatal(err)
		}
	}
	<-stopped
	server = startServer(t, embedded.Config{Dir: dir, Port: port})
	for _, a := range doubtful {
		until(t, ctx, "retry", func() error {
			short, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			seq, err := store.Append(short, a)
			acknowledged[a.ID] = seq
			return err
		})
	}
	head := headOf(t, store)
	if int(head.Last) != len(all) {
		t.Fatalf("%d stored of %d appended", head.Last, len(all))
	}
	times := map[string]int{}
	for _, m := range take(t, ctx, store, 1, len(all)) {
		times[string(m.Data)]++
	}
	for _, a := range all {
		if times[string(a.Data)] != 1 || acknowledged[a.ID] == 0 {
			t.Errorf("%s is stored %d times, acknowledged at %d", a.Data, times[string(a.Data)], acknowledged[a.ID])
		}
	}
}

func TestAReaderOutlivesARestartOfTheServer(t *testing.T) {
	t.Parallel()
	ctx := within(t, 60*time.Second)
	dir := t.TempDir()
	server := startServer(t, embedded.Config{Dir: dir})
	conn := patient(t, server)
	port := portOf(t, conn)
	store := openOn(t, server, conn)
	next, stop := iter.Pull2(store.Read(ctx, 1))
	defer stop()
	sequence := uint64(0)
	for range 3 {
		for range 5 {
			until(t, ctx, "append", func() error {
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_, err := store.Append(short, commit("p", "x"))
				return err
			})
			sequence++
			if m, err, ok := next(); !ok || err != nil || m.Sequence != sequence {
				t.Fatalf("read %+v, %v, %v; want %d", m, err, ok, sequence)
			}
		}
		server.Close()
		server = startServer(t, embedded.Config{Dir: dir, Port: port})
	}
}

func TestAReaderEndsWithItsContextWhileTheServerIsGone(t *testing.T) {
	t.Parallel()
	server := startServer(t, embedded.Config{Dir: t.TempDir()})
	conn := patient(t, server)
	store := openOn(t, server, conn)
	mustAppend(t, within(t, 10*time.Second), store, commit("p", "one"))
	ctx, cancel := context.WithCancel(within(t, 30*time.Second))
	next, stop := iter.Pull2(store.Read(ctx, 1))
	defer stop()
	if _, err, _ := next(); err != nil {
		t.Fatal(err)
	}
	server.Close()
	time.AfterFunc(300*time.Millisecond, cancel)
	if _, err, _ := next(); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
}

func TestAReaderEndsWhenItsConnectionIsClosed(t *testing.T) {
	t.Parallel()
	server := startServer(t, embedded.Config{Dir: t.TempDir()})
	conn := connect(t, server)
	store := openOn(t, server, conn)
	time.AfterFunc(50*time.Millisecond, conn.Close)
	if err := readErr(within(t, 20*time.Second), store, 1); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Fatalf("%v", err)
	}
}

// TestAReaderNoticesATailThatWasLostAndGrewAnew swaps the server's folder for one
// with other records under the same sequences, beneath a running reader.
func TestAReaderNoticesATailThatWasLostAndGrewAnew(t *testing.T) {
	t.Parallel()
	ctx := within(t, 60*time.Second)
	other := t.TempDir()
	server := startServer(t, embedded.Config{Dir: other})
	regrown := openOn(t, server, connect(t, server))
	for i := range 7 {
		mustAppend(t, ctx, regrown, commit("p", fmt.Sprint("another ", i)))
	}
	server.Close()

	server = startServer(t, embedded.Config{Dir: t.TempDir()})
	conn := patient(t, server)
	port := portOf(t, conn)
	store := openOn(t, server, conn)
	next, stop := iter.Pull2(store.Read(ctx, 1))
	defer stop()
	for i := range 5 {
		mustAppend(t, ctx, store, commit("p", fmt.Sprint(i)))
		if _, err, _ := next(); err != nil {
			t.Fatal(err)
		}
	}
	server.Close()
	startServer(t, embedded.Config{Dir: other, Port: port})
	if _, err, _ := next(); !isHalted(err, "G2") {
		t.Fatalf("%v", err)
	}
}

// TestAReplicatedStreamIsBusyUnderConcurrentFencedAppends sees error 10164 itself:
// one fenced append per fence may be in flight, the others are told to try again
// and none is stored twice or lost.
func TestAReplicatedStreamIsBusyUnderConcurrentFencedAppends(t *testing.T) {
	t.Parallel()
	ctx := within(t, 60*time.Second)
	store := openCluster(t)
	term := mustAppend(t, ctx, store, fenced(termSubject, "term 1", 0))
	const writers, each = 8, 20
	var busy atomic.Int64
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for range each {
				a := fenced(executorSubject, "decision", term)
				for {
					_, err := store.Append(ctx, a)
					if err == nil {
						break
					}
					if !errors.Is(err, ledger.ErrBusy) && !errors.Is(err, ledger.ErrInDoubt) {
						t.Error(err)
						return
					}
					if errors.Is(err, ledger.ErrBusy) && !errors.Is(err, jetstream.ErrNoStream) {
						busy.Add(1)
					}
				}
			}
		})
	}
	group.Wait()
	if h := headOf(t, store); busy.Load() == 0 || h.Last != 1+writers*each {
		t.Fatalf("busy %d times, head %+v", busy.Load(), h)
	}
}
