//go:build exercise

package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/process"
)

// Agents and workers of the torture are processes of their own: the test binary
// again, told by its environment what to be. What they do they say on standard
// output, one line each, before or after it as the word tells.
const (
	asActor    = "SAGENBAUM_TEST_AS_ACTOR" // agent or worker
	actorURL   = "SAGENBAUM_TEST_SERVER"
	actorWorld = "SAGENBAUM_TEST_WORLD"
	actorName  = "SAGENBAUM_TEST_INCARNATION"

	roleAgent  = "agent"
	roleWorker = "worker"

	// briefDeadline undoes the plans that their agent forgets.
	briefDeadline = 400 * time.Millisecond
	// actorDoubt is how long an agent of the torture tries on: longer than any pause,
	// full disk or rebuild on a busy machine.
	actorDoubt = 3 * time.Minute
)

// playActor is the main function of an agent or worker.
func playActor(role string) int {
	ctx, cancel := process.UntilInputEnds(context.Background(), os.Stdin)
	defer cancel()
	conn, err := nats.Connect(os.Getenv(actorURL), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.RetryOnFailedConnect(true))
	if err == nil && role == roleWorker {
		err = playMaker(ctx, conn)
	} else if err == nil {
		err = playAgents(ctx, conn, os.Getenv(actorName))
	}
	if err != nil {
		fmt.Println("gaveup", strings.ReplaceAll(err.Error(), "\n", " "))
		return cli.ExitFailed
	}
	return cli.ExitGood
}

// playMaker serves the undos of things.
func playMaker(ctx context.Context, conn *nats.Conn) error {
	w, err := worker.New(worker.Config{Conn: conn, Tenant: tortureTenant, Name: "maker"})
	if err != nil {
		return err
	}
	err = w.Handle(unmakeThing, func(ctx context.Context, c api.Command) (worker.Result, error) {
		var arguments struct{ Thing string }
		if err := json.Unmarshal(c.Arguments, &arguments); err != nil {
			return worker.Result{}, err
		}
		fmt.Println("asked", arguments.Thing)
		_, err := callOutside(ctx, os.Getenv(actorWorld), unmakeThing, arguments.Thing, c.Key)
		fmt.Println("undid", arguments.Thing)
		return worker.Result{}, err
	})
	if err == nil {
		err = w.Answer(lookForThing, lookOutside)
	}
	if err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	closing, cancel := context.WithTimeout(context.Background(), actorDoubt)
	defer cancel()
	return w.Close(closing)
}

// lookOutside is the probe of a thing: the world says whether it is there.
func lookOutside(ctx context.Context, c api.Command) (worker.Answer, error) {
	var arguments struct{ Thing string }
	if err := json.Unmarshal(c.Arguments, &arguments); err != nil {
		return worker.Answer{}, err
	}
	missing, err := callOutside(ctx, os.Getenv(actorWorld), lookForThing, arguments.Thing, c.Key)
	switch {
	case err != nil:
		return worker.Answer{}, err
	case missing:
		return worker.Absent(), nil
	}
	return worker.Present(arguments.Thing), nil
}

// playAgents plays plan after plan, several at a time, until its input ends; then
// it ends what it is at.
func playAgents(ctx context.Context, conn *nats.Conn, incarnation string) error {
	agent, err := coordinator.New(coordinator.Config{
		Conn: conn, Tenant: tortureTenant, Agent: "tester", AppendTimeout: actorDoubt, ConfirmTimeout: actorDoubt,
		Contracts: []contract.Contract{
			{Capability: makeThing, Class: contract.Compensable, Late: contract.LateRefused, Inverse: unmaking()},
			{Capability: makeSlowly, Class: contract.Compensable, Timeout: slowest / 2, Grace: 300 * time.Millisecond,
				Settle: 6 * slowest, Inverse: unmaking()},
			{Capability: makeProbed, Class: contract.Compensable, Timeout: slowest / 2, Grace: 300 * time.Millisecond,
				Settle: 6 * slowest, Inverse: unmaking(),
				Probe: &contract.Probe{Call: lookForThing, With: map[string]any{"thing": "=input.thing"}, Attempts: 100,
					Backoff: 20 * time.Millisecond, Timeout: 3 * time.Second}},
		},
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	var running sync.WaitGroup
	failures := make(chan error, loadAgents)
	for a := range loadAgents {
		running.Go(func() { // ends with ctx
			for n := a; ctx.Err() == nil; n++ {
				if err := playThings(agent, fmt.Sprintf("%s-%d-%d", incarnation, a, n), n); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	running.Wait()
	close(failures)
	closing, cancel := context.WithTimeout(context.Background(), actorDoubt)
	defer cancel()
	return errors.Join(<-failures, agent.Close(closing))
}

func unmaking() *contract.Inverse {
	return &contract.Inverse{
		Call: unmakeThing, With: map[string]any{"thing": "=input.thing", "forward": "=meta.forward_key"},
		Attempts: 100, Backoff: 20 * time.Millisecond, BackoffMax: 500 * time.Millisecond, Timeout: 3 * time.Second,
	}
}

// playThings plays one plan. By its number it fails, commits, stays open, or is
// forgotten by its agent, so that its deadline undoes it.
func playThings(agent *coordinator.Coordinator, id string, n int) error {
	ctx, cancel := context.WithTimeout(context.Background(), actorDoubt)
	defer cancel()
	declared := coordinator.PlanSpec{ID: id, Owner: "owner1"}
	if n%6 == 3 {
		declared.ID += forgotten
		declared.Deadline = briefDeadline
	}
	plan, err := agent.Begin(ctx, declared)
	for a := 0; a < loadActions && err == nil; a++ {
		capability := makeThing
		if n%24 < 12 && n%3 == 0 && a == 1 { // the plan will be undone
			capability = []string{makeSlowly, makeSlowly, makeProbed, makeProbed}[n%24/3]
		}
		err = makeOne(ctx, plan, capability, fmt.Sprintf("%s/a%d", declared.ID, a))
		if (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, coordinator.ErrNotStarted)) && ctx.Err() == nil {
			err = nil // it hung up, and the thing may be made still, or never called
		}
	}
	switch {
	case n%6 == 3 && (errors.Is(err, coordinator.ErrUnwinding) || errors.Is(err, errLate)):
		return nil // its deadline was faster
	case err != nil:
		return fmt.Errorf("plan %s: %w", declared.ID, err)
	case n%6 == 3:
		return nil
	case n%6 == 2:
		err = plan.Flush(ctx)
	case n%3 == 1:
		if err = plan.Commit(ctx); err == nil {
			fmt.Println("end", declared.ID, ledger.StateCommitted)
		}
	default:
		if err = plan.Fail(ctx, "sold out"); err == nil {
			fmt.Println("end", declared.ID, ledger.StateCompensated)
		}
	}
	if err != nil {
		return fmt.Errorf("plan %s: %w", declared.ID, err)
	}
	return nil
}

// forgotten ends the ids of plans that only their deadline ends.
const forgotten = "-forgotten"

// slowest is how long after the call a slow thing may be made.
const slowest = 400 * time.Millisecond

var errLate = errors.New("its undo came first")

func makeOne(ctx context.Context, plan *coordinator.Plan, capability, thing string) error {
	_, action, _ := strings.Cut(thing, "/")
	fmt.Println("want", thing)
	_, err := plan.Do(ctx,
		coordinator.Action{ID: action, Capability: capability, Input: map[string]string{"thing": thing}},
		func(ctx context.Context, call coordinator.Call) (coordinator.Outcome, error) {
			fmt.Println("pair", thing) // a forward runs when its pair is durable
			refused, err := callOutside(ctx, os.Getenv(actorWorld), capability, thing, call.Key)
			if refused {
				return coordinator.Outcome{}, coordinator.NotTaken(errLate)
			}
			return coordinator.Outcome{}, err
		})
	if err == nil {
		fmt.Println("made", thing)
	}
	return err
}

// notes are what agents and workers have said, over all their lives.
type notes struct {
	mu     sync.Mutex
	wanted map[string]bool   // "plan/action" that an agent was about to register
	acked  map[string]bool   // whose pair was acknowledged
	made   map[string]bool   // whose forward said that it succeeded
	ends   map[string]string // plan -> acknowledged end
	asked  map[string]bool   // things whose undo a worker was asked for
	undid  map[string]bool   // and has done
	gaveUp []string
	acks   int
	next   chan struct{} // closed by the next acknowledgement
}

func newNotes() *notes {
	return &notes{
		wanted: map[string]bool{}, acked: map[string]bool{}, made: map[string]bool{}, ends: map[string]string{},
		asked: map[string]bool{}, undid: map[string]bool{}, next: make(chan struct{}),
	}
}

// take takes one line of an actor.
func (n *notes) take(line string) {
	word, rest, _ := strings.Cut(line, " ")
	n.mu.Lock()
	defer n.mu.Unlock()
	switch word {
	case "want":
		n.wanted[rest] = true
	case "made":
		n.made[rest] = true
	case "asked":
		n.asked[rest] = true
	case "undid":
		n.undid[rest] = true
	case "pair":
		n.acked[rest] = true
		n.acknowledged()
	case "end":
		plan, state, _ := strings.Cut(rest, " ")
		n.ends[plan] = state
		n.acknowledged()
	case "gaveup":
		n.gaveUp = append(n.gaveUp, rest)
	}
}

func (n *notes) acknowledged() {
	n.acks++
	close(n.next)
	n.next = make(chan struct{})
}

// said is a copy of what was said so far.
func (n *notes) said() *notes {
	n.mu.Lock()
	defer n.mu.Unlock()
	return &notes{
		wanted: maps.Clone(n.wanted), acked: maps.Clone(n.acked), made: maps.Clone(n.made), ends: maps.Clone(n.ends),
		asked: maps.Clone(n.asked), undid: maps.Clone(n.undid), gaveUp: slices.Clone(n.gaveUp), acks: n.acks,
	}
}

// await returns when so many acknowledgements have come, or gone ends.
func (n *notes) await(t *testing.T, ctx context.Context, acks int, gone <-chan struct{}) {
	t.Helper()
	for {
		n.mu.Lock()
		have, next, gaveUp := n.acks, n.next, n.gaveUp
		n.mu.Unlock()
		switch {
		case have >= acks:
			return
		case len(gaveUp) > 0:
			t.Fatalf("%d of %d acknowledgements, then %v", have, acks, gaveUp)
		}
		select {
		case <-next:
		case <-gone:
			return
		case <-time.After(time.Second): // for an agent that gave up
		case <-ctx.Done():
			t.Fatalf("%d of %d acknowledgements in time", have, acks)
		}
	}
}

// actor is an agent or worker process.
type actor struct {
	command *exec.Cmd
	stdin   io.Closer
	read    chan struct{} // closed when all that it said was read
}

// startActor starts an agent or worker and returns when it is ready.
func startActor(t *testing.T, role, server, world, name string, n *notes) *actor {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	a := &actor{command: exec.CommandContext(t.Context(), self), read: make(chan struct{})}
	a.command.Env = append(os.Environ(), asActor+"="+role, actorURL+"="+server, actorWorld+"="+world,
		actorName+"="+name)
	a.command.Stderr = os.Stderr
	out, err := a.command.StdoutPipe()
	if err == nil {
		a.stdin, err = a.command.StdinPipe()
	}
	if err == nil {
		err = a.command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.command.Process.Kill() })
	ready := make(chan struct{})
	go func() { // ends with the process
		defer close(a.read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if lines.Text() == "ready" {
				close(ready)
				continue
			}
			n.take(lines.Text())
		}
	}()
	select {
	case <-ready:
	case <-a.read:
		t.Fatalf("the %s ended at once: %v", role, n.said().gaveUp)
	}
	return a
}

// kill9 ends an actor at once; all that it said was taken when it returns.
func (a *actor) kill9(t *testing.T) {
	t.Helper()
	if err := a.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-a.read
	_ = a.command.Wait() // it says that it was killed
}

// end lets an actor end what it is at.
func (a *actor) end(t *testing.T) {
	t.Helper()
	a.stdin.Close()
	late := time.AfterFunc(actorDoubt, func() { a.command.Process.Kill() })
	defer late.Stop()
	<-a.read
	if err := a.command.Wait(); err != nil {
		t.Errorf("an actor ended with %v", err)
	}
}
