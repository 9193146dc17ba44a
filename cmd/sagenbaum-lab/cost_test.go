package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum-lab/peer"
	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/executor/host/inprocess"
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

// asInside has this binary be server, agent and worker in one process, on a folder, for
// TestAPlanCostsItsCommitsInProcess.
const asInside = "SAGENBAUM_LAB_INSIDE"

func TestMain(m *testing.M) {
	if data := os.Getenv(asInside); data != "" {
		if err := costInside(data); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// insidePlans are taken one after the other, after insideWarm others.
const insidePlans, insideWarm = 60, 10

// What one of them may cost: what it costs, and a few percent. The syncs of checkpoints and of the
// second copy come by time: a slow machine has some more of them a plan. No count of instructions
// can be had on every machine; allocations stand for them.
const (
	insideCommits     = 8.3
	insideSyncs       = 8.5 // of the ledger
	insideAllSyncs    = 10.5
	insideAllocations = 2900
)

// costInside says when it has warmed up, and waits for a line; then it takes the plans, says what
// each has cost, and waits for a line again.
func costInside(data string) error {
	ctx, lines := context.Background(), bufio.NewScanner(os.Stdin)
	p := peer.NewInside("test", new(quietWorld))
	if err := p.Start(ctx, data); err != nil {
		return err
	}
	defer p.Stop()
	next := 0
	take := func(plans int) error {
		for range plans {
			if err := p.Plan(ctx, fmt.Sprint("p", next)); err != nil {
				return err
			}
			next++
		}
		return nil
	}
	if err := take(insideWarm); err != nil {
		return err
	}
	fmt.Println("warm")
	lines.Scan()
	var before, after runtime.MemStats
	commits := p.Commits()
	runtime.ReadMemStats(&before)
	if err := take(insidePlans); err != nil {
		return err
	}
	runtime.ReadMemStats(&after)
	fmt.Println(p.Commits()-commits, after.Mallocs-before.Mallocs)
	lines.Scan()
	return nil
}

// TestAPlanCostsItsCommitsInProcess counts what an undo5 plan costs where agent, server and worker
// are in one process: durable commits, syncs of files and allocations, of all three together.
func TestAPlanCostsItsCommitsInProcess(t *testing.T) {
	testenv.Strace(t)
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	cmd := exec.CommandContext(t.Context(), "strace", "-f", "--seccomp-bpf", "-qq", "-y", "-o", calls,
		"-e", "trace=fsync,fdatasync,syncfs,msync", os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), asInside+"="+dir), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "warm" {
		t.Fatalf("it says %q", lines.Text())
	}
	warm, ledgerWarm := synced(t, calls), syncedBelow(t, calls, inprocess.ServerDir(filepath.Join(dir, "data")))
	fmt.Fprintln(in)
	var commits, allocations float64
	lines.Scan()
	if _, err := fmt.Sscan(lines.Text(), &commits, &allocations); err != nil {
		t.Fatalf("it says %q", lines.Text())
	}
	all := float64(synced(t, calls)-warm) / insidePlans
	syncs := float64(syncedBelow(t, calls, inprocess.ServerDir(filepath.Join(dir, "data")))-ledgerWarm) / insidePlans
	commits, allocations = commits/insidePlans, allocations/insidePlans
	fmt.Fprintln(in)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("%.2f commits, %.2f syncs of the ledger, %.2f in all and %.0f allocations a plan", commits,
		syncs, all, allocations)
	if commits < 8 || commits > insideCommits || syncs < commits || syncs > insideSyncs ||
		all > insideAllSyncs || allocations > insideAllocations {
		t.Errorf("at most %.1f, %.1f, %.1f and %d, and a sync for each commit", insideCommits, insideSyncs,
			insideAllSyncs, insideAllocations)
	}
}

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
	m, err := conn.Request("query.default.status", nil, testenv.Patience)
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

// syncedBelow counts those of files below a folder.
func syncedBelow(t *testing.T, calls, folder string) int {
	t.Helper()
	data, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(data, []byte("<"+folder+"/"))
}
