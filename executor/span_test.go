package executor_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestWhatNoOneCanKeepIsRefused: a timeout below a millisecond, of which a worker is told 0, and an
// instant that Go cannot count. Both halves of a pair are. Under an earlier holder they count.
func TestWhatNoOneCanKeepIsRefused(t *testing.T) {
	for _, old := range []bool{false, true} {
		s := newSchedule(t)
		if old {
			s.underHolder(ledger.NumbersSince - 1)
		}
		want := func(results []Result, field string) {
			t.Helper()
			for _, r := range results {
				if (r.Verdict == Refused) == old || !old && !strings.Contains(r.Reason, field) {
					t.Errorf("under an earlier holder %v: %+v, want %s refused", old, r, field)
				}
			}
		}
		far := opened(ledger.InstantMax + 1)
		want(s.agent("far", far), "plan_opened.deadline_ns")
		s.must(s.agent("p", opened(0)))
		want(s.agent("p", pair("1", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.TimeoutNs = int64(30 * time.Microsecond)
		})...), "compensation_registered.timeout_ns")
		want(s.agent("p", pair("2", func(f *pb.ForwardRegistered, _ *pb.CompensationRegistered) {
			f.TimeoutNs = 1
		})...), "forward_registered.timeout_ns")
		want(s.agent("p", pair("3", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.DedupeNs = int64(ledger.DurationMax) + 1
		})...), "compensation_registered.dedupe_ns")
	}
}
