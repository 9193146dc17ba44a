//go:build exercise

package torture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// tortureDeadline undoes the plan of an agent that vanished.
const tortureDeadline = 700 * time.Millisecond

// killVariant is one way to lose the server in the middle of a plan.
type killVariant struct {
	name      string
	published bool // kill when the n-th commit is on its way to the disk, not when it is there
	vanish    bool // the agent is gone for ever behind its last pair; the deadline undoes
	forget    bool // the folder of the folded state is deleted before the restart
}

var killVariants = []killVariant{
	{name: "agent stays"},
	{name: "agent stays, state deleted", forget: true},
	{name: "agent stays, killed on the way to the disk", published: true},
	{name: "agent gone", vanish: true},
	{name: "agent gone, state deleted", vanish: true, forget: true},
}

// The plan has five actions: the fifth fails and the four before it are undone,
// or the agent vanishes behind the fifth and the deadline undoes all. The server
// is killed with -9 once n commits are stored, for every n there is; in a plain run for
// every fourth, each variant for others.
func TestKillAfterEveryAppend(t *testing.T) {
	t.Parallel()
	for v, variant := range killVariants {
		t.Run(strings.ReplaceAll(variant.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			var recoveries []time.Duration
			step := testenv.Cases(4, 1)
			for n := 1 + v%step; ; n += step {
				recovery, killed := killRound(t, v, n)
				if !killed {
					t.Logf("killed after %d of %d commits; from start to ready: %s", len(recoveries), n-1,
						spread(recoveries))
					if n < 8 {
						t.Errorf("only %d commits: the plan was not played", n-1)
					}
					return
				}
				recoveries = append(recoveries, recovery)
				if n > appendsMax || t.Failed() {
					t.Fatalf("no end, or failed, after %d commits", n)
				}
			}
		})
	}
}

// killRound plays the plan once and kills the server after n commits. It reports
// false when there were fewer.
func killRound(t *testing.T, v, n int) (recovery time.Duration, killed bool) {
	variant := killVariants[v]
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	// An address of its own, so that no other test takes the port while it is down.
	host := "127.0.0.1"
	if runtime.GOOS == "linux" {
		host = fmt.Sprintf("127.77.%d.%d", v, n)
	}
	server := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", host+":0", "--open")
	world := newProvider()
	maker := world.serveUnmake(t, cmdtest.Dial(t, server.URL))
	c, agentConn := tortureClient(t, server), cmdtest.Dial(t, server.URL)
	ended := make(chan api.Plan, 1)
	hit, first := newBlow(), server
	strike := func() { hit.strike(first) }
	if variant.published {
		watchPublished(t, cmdtest.Dial(t, server.URL), n, strike)
	} else {
		watchStored(t, ctx, tortureClient(t, server), uint64(n), strike)
	}
	played := make(chan error, 1)
	go func() { played <- playFive(ctx, agentConn, world, variant.vanish) }() // ends with the plan or ctx
	go func() { ended <- awaitCompensated(ctx, c, "p") }()                    // ends with ctx

	var plan api.Plan
	over := false
	select {
	case <-hit.struck:
	case plan = <-ended:
		over = true
	}
	if killed = hit.callOff(); killed {
		server.Kill9(t)
		if variant.forget {
			if err := os.RemoveAll(server.StatePath()); err != nil {
				t.Fatal(err)
			}
		}
		started := time.Now()
		server = server.Again(t)
		recovery = time.Since(started)
	}
	if !over {
		plan = <-ended
	}
	checkEnd(t, n, plan, world, variant)
	if err := <-played; err != nil {
		t.Errorf("after %d commits: the agent ends with %v", n, err)
	}
	settled(t, ctx, c)
	messages := stored(t, ctx, c)
	if err := maker.Close(ctx); err != nil {
		t.Error(err)
	}
	if r := server.End(t); r.Code != cli.ExitGood {
		t.Errorf("serve ended with %d: %s", r.Code, r.Stderr)
	}
	checkLedger(t, n, server, messages, world)
	if t.Failed() {
		t.Logf("%s, after %d commits:\n%s", variant.name, n, server.Stderr)
	}
	return recovery, killed
}

// watchPublished calls strike when the n-th commit from now on comes to the server,
// which has not stored it then.
func watchPublished(t *testing.T, conn *nats.Conn, n int, strike func()) {
	t.Helper()
	seen := 0
	_, err := conn.Subscribe("saga."+tortureTenant+".>", func(*nats.Msg) {
		if seen++; seen == n {
			strike()
		}
	})
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// watchStored calls strike when the ledger holds n messages.
func watchStored(t *testing.T, ctx context.Context, c *cli.Client, n uint64, strike func()) {
	t.Helper()
	store, err := c.Store(ctx)
	if err != nil {
		t.Fatal(err)
	}
	go func() { // ends with ctx or the strike
		for m, err := range store.Read(ctx, 1) {
			if err != nil {
				return
			}
			if m.Sequence >= n {
				strike()
				return
			}
		}
	}()
}

// playFive is an agent that makes five things. The fifth is sold out and the plan
// fails; or the fifth is made and the agent is gone before it can say so.
func playFive(ctx context.Context, conn *nats.Conn, world *provider, vanish bool) error {
	agent, err := tortureAgent(conn)
	if err != nil {
		return err
	}
	declared := coordinator.PlanSpec{ID: "p", Owner: "owner1"}
	if vanish {
		declared.Deadline = tortureDeadline
	}
	plan, err := agent.Begin(ctx, declared)
	if err != nil {
		return err
	}
	for n := 1; n <= 5; n++ {
		thing := fmt.Sprint("thing-", n)
		_, err = plan.Do(ctx,
			coordinator.Action{ID: fmt.Sprint("a", n), Capability: makeThing, Input: map[string]string{"thing": thing}},
			func(ctx context.Context, call coordinator.Call) (coordinator.Outcome, error) {
				if n == 5 && !vanish {
					return coordinator.Outcome{}, coordinator.NotTaken(errSoldOut)
				}
				world.act(makeThing, thing, call.Key)
				if n == 5 {
					conn.Close() // nothing of this agent reaches anybody any more
					return coordinator.Outcome{}, errSoldOut
				}
				return coordinator.Outcome{}, nil
			})
		if err != nil {
			break
		}
	}
	if vanish {
		conn.Close() // also when the deadline was faster than the agent
		gone, cancel := context.WithCancel(ctx)
		cancel()
		_ = agent.Close(gone) // says that not everything is known to be stored
		if errors.Is(err, errSoldOut) || errors.Is(err, coordinator.ErrUnwinding) {
			return nil
		}
		return err
	}
	if !errors.Is(err, errSoldOut) {
		return fmt.Errorf("the fifth action ended with %w", err)
	}
	if err := plan.Fail(ctx, "sold out"); err != nil {
		return err
	}
	return agent.Close(ctx)
}

var errSoldOut = errors.New("sold out")

// checkEnd wants the same end as without a crash.
func checkEnd(t *testing.T, n int, plan api.Plan, world *provider, v killVariant) {
	t.Helper()
	world.checkOnce(t, map[string]bool{})
	world.mu.Lock()
	defer world.mu.Unlock()
	want := []string{"thing-4", "thing-3", "thing-2", "thing-1"}
	skipped := 1
	if v.vanish {
		// A restart may take longer than the deadline: then the agent got less far.
		want, skipped = nil, plan.Skipped
		for i := 5; i > 0; i-- {
			if thing := fmt.Sprint("thing-", i); world.keys[makeThing+" "+thing] != nil {
				want = append(want, thing)
			}
		}
	}
	// A blind undo of what never happened reaches the worker too; here only things
	// that were made count, and those in their order.
	ended := plan.State == ledger.StateCompensated ||
		len(want) == 0 && plan.State == ledger.StateFailed && plan.Compensated == 0 // nothing was made
	if !ended || plan.Skipped != skipped || plan.Held != 0 ||
		plan.Compensated < len(want) || !slices.Equal(world.order, want) {
		t.Errorf("after %d commits: plan %s, %d compensated, %d skipped, %d held; unmade %v, want %v", n, plan.State,
			plan.Compensated, plan.Skipped, plan.Held, world.order, want)
	}
}

// checkLedger wants one effective success for each thing that was unmade, and the
// state of the stopped server to be the fold of its ledger.
func checkLedger(t *testing.T, n int, server *cmdtest.Served, messages []ledger.Message, world *provider) {
	t.Helper()
	f := refold(t, messages)
	for action, times := range f.succeeded {
		if times != 1 {
			t.Errorf("after %d commits: %s has %d effective successes", n, action, times)
		}
	}
	for _, thing := range world.order {
		if action := "p/a" + strings.TrimPrefix(thing, "thing-"); f.succeeded[action] != 1 {
			t.Errorf("after %d commits: %s was unmade, and the ledger has %d successes", n, thing, f.succeeded[action])
		}
	}
	checkDigest(t, server, f, messages)
}
