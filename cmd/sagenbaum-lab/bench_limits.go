package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// The busy tenant of the limits figure, and how its clients pause when they are refused.
const (
	busyTenant    = "busy"
	busyClients   = 4
	busyPlans     = 2  // that it may have open at once
	busyRecords   = 40 // of each client in a second
	refusedPause  = 10 * time.Millisecond
	refusedPauses = time.Second // the longest
	steadyPause   = 20 * time.Millisecond
	steadyWarm    = 10
	limitInForce  = 30 * time.Second
)

// benchLimits measures a steady tenant alone, and beside one whose clients are at its limits and
// pause when they are refused; in turns, so that what else the machine does is in both.
func benchLimits(ctx context.Context, out io.Writer, b *benching, dir string) error {
	fmt.Fprintf(out, "\nlimits, no-sync: a tenant with a fact each %s beside one with %d clients at "+
		"its limits, which pause\n", short(steadyPause), busyClients)
	rig, err := startBench(ctx, dir, false, "quiet", busyTenant)
	if err != nil {
		return err
	}
	defer rig.close()
	if err := rig.limit(ctx); err != nil {
		return err
	}
	var ratios []float64
	var all [2][]time.Duration // alone, beside
	for round := range b.rounds {
		var p99 [2]time.Duration
		for i := range p99 {
			busy := busyLoad{rig: rig, name: fmt.Sprintf("r%d-%d", round, i)}
			if i == 1 {
				busy.start(ctx)
			}
			took, err := rig.steady(ctx, busy.name, b.each)
			busy.stop()
			if err != nil {
				return err
			}
			p99[i], all[i] = rate{took: took}.quantile(0.99), append(all[i], took...)
			if i == 1 {
				fmt.Fprintf(out, "  round %d: %d plans of the busy tenant, %d refused\n", round+1,
					busy.done.Load(), busy.refused.Load())
			}
		}
		ratios = append(ratios, float64(p99[1])/float64(max(p99[0], 1)))
	}
	for _, took := range all {
		slices.Sort(took)
	}
	printBeside(out, "alone: fact appended to folded", all[0], all[0])
	printBeside(out, "beside: fact appended to folded", all[1], all[0])
	slices.Sort(ratios)
	fmt.Fprintf(out, "  p99 beside by p99 alone, in %d rounds: median %.2f, %.2f to %.2f\n",
		len(ratios), ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1])
	return nil
}

// limit starts the executor again as one that follows the control stream, and limits the busy
// tenant.
func (b *bench) limit(ctx context.Context) error {
	if err := b.stopHost(); err != nil {
		return err
	}
	b.follow = true
	if err := b.startHost(ctx); err != nil {
		return err
	}
	body, err := json.Marshal(api.TenantRequest{Tenant: busyTenant, Actor: "bench",
		Limits: api.TenantLimits{OpenPlans: busyPlans, Records: busyRecords}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limitInForce)
	defer cancel()
	for {
		a, _ := b.host.Tenancy(ctx, api.TenantLimit, body).(api.TenantAnswer)
		status, err := statusOf(ctx, b, busyTenant)
		if a.Error == "" && err == nil && status.May != nil && len(status.May.Limits) > 0 &&
			status.May.Limits[0].Most == busyPlans {
			return nil
		}
		if !cli.Pause(ctx, 20*time.Millisecond) {
			return fmt.Errorf("the limits of tenant %s are not in force: %s, %w", busyTenant, a.Error,
				ctx.Err())
		}
	}
}

// steady appends facts at a low rate, and says how long each took to be folded.
func (b *bench) steady(ctx context.Context, name string, each time.Duration) (
	took []time.Duration, err error) {
	n := &neighbours{rig: b}
	if n.facts, err = jetstream.Attach(b.client, "quiet"); err != nil {
		return nil, err
	}
	end := time.Now().Add(each)
	for i := 0; time.Now().Before(end); i++ {
		start := time.Now()
		sequence, err := n.assert(ctx, fmt.Sprintf("%s/%d", name, i%100))
		if err != nil {
			return nil, err
		}
		if err := n.await(ctx, sequence); err != nil {
			return nil, err
		}
		if i >= steadyWarm {
			took = append(took, time.Since(start))
		}
		if !cli.Pause(ctx, steadyPause) {
			return nil, ctx.Err()
		}
	}
	slices.Sort(took)
	return took, nil
}

// busyLoad are the clients of the busy tenant. Each opens plans, registers one action and commits.
type busyLoad struct {
	rig           *bench
	name          string
	done, refused atomic.Uint64
	end           context.CancelFunc
	running       sync.WaitGroup
}

func (l *busyLoad) start(ctx context.Context) {
	going, end := context.WithCancel(ctx)
	l.end = end
	for i := range busyClients {
		l.running.Go(func() { l.client(ctx, going, fmt.Sprint("client", i)) }) // ends with stop
	}
}

func (l *busyLoad) stop() {
	if l.end != nil {
		l.end()
		l.running.Wait()
	}
}

// client goes on at once where it is served, and pauses twice as long each time it is refused.
// It ends with going, after it has ended its plan: one that is left open would take the place of
// another.
func (l *busyLoad) client(ctx, going context.Context, agent string) {
	p, err := jetstream.Attach(l.rig.client, busyTenant)
	if err != nil {
		return
	}
	pause := refusedPause
	for i := 0; going.Err() == nil; i++ {
		plan := fmt.Sprintf("%s-%s-%d", l.name, agent, i)
		served := l.says(ctx, p, agent, plan, &pb.Record{Kind: &pb.Record_PlanOpened{
			PlanOpened: &pb.PlanOpened{}}}) &&
			l.says(ctx, p, agent, plan, &pb.Record{Kind: &pb.Record_PlanCommitted{
				PlanCommitted: &pb.PlanCommitted{}}})
		if served {
			l.done.Add(1)
			pause = refusedPause
			continue
		}
		l.refused.Add(1)
		cli.Pause(going, pause)
		pause = min(2*pause, refusedPauses)
	}
}

// says appends a record, and reports whether the fold took it.
func (l *busyLoad) says(ctx context.Context, p *jetstream.Appender, agent, plan string,
	r *pb.Record) bool {
	r.Plan = plan
	source := ledger.Source{Tenant: busyTenant, Class: ledger.ClassAgent, Name: agent,
		Plan: ledger.ManyPlans}
	commit, err := jetstream.NewAppend(source, r)
	if err != nil {
		return false
	}
	sequence, err := p.Append(ctx, commit)
	if err != nil {
		return false
	}
	question, err := json.Marshal(api.OutcomeQuery{Plan: plan, Sequence: sequence})
	if err != nil {
		return false
	}
	m, err := l.rig.client.RequestWithContext(ctx, api.PlanOutcome.Subject(busyTenant), question)
	if err != nil {
		return false
	}
	answer, err := api.PlanOutcome.Decode(m.Data)
	return err == nil && len(answer.Refused) == 0 && ledger.TenantRefusal(answer.Reason) == nil
}
