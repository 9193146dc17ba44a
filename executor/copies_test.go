package executor_test

import (
	"slices"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// saidAgain are the kinds that count once more when a copy of one is stored after the server
// has forgotten its id: nothing in them tells a copy from the same words said again
// (docs/reliability.md). compensation_progressed repeats an instant that is known already.
var saidAgain = []string{"fact_asserted", "fact_retracted", "verdict_given", "clock_confirmed", "evict_requested",
	"restore_requested", "compensation_progressed"}

// TestACopyOfANamedRecordChangesNothing, however late it comes: of every record in the golden
// ledgers that counted and that no holder wrote, one is stored again behind the last.
func TestACopyOfANamedRecordChangesNothing(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range goldenNames(t) {
		w := &world{t: t, log: readGolden(t, name)}
		s := Open(rows.NewMemoryKV(), "t", w)
		var counted []ledger.Message
		fold := func(m ledger.Message) (effective []string) {
			entries, err := ledger.Decode("t", m)
			if err != nil {
				return nil // of a later version
			}
			for _, e := range entries {
				if s.Apply(e).Verdict == Effective && e.Source.Class != ledger.ClassExecutor {
					effective = append(effective, ledger.KindOf(e.Record).Name)
				}
			}
			s.Flush()
			return effective
		}
		for _, m := range w.log {
			if len(fold(m)) > 0 {
				counted = append(counted, m)
			}
		}
		for _, m := range counted {
			at := m.Sequence
			m.Sequence = uint64(len(w.log) + 1)
			m.StampNs += int64(1e12)
			w.log = append(w.log, m)
			for _, kind := range fold(m) {
				if seen[kind] = true; !slices.Contains(saidAgain, kind) {
					t.Errorf("%s: a copy of record %d, a %s, counts once more", name, at, kind)
				}
			}
		}
	}
	if !seen["fact_asserted"] || !seen["verdict_given"] {
		t.Error("no copy of a fact or a verdict counted: nothing was stored again")
	}
}
