package executor_test

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/triggers"

	. "github.com/sagenbaum/sagenbaum/executor"
)

// What an undo5 plan may cost the core, in allocations: a count, which no other program on the
// machine changes. Lower these when something is saved; a change that needs more says why.
const (
	undoAllocationsMax = 775  // of a plan's unwind: decisions, their encoding, decoding and fold
	foldAllocationsMax = 14.4 // of one record's fold
)

// TestAPlanCostsWhatItCost: the benchmarks of the same work, as a guard.
func TestAPlanCostsWhatItCost(t *testing.T) {
	const plans = 100
	entries := benchLedger(t, plans, planFailed)
	programs := triggers.NewCache(100)
	fold := func() *State {
		s := OpenWith(rows.NewMemoryKV(), "t", nil, programs)
		for _, e := range entries {
			s.Apply(e)
		}
		s.Flush()
		return s
	}
	folded := testing.AllocsPerRun(5, func() { fold() })
	if got := folded / float64(len(entries)); got > foldAllocationsMax {
		t.Errorf("%.2f allocations fold a record, at most %.2f", got, foldAllocationsMax)
	}
	both := testing.AllocsPerRun(5, func() {
		if undone := unwindAll(t, fold(), uint64(len(entries))); undone != plans*5 {
			t.Fatalf("%d undone", undone)
		}
	})
	got := (both - folded) / plans
	t.Logf("%.2f allocations a record, %.0f an unwind", folded/float64(len(entries)), got)
	if got > undoAllocationsMax {
		t.Errorf("%.0f allocations unwind a plan, at most %d", got, undoAllocationsMax)
	}
}
