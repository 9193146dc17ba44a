package executor_test

import (
	"cmp"
	"fmt"
	"math/rand"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// regime is what a host keeps in memory, and when it lets go of it.
type regime struct {
	name    string
	kept    int  // watchers, facts and programs; 0: as many as ever
	program bool // no more than one program
	forget  bool // decoded rows, at every flush
	restart int  // after one in so many flushes; 0: never
	flush   int  // after 1 to so many messages
}

var regimes = []regime{
	{"everything kept, one flush", 0, false, false, 0, 1000},
	{"nothing kept", 2, false, true, 0, 1},
	{"little kept, flushed at random", 3, false, false, 0, 9},
	{"a restart after every message", 0, false, false, 1, 1},
	{"restarts at random", 2, false, true, 3, 5},
	{"everything kept but the programs", 0, true, false, 0, 3},
}

// again folds the ledger of a run under another regime: every decision is asked for
// again where it was made, and must be the same.
func (w *oracleRun) again(g regime, r *rand.Rand) ([32]byte, error) {
	kv := rows.NewMemoryKV()
	programs := w.programs
	if g.kept > 0 {
		programs = triggers.NewCache(g.kept)
	}
	if g.program {
		programs = triggers.NewCache(1)
	}
	var s *State
	start := func() {
		s = OpenWith(kv, "t", nil, programs)
		if g.kept > 0 {
			s.KeepOnly(g.kept)
		}
	}
	start()
	next := 0
	left := 1 + r.Intn(g.flush)
	for n := 0; ; n++ {
		for ; next < len(w.decided) && w.decided[next].messages == n; next++ {
			d := w.decided[next]
			if records := s.Decide(d.in); !sameRecords(records, d.records) {
				return [32]byte{}, fmt.Errorf("after %d messages: decides %v, decided %v", n, records, d.records)
			}
			s.Commands() // they were sent
		}
		if n == len(w.log) {
			break
		}
		entries, err := ledger.Decode("t", w.log[n])
		if err != nil {
			return [32]byte{}, err
		}
		for _, e := range entries {
			s.Apply(e)
		}
		if left--; left > 0 {
			continue
		}
		left = 1 + r.Intn(g.flush)
		s.Flush()
		if g.forget {
			s.Forget()
		}
		if g.restart > 0 && r.Intn(g.restart) == 0 {
			start()
		}
	}
	s.Flush()
	return rows.Digest(kv), nil
}

// TestNoAnswerDependsOnWhatIsKept: one ledger, six ways to keep things in memory,
// one state and the same decisions.
func TestNoAnswerDependsOnWhatIsKept(t *testing.T) {
	t.Parallel()
	cases := cmp.Or(*oracleCases, testenv.Cases(60, 800)) / 4
	programs := triggers.NewCache(64)
	for n := range cases {
		seed := *oracleSeed + 1_000_000 + int64(n)
		w := newOracleRun(seed, programs)
		if w.play(); w.err != nil {
			t.Fatalf("seed %d: %v", seed, w.err)
		}
		want := rows.Digest(w.kv)
		for i, g := range regimes {
			got, err := w.again(g, rand.New(rand.NewSource(seed+int64(i))))
			if err != nil || got != want {
				t.Fatalf("seed %d: %s: another state: %v (%v)", seed, g.name, got != want, err)
			}
		}
	}
}
