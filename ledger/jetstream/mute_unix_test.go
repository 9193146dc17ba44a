//go:build unix

package jetstream_test

import (
	"context"
	"errors"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
)

// limitFileSize makes every write behind size fail, as a full disk does, until
// the returned function is called.
func limitFileSize(t *testing.T, size uint64) (lift func()) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	limited := old
	limited.Cur = size
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limited); err != nil {
		t.Fatal(err)
	}
	lift = func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(lift)
	return lift
}

func TestAfterAWriteErrorAppendsAreInDoubtUntilTheServerIsRestarted(t *testing.T) {
	ctx := within(t, 60*time.Second)
	dir := t.TempDir()
	server := startServer(t, embedded.Config{Dir: dir})
	store := openOn(t, server, connect(t, server))
	if err := server.Probe(ctx); err != nil {
		t.Fatalf("a healthy server: %v", err)
	}
	short := func(a ledger.Append) error {
		ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		_, err := store.Append(ctx, a)
		return err
	}
	lift := limitFileSize(t, 1<<20)
	acknowledged, doubtful := 0, ledger.Append{}
	for doubtful.ID == "" {
		a := commit("p", strings.Repeat("x", 60<<10))
		err := short(a)
		switch {
		case err == nil:
			acknowledged++
		case errors.Is(err, ledger.ErrInDoubt):
			doubtful = a
		default:
			t.Fatal(err)
		}
	}
	lift()
	if err := short(commit("p", "small")); !errors.Is(err, ledger.ErrInDoubt) {
		t.Fatalf("the stream speaks again by itself: %v", err)
	}
	if err := server.Probe(ctx); err == nil || !strings.Contains(err.Error(), "write error") {
		t.Fatalf("the probe says %v", err)
	}
	server.Close()
	server = startServer(t, embedded.Config{Dir: dir})
	store = openOn(t, server, connect(t, server))
	if err := server.Probe(ctx); err != nil {
		t.Fatalf("after the restart: %v", err)
	}
	seq := mustAppend(t, ctx, store, doubtful)
	if h := headOf(t, store); acknowledged == 0 || h.Last != uint64(acknowledged+1) || seq != h.Last || h.Deleted != 0 {
		t.Fatalf("%d acknowledged, the retry is %d, head %+v", acknowledged, seq, h)
	}
}
