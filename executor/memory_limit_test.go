package executor_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/proto/api"
	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// TestAFactThatNeverFitsGoesAloneAndFirst: whether it is new or an operator wants it
// back, below the size from which facts are listed by it or above.
func TestAFactThatNeverFitsGoesAloneAndFirst(t *testing.T) {
	for _, capacity := range []int64{100, 8 << 10} {
		w := newWorld(t)
		w.memoryMax = capacity
		small := fmt.Sprintf("%q", strings.Repeat("s", int(capacity)/10*3-4)) // with its key 3 tenths
		for _, key := range []string{"a1", "a2", "a3"} {
			w.now += ResidentStep
			w.must(w.append(sensor, asserted(key, small)))
		}
		large := fmt.Sprintf("%q", strings.Repeat("x", int(capacity)))
		w.must(w.append(sensor, asserted("big", large)))
		next, _ := view.NewReader(w.kv, "t", w).Queue(api.QueueQuery{}, capacity)
		if len(next) != 4 || next[0].Key != "big" || !next[0].Oversize || next[1].Oversize {
			t.Fatalf("capacity %d: %+v", capacity, next)
		}
		w.turn()
		w.must(w.append(ops, restoreAsked("big")))
		w.turn()
		for _, key := range []string{"a1", "a2", "a3"} {
			if got := w.factState(key); got != api.FactInMemory {
				t.Errorf("capacity %d: %s is %s, for a fact that never fits", capacity, key, got)
			}
		}
		if row := w.state.FactRow("big"); w.factState("big") != api.FactEvicted || row.Asked != nil ||
			w.state.Meta().Evictions != 2 {
			t.Errorf("capacity %d: %v, %d evictions", capacity, row, w.state.Meta().Evictions)
		}
		w.now += ResidentStep
		w.must(w.append(sensor, asserted("b", small), asserted("big", large))) // over the capacity without it, too
		w.turn()
		if w.factState("big") != api.FactEvicted || w.factState("a1") != api.FactEvicted ||
			w.factState("a2") != api.FactInMemory || w.factState("b") != api.FactInMemory {
			t.Errorf("capacity %d: %v", capacity, w.state.Meta())
		}
		w.must(w.append(sensor, asserted("a2", large), asserted("a2", small), asserted("a2", large), forgotten("a2")))
		w.turn()
		if rows.Digest(w.refold(3)) != rows.Digest(w.kv) {
			t.Error("another state when folded anew")
		}
	}
}

// TestARetractionOfWhatIsNotThereChangesNothing: the tombstone keeps the record that
// ended the fact, and of what never was there is none.
func TestARetractionOfWhatIsNotThereChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.must(w.append(sensor, asserted("a", `1`), forgotten("a")))
	row := proto.CloneOf(w.state.FactRow("a"))
	w.now += second
	w.must(w.append(ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "other"}, forgotten("a"),
		forgotten("never")))
	if got := w.state.FactRow("a"); !proto.Equal(got, row) || got.By != "sensor" {
		t.Errorf("%v\nwas %v", got, row)
	}
	if row := w.state.FactRow("never"); row != nil || w.state.Meta().Tombstones != 1 {
		t.Errorf("%v, %d tombstones", row, w.state.Meta().Tombstones)
	}
	if places, _ := view.NewReader(w.kv, "t", w).Chronicle("a", 0); len(places) != 2 {
		t.Errorf("the history has %v", places)
	}
}
