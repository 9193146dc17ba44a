//go:build exercise

package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// stored reads the whole ledger.
func stored(t *testing.T, ctx context.Context, c *cli.Client) (messages []ledger.Message) {
	t.Helper()
	var store *jetstream.Store
	cmdtest.Until(t, ctx, "the ledger can be read", func() (ok bool) {
		var err error
		store, err = c.Store(ctx)
		return err == nil
	})
	messages, err := readAll(ctx, store)
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

// left reads the ledger that a server has left, whole: while it runs it may sign a checkpoint
// at any moment. c is a client of the NATS server where that runs elsewhere.
func left(t *testing.T, ctx context.Context, s *cmdtest.Served, c *cli.Client) []ledger.Message {
	t.Helper()
	dir := filepath.Join(s.Dir, "nats")
	if _, err := os.Stat(dir); err != nil {
		return stored(t, ctx, c)
	}
	server, err := embedded.Start(embedded.Config{Dir: dir, Port: -1, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	conn, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return stored(t, ctx, &cli.Client{Conn: conn, Tenant: tortureTenant, Server: dir, Timeout: c.Timeout})
}

// readAll reads all messages of a ledger, from the first one that there ever was.
func readAll(ctx context.Context, store *jetstream.Store) (messages []ledger.Message, err error) {
	head, err := store.Head(ctx)
	if err != nil || head.Last < head.First {
		return nil, err
	}
	for m, err := range store.Read(ctx, 1) {
		if err != nil {
			return nil, err
		}
		if messages = append(messages, m); m.Sequence == head.Last {
			break
		}
	}
	return messages, nil
}

// refolded is a ledger folded by the test itself, without any of the server's state.
type refolded struct {
	kv         *rows.MemoryKV
	state      *executor.State
	reader     *view.Reader
	actions    map[string]bool   // "plan/action" with an effective pair
	ends       map[string]bool   // plans with an effective end by their agent
	succeeded  map[string]int    // "plan/action" -> effective CompensationSucceeded
	dispatched map[string]uint64 // "plan/action" -> sequence of its last effective dispatch
	done       map[string]uint64 // "plan/action" -> sequence of its success
}

func newRefolded() refolded {
	kv := rows.NewMemoryKV()
	return refolded{
		kv: kv, state: executor.Open(kv, tortureTenant, nil), actions: map[string]bool{}, ends: map[string]bool{},
		succeeded: map[string]int{}, dispatched: map[string]uint64{}, done: map[string]uint64{},
	}
}

// refold folds messages one by one. It fails the test for half a pair and for
// anything that the fold refuses: every record here is of a correct writer.
func refold(t *testing.T, messages []ledger.Message) refolded {
	t.Helper()
	f := newRefolded()
	for _, m := range messages {
		f.apply(t, m)
	}
	f.flush()
	return f
}

// flush makes what was applied readable.
func (f *refolded) flush() {
	f.state.Flush()
	f.reader = view.NewReader(f.kv, tortureTenant, nil)
}

func (f *refolded) apply(t *testing.T, m ledger.Message) {
	t.Helper()
	entries, err := ledger.Decode(tortureTenant, m)
	if err != nil {
		t.Fatal(err)
	}
	forwards, inverses := map[string]bool{}, map[string]bool{}
	for _, e := range entries {
		result := f.state.Apply(e)
		if result.Verdict == executor.Refused || e.Record == nil {
			t.Errorf("refused at %s: %s", ledger.FormatAddress(e.Address), result.Reason)
			continue
		}
		if result.Verdict != executor.Effective {
			continue
		}
		name := e.Record.Plan + "/" + e.Record.Action
		switch e.Record.Kind.(type) {
		case *pb.Record_ForwardRegistered:
			forwards[name] = true
		case *pb.Record_CompensationRegistered:
			inverses[name], f.actions[name] = true, true
		case *pb.Record_PlanFailed, *pb.Record_PlanCommitted:
			f.ends[e.Record.Plan] = true
		case *pb.Record_CompensationDispatched:
			f.dispatched[name] = m.Sequence
		case *pb.Record_CompensationSucceeded:
			f.succeeded[name]++
			f.done[name] = m.Sequence
		}
	}
	if !maps.Equal(forwards, inverses) {
		t.Errorf("half a pair at %d: forwards %v, compensations %v", m.Sequence, forwards, inverses)
	}
}

// stateRows are a tenant's rows in the state store of a stopped server.
type stateRows struct {
	rows.KV // nil: what is not below is not called
	db      *pebble.DB
	prefix  []byte
	fail    func(...any) // does not return
}

func (r stateRows) Get(key []byte) ([]byte, bool) {
	value, closer, err := r.db.Get(slices.Concat(r.prefix, key))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false
	}
	if err != nil {
		r.fail(err)
	}
	defer closer.Close()
	return bytes.Clone(value), true
}

func (r stateRows) Scan(from, to []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		list, err := r.db.NewIter(&pebble.IterOptions{LowerBound: slices.Concat(r.prefix, from),
			UpperBound: slices.Concat(r.prefix, to)})
		if err != nil {
			r.fail(err)
		}
		defer list.Close()
		for ok := list.First(); ok; ok = list.Next() {
			if !yield(list.Key()[len(r.prefix):], list.Value()) {
				return
			}
		}
		if err := list.Error(); err != nil {
			r.fail(err)
		}
	}
}

// quietLog keeps Pebble from chattering into the test's output.
type quietLog struct{}

func (quietLog) Infof(string, ...any) {}

func (quietLog) Errorf(string, ...any) {}

func (quietLog) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

// checkDigest holds the state of a stopped server against a fold of its ledger.
func checkDigest(t *testing.T, s *cmdtest.Served, f refolded, messages []ledger.Message) {
	t.Helper()
	db, err := pebble.Open(s.StatePath(), &pebble.Options{ReadOnly: true, Logger: quietLog{}})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	stored := stateRows{db: db, prefix: append([]byte(tortureTenant), 0), fail: t.Fatal}
	applied := view.NewReader(stored, tortureTenant, nil).Applied()
	if applied != uint64(len(messages)) {
		t.Errorf("the state has folded %d of %d messages", applied, len(messages))
	}
	if have, want := rows.Digest(stored), rows.Digest(f.kv); have != want {
		t.Errorf("state %s, a fold of the ledger gives %s", rows.FormatDigest(have), rows.FormatDigest(want))
	}
}
