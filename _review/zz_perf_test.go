package executor_test

import (
	"fmt"
	"testing"
	"time"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
)

func TestZZPerf(t *testing.T) {
	for _, held := range []bool{true} {
		for _, n := range []int{250, 500, 1000} {
			s := newWorld(t)
			for i := range n {
				plan := fmt.Sprintf("p%d", i)
				s.agent(plan, opened(0))
				s.agent(plan, pair("b", func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
					c.ValidForNs = int64(240 * time.Hour)
					c.Triggers = []*pb.Trigger{{Name: "held", Condition: fmt.Sprintf(`facts["k%d"] == 1`, i), AfterCommit: held}}
				})...)
				s.agent(plan, completed("b"))
				s.agent(plan, planCommitted())
				s.turn()
			}
			for i := range n {
				s.append(ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "sensor"},
					&pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: fmt.Sprintf("k%d", i), Value: []byte("0")}}})
			}
			l := audit.New("t")
			start := time.Now()
			for _, m := range s.log {
				l.Add(m)
			}
			t.Logf("held=%v n=%d: %d messages in %v", held, n, len(s.log), time.Since(start))
		}
	}
}
