package host

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// distinctConditions are of one kind each, and no two of a kind have one shape.
var distinctConditions = []struct {
	name string
	text func(i int) string
}{
	{"field", func(i int) string { return fmt.Sprintf(`facts["a%d"].f%d == 1`, i, i) }},
	{"window", func(i int) string {
		return fmt.Sprintf(`facts["t%d"].l%d >= 3 && absent_for("c%d", at("t%d"), duration("1h"))`, i, i, i, i)
	}},
	{"18 terms", func(i int) string { // of 18 shapes, joined in as many ways
		return joinedBy(18, i, func(n int) string { return fmt.Sprintf(`facts["k%d"].f == %d`, n, n) })
	}},
	{"24 terms", func(i int) string { // of a shape that no other condition has
		return joinedBy(24, 0, func(n int) string { return fmt.Sprintf(`facts["k%d"].f%d == %d`, n, i, n) })
	}},
}

// joinedBy joins terms by && where a bit is set, else by ||.
func joinedBy(terms, ands int, term func(n int) string) string {
	var b strings.Builder
	for n := range terms {
		if n > 0 {
			b.WriteString([]string{" || ", " && "}[ands>>(n-1)&1])
		}
		b.WriteString(term(n))
	}
	return b.String()
}

// BenchmarkDistinctConditions folds 1,000 plans with 16 conditions each into Pebble, 64
// plans a turn, no two conditions of one shape. Decoding is not in it. kB/held is what
// the process keeps in memory for each, with Pebble's.
func BenchmarkDistinctConditions(b *testing.B) {
	const plans = 1000
	for _, c := range distinctConditions {
		b.Run(strings.ReplaceAll(c.name, " ", ""), func(b *testing.B) {
			var took time.Duration
			var bytes uint64
			for b.Loop() {
				f, err := store.OpenFolder(b.TempDir(), "t")
				if err != nil {
					b.Fatal(err)
				}
				before := heapNow()
				for n := 0; n < plans; n += 64 {
					entries := distinctPlans(b, n, min(n+64, plans), c.text)
					began := time.Now()
					f.Fold(entries)
					took += time.Since(began)
				}
				bytes += heapNow() - min(before, heapNow())
				if err := f.Close(); err != nil {
					b.Fatal(err)
				}
			}
			held := float64(b.N * plans * ledger.TriggersMax)
			b.ReportMetric(took.Seconds()/float64(b.N), "s/16000")
			b.ReportMetric(float64(bytes)/held/1024, "kB/held")
		})
	}
}

func heapNow() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func distinctPlans(b *testing.B, from, to int, text func(i int) string) (entries []ledger.Entry) {
	b.Helper()
	for n := from; n < to; n++ {
		opened := &pb.PlanOpened{}
		for j := range ledger.TriggersMax {
			t := &pb.Trigger{Name: fmt.Sprintf("t%02d", j), Condition: text(n*ledger.TriggersMax + j)}
			opened.Triggers = append(opened.Triggers, t)
		}
		plan := fmt.Sprintf("p%06d", n)
		data, err := ledger.EncodeCommit([]*pb.Record{{Plan: plan, Kind: &pb.Record_PlanOpened{PlanOpened: opened}}})
		if err != nil {
			b.Fatal(err)
		}
		m := ledger.Message{Sequence: uint64(n + 1), StampNs: int64(n+1) * 1e6, Data: data}
		m.Subject = agentOf("bench", plan).Subject()
		list, err := ledger.Decode("t", m)
		if err != nil {
			b.Fatal(err)
		}
		entries = append(entries, list...)
	}
	return entries
}
