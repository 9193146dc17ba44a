package jetstream_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
)

// TestAClosedLedgerTakesWhatEndsThings, and is a ledger to whoever opens it; opened again it is as
// it was.
func TestAClosedLedgerTakesWhatEndsThings(t *testing.T) {
	t.Parallel()
	ctx := within(t, 20*time.Second)
	server := startServer(t, embedded.Config{Dir: t.TempDir()})
	conn := connect(t, server)
	store := openOn(t, server, conn)
	mustAppend(t, ctx, store, commit("p", "one"))
	closed := jetstream.Room{Most: 40 << 20, Limit: 36 << 20, Closed: true}
	if err := store.Fit(ctx, closed); err != nil {
		t.Fatal(err)
	}
	again := openOn(t, server, conn)
	has, err := again.Room(ctx)
	if err != nil || has.Used == 0 || has.Most != closed.Most || has.Limit != closed.Limit || !has.Closed ||
		again.Bound() != closed.Limit {
		t.Errorf("%+v, %v", has, err)
	}
	for subject, takes := range map[string]bool{
		"saga.t.agent.a1.p": false, "saga.t.agent.a1._": false, "saga.t.fact.src": false,
		"saga.t.executor": true, "saga.t.executor.term": true, "saga.t.worker.w1": true,
		"saga.t.operator.ana": true, "saga.t.verdict.eve": true,
	} {
		_, err := again.Append(ctx, ledger.Append{Subject: subject, ID: jetstream.NewID(), Data: []byte("x")})
		if takes != (err == nil) || !takes && !errors.Is(err, jetstream.ErrNoStream) {
			t.Errorf("%s: %v", subject, err)
		}
	}
	if err := again.Fit(ctx, jetstream.Room{}); err != nil {
		t.Fatal(err)
	}
	if has, err := store.Room(ctx); err != nil || has.Most != 0 || has.Limit != 0 || has.Closed {
		t.Errorf("%+v, %v", has, err)
	}
	mustAppend(t, ctx, store, commit("p", "two"))

	if err := store.Fit(ctx, jetstream.Room{Most: 1, Limit: 1}); err != nil {
		t.Fatal(err)
	}
	_, err = store.Append(ctx, ledger.Append{Subject: "saga.t.agent.a1.p", ID: jetstream.NewID(), Data: []byte("x")})
	if !errors.Is(err, ledger.ErrFull) || !strings.Contains(err.Error(), "sagenbaum tenant limits NAME --bytes N") {
		t.Errorf("%v", err)
	}
}
