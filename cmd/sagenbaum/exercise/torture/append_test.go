//go:build exercise

package torture

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/demo"
)

// appendsMax is more appends than the demo's plan can take; a loop that gets
// there does not end.
const appendsMax = 60

// The server is killed with -9 after the first append of the demo's plan, in the
// next round after the second, and so on for all of them. Agent and worker
// stay, and come back to the restarted server by themselves.
func TestKillingTheServerAfterAnyAppendChangesNothing(t *testing.T) {
	t.Parallel()
	step := testenv.Cases(3, 1)
	for n := 1; ; n += step {
		if n > appendsMax {
			t.Fatalf("no end after %d appends", n)
		}
		if !killedAfter(t, n) {
			t.Logf("killed after every %d. of %d appends", step, n-1)
			if n < 8 {
				t.Errorf("only %d appends: the plan was not played", n-1)
			}
			return
		}
	}
}

// undoCounter counts what the worker was asked and what it did.
type undoCounter struct {
	mu   sync.Mutex
	keys map[string]map[string]bool // capability -> keys
}

func (u *undoCounter) count(capability, key string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.keys[capability] == nil {
		u.keys[capability] = map[string]bool{}
	}
	u.keys[capability][key] = true
}

// killedAfter plays the first act's script in a world of its own and kills the
// server once n commits were published. It reports false when the plan ended
// with fewer, so that nothing was killed.
func killedAfter(t *testing.T, n int) bool {
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	world, err := demo.MakeWorld(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	act := demo.Scripts["one"][0]
	if err := (&demo.Demo{World: world}).OccupyTag(ctx, act.Tag); err != nil {
		t.Fatal(err)
	}
	before := cmdtest.Look(t, world)
	server := cmdtest.ServeFor(t, world.Data(), "--listen", "127.0.0.1:0", "--tenant", demo.Tenant, "--open")
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}

	counter := &undoCounter{keys: map[string]map[string]bool{}}
	git := startWorker(t, cmdtest.Dial(t, server.URL), counter)
	agentConn := cmdtest.Dial(t, server.URL)
	c := &cli.Client{Conn: cmdtest.Dial(t, server.URL), Tenant: demo.Tenant, Server: server.URL, Timeout: 5 * time.Second}
	killed, first := newBlow(), server
	watchAppends(t, cmdtest.Dial(t, server.URL), n, func() { killed.strike(first) })
	said := playInBackground(ctx, agentConn, world, act)
	ended := make(chan api.Plan, 1)
	go func() { ended <- awaitCompensated(ctx, c, act.Plan) }() // ends with ctx

	over := false
	var plan api.Plan
	select {
	case <-killed.struck:
	case plan = <-ended:
		over = true
	}
	hit := killed.callOff()
	if hit {
		server.Command.Wait()
		server = cmdtest.ServeFor(t, world.Data(), "--listen", address.Host, "--tenant", demo.Tenant, "--open")
	}
	if !over {
		plan = <-ended
	}
	text := <-said
	if plan.State != ledger.StateCompensated || !strings.Contains(text, "fails: git push") || plan.Compensated != 4 ||
		plan.Skipped != 1 {
		t.Errorf("after %d appends: plan %s, %d compensated, %d skipped; the agent said %q", n, plan.State,
			plan.Compensated, plan.Skipped, text)
	}
	cmdtest.SameState(t, fmt.Sprintf("killed after %d appends", n), before, cmdtest.Look(t, world))
	checkOnce(t, ctx, n, c, act.Plan, counter)
	if err := git.Close(ctx); err != nil {
		t.Error(err)
	}
	server.End(t)
	return hit
}

// watchAppends calls kill when the n-th commit from now on is published.
func watchAppends(t *testing.T, conn *nats.Conn, n int, kill func()) {
	t.Helper()
	seen := 0
	_, err := conn.Subscribe("saga."+demo.Tenant+".>", func(*nats.Msg) {
		if seen++; seen == n {
			kill()
		}
	})
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func startWorker(t *testing.T, conn *nats.Conn, counter *undoCounter) *worker.Worker {
	t.Helper()
	w, err := worker.New(worker.Config{Conn: conn, Tenant: demo.Tenant, Name: "git"})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range demo.Inverses {
		run := demo.Handler(i.Undo)
		if err := w.Handle(i.Capability, func(ctx context.Context, c api.Command) (worker.Result, error) {
			counter.count(i.Capability, c.Key)
			return run(ctx, c)
		}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// playInBackground plays one script; what the agent said comes when it is done.
func playInBackground(ctx context.Context, conn *nats.Conn, world demo.World, act demo.Script) <-chan string {
	said := make(chan string, 1)
	go func() { // ends with the script or ctx
		var text strings.Builder
		err := func() error {
			agent, err := coordinator.New(coordinator.Config{
				Conn: conn, Tenant: demo.Tenant, Agent: demo.AgentName, Contracts: demo.Contracts(),
				AppendTimeout: testenv.Patience,
			})
			if err != nil {
				return err
			}
			if err := demo.PlayScript(ctx, agent, world, act, &text); err != nil {
				return err
			}
			return agent.Close(ctx)
		}()
		said <- fmt.Sprint(text.String(), err)
	}()
	return said
}

// awaitCompensated asks, over restarts of the server, until the plan has ended.
func awaitCompensated(ctx context.Context, c *cli.Client, id string) api.Plan {
	for ctx.Err() == nil {
		plan, err := c.Plan(ctx, id, 0)
		if err == nil && hasEnded(plan.State) {
			return plan
		}
		select {
		case <-ctx.Done():
		case <-time.After(demo.AgainPause):
		}
	}
	return api.Plan{}
}

// checkOnce wants each of the four undos under one key and with one record of
// success, and the forwards' outcomes recorded once.
func checkOnce(t *testing.T, ctx context.Context, n int, c *cli.Client, plan string, counter *undoCounter) {
	t.Helper()
	h, err := (&demo.Demo{Client: c}).ReadHistory(ctx, plan)
	if err != nil {
		t.Fatal(err)
	}
	for action, times := range h.Succeeded {
		if times != 1 {
			t.Errorf("after %d appends: %d records of success of action %s", n, times, action)
		}
	}
	counter.mu.Lock()
	defer counter.mu.Unlock()
	if len(h.Succeeded) != 4 || len(counter.keys) != 4 {
		t.Errorf("after %d appends: undone %v, asked for %v, want four", n, h.Succeeded, counter.keys)
	}
	for capability, keys := range counter.keys {
		if len(keys) != 1 {
			t.Errorf("after %d appends: %s came under %d keys", n, capability, len(keys))
		}
	}
}

// hasEnded reports whether a plan's state is one that stays by itself.
func hasEnded(state string) bool {
	return state != "" && state != ledger.StateOpen && state != ledger.StateCommitting &&
		state != ledger.StateUnwinding
}
