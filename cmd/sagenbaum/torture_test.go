package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/demo"
)

// The torture of the real binary, as docs/reliability.md describes it: agents
// and workers live in the test, the server is a process of its own that is
// killed, cut off its disk, or starved.

const (
	tortureTenant = "default"
	makeThing     = "thing.make"
	unmakeThing   = "thing.unmake"
	makeSlowly    = "thing.make.slowly"
	tortureDoubt  = 30 * time.Second // how long an agent tries on
)

// tortureCycles is how often a crash is repeated: few, or as many as SAGENBAUM_TORTURE
// says.
func tortureCycles(t *testing.T, few int) int {
	t.Helper()
	text := os.Getenv("SAGENBAUM_TORTURE")
	if text == "" {
		return few
	}
	many, err := strconv.Atoi(text)
	if err != nil || many < 1 {
		t.Fatalf("SAGENBAUM_TORTURE is %q, want a number of cycles", text)
	}
	return many
}

// provider is the world outside the server: it makes and unmakes things, treats
// one key as one effect, and remembers everything. It lives in the test, so no
// crash of the server takes anything from it.
type provider struct {
	mu       sync.Mutex
	keys     map[string]map[string]int // "verb thing" -> key -> calls
	standing map[string]bool
	order    []string // things, in the order in which they were unmade
}

func newProvider() *provider {
	return &provider{keys: map[string]map[string]int{}, standing: map[string]bool{}}
}

func (p *provider) act(verb, thing, key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	what := verb + " " + thing
	if p.keys[what] == nil {
		p.keys[what] = map[string]int{}
	}
	if p.keys[what][key]++; p.keys[what][key] > 1 {
		return // the same call again: one key is one effect
	}
	if verb == makeThing {
		p.standing[thing] = true
		return
	}
	if !p.standing[thing] {
		return // an undo in doubt, of what never happened
	}
	delete(p.standing, thing)
	p.order = append(p.order, thing)
}

// checkOnce wants every forward called once, every undo under one key, and these
// things standing. It returns how many calls of an undo came again.
func (p *provider) checkOnce(t *testing.T, standing map[string]bool) (again int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for what, keys := range p.keys {
		calls := 0
		for _, n := range keys {
			calls += n
		}
		forward := strings.HasPrefix(what, makeThing)
		switch {
		case len(keys) != 1:
			t.Errorf("%s happened under %d keys", what, len(keys))
		case forward && calls != 1:
			t.Errorf("%s was called %d times", what, calls)
		case !forward:
			again += calls - 1
		}
	}
	if !maps.Equal(p.standing, standing) {
		t.Errorf("these things stand: %v, want %v", differing(p.standing, standing), differing(standing, p.standing))
	}
	return again
}

// differing lists what a has and b has not.
func differing(a, b map[string]bool) (only []string) {
	for name := range a {
		if !b[name] {
			only = append(only, name)
		}
	}
	slices.Sort(only)
	return only
}

// serveUnmake starts the worker that undoes things. Close it while its server
// runs; without one it ends with its connection.
func (p *provider) serveUnmake(t *testing.T, conn *nats.Conn) *worker.Worker {
	t.Helper()
	w := newMaker(t, conn)
	if err := p.unmake(w); err != nil {
		t.Fatal(err)
	}
	return w
}

func newMaker(t *testing.T, conn *nats.Conn) *worker.Worker {
	t.Helper()
	w, err := worker.New(worker.Config{Conn: conn, Tenant: tortureTenant, Name: "maker"})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// unmake has a worker undo what agents make. The error is ledger.ErrBusy while no server is there.
func (p *provider) unmake(w *worker.Worker) error {
	return w.Handle(unmakeThing, func(_ context.Context, c api.Command) (worker.Result, error) {
		var arguments struct{ Thing string }
		if err := json.Unmarshal(c.Arguments, &arguments); err != nil {
			return worker.Result{}, err
		}
		p.act(unmakeThing, arguments.Thing, c.Key)
		return worker.Result{}, nil
	})
}

// tortureAgent is an agent that makes things; it tries on over any crash.
func tortureAgent(conn *nats.Conn) (*coordinator.Coordinator, error) {
	return coordinator.New(coordinator.Config{
		Conn: conn, Tenant: tortureTenant, Agent: "tester", AppendTimeout: tortureDoubt, ConfirmTimeout: tortureDoubt,
		Contracts: []contract.Contract{{
			Capability: makeThing, Class: contract.Compensable,
			Late: contract.LateNever, Grace: 300 * time.Millisecond, // the world is in the agent's process
			Inverse: &contract.Inverse{
				Call: unmakeThing, With: map[string]any{"thing": "=input.thing"}, Attempts: 20,
				Backoff: 20 * time.Millisecond, Timeout: 10 * time.Second,
			},
		}},
	})
}

// again starts a server anew on its folder and address, as a supervisor would.
func (s *served) again(t *testing.T, args ...string) *served {
	t.Helper()
	address, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(s.command.Args, "--open") {
		args = append(args, "--open")
	}
	return serveFor(t, s.dir, append([]string{"--listen", address.Host}, args...)...)
}

// confess shows a server's log when the test has failed.
func (s *served) confess(t *testing.T) {
	t.Cleanup(func() {
		if t.Failed() {
			_ = s.command.Process.Kill() // it may be gone
			_ = s.command.Wait()
			t.Logf("the server said:\n%s", s.stderr)
		}
	})
}

// ended reports whether a server has ended by itself; it was not waited for.
func (s *served) ended() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.command.Process.Pid))
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}

// kill9 ends a server at once and waits until it is gone.
func (s *served) kill9(t *testing.T) {
	t.Helper()
	if err := s.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.command.Wait() // it says that it was killed
}

// tortureClient asks the executor of a server, also after that was restarted.
func tortureClient(t *testing.T, s *served) *cli.Client {
	t.Helper()
	return &cli.Client{Conn: dial(t, s.url), Tenant: tortureTenant, Server: s.url, Timeout: 5 * time.Second}
}

// until asks again and again whether something holds, and fails the test when it
// does not in time.
func until(t *testing.T, ctx context.Context, what string, holds func() bool) {
	t.Helper()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("not in time: %s", what)
		case <-time.After(demo.AgainPause):
		}
	}
}

// settled waits until everything stored is folded and nothing unwinds.
func settled(t *testing.T, ctx context.Context, c *cli.Client) (status view.Status) {
	t.Helper()
	until(t, ctx, "the executor has folded and undone everything", func() (ok bool) {
		status, ok = isSettled(ctx, c)
		return ok
	})
	return status
}

// isSettled reports whether everything stored is folded and nothing unwinds.
func isSettled(ctx context.Context, c *cli.Client) (status view.Status, ok bool) {
	store, err := c.Store(ctx)
	if err != nil {
		return status, false
	}
	head, err := store.Head(ctx)
	if err != nil {
		return status, false
	}
	status, err = c.Status(ctx)
	return status, err == nil && status.Mode == view.ModeHolding &&
		status.Applied == head.Last && status.Unwinding == 0 && status.InFlight == 0
}

// stored reads the whole ledger.
func stored(t *testing.T, ctx context.Context, c *cli.Client) (messages []ledger.Message) {
	t.Helper()
	var store *jetstream.Store
	until(t, ctx, "the ledger can be read", func() (ok bool) {
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
func (s *served) left(t *testing.T, ctx context.Context, c *cli.Client) []ledger.Message {
	t.Helper()
	dir := filepath.Join(s.dir, "nats")
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

func (quietLog) Infof(string, ...any)      {}
func (quietLog) Errorf(string, ...any)     {}
func (quietLog) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

// statePath is the folder of the executor's folded state.
func (s *served) statePath() string { return filepath.Join(s.dir, "executor", "state") }

// checkDigest holds the state of a stopped server against a fold of its ledger.
func checkDigest(t *testing.T, s *served, f refolded, messages []ledger.Message) {
	t.Helper()
	db, err := pebble.Open(s.statePath(), &pebble.Options{ReadOnly: true, Logger: quietLog{}})
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

// spread formats the middle and the far end of what was measured.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	sorted := slices.Sorted(slices.Values(all))
	at := func(q int) time.Duration {
		return sorted[min(len(sorted)*q/100, len(sorted)-1)].Round(time.Millisecond)
	}
	return fmt.Sprintf("p50 %v, p99 %v, max %v of %d", at(50), at(99), sorted[len(sorted)-1].Round(time.Millisecond),
		len(sorted))
}
