package executor_test

import (
	"iter"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"

	. "github.com/sagenbaum/sagenbaum/executor"
)

// What an undo5 plan may cost the core, in allocations: a count, which no other program on the
// machine changes. Lower these when something is saved; a change that needs more says why.
const (
	undoAllocationsMax = 705  // of a plan's unwind: decisions, their encoding, decoding and fold
	foldAllocationsMax = 12.7 // of one record's fold
	startRowsMax       = 2    // that a start reads, whatever is held
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

// readRows counts the rows that are read of a store.
type readRows struct {
	*rows.MemoryKV
	read int
}

func (k *readRows) Get(key []byte) ([]byte, bool) {
	k.read++
	return k.MemoryKV.Get(key)
}

func (k *readRows) Scan(from, to []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		for key, value := range k.MemoryKV.Scan(from, to) {
			k.read++
			if !yield(key, value) {
				return
			}
		}
	}
}

// startCost is how many rows a holder reads from its start to its wait for the next deadline, over
// so many plans of five actions that are held, each plan with a deadline.
func startCost(t *testing.T, plans int) (read int) {
	kv := rows.NewMemoryKV()
	s := OpenWith(kv, "t", nil, triggers.NewCache(100))
	entries := benchLedger(t, plans, func() *pb.Record {
		return &pb.Record{Kind: &pb.Record_SavepointSet{SavepointSet: &pb.SavepointSet{Name: "all", Number: 1}}}
	})
	for _, e := range entries {
		s.Apply(e)
	}
	s.Flush()
	if held := s.Meta().Held; held != uint64(5*plans) {
		t.Fatalf("%d are held", held)
	}
	counted := &readRows{MemoryKV: kv}
	s = Open(counted, "t", nil)
	last := s.Meta().Applied.Sequence
	m := turn.New(turn.Config{Tenant: "t", Holder: "h", NewID: func() string { return "1" }}, s, last)
	m.Lead(true, "")
	now := turn.Instant{EpochNs: epoch0 + second}
	claim := m.Step(now, turn.Inputs{}).Append
	list, err := ledger.Decode("t", ledger.Message{Sequence: last + 1, StampNs: now.EpochNs,
		Subject: claim.Subject, Data: claim.Data})
	if err != nil {
		t.Fatal(err)
	}
	m.Acknowledged(last+1, nil, true, 0)
	if err := m.Begin(last+1, len(claim.Data)); err != nil {
		t.Fatal(err)
	}
	m.Fold(list[0])
	r := m.Step(now, turn.Inputs{})
	for r.More {
		r = m.Step(now, turn.Inputs{})
	}
	if !m.Holding() || !r.Wakes || r.WakeInNs > 3600*second {
		t.Fatalf("it holds the tenant: %t, and waits for %d ns: %t", m.Holding(), r.WakeInNs, r.Wakes)
	}
	return counted.read
}

// TestAStartReadsTheSameWhateverIsHeld: rows of what is held are read when they are due or touched.
func TestAStartReadsTheSameWhateverIsHeld(t *testing.T) {
	few, many := startCost(t, 200), startCost(t, 2000)
	t.Logf("%d rows are read at a start", few)
	if few != many || few > startRowsMax {
		t.Errorf("%d rows with 1,000 held, %d with 10,000, at most %d", few, many, startRowsMax)
	}
}
