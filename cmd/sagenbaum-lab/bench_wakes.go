package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// wakesAtOnce is how many deadlines fall due within the time that is asked for.
const wakesAtOnce = 10_000

// benchWakes measures how late a lease fires that waits for the clock, and what
// leases cost while nothing happens.
func benchWakes(ctx context.Context, out io.Writer, b *benching, dir string) error {
	for _, durable := range []bool{true, false} {
		name := "sync-always"
		if !durable {
			name = "no-sync"
		}
		fmt.Fprintf(out, "\nwakes, %s: %d deadlines within %s, beside %d held leases\n",
			name, wakesAtOnce, b.within, b.held)
		if err := benchWakesMode(ctx, out, b, filepath.Join(dir, name), durable); err != nil {
			return err
		}
	}
	return benchIdle(ctx, out, filepath.Join(dir, "idle"), 0)
}

func benchWakesMode(ctx context.Context, out io.Writer, b *benching, dir string,
	durable bool) error {
	rig, err := startBench(ctx, dir, durable)
	if err != nil {
		return err
	}
	defer rig.close()
	w, err := worker.New(worker.Config{Conn: rig.client, Tenant: benchTenant, Name: "bench",
		Concurrency: 64})
	if err != nil {
		return err
	}
	defer func() { _ = w.Close(ctx) }()
	calls := &calledAt{at: map[string]time.Time{}}
	if err := w.Handle("bench.undo", calls.call); err != nil {
		return err
	}
	if err := rig.hold(ctx, benchTenant, b.held,
		func(int) string { return `elapsed(action.at, duration("72h"))` }); err != nil {
		return err
	}
	if !durable {
		if err := measureIdle(ctx, out, rig, b.held); err != nil {
			return err
		}
	}
	for range 3 {
		if err := wakeOnce(ctx, out, rig, calls, b.within); err != nil {
			return err
		}
	}
	return nil
}

// calledAt is when a worker was called for each plan.
type calledAt struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (c *calledAt) call(_ context.Context, command api.Command) (worker.Result, error) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, again := c.at[command.Plan]; !again {
		c.at[command.Plan] = now
	}
	return worker.Result{}, nil
}

// late returns how long after its deadline each plan was called for, and forgets them.
func (c *calledAt) late(deadlines map[string]int64) (late []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for plan, at := range c.at {
		late = append(late, time.Duration(at.UnixNano()-deadlines[plan]))
	}
	clear(c.at)
	return late
}

// wakeOnce lets deadlines fall due and prints how late each was taken.
func wakeOnce(ctx context.Context, out io.Writer, rig *bench, calls *calledAt,
	within time.Duration) error {
	start := time.Now().Add(3 * time.Second)
	deadlines := map[string]int64{}
	var records []*pb.Record
	for i := range wakesAtOnce {
		plan := fmt.Sprintf("w%d-%d", start.Unix(), i)
		deadlines[plan] = start.Add(time.Duration(i) * within / wakesAtOnce).UnixNano()
		records = append(records,
			&pb.Record{Plan: plan,
				Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{DeadlineNs: deadlines[plan]}}})
		records = append(records, benchPair(plan, "a", "bench.undo", "")...)
		records = append(records,
			&pb.Record{Plan: plan, Action: "a",
				Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{}}})
	}
	if err := rig.append(ctx, benchTenant, records); err != nil {
		return err
	}
	last, err := rig.settled(ctx, benchTenant)
	if err != nil {
		return err
	}
	if time.Now().After(start) {
		return fmt.Errorf("the deadlines were not folded before the first fell due")
	}
	var epoch, stored []time.Duration
	var undone time.Time
	waiting := len(deadlines)
	err = rig.records(ctx, benchTenant, last+1, func(m ledger.Message, r *pb.Record) bool {
		switch {
		case r.GetLeaseFired() != nil:
			epoch = append(epoch, time.Duration(r.EpochNs-deadlines[r.Plan]))
			stored = append(stored, time.Duration(m.StampNs-deadlines[r.Plan]))
		case r.GetPlanEnded() != nil:
			waiting--
			undone = time.Unix(0, m.StampNs)
		}
		return waiting > 0
	})
	if err != nil {
		return err
	}
	printLateness(out, "deadline to the epoch it fires at", epoch)
	printLateness(out, "deadline to the firing in the stream", stored)
	printLateness(out, "deadline to the call of the worker", calls.late(deadlines))
	fmt.Fprintf(out, "  %-46s %9s\n", "first deadline to the end of the last plan",
		short(undone.Sub(start)))
	return nil
}

func printLateness(out io.Writer, what string, took []time.Duration) {
	slices.Sort(took)
	l := rate{took: took}
	fmt.Fprintf(out, "  %-46s p50 %8s  p99 %8s  max %8s  min %8s\n", what, short(l.quantile(0.5)),
		short(l.quantile(0.99)), short(l.quantile(1)), short(l.quantile(0)))
}

// benchIdle measures a server and an executor that hold a number of leases.
func benchIdle(ctx context.Context, out io.Writer, dir string, held int) error {
	rig, err := startBench(ctx, dir, false)
	if err != nil {
		return err
	}
	defer rig.close()
	if _, err := rig.settled(ctx, benchTenant); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nidle\n")
	return measureIdle(ctx, out, rig, held)
}

// idleFor is how long a process that does nothing is watched.
const idleFor = 10 * time.Second

func measureIdle(ctx context.Context, out io.Writer, rig *bench, held int) error {
	if err := calm(ctx); err != nil {
		return err
	}
	before := processorTime()
	if !cli.Pause(ctx, idleFor) {
		return ctx.Err()
	}
	used := processorTime() - before
	status, err := foldedTenant(ctx, rig.client, benchTenant)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  %-46s %9s of processor time in %s, %d held\n",
		fmt.Sprintf("server and executor idle, %d leases", held), short(used), idleFor, status.Held)
	return nil
}

// calmMax is how long calm waits at most.
const calmMax = time.Minute

// calm waits until what was registered before is collected and compacted: what an
// idle process does after it has worked is the work's.
func calm(ctx context.Context) error {
	heapBytes()
	for start := time.Now(); time.Since(start) < calmMax; {
		before := processorTime()
		if !cli.Pause(ctx, time.Second) {
			return ctx.Err()
		}
		if processorTime()-before < 20*time.Millisecond {
			break
		}
	}
	return nil
}

// benchPair is a registered pair whose undo takes no arguments.
func benchPair(plan, action, undo, condition string) []*pb.Record {
	compensation := &pb.CompensationRegistered{Capability: undo, Attempts: 3, BackoffNs: 1e9,
		BackoffMaxNs: 1e10, TimeoutNs: 1e10}
	if condition != "" {
		compensation.Triggers = []*pb.Trigger{{Name: "t", Condition: condition}}
	}
	return []*pb.Record{
		{Plan: plan, Action: action,
			Kind: &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{
				Capability: "bench.do", Class: pb.Class_CLASS_COMPENSABLE,
				ContractDigest: make([]byte, 32)}}},
		{Plan: plan, Action: action,
			Kind: &pb.Record_CompensationRegistered{CompensationRegistered: compensation}},
	}
}

// hold registers leases, 100 to a plan, and waits until they are folded.
func (b *bench) hold(ctx context.Context, tenant string, leases int,
	condition func(i int) string) error {
	const each = 100
	var records []*pb.Record
	for i := range leases {
		plan := fmt.Sprintf("held-%d", i/each)
		if i%each == 0 {
			records = append(records,
				&pb.Record{Plan: plan, Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{}}})
		}
		records = append(records,
			benchPair(plan, fmt.Sprint("a", i%each), "bench.undo", condition(i))...)
		if len(records) > 100_000 {
			if err := b.append(ctx, tenant, records); err != nil {
				return err
			}
			records = records[:0]
		}
	}
	if err := b.append(ctx, tenant, records); err != nil {
		return err
	}
	_, err := b.settled(ctx, tenant)
	return err
}

// append stores an agent's records in commits as large as they may be.
func (b *bench) append(ctx context.Context, tenant string, records []*pb.Record) error {
	appender, err := jetstream.Attach(b.client, tenant)
	if err != nil {
		return err
	}
	source := ledger.Source{Tenant: tenant, Class: ledger.ClassAgent, Name: "bench",
		Plan: ledger.ManyPlans}
	for len(records) > 0 {
		n, size := 0, 0
		for n < len(records) && n < ledger.CommitLenMax {
			if size += ledger.RecordSize(records[n]); n > 0 && size > benchCommitSize {
				break
			}
			n++
		}
		if n < len(records) && records[n].GetCompensationRegistered() != nil {
			n-- // a pair is in one commit
		}
		commit, err := jetstream.NewAppend(source, records[:n]...)
		if err != nil {
			return err
		}
		if _, err := appender.Append(ctx, commit); err != nil {
			return err
		}
		records = records[n:]
	}
	return nil
}

// benchCommitSize is the size of a large commit, in bytes.
const benchCommitSize = 60 << 10

// settled waits until a tenant is folded and nothing is to be decided, and returns
// the last sequence.
func (b *bench) settled(ctx context.Context, tenant string) (uint64, error) {
	status, err := foldedTenant(ctx, b.client, tenant)
	return status.Last, err
}

// records reads a tenant's records from a sequence on until take returns false.
func (b *bench) records(ctx context.Context, tenant string, from uint64,
	take func(m ledger.Message, r *pb.Record) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	store, err := jetstream.Open(ctx,
		jetstream.Config{Conn: b.conn, Tenant: tenant, AcceptLossyBroker: true})
	if err != nil {
		return err
	}
	for m, err := range store.Read(ctx, from) {
		if err != nil {
			return err
		}
		entries, err := ledger.Decode(tenant, m)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !take(m, e.Record) {
				return nil
			}
		}
	}
	return nil
}

// encodeFact is a commit with one fact.
func encodeFact(key string, value any) ([]byte, error) {
	body, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return ledger.EncodeCommit(
		[]*pb.Record{{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: key,
			Value: body}}}})
}
