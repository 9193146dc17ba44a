package coordinator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/replay"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// errNoRoom is what a forward of these tests refuses with.
var errNoRoom = errors.New("no room")

// tour is an agent program: a function whose forwards and handlers are counted
// outside of it, and which can be lost at any of its places.
type tour struct {
	l       *live
	changes func(u *replay.Undo) // what it declares of each undo; nil: nothing

	mu      sync.Mutex
	ran     []string // forwards, in the order in which they ran
	undone  []string // handlers that were called
	calls   map[string]replay.UndoCall
	outputs map[string]string // that Do has returned last
}

func newTour(l *live) *tour {
	return &tour{l: l, calls: map[string]replay.UndoCall{}, outputs: map[string]string{}}
}

func (w *tour) forward(output any, err error) coordinator.Forward {
	return func(_ context.Context, call coordinator.Call) (coordinator.Outcome, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ran = append(w.ran, call.Action)
		return coordinator.Outcome{Output: output, ExternalRef: "ref-" + call.Action}, err
	}
}

func (w *tour) undo(version string) *replay.Undo {
	u := &replay.Undo{Version: version, Handler: w.handler(version), Contract: contract.Contract{
		Late: contract.LateNever, Grace: 50 * time.Millisecond,
		Inverse: &contract.Inverse{Backoff: 10 * time.Millisecond, Timeout: 5 * time.Second},
	}}
	if w.changes != nil {
		w.changes(u)
	}
	return u
}

func (w *tour) handler(version string) replay.Handler {
	return func(_ context.Context, u replay.UndoCall) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.undone = append(w.undone, u.Action+version)
		w.calls[u.Action] = u
		return nil
	}
}

// act is one action with a handler, whose output has bytes that no encoder writes.
func (w *tour) act(ctx context.Context, p *replay.Plan, id string) error {
	_, err := w.do(ctx, p, w.action(id), nil)
	return err
}

func (w *tour) action(id string) replay.Action {
	return replay.Action{ID: id, Capability: "tour." + id, Input: map[string]string{"for": id}, Undo: w.undo("")}
}

func oddOutput(id string) json.RawMessage {
	return json.RawMessage(`{ "id" : "` + id + `<&>",  "n":9007199254740993.0 }`)
}

func (w *tour) do(ctx context.Context, p *replay.Plan, a replay.Action, failure error) (json.RawMessage,
	error) {
	output, err := p.Do(ctx, a, w.forward(oddOutput(a.ID), failure))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outputs[a.ID] = string(output)
	return output, err
}

func (w *tour) ranText() string { w.mu.Lock(); defer w.mu.Unlock(); return strings.Join(w.ran, " ") }
func (w *tour) undoneText() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.undone, " ")
}

// process is one life of an agent's process.
type process struct {
	*coordinator.Coordinator
	conn *nats.Conn
}

func (p *process) Run(
	ctx context.Context, config replay.Config, function func(context.Context, *replay.Plan) error,
) error {
	return replay.Run(ctx, p.Coordinator, config, function)
}

func (l *live) process() *process {
	l.t.Helper()
	conn := l.connect("a1")
	c, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: "default", Agent: "a1", Contracts: l.declared,
		ConfirmTimeout: testenv.Patience})
	if err != nil {
		l.t.Fatal(err)
	}
	p := &process{c, conn}
	l.t.Cleanup(p.end)
	return p
}

func (p *process) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = p.Close(ctx) // a process that was lost has nothing to say
	p.conn.Close()
}

// lose cuts a process off, so that nothing of it comes through any more, and has
// its function end.
func (p *process) lose(cancel func()) error {
	p.conn.Close()
	cancel()
	return errors.New("lost")
}

// wasLost reports whether a run ended because its process was lost: it hears of the connection
// first, or of the end of its function.
func wasLost(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, coordinator.ErrConnectionClosed)
}

func config(plan string) replay.Config {
	return replay.Config{Plan: coordinator.PlanSpec{ID: plan, Label: "tour", Deadline: time.Hour},
		Function: "tour"}
}

func bounded(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), testenv.Patience)
}

func wantUnwound(t *testing.T, err error, state string) {
	t.Helper()
	var unwound *replay.Unwound
	if !errors.As(err, &unwound) || unwound.State != state || !errors.Is(err, coordinator.ErrUnwound) {
		t.Errorf("got %v, want an unwound plan that is %s", err, state)
	}
}

func wantDiverged(t *testing.T, err error, action, field string) {
	t.Helper()
	var diverged *replay.Diverged
	if !errors.As(err, &diverged) || diverged.Action != action || diverged.Field != field {
		t.Errorf("got %v, want it to differ at action %q in %s", err, action, field)
	}
}

// TestS34AFunctionThatWasLostRunsNoForwardTwice: it is lost after each of its
// actions, and what Do returns is what was recorded, byte for byte.
func TestS34AFunctionThatWasLostRunsNoForwardTwice(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	ids := []string{"a", "b", "c", "d"}
	for n := range len(ids) + 1 {
		for _, good := range []bool{true, false} {
			w := newTour(l)
			plan := fmt.Sprintf("s34-%d-%v", n, good)
			function := func(lose func() error) func(context.Context, *replay.Plan) error {
				return func(ctx context.Context, p *replay.Plan) error {
					for i, id := range ids {
						if i == n && lose != nil {
							return lose()
						}
						if err := w.act(ctx, p, id); err != nil {
							return err
						}
						if got := w.outputs[id]; got != string(oddOutput(id)) {
							t.Errorf("%s: the output of %s is %s", plan, id, got)
						}
					}
					if n == len(ids) && lose != nil {
						return lose()
					}
					if !good {
						return errNoRoom
					}
					return nil
				}
			}
			ctx, cancel := bounded(t)
			first := l.process()
			firstCtx, lose := context.WithCancel(ctx)
			if err := first.Run(firstCtx, config(plan), function(func() error {
				waitCommitted(t, l, plan, n)
				return first.lose(lose)
			})); !wasLost(err) {
				t.Fatalf("%s: the first life ends with %v", plan, err)
			}
			err := l.process().Run(ctx, config(plan), function(nil))
			if got := w.ranText(); got != strings.Join(ids, " ") {
				t.Errorf("%s: forwards ran %s", plan, got)
			}
			if good && err != nil {
				t.Errorf("%s: %v", plan, err)
			}
			if !good {
				wantUnwound(t, err, ledger.StateCompensated)
				if got := w.undoneText(); got != "d c b a" {
					t.Errorf("%s: undone %s", plan, got)
				}
				for id, u := range w.calls {
					if string(u.Output) != string(oddOutput(id)) || string(u.Input) != `{"for":"`+id+`"}` ||
						u.ExternalRef != "ref-"+id || u.Blind || u.Key != ledger.Key("default", plan, id, ledger.PurposeUndo) {
						t.Errorf("%s: the handler of %s is told %+v", plan, id, u)
					}
				}
			}
			cancel()
		}
	}
}

// waitCommitted waits until n outcomes of a plan are in the ledger.
func waitCommitted(t *testing.T, l *live, plan string, n int) {
	t.Helper()
	if n == 0 {
		return
	}
	ctx, cancel := bounded(t)
	defer cancel()
	seen := 0
	for m, err := range l.store.Read(ctx, 1) {
		if err != nil {
			t.Fatal(err)
		}
		entries, err := ledger.Decode("default", m)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Record != nil && e.Record.Plan == plan && e.Record.GetForwardCompleted() != nil {
				if seen++; seen == n {
					return
				}
			}
		}
	}
}

// ask asks the executor, with every right.
func (l *live) ask(verb string, q, answer any) {
	l.t.Helper()
	body, err := json.Marshal(q)
	if err != nil {
		l.t.Fatal(err)
	}
	reply, err := l.root.Request(api.QuerySubject("default", verb), body, testenv.Patience)
	if err == nil {
		err = json.Unmarshal(reply.Data, answer)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

func rawJSON(text string) json.RawMessage { return json.RawMessage(text) }
