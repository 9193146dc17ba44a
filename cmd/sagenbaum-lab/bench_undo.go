package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// benchContracts declares the one action that the benchmarks take.
func benchContracts() []contract.Contract {
	return []contract.Contract{{
		Capability: "bench.do", Class: contract.Compensable,
		Inverse: &contract.Inverse{Call: "bench.undo", With: map[string]any{"id": "=output.id"}},
	}}
}

type benchOutput struct {
	ID int `json:"id"`
}

func benchForward(context.Context, coordinator.Call) (coordinator.Outcome, error) {
	return coordinator.Outcome{Output: benchOutput{7}}, nil
}

// benchPairs measures how fast pairs are registered, beside raw publishes of
// the same bytes and raw fsyncs.
func benchPairs(ctx context.Context, out io.Writer, b *benching, dir string, durable bool) error {
	disk, err := fsyncRate(dir, b.each/3)
	if err != nil {
		return err
	}
	printRow(out, "fsync of 512 bytes", disk, "/s")
	rig, err := startBench(ctx, dir, durable)
	if err != nil {
		return err
	}
	defer rig.close()
	c, err := coordinator.New(coordinator.Config{Conn: rig.client, Tenant: benchTenant,
		Agent: "bench", Contracts: benchContracts()})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	for _, n := range b.concurrency {
		raw, err := rawPublish(ctx, rig, n, b.each)
		if err != nil {
			return err
		}
		printRow(out, fmt.Sprintf("raw publish, %d at once", n), raw, "msg/s",
			ratio(raw, disk, "fsync"))
		plans := make([]*coordinator.Plan, n)
		for i := range plans {
			if plans[i], err = c.Begin(ctx, coordinator.PlanSpec{}); err != nil {
				return err
			}
		}
		pairs, err := measure(n, b.each, func(i int) error {
			_, err := plans[i].Do(ctx,
				coordinator.Action{Capability: "bench.do", Input: benchOutput{1}}, benchForward)
			return err
		})
		if err != nil {
			return err
		}
		printRow(out, fmt.Sprintf("pairs, %d at once", n), pairs, "pairs/s",
			ratio(pairs, raw, "raw"), ratio(pairs, disk, "fsync"))
	}
	return nil
}

// pairBytes is about what one pair with its outcome takes in the stream.
const pairBytes = 400

// rawPublish measures JetStream alone, on a stream of its own.
func rawPublish(ctx context.Context, rig *bench, n int, each time.Duration) (rate, error) {
	js, err := rig.client.JetStream()
	if err != nil {
		return rate{}, err
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: "RAW",
		Subjects: []string{"raw"}}); err != nil {
		return rate{}, err
	}
	defer func() { _ = js.DeleteStream("RAW") }()
	body := make([]byte, pairBytes)
	return measure(n, each, func(int) error {
		_, err := js.Publish("raw", body, nats.Context(ctx))
		return err
	})
}

// undoing tracks the plans of the undo5 workload by their id.
type undoing struct {
	mu    sync.Mutex
	plans map[string]*undoPlan
}

type undoPlan struct {
	undone int
	last   time.Time // of the last undo
	ended  chan string
}

// benchUndo measures plans of five actions whose fifth fails.
func benchUndo(ctx context.Context, out io.Writer, b *benching, dir string, durable bool) error {
	rig, err := startBench(ctx, dir, durable)
	if err != nil {
		return err
	}
	defer rig.close()
	workers, err := nats.Connect(rig.server.URL())
	if err != nil {
		return err
	}
	defer workers.Close()
	u := &undoing{plans: map[string]*undoPlan{}}
	w, err := worker.New(worker.Config{Conn: workers, Tenant: benchTenant, Name: "bench",
		Concurrency: 64})
	if err != nil {
		return err
	}
	defer func() { _ = w.Close(ctx) }()
	if err := w.Handle("bench.undo", u.undo); err != nil {
		return err
	}
	if _, err := rig.client.Subscribe(api.NoticeSubject(benchTenant, "bench", "*"),
		u.notice); err != nil {
		return err
	}
	c, err := coordinator.New(coordinator.Config{Conn: rig.client, Tenant: benchTenant,
		Agent: "bench", Contracts: benchContracts()})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	for _, n := range b.concurrency {
		var mu sync.Mutex
		var latency []time.Duration
		before, err := rig.commits()
		if err != nil {
			return err
		}
		plans, err := measure(n, b.each, func(int) error {
			took, err := u.run(ctx, c)
			mu.Lock()
			latency = append(latency, took)
			mu.Unlock()
			return err
		})
		if err != nil {
			return err
		}
		after, err := rig.commits()
		if err != nil {
			return err
		}
		slices.Sort(latency)
		l := rate{took: latency}
		fmt.Fprintf(out,
			"  %-34s %9.0f %-9s p50 %8s  p99 %8s  failure to last undo; %.1f commits a plan\n",
			fmt.Sprintf("undo5, %d at once", n),
			plans.perSecond(), "plans/s", short(l.quantile(0.5)), short(l.quantile(0.99)),
			float64(after-before)/float64(len(latency)))
	}
	return nil
}

// undo is the worker's handler: it counts.
func (u *undoing) undo(_ context.Context, c api.Command) (worker.Result, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if p := u.plans[c.Plan]; p != nil {
		p.undone++
		p.last = time.Now()
	}
	return worker.Result{}, nil
}

func (u *undoing) notice(m *nats.Msg) {
	var n api.Notice
	if json.Unmarshal(m.Data, &n) != nil || n.State == ledger.StateUnwinding {
		return
	}
	u.mu.Lock()
	p := u.plans[n.Plan]
	u.mu.Unlock()
	if p != nil {
		p.ended <- n.State
	}
}

var errBench = errors.New("the fifth action fails")

// run takes one plan from its start to its recorded end and returns the time
// from its failure to its last undo.
func (u *undoing) run(ctx context.Context, c *coordinator.Coordinator) (time.Duration, error) {
	plan, err := c.Begin(ctx, coordinator.PlanSpec{})
	if err != nil {
		return 0, err
	}
	p := &undoPlan{ended: make(chan string, 1)}
	u.mu.Lock()
	u.plans[plan.ID()] = p
	u.mu.Unlock()
	for i := range 5 {
		_, err := plan.Do(ctx, coordinator.Action{Capability: "bench.do", Input: benchOutput{i}},
			func(ctx context.Context, call coordinator.Call) (coordinator.Outcome, error) {
				if i == 4 {
					return coordinator.Outcome{}, coordinator.NotTaken(errBench)
				}
				return benchForward(ctx, call)
			})
		if err != nil && !errors.Is(err, errBench) {
			return 0, err
		}
	}
	failed := time.Now()
	if err := plan.Fail(ctx, "the fifth action failed"); err != nil {
		return 0, err
	}
	select {
	case state := <-p.ended:
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.plans, plan.ID())
		if state != ledger.StateCompensated || p.undone != 4 {
			return 0, fmt.Errorf("plan %s ended %s after %d undos", plan.ID(), state, p.undone)
		}
		return p.last.Sub(failed), nil
	case <-time.After(30 * time.Second):
		return 0, fmt.Errorf("plan %s does not end", plan.ID())
	}
}

// foldPlans is how many plans of 100 actions the fold figure folds.
const foldPlans = 1000

// benchFold measures folding a ledger from nothing, beside reading it.
func benchFold(ctx context.Context, out io.Writer, _ *benching, dir string) error {
	rig, err := startBench(ctx, dir, false)
	if err != nil {
		return err
	}
	defer rig.close()
	c, err := coordinator.New(coordinator.Config{Conn: rig.client, Tenant: benchTenant,
		Agent: "bench", Contracts: benchContracts()})
	if err != nil {
		return err
	}
	if err := fill(ctx, c, foldPlans, 100, 0); err != nil {
		return err
	}
	if err := c.Close(ctx); err != nil {
		return err
	}
	if _, err := rig.folded(ctx); err != nil {
		return err
	}
	if err := rig.stopHost(); err != nil {
		return err
	}
	messages, read, err := rig.readAll(ctx)
	if err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		drop []string // below the executor's folder
	}{
		{"cold fold, tiles written", []string{"state", "snapshots", "tiles"}},
		{"cold fold, held against the tiles", []string{"state", "snapshots"}},
		{"from the last snapshot", []string{"state"}},
	} {
		for _, name := range part.drop {
			if err := os.RemoveAll(filepath.Join(dir, "executor", name)); err != nil {
				return err
			}
		}
		start := time.Now()
		if err := rig.startHost(ctx); err != nil {
			return err
		}
		records, err := rig.folded(ctx)
		if err != nil {
			return err
		}
		took := time.Since(start)
		if err := awaitSnapshot(ctx, filepath.Join(dir, "executor", "snapshots")); err != nil {
			return err
		}
		if err := rig.stopHost(); err != nil {
			return err
		}
		fmt.Fprintf(out,
			"  %-34s %9.0f records/s (%d records in %d messages, %s), %.2f of reading alone (%s)\n",
			part.name,
			float64(records)/took.Seconds(), records, messages, short(took),
			read.Seconds()/took.Seconds(), short(read))
	}
	bytes, err := sizeOf(filepath.Join(dir, "executor", "tiles"))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  %-34s %9d bytes\n", "tiles", bytes)
	return nil
}

// awaitSnapshot waits for the snapshot that a host takes some seconds after it has
// folded this much.
func awaitSnapshot(ctx context.Context, dir string) error {
	for {
		// the pattern is good
		if taken, _ := filepath.Glob(filepath.Join(dir, "[0-9]*")); len(taken) > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// sizeOf counts the bytes of the files in a folder.
func sizeOf(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return bytes, err
}

// fill registers plans of `actions` completed actions, 64 at once.
func fill(ctx context.Context, c *coordinator.Coordinator, plans, actions int,
	deadline time.Duration) error {
	var running sync.WaitGroup
	places := make(chan struct{}, 64)
	var mu sync.Mutex
	var first error
	for range plans {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			plan, err := c.Begin(ctx, coordinator.PlanSpec{Deadline: deadline})
			for i := 0; i < actions && err == nil; i++ {
				_, err = plan.Do(ctx,
					coordinator.Action{Capability: "bench.do", Input: benchOutput{i}}, benchForward)
			}
			if err == nil {
				err = plan.Flush(ctx)
			}
			if err != nil {
				mu.Lock()
				first = err
				mu.Unlock()
			}
		})
	}
	running.Wait()
	return first
}

// benchHeld measures what held registrations cost: memory and start time.
func benchHeld(ctx context.Context, out io.Writer, b *benching, dir string) error {
	fmt.Fprintf(out, "\nheld registrations\n")
	rig, err := startBench(ctx, dir, false)
	if err != nil {
		return err
	}
	c, err := coordinator.New(coordinator.Config{Conn: rig.client, Tenant: benchTenant,
		Agent: "bench", Contracts: benchContracts()})
	if err != nil {
		return err
	}
	if err := fill(ctx, c, b.held, 1, 21*24*time.Hour); err != nil {
		return err
	}
	_ = c.Close(ctx)
	if _, err := rig.folded(ctx); err != nil {
		return err
	}
	rig.close()
	return measureServe(ctx, out, b, dir)
}

// residentKB reads a process's resident memory; 0 where /proc is not there.
func residentKB(pid int) int { return statusKB(pid, "VmRSS") }

// statusKB reads a number of kB of /proc/PID/status; 0 where that is not there.
func statusKB(pid int, field string) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		var kb int
		if _, err := fmt.Sscanf(line, field+": %d kB", &kb); err == nil {
			return kb
		}
	}
	return 0
}
