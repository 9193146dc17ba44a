package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// unserved is a port of this machine that no one listens on, and a connection that waits for
// a server there.
func unserved(t *testing.T) (port int, conn *nats.Conn) {
	t.Helper()
	ports, err := testenv.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("nats://127.0.0.1:%d", ports[0])
	conn, err = nats.Connect(url, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return ports[0], conn
}

// doUntilStored tries an action until it is stored and its forward has run. No executor is
// here to say that the plan is open, which a pair that took long to be stored has to ask:
// on a busy machine the next one may be faster.
func doUntilStored(ctx context.Context, plan *coordinator.Plan, a coordinator.Action,
	forward coordinator.Forward) (err error) {
	for n, again := 1, true; again && ctx.Err() == nil; n++ {
		_, err = plan.Do(ctx, a, forward)
		slow := errors.Is(err, coordinator.ErrNotStarted)
		if again = slow || errors.Is(err, ledger.ErrInDoubt); slow {
			a.ID = fmt.Sprint("a", n)
		}
	}
	return err
}

// flushUntilStored flushes a plan until what it has appended is stored: on a busy machine one
// append can take longer than a short AppendTimeout.
func flushUntilStored(ctx context.Context, plan *coordinator.Plan) error {
	err := plan.Flush(ctx)
	for errors.Is(err, ledger.ErrInDoubt) && ctx.Err() == nil {
		err = plan.Flush(ctx)
	}
	return err
}

// An agent that starts before its server waits for it: its calls are in doubt until then, none
// is refused, and what it has queued is stored as soon as the server is there.
func TestAnAgentThatStartsBeforeItsServerIsServedWhenItIsThere(t *testing.T) {
	t.Parallel()
	port, conn := unserved(t)
	c, err := coordinator.New(coordinator.Config{
		Conn: conn, Tenant: "default", Agent: "a1", AppendTimeout: 300 * time.Millisecond,
		Contracts: []contract.Contract{{Capability: "mail.send", Class: contract.Irreversible}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w, err := worker.New(worker.Config{Conn: conn, Tenant: "default", Name: "w1"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	plan, err := c.Begin(ctx, coordinator.PlanSpec{Owner: "ana"})
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Flush(ctx); !errors.Is(err, ledger.ErrInDoubt) {
		t.Fatalf("before there is a server: %v", err)
	}
	action := coordinator.Action{ID: "a", Capability: "mail.send"}
	ran := 0
	forward := func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
		ran++
		return coordinator.Outcome{}, nil
	}
	if _, err := plan.Do(ctx, action, forward); !errors.Is(err, ledger.ErrInDoubt) || ran != 0 {
		t.Fatalf("before there is a server: %v, and the forward ran %d times", err, ran)
	}

	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	root, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(root.Close)
	store, err := jetstream.Open(ctx, jetstream.Config{Conn: root, Tenant: "default", DurableServer: server.DurableID()})
	if err != nil {
		t.Fatal(err)
	}
	err = doUntilStored(ctx, plan, action, forward)
	if err != nil || ran != 1 {
		t.Fatalf("with a server: %v, and the forward ran %d times", err, ran)
	}
	if err := flushUntilStored(ctx, plan); err != nil {
		t.Fatal(err)
	}
	if head, err := store.Head(ctx); err != nil || head.Last == 0 {
		t.Errorf("head %+v, %v", head, err)
	}
	handler := func(context.Context, api.Command) (worker.Result, error) { return worker.Result{}, nil }
	if err := w.Handle("mail.unsend", handler); err != nil {
		t.Errorf("a worker on the same connection: %v", err)
	}
	if err := errors.Join(c.Close(ctx), w.Close(ctx)); err != nil {
		t.Error(err)
	}
}

// fullAtFirst is an appender that has no room for a while.
type fullAtFirst struct {
	*ledger.Memory
	full atomic.Bool
}

func (f *fullAtFirst) Append(ctx context.Context, a ledger.Append) (uint64, error) {
	if f.full.Load() {
		return 0, fmt.Errorf("cannot append: %w", ledger.ErrFull)
	}
	return f.Memory.Append(ctx, a)
}

// The outcome of a forward that was made outlives a ledger without room: it is stored when
// there is room again.
func TestAnOutcomeReportedToAFullLedgerIsStoredWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	store := &fullAtFirst{Memory: ledger.NewMemory("default", func() int64 { return 1 })}
	c, err := coordinator.New(coordinator.Config{
		Appender: store, Tenant: "default", Agent: "a1", AppendTimeout: 200 * time.Millisecond,
		Contracts: []contract.Contract{{Capability: "mail.send", Class: contract.Irreversible}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	plan, err := c.Begin(ctx, coordinator.PlanSpec{ID: "p", Owner: "ana"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Do(ctx, coordinator.Action{ID: "a", Capability: "mail.send"},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			store.full.Store(true) // after the pair
			return coordinator.Outcome{Output: "sent"}, nil
		}); err != nil {
		t.Fatal(err)
	}
	if err := plan.Flush(ctx); !errors.Is(err, ledger.ErrInDoubt) || !strings.Contains(err.Error(), "no room") {
		t.Errorf("without room: %v", err)
	}
	store.full.Store(false)
	if err := flushUntilStored(ctx, plan); err != nil {
		t.Fatal(err)
	}
	completed := 0
	head, err := store.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for sequence := uint64(1); sequence <= head.Last; sequence++ {
		m, err := store.Get(ctx, sequence)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := ledger.Decode("default", m)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Record.GetForwardCompleted() != nil {
				completed++
			}
		}
	}
	if completed != 1 {
		t.Errorf("%d outcomes are stored, want 1", completed)
	}
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
}
