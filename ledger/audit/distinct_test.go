package audit_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestAnAuditorKeepsNoCompiledConditions but a bounded number of bytes of them, however
// many open plans hold, no two of one shape.
func TestAnAuditorKeepsNoCompiledConditions(t *testing.T) {
	const plans, each, programs = 280, 3 << 10, 12 << 20
	l := audit.New("t")
	before := heapInUse()
	for n := range plans {
		opened := &pb.PlanOpened{}
		for j := range ledger.TriggersMax {
			i := n*ledger.TriggersMax + j
			var terms []string
			for k := range 18 {
				terms = append(terms, fmt.Sprintf(`facts["k%d"].f%d == %d`, k, i, k))
			}
			c := &pb.Trigger{Name: fmt.Sprint("t", j), Condition: strings.Join(terms, " || ")}
			opened.Triggers = append(opened.Triggers, c)
		}
		plan := fmt.Sprint("p", n)
		data, err := ledger.EncodeCommit([]*pb.Record{{Plan: plan, Kind: &pb.Record_PlanOpened{PlanOpened: opened}}})
		if err != nil {
			t.Fatal(err)
		}
		source := ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: plan}
		m := ledger.Message{Sequence: uint64(n + 1), StampNs: start + int64(n), Subject: source.Subject(), Data: data}
		if found := l.Add(m); len(found) > 0 {
			t.Fatal(found)
		}
	}
	took := heapInUse() - before
	runtime.KeepAlive(l)
	conditions := plans * ledger.TriggersMax
	t.Logf("%d bytes each", took/conditions)
	if most := 2*programs + conditions*each; took > most {
		t.Errorf("%d conditions take %d bytes, want at most %d", conditions, took, most)
	}
}

func heapInUse() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
