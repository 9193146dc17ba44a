//go:build exercise

package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// The torture of the real binary, as docs/reliability.md describes it: agents
// and workers live in the test, the server is a process of its own that is
// killed, cut off its disk, or starved.

const (
	tortureTenant = "default"
	makeThing     = "thing.make"
	unmakeThing   = "thing.unmake"
	makeSlowly    = "thing.make.slowly"
	makeProbed    = "thing.make.probed" // slowly, and there is a probe
	lookForThing  = "thing.look"
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

// serveUnmake starts the worker that undoes what agents make. Close it while its server
// runs; without one it ends with its connection.
func (p *provider) serveUnmake(t *testing.T, conn *nats.Conn) *worker.Worker {
	t.Helper()
	w, err := worker.New(worker.Config{Conn: conn, Tenant: tortureTenant, Name: "maker"})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Handle(unmakeThing, func(_ context.Context, c api.Command) (worker.Result, error) {
		var arguments struct{ Thing string }
		if err := json.Unmarshal(c.Arguments, &arguments); err != nil {
			return worker.Result{}, err
		}
		p.act(unmakeThing, arguments.Thing, c.Key)
		return worker.Result{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
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

// tortureClient asks the executor of a server, also after that was restarted.
func tortureClient(t *testing.T, s *cmdtest.Served) *cli.Client {
	t.Helper()
	return clientOn(cmdtest.Dial(t, s.URL), s)
}

func clientOn(conn *nats.Conn, s *cmdtest.Served) *cli.Client {
	return &cli.Client{Conn: conn, Tenant: tortureTenant, Server: s.URL, Timeout: 5 * time.Second}
}

// reach connects to a server that may be about to end by itself; nil: it has ended.
func reach(t *testing.T, s *cmdtest.Served) *nats.Conn {
	t.Helper()
	for late := time.Now().Add(testenv.Patience); ; <-time.After(20 * time.Millisecond) {
		conn, err := cmdtest.TryDial(s.URL)
		switch {
		case err == nil:
			t.Cleanup(conn.Close)
			return conn
		case s.Ended():
			return nil
		case time.Now().After(late):
			t.Fatal(err)
		}
	}
}

// blow kills a server at most once, and only as long as it is not called off.
type blow struct {
	once   sync.Once
	struck chan struct{} // closed when it has
}

func newBlow() *blow { return &blow{struck: make(chan struct{})} }

func (b *blow) strike(server *cmdtest.Served) {
	b.once.Do(func() {
		server.Command.Process.Kill()
		close(b.struck)
	})
}

// callOff reports whether it has struck; from here on it does not: what is stored behind the end of
// what was to be cut off would kill a server that nothing starts again.
func (b *blow) callOff() (struck bool) {
	b.once.Do(func() {})
	select {
	case <-b.struck:
		return true
	default:
		return false
	}
}

// settled waits until everything stored is folded and nothing unwinds.
func settled(t *testing.T, ctx context.Context, c *cli.Client) (status api.Status) {
	t.Helper()
	var head ledger.Head
	var err error
	defer func() {
		if t.Failed() {
			t.Logf("at last: head %d, %v; %+v", head.Last, err, status)
		}
	}()
	cmdtest.Until(t, ctx, "the executor has folded and undone everything", func() bool {
		status, head, err = look(ctx, c)
		return err == nil && isSettled(status, head)
	})
	return status
}

// isSettled reports whether everything stored is folded and nothing unwinds.
func isSettled(status api.Status, head ledger.Head) bool {
	return status.Mode == api.ModeHolding && status.Applied == head.Last &&
		status.Unwinding == 0 && status.InFlight == 0
}

// look asks for the head of the ledger and for the status after it. A question that is lost with
// its server is given up after the client's time, and may be asked again.
func look(ctx context.Context, c *cli.Client) (status api.Status, head ledger.Head, err error) {
	ctx, cancel := c.Within(ctx)
	defer cancel()
	store, err := c.Store(ctx)
	if err == nil {
		head, err = store.Head(ctx)
	}
	if err == nil {
		status, err = c.Status(ctx)
	}
	return status, head, err
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
