//go:build unix

package jetstream_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// TestAMutedStoreAnswersAsItsModel: what is stored is read, what is known is answered,
// and nothing new is, on the server as in Memory.
func TestAMutedStoreAnswersAsItsModel(t *testing.T) {
	t.Parallel()
	testenv.Alone(t, aMutedStoreAnswersAsItsModel)
}

func aMutedStoreAnswersAsItsModel(t *testing.T) {
	memory, server := &memoryRig{}, newServerRig(t)
	for _, c := range []struct {
		name string
		rig  rig
		mute func() (lift func())
	}{
		{"memory", memory, func() func() { memory.stores[0].Mute(); return func() {} }},
		{"jetstream R1", server, func() func() { return testenv.LimitFileSize(t, 1<<20) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.rig.open(t, "t", 0)
			b.must(b.fenced(b.term(), "term 1", 0), 1)
			known := b.commit("p", "known")
			b.must(known, 2)
			lift := c.mute()
			stored, doubtful := uint64(2), ledger.Append{}
			for doubtful.ID == "" {
				a := b.commit("p", strings.Repeat("x", 60<<10))
				switch err := b.briefly(b.store, a); {
				case err == nil:
					stored++
				case errors.Is(err, ledger.ErrInDoubt):
					doubtful = a
				default:
					t.Fatal(err)
				}
			}
			lift()
			b.inDoubt(b.store, b.commit("p", "small"))
			if err := b.briefly(b.store, known); err != nil {
				t.Errorf("a known id: %v", err)
			}
			if err := b.briefly(b.store, b.fenced(b.executor(), "late", 7)); !errors.Is(err, ledger.ErrConflict) {
				t.Errorf("a fence that moved: %v", err)
			}
			b.wantLast(stored)
			take(b, b.ctx, b.store, 1, int(stored))
			c.rig.restart(t, false)
			b.must(doubtful, stored+1)
			b.must(known, 2)
			b.wantLast(stored + 1)
		})
	}
}

func TestAfterAWriteErrorAppendsAreInDoubtUntilTheServerIsRestarted(t *testing.T) {
	t.Parallel()
	testenv.Alone(t, afterAWriteErrorAppendsAreInDoubt)
}

func afterAWriteErrorAppendsAreInDoubt(t *testing.T) {
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
	lift := testenv.LimitFileSize(t, 1<<20)
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
