package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// leaseBench folds a ledger that it makes up, and measures what leases cost.
type leaseBench struct {
	dir      string
	folder   *store.Folder
	sequence uint64
	ns       int64
	out      io.Writer
	each     time.Duration
	random   *rand.Rand
}

// leaseShapes are the conditions that the held leases take in turn, one of an
// order each.
func leaseShapes() []string {
	return []string{
		`elapsed(action.at, duration("72h"))`,
		`absent_for("confirmed/" + action.order, action.at, duration("15m"))`,
		`facts["order/" + action.order].status == "cancelled"`,
		`at_least(3, "declined/" + action.order, duration("10m"))`,
		`facts["quote/" + action.order].price > 1.1 * action.amount`,
		`after(timestamp("2031-01-01T00:00:00Z")) && !("approval/" + action.order in facts)`,
		`facts["taint/" + action.order].level >= 3 && absent_for("cleared/" + action.order, at("taint/" + action.order), duration("1h"))`,
		`facts["limit/" + action.cap].max < action.amount && facts["order/" + action.order].status == "paid"`,
	}
}

// benchLeases measures leases held in one tenant: the counts are those of --leases.
func benchLeases(ctx context.Context, out io.Writer, b *benching, dir string) error {
	for _, n := range b.leases {
		if err := benchLeasesHeld(ctx, out, b, filepath.Join(dir, fmt.Sprint(n)), n); err != nil {
			return err
		}
	}
	return benchShared(out, b, filepath.Join(dir, "shared"))
}

func newLeaseBench(out io.Writer, b *benching, dir string) (*leaseBench, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	l := &leaseBench{dir: dir, ns: 1_900_000_000_000_000_000, out: out, each: b.each,
		random: rand.New(rand.NewPCG(1, 2))}
	return l, l.open()
}

func (l *leaseBench) open() (err error) {
	l.folder, err = store.OpenFolder(filepath.Join(l.dir, "state"), benchTenant)
	return err
}

// commit is one message of the made-up ledger, a millisecond after the last.
func (l *leaseBench) commit(source ledger.Source, records ...*pb.Record) ([]ledger.Entry, error) {
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		return nil, err
	}
	l.sequence++
	l.ns += 1_000_000
	return ledger.Decode(benchTenant,
		ledger.Message{Sequence: l.sequence, StampNs: l.ns, Subject: source.Subject(), Data: data})
}

// foldTurn is how many messages are folded as one batch.
const foldTurn = 1000

// fold folds entries in turns and returns how long that took.
func (l *leaseBench) fold(entries []ledger.Entry) (time.Duration, error) {
	start := time.Now()
	for len(entries) > 0 {
		n := min(foldTurn, len(entries))
		for i, r := range l.folder.Fold(entries[:n]) {
			if r.Verdict != executor.Effective {
				return 0, fmt.Errorf("record %s is not effective: %s",
					ledger.FormatAddress(entries[i].Address), r.Reason)
			}
		}
		entries = entries[n:]
	}
	return time.Since(start), nil
}

// actionsPerPlan is how many leases a plan has, one an action.
const actionsPerPlan = 10

// plans makes plans of actionsPerPlan actions, from number from to number to; the
// trigger of action i is condition(i), none where that is empty.
func (l *leaseBench) plans(prefix string, from, to int,
	condition func(i int) string) ([]ledger.Entry, error) {
	var entries []ledger.Entry
	for p := from; p < to; p++ {
		plan := fmt.Sprintf("%s%07d", prefix, p)
		source := ledger.Source{Tenant: benchTenant, Class: ledger.ClassAgent, Name: "bench",
			Plan: plan}
		records := []*pb.Record{{Plan: plan,
			Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{Label: "bench"}}}}
		for a := range actionsPerPlan {
			i := p*actionsPerPlan + a
			compensation := &pb.CompensationRegistered{Capability: "order.cancel", Attempts: 3,
				BackoffNs: 1e9, BackoffMaxNs: 1e10, TimeoutNs: 1e10}
			if c := condition(i); c != "" {
				compensation.Triggers = []*pb.Trigger{{Name: "t", Condition: c}}
			}
			action := fmt.Sprintf("a%d", a)
			records = append(records,
				&pb.Record{Plan: plan, Action: action,
					Kind: &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{
						Capability: "order.create", Class: pb.Class_CLASS_COMPENSABLE,
						ContractDigest: make([]byte, 32),
						Lifted: fmt.Appendf(nil, `{"order":"%s%d","amount":120,"cap":"eu"}`,
							prefix, i)}}},
				&pb.Record{Plan: plan, Action: action,
					Kind: &pb.Record_CompensationRegistered{CompensationRegistered: compensation}})
		}
		list, err := l.commit(source, records...)
		if err != nil {
			return nil, err
		}
		entries = append(entries, list...)
	}
	return entries, nil
}

// arm folds plans in slices, so that a million need not be in memory at once.
func (l *leaseBench) arm(prefix string, plans int,
	condition func(i int) string) (took time.Duration, err error) {
	const slice = 1000
	for from := 0; from < plans; from += slice {
		entries, err := l.plans(prefix, from, min(from+slice, plans), condition)
		if err != nil {
			return 0, err
		}
		t, err := l.fold(entries)
		if err != nil {
			return 0, err
		}
		took += t
	}
	return took, nil
}

// facts measures how many facts a second fold, a key each from key. They are made
// before the clock runs.
func (l *leaseBench) facts(what string, key func() string) error {
	var took, busy time.Duration
	folded, slice := 0, foldTurn
	for took < l.each {
		entries, err := l.assertions(slice, key)
		if err != nil {
			return err
		}
		runtime.GC()
		cpu := processorTime()
		t, err := l.fold(entries)
		if err != nil {
			return err
		}
		took, busy, folded = took+t, busy+processorTime()-cpu, folded+len(entries)
		slice = min(max(int(float64(slice)*float64(l.each)/float64(max(t, time.Millisecond))), 10),
			factsAtOnce)
	}
	fmt.Fprintf(l.out, "  %-46s %9.0f facts/s, %s each, %s of processor time\n", what,
		float64(folded)/took.Seconds(), perItem(took, folded), perItem(busy, folded))
	return nil
}

// factsAtOnce bounds the facts that are made before they are folded: more would be
// out of the caches of the processor again.
const factsAtOnce = 10_000

func (l *leaseBench) assertions(n int, key func() string) ([]ledger.Entry, error) {
	source := ledger.Source{Tenant: benchTenant, Class: ledger.ClassFact, Name: "bench"}
	entries := make([]ledger.Entry, 0, n)
	for i := range n {
		list, err := l.commit(source,
			&pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{
				Key: key(), Value: fmt.Appendf(nil,
					`{"status":"open","price":%d,"level":%d,"n":%d}`, l.random.IntN(100),
					l.random.IntN(3), i)}}})
		if err != nil {
			return nil, err
		}
		entries = append(entries, list...)
	}
	return entries, nil
}

func perItem(took time.Duration, n int) string {
	us := float64(took.Nanoseconds()) / float64(n) / 1000
	if us >= 10 {
		return fmt.Sprintf("%.0f us", us)
	}
	return fmt.Sprintf("%.1f us", us)
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func benchLeasesHeld(_ context.Context, out io.Writer, b *benching, dir string, n int) error {
	l, err := newLeaseBench(out, b, dir)
	if err != nil {
		return err
	}
	defer func() { _ = l.folder.Close() }()
	fmt.Fprintf(out, "\n%d held leases, %d shapes, one each of an action\n", n, len(leaseShapes()))
	plans := n / actionsPerPlan
	bare, err := l.arm("bare", plans/10+1, func(int) string { return "" })
	if err != nil {
		return err
	}
	bareDisk, err := l.folder.Settle()
	if err != nil {
		return err
	}
	before := heapBytes()
	shapes := leaseShapes()
	armed, err := l.arm("o", plans, func(i int) string { return shapes[i%len(shapes)] })
	if err != nil {
		return err
	}
	memory := int64(heapBytes()) - int64(before)
	disk, err := l.folder.Settle()
	if err != nil {
		return err
	}
	perAction := bare / time.Duration((plans/10+1)*actionsPerPlan)
	fmt.Fprintf(out, "  %-46s %9s a registration with its lease, %s without: %s a lease\n", "arm",
		perItem(armed, plans*actionsPerPlan), perItem(perAction, 1),
		perItem(armed-perAction*time.Duration(plans*actionsPerPlan), plans*actionsPerPlan))
	fmt.Fprintf(out,
		"  %-46s %9d B of memory a lease, all kinds; %d B of disk a registration with its lease, "+
			"%d B without\n", "size", memory/int64(n), disk/uint64(n),
		bareDisk/uint64((plans/10+1)*actionsPerPlan))
	return l.measureFacts(n)
}

func (l *leaseBench) measureFacts(n int) error {
	groups := map[string]int{"ten": 10, "thousand": 1000}
	for name, size := range map[string]int{"ten": 10, "thousand": 1000} {
		keys := map[string]int{"ten": 1000, "thousand": 4}[name]
		if _, err := l.arm(name, keys*size/actionsPerPlan, func(i int) string {
			return fmt.Sprintf(`facts["%s/%d"].price > %d`, name, i/groups[name],
				1000+i%groups[name])
		}); err != nil {
			return err
		}
	}
	unread := 0
	order := func() string {
		for {
			i := l.random.IntN(n)
			if i%8 == 2 || i%8 == 4 || i%8 == 6 {
				return map[int]string{2: "order", 4: "quote",
					6: "taint"}[i%8] + "/o" + fmt.Sprint(i)
			}
		}
	}
	for _, m := range []struct {
		what string
		key  func() string
	}{
		{"fact that touches no lease, new key",
			func() string { unread++; return fmt.Sprint("unread/", unread) }},
		{"fact that touches no lease, known key",
			func() string { return fmt.Sprint("unread/", 1+l.random.IntN(1000)) }},
		{"fact that touches one lease, any of all", order},
		{"the same, once more", order},
		{"fact that touches 10 leases",
			func() string { return fmt.Sprint("ten/", l.random.IntN(1000)) }},
		{"fact that touches 1,000 leases",
			func() string { return fmt.Sprint("thousand/", l.random.IntN(4)) }},
	} {
		if err := l.facts(m.what, m.key); err != nil {
			return err
		}
	}
	return l.restart(n, order)
}

// restart opens the folder again: nothing is evaluated, and memory is empty.
func (l *leaseBench) restart(n int, order func() string) error {
	if err := l.folder.Close(); err != nil {
		return err
	}
	start := time.Now()
	if err := l.open(); err != nil {
		return err
	}
	wake, _ := l.folder.State().NextWake()
	fmt.Fprintf(l.out, "  %-46s %9s, next wake %s\n", "start: open, and know the next wake",
		short(time.Since(start)), time.Unix(0, wake).UTC().Format(time.RFC3339))
	if err := l.facts("fact that touches one lease, after the start", order); err != nil {
		return err
	}
	return l.retire(n / actionsPerPlan)
}

// retire commits a tenth of the plans.
func (l *leaseBench) retire(plans int) error {
	var entries []ledger.Entry
	for p := 0; p < plans; p += 10 {
		plan := fmt.Sprintf("o%07d", p)
		list, err := l.commit(ledger.Source{Tenant: benchTenant, Class: ledger.ClassAgent,
			Name: "bench", Plan: plan},
			&pb.Record{Plan: plan,
				Kind: &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{}}})
		if err != nil {
			return err
		}
		entries = append(entries, list...)
	}
	took, err := l.fold(entries)
	if err != nil {
		return err
	}
	fmt.Fprintf(l.out, "  %-46s %9s a lease\n",
		fmt.Sprintf("retire: commit plans of %d leases", actionsPerPlan),
		perItem(took, len(entries)*actionsPerPlan))
	return nil
}

// benchShared measures 100,000 plans that hold one condition.
func benchShared(out io.Writer, b *benching, dir string) error {
	l, err := newLeaseBench(out, b, dir)
	if err != nil {
		return err
	}
	defer func() { _ = l.folder.Close() }()
	const leases = 100_000
	fmt.Fprintf(out, "\n%d leases with one condition\n", leases)
	took, err := l.arm("s", leases/actionsPerPlan,
		func(int) string { return `facts["market/open"].level >= 9` })
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  %-46s %9s each\n", "arm", perItem(took, leases))
	return l.facts("fact that touches them all", func() string { return "market/open" })
}
