package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum-lab/peer"
	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// errLastStep is how the fifth step of a plan fails.
var errLastStep = errors.New("the last step is refused")

// quietWorld takes steps and undos, and counts the undos.
type quietWorld struct {
	mu     sync.Mutex
	undone int
}

func (w *quietWorld) Step(plan string, n int) (string, error) {
	if n == 5 {
		return "", errLastStep
	}
	return fmt.Sprintf(`{"saga":%q,"step":%d}`, plan, n), nil
}

func (w *quietWorld) Undo(string, int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.undone++
	return "{}"
}

func (w *quietWorld) Fired(string, int64) {}

// TestAPlanCostsItsCommits counts what an undo5 plan costs the server that ships: its durable
// commits, and the syncs of files that all of it makes, which no other program on the machine
// changes. One after the other, a plan needs eight commits, six of its agent and two for its
// unwind, and each is one sync; answers that are slow to come add some. What the
// second copy of the ledger and its checkpoints sync comes by time and not by plan.
func TestAPlanCostsItsCommits(t *testing.T) {
	if !testenv.Long() {
		t.Skip("of the long run: it builds the server")
	}
	testenv.Strace(t)
	dir := t.TempDir()
	server, err := serverBinary(t.Context(), "", dir)
	if err != nil {
		t.Fatal(err)
	}
	// -D: the server keeps the process id that its starter knows.
	calls := filepath.Join(dir, "calls")
	traced := filepath.Join(dir, "traced")
	line := fmt.Sprintf("#!/bin/sh\nexec %s -D -f -qq -o %s -e trace=fsync,fdatasync,syncfs,msync %s \"$@\"\n",
		"strace", calls, server)
	if err := os.WriteFile(traced, []byte(line), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []planCost{
		{atOnce: 1, plans: 100, commitsMin: 7.9, commitsMax: 8.9, syncsMax: 10.5},
		{atOnce: 16, plans: 800, commitsMin: 0.2, commitsMax: 4, syncsMax: 4.5},
	} {
		c.check(t, traced, filepath.Join(dir, fmt.Sprint(c.atOnce)), calls)
	}
}

// planCost is what so many plans, so many at once, may cost, each.
type planCost struct {
	atOnce, plans                    int
	commitsMin, commitsMax, syncsMax float64
}

func (c planCost) check(t *testing.T, server, data, calls string) {
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	world := new(quietWorld)
	p := peer.New(server, "test", world)
	if err := p.Start(t.Context(), data); err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	c.run(t, p, "warm", 2*c.atOnce)
	commits, syncs := stored(t, p.URL(), data), synced(t, calls)
	c.run(t, p, "p", c.plans)
	plans := float64(c.plans)
	perPlan := float64(stored(t, p.URL(), data)-commits) / plans
	syncsPerPlan := float64(synced(t, calls)-syncs) / plans
	t.Logf("%d at once: %.2f commits and %.2f syncs a plan", c.atOnce, perPlan, syncsPerPlan)
	if want := 4 * (c.plans + 2*c.atOnce); world.undone != want {
		t.Errorf("%d undos, want %d", world.undone, want)
	}
	if perPlan < c.commitsMin || perPlan > c.commitsMax {
		t.Errorf("%d at once: %.2f commits a plan, want %.1f to %.1f", c.atOnce, perPlan,
			c.commitsMin, c.commitsMax)
	}
	if syncsPerPlan > c.syncsMax || syncsPerPlan < perPlan {
		t.Errorf("%d at once: %.2f syncs a plan, want %.2f to %.1f", c.atOnce, syncsPerPlan, perPlan,
			c.syncsMax)
	}
}

// run runs plans, so many at once.
func (c planCost) run(t *testing.T, p *peer.Peer, name string, plans int) {
	var all sync.WaitGroup
	next := make(chan int)
	for range c.atOnce {
		all.Go(func() {
			for n := range next {
				if err := p.Plan(t.Context(), fmt.Sprintf("%s%d", name, n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for n := range plans {
		next <- n
	}
	close(next)
	all.Wait()
}

// stored is the last sequence of the ledger: one for each commit.
func stored(t *testing.T, url, data string) uint64 {
	t.Helper()
	options, _, err := connect.File(filepath.Join(data, "data", "auth", "local.creds"), "default")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := nats.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	m, err := conn.Request("query.default.status", nil, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Status struct{ Last uint64 } }
	if err := json.Unmarshal(m.Data, &answer); err != nil || answer.Status.Last == 0 {
		t.Fatalf("%v: %s", err, m.Data)
	}
	return answer.Status.Last
}

// synced counts the calls that strace has written down.
func synced(t *testing.T, calls string) int {
	t.Helper()
	data, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(data, []byte("sync("))
}
