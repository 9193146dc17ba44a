package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// hostileLeases is how many costly conditions wait for one key in a hostile tenant.
const hostileLeases = 10_000

// hostileCondition takes close to the steps that an evaluation may take. Each is of
// another action, so that none is asked for another.
func hostileCondition(i int) string {
	return fmt.Sprintf(
		`[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7].all(c, facts["hot"].n >= 0))) && facts["hot"].n < -%d`, i+1)
}

// neighbours is what a quiet tenant measures.
type neighbours struct {
	rig    *bench
	fired  int // plans that have fired
	facts  *jetstream.Appender
	folded []time.Duration // from the append until the fact is folded
	ran    []time.Duration // from the fact's stamp until the stamp of the firing
}

// benchNeighbours measures what a quiet tenant feels of hostile ones.
func benchNeighbours(ctx context.Context, out io.Writer, b *benching, dir string) error {
	fmt.Fprintf(out,
		"\nneighbours, no-sync: a quiet tenant beside tenants with %d costly conditions on a key "+
			"that is asserted in a loop\n", hostileLeases)
	var alone *neighbours
	for _, hostile := range []int{0, 1, 3} {
		n, facts, err := benchBeside(ctx, b, filepath.Join(dir, fmt.Sprint(hostile)), hostile)
		if err != nil {
			return err
		}
		if alone == nil {
			alone = n
		}
		name := "alone"
		if hostile > 0 {
			name = fmt.Sprintf("beside %d hostile", hostile)
		}
		printBeside(out, name+": fact appended to folded", n.folded, alone.folded)
		printBeside(out, name+": fact to its firing", n.ran, alone.ran)
		if hostile > 0 {
			fmt.Fprintf(out, "  %-46s %9d hostile facts stored, %d folded\n", "", facts.stored,
				facts.folded)
		}
	}
	return nil
}

func printBeside(out io.Writer, what string, took, alone []time.Duration) {
	r, of := rate{took: took}, rate{took: alone}
	fmt.Fprintf(out, "  %-46s p50 %8s  p99 %8s  max %8s  %.2f and %.2f of alone\n", what,
		short(r.quantile(0.5)), short(r.quantile(0.99)), short(r.quantile(1)),
		float64(r.quantile(0.5))/float64(max(of.quantile(0.5), 1)),
		float64(r.quantile(0.99))/float64(max(of.quantile(0.99), 1)))
}

// hostileFacts is how far hostile tenants came.
type hostileFacts struct{ stored, folded uint64 }

func benchBeside(ctx context.Context, b *benching, dir string, hostile int) (*neighbours,
	hostileFacts, error) {
	tenants := []string{"quiet"}
	for i := range hostile {
		tenants = append(tenants, fmt.Sprint("hostile", i))
	}
	rig, err := startBench(ctx, dir, false, tenants...)
	if err != nil {
		return nil, hostileFacts{}, err
	}
	defer rig.close()
	n := &neighbours{rig: rig}
	if n.facts, err = jetstream.Attach(rig.client, "quiet"); err != nil {
		return nil, hostileFacts{}, err
	}
	if err := n.open(ctx); err != nil {
		return nil, hostileFacts{}, err
	}
	for _, tenant := range tenants[1:] {
		if err := rig.hold(ctx, tenant, hostileLeases, hostileCondition); err != nil {
			return nil, hostileFacts{}, err
		}
	}
	before, err := applied(ctx, rig, tenants[1:])
	if err != nil {
		return nil, hostileFacts{}, err
	}
	var stored atomic.Uint64
	hot, cool := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, tenant := range tenants[1:] {
		running.Go(func() { assertHot(hot, rig, tenant, &stored) })
	}
	err = n.measure(ctx, max(b.each*3, 5*time.Second))
	cool()
	running.Wait()
	if err != nil {
		return nil, hostileFacts{}, err
	}
	after, err := applied(ctx, rig, tenants[1:])
	return n, hostileFacts{stored: stored.Load(), folded: after - before}, err
}

// applied adds up how far tenants are folded.
func applied(ctx context.Context, rig *bench, tenants []string) (sum uint64, err error) {
	for _, tenant := range tenants {
		status, err := statusOf(ctx, rig, tenant)
		if err != nil {
			return 0, err
		}
		sum += status.Applied
	}
	return sum, nil
}

// quietPlans is how many plans of the quiet tenant wait for a fact each; the first
// quietWarm facts are not counted.
const (
	quietPlans = 20_000
	quietWarm  = 50
)

func (n *neighbours) open(ctx context.Context) error {
	var records []*pb.Record
	for i := range quietPlans {
		records = append(records,
			&pb.Record{Plan: fmt.Sprint("q", i),
				Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{
					Triggers: []*pb.Trigger{{Name: "go",
						Condition: fmt.Sprintf(`facts["go/%d"] == true`, i)}}}}})
	}
	if err := n.rig.append(ctx, "quiet", records); err != nil {
		return err
	}
	_, err := n.rig.settled(ctx, "quiet")
	return err
}

// measure appends facts, one that no condition reads and one that fires in turn.
func (n *neighbours) measure(ctx context.Context, each time.Duration) error {
	last, err := n.rig.settled(ctx, "quiet")
	if err != nil {
		return err
	}
	for end := time.Now().Add(each); time.Now().Before(end) && n.fired < quietPlans; n.fired++ {
		start := time.Now()
		sequence, err := n.assert(ctx, fmt.Sprint("unread/", n.fired))
		if err != nil {
			return err
		}
		if err := n.await(ctx, sequence); err != nil {
			return err
		}
		if n.fired >= quietWarm {
			n.folded = append(n.folded, time.Since(start))
		}
		if _, err := n.assert(ctx, fmt.Sprint("go/", n.fired)); err != nil {
			return err
		}
		if !cli.Pause(ctx, 5*time.Millisecond) {
			return ctx.Err()
		}
	}
	slices.Sort(n.folded)
	return n.firings(ctx, last+1)
}

// firings pairs each fact with the firing that it led to.
func (n *neighbours) firings(ctx context.Context, from uint64) error {
	asserted := map[string]int64{}
	err := n.rig.records(ctx, "quiet", from, func(m ledger.Message, r *pb.Record) bool {
		if f := r.GetFactAsserted(); f != nil {
			if number, goes := strings.CutPrefix(f.Key, "go/"); goes {
				asserted["q"+number] = m.StampNs
			}
		}
		if r.GetLeaseFired() != nil {
			n.ran = append(n.ran, time.Duration(m.StampNs-asserted[r.Plan]))
		}
		return len(n.ran) < n.fired
	})
	n.ran = n.ran[min(quietWarm, len(n.ran)):]
	slices.Sort(n.ran)
	return err
}

func (n *neighbours) assert(ctx context.Context, key string) (uint64, error) {
	data, err := encodeFact(key, true)
	if err != nil {
		return 0, err
	}
	source := ledger.Source{Tenant: "quiet", Class: ledger.ClassFact, Name: "bench"}
	return n.facts.Append(ctx,
		ledger.Append{Subject: source.Subject(), ID: jetstream.NewID(), Data: data})
}

// await waits until the quiet tenant has folded a sequence.
func (n *neighbours) await(ctx context.Context, sequence uint64) error {
	question, err := json.Marshal(api.PlanQuery{Plan: "none", Sequence: sequence})
	if err != nil {
		return err
	}
	for {
		m, err := n.rig.client.RequestWithContext(ctx, api.PlanShow.Subject("quiet"), question)
		if err != nil {
			return err
		}
		_, err = api.PlanShow.Decode(m.Data)
		var problem *api.Problem
		if !errors.As(err, &problem) {
			return err
		}
		if !strings.Contains(problem.Text, "not folded") {
			return nil
		}
	}
}

// assertHot asserts the key that all of a tenant's conditions wait for.
func assertHot(ctx context.Context, rig *bench, tenant string, stored *atomic.Uint64) {
	p, err := jetstream.Attach(rig.client, tenant)
	if err != nil {
		return
	}
	source := ledger.Source{Tenant: tenant, Class: ledger.ClassFact, Name: "bench"}
	for i := 0; ctx.Err() == nil; i++ {
		data, err := encodeFact("hot", map[string]int{"n": i})
		if err != nil {
			return
		}
		if _, err := p.Append(ctx,
			ledger.Append{Subject: source.Subject(), ID: jetstream.NewID(),
				Data: data}); err != nil {
			continue
		}
		stored.Add(1)
		cli.Pause(ctx, time.Millisecond)
	}
}

func statusOf(ctx context.Context, rig *bench, tenant string) (api.Status, error) {
	m, err := rig.client.RequestWithContext(ctx, api.TenantStatus.Subject(tenant), []byte("{}"))
	if err != nil {
		return api.Status{}, err
	}
	var answer struct {
		Status api.Status `json:"status"`
	}
	return answer.Status, json.Unmarshal(m.Data, &answer)
}
