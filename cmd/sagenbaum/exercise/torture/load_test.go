//go:build exercise

package torture

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

const (
	loadAgents  = 8   // plans at a time
	loadActions = 4   // of each plan
	acksMin     = 200 // between two crashes, or the cycle does not count
	torturePace = 90 * time.Second
)

// load is agents at work, over all crashes: plan after plan, of which a third
// each fails, commits and stays open. It remembers what it was promised.
type load struct {
	world *provider
	maker *worker.Worker
	agent *coordinator.Coordinator
	conn  *nats.Conn

	running sync.WaitGroup
	stop    chan struct{}

	mu     sync.Mutex
	acks   int
	acked  map[string]bool   // "plan/action" whose pair was acknowledged
	ends   map[string]string // plan -> acknowledged end: failed or committed
	errs   []error           // nothing but a crash for ever may fail a call
	next   chan struct{}     // closed by the next acknowledgement
	idling bool              // open plans only: nothing for the executor to append
}

// startLoad starts agents and a worker of their own connections.
func startLoad(t *testing.T, ctx context.Context, s *cmdtest.Served, idling bool) *load {
	t.Helper()
	l := &load{
		world: newProvider(), conn: cmdtest.Dial(t, s.URL), stop: make(chan struct{}), next: make(chan struct{}),
		acked: map[string]bool{}, ends: map[string]string{}, idling: idling,
	}
	l.maker = l.world.serveUnmake(t, cmdtest.Dial(t, s.URL))
	var err error
	if l.agent, err = tortureAgent(l.conn); err != nil {
		t.Fatal(err)
	}
	for n := range loadAgents {
		l.running.Go(func() { l.run(ctx, n) }) // ends with stop or ctx
	}
	return l
}

func (l *load) run(ctx context.Context, agent int) {
	for n := 0; ctx.Err() == nil; n++ {
		select {
		case <-l.stop:
			return
		default:
		}
		if err := l.play(ctx, fmt.Sprintf("p-%d-%d", agent, n), n); err != nil && ctx.Err() == nil {
			l.mu.Lock()
			l.errs = append(l.errs, err)
			l.mu.Unlock()
			return
		}
	}
}

func (l *load) play(ctx context.Context, id string, n int) error {
	plan, err := l.agent.Begin(ctx, coordinator.PlanSpec{ID: id, Owner: "owner1"})
	if err != nil {
		return err
	}
	for a := range loadActions {
		action := fmt.Sprint("a", a)
		thing := id + "/" + action
		if _, err := plan.Do(ctx,
			coordinator.Action{ID: action, Capability: makeThing, Input: map[string]string{"thing": thing}},
			func(_ context.Context, call coordinator.Call) (coordinator.Outcome, error) {
				l.promised(func() { l.acked[thing] = true }) // a forward runs when its pair is durable
				l.world.act(makeThing, thing, call.Key)
				return coordinator.Outcome{}, nil
			}); err != nil {
			return err
		}
	}
	switch {
	case l.idling || n%3 == 2:
		return plan.Flush(ctx)
	case n%3 == 1:
		if err := plan.Commit(ctx); err != nil {
			return err
		}
		l.promised(func() { l.ends[id] = ledger.StateCommitted })
	default:
		if err := plan.Fail(ctx, "sold out"); err != nil {
			return err
		}
		l.promised(func() { l.ends[id] = ledger.StateCompensated })
	}
	return nil
}

// openUntil opens plans without actions until ctx ends. An opening waits for the ledger
// alone; an agent with actions waits for an executor too, so it may append nothing while
// the executor waits.
func (l *load) openUntil(ctx context.Context) {
	for ctx.Err() == nil {
		plan, err := l.agent.Begin(ctx, coordinator.PlanSpec{Owner: "owner1"})
		if err == nil {
			err = plan.Flush(ctx)
		}
		if err != nil && ctx.Err() == nil {
			l.mu.Lock()
			l.errs = append(l.errs, err)
			l.mu.Unlock()
			return
		}
	}
}

func (l *load) promised(note func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	note()
	l.acks++
	close(l.next)
	l.next = make(chan struct{})
}

// count is how many acknowledgements came so far.
func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acks
}

// await returns when so many acknowledgements have come.
func (l *load) await(t *testing.T, ctx context.Context, acks int) {
	t.Helper()
	for {
		l.mu.Lock()
		have, next, errs := l.acks, l.next, l.errs
		l.mu.Unlock()
		switch {
		case have >= acks:
			return
		case len(errs) > 0:
			t.Fatalf("%d of %d acknowledgements, then %v", have, acks, errs)
		}
		select {
		case <-next:
		case <-time.After(time.Second): // for an agent that gave up
		case <-ctx.Done():
			t.Fatalf("%d of %d acknowledgements in time", have, acks)
		}
	}
}

// promises returns a copy of what was acknowledged so far.
func (l *load) promises() (acked map[string]bool, ends map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.acked), maps.Clone(l.ends)
}

// lost lists acknowledged pairs that a ledger does not have, and acknowledged
// ends that it does not know.
func lost(f refolded, acked map[string]bool, ends map[string]string) (missing []string) {
	missing = differing(acked, f.actions)
	for id := range ends {
		if !f.ends[id] {
			missing = append(missing, "the end of "+id)
		}
	}
	return missing
}

// finish lets the agents end what they are at, waits until all is undone that has
// to be, stops the server and checks everything: no acknowledged commit lost, no
// half pair, held what is held, undone what failed, each once, and the state
// equal to a fold of the ledger.
func (l *load) finish(t *testing.T, ctx context.Context, s *cmdtest.Served) {
	t.Helper()
	close(l.stop)
	l.running.Wait()
	if len(l.errs) > 0 {
		t.Errorf("agents gave up: %v", l.errs)
	}
	if err := l.agent.Close(ctx); err != nil {
		t.Error(err)
	}
	c := tortureClient(t, s)
	for id := range l.ends {
		cmdtest.Until(t, ctx, "the end of "+id, func() bool {
			plan, err := c.Plan(ctx, id, 0)
			return err == nil && hasEnded(plan.State)
		})
	}
	status := settled(t, ctx, c)
	if err := l.maker.Close(ctx); err != nil {
		t.Error(err)
	}
	if r := s.End(t); r.Code != cli.ExitGood {
		t.Errorf("serve ended with %d: %s", r.Code, r.Stderr)
	}
	messages := left(t, ctx, s, c)
	f := refold(t, messages)
	if missing := lost(f, l.acked, l.ends); len(missing) > 0 {
		t.Errorf("acknowledged and lost: %v", missing)
	}
	standing, held := l.checkPlans(t, f)
	plans, _ := f.reader.Plans(api.Filter{Limit: 1000})
	again := l.world.checkOnce(t, standing)
	if status.Held != uint64(held) || status.Quarantined != 0 {
		t.Errorf("%d held, %d quarantined, want %d and none", status.Held, status.Quarantined, held)
	}
	checkDigest(t, s, f, messages)
	t.Logf("%d acknowledged, %d messages, %d plans, %d held at the end, %d undos came again under their key",
		l.acks, len(messages), len(plans), held, again)
}

// checkPlans wants each plan to be as its agent was told, and returns the things
// that must stand and how many registrations are held for them.
func (l *load) checkPlans(t *testing.T, f refolded) (standing map[string]bool, held int) {
	t.Helper()
	standing = map[string]bool{}
	for action := range f.actions {
		id, _, _ := strings.Cut(action, "/")
		plan, _ := f.reader.Plan(id)
		want := l.ends[id]
		switch {
		case want == "" && plan.State != ledger.StateOpen, want != "" && plan.State != want:
			t.Errorf("plan %s is %s, its agent was told %q", id, plan.State, want)
		case plan.State == ledger.StateCompensated:
			if f.succeeded[action] != 1 {
				t.Errorf("%s has %d effective successes", action, f.succeeded[action])
			}
		case plan.State == ledger.StateOpen:
			held++
			standing[action] = true
		default:
			standing[action] = true
		}
		if !l.acked[action] {
			t.Errorf("%s is in the ledger; its agent ended and does not know", action)
		}
		l.checkHeld(t, plan)
	}
	return standing, held
}

func (l *load) checkHeld(t *testing.T, plan api.Plan) {
	t.Helper()
	want := 0
	if plan.State == ledger.StateOpen {
		want = loadActions
	}
	if plan.Held != want || plan.ActionCount != loadActions {
		t.Errorf("plan %s is %s with %d of %d actions held", plan.Plan, plan.State, plan.Held, plan.ActionCount)
	}
}

// The server is killed with -9 under load, again and again, while its agents and
// its worker go on.
func TestKillUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), torturePace*time.Duration(1+tortureCycles(t, 1)/20))
	defer cancel()
	cycles := tortureCycles(t, testenv.Cases(3, 6))
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.78.0.1:0")
	l := startLoad(t, ctx, s, false)
	var ready, working []time.Duration
	for cycle := range cycles {
		l.await(t, ctx, l.count()+acksMin)
		s.Kill9(t)
		before := l.count()
		started := time.Now()
		s = s.Again(t)
		ready = append(ready, time.Since(started))
		l.await(t, ctx, before+1)
		working = append(working, time.Since(started))
		if t.Failed() {
			t.Fatalf("in cycle %d", cycle)
		}
	}
	t.Logf("%d kills; from start to ready: %s; to the first new acknowledgement: %s", cycles, spread(ready),
		spread(working))
	l.finish(t, ctx, s)
}
