package ids_test

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/ids"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// TestTheIDsOfAWriterThatWereMadeLastAreKept, whatever order they come in, and whatever others write.
func TestTheIDsOfAWriterThatWereMadeLastAreKept(t *testing.T) {
	tx := rows.Over(rows.NewMemoryKV())
	id := func(n byte) ledger.RecordID { return ledger.RecordID{n, 0xff, 15: n} }
	of := func(name string) ids.Window { return ids.Of(tx, ledger.Source{Class: ledger.ClassFact, Name: name}) }
	keep := func(name string, n byte) {
		if w := of(name); !w.IsBefore(id(n)) {
			w.Keep(id(n), &rowspb.IdRow{Sequence: uint64(n)}, 3)
		}
	}
	for i, n := range []byte{5, 2, 9, 7, 3, 8} {
		keep("b", n)
		for _, other := range []string{"a", "ba", "c"} { // they are ahead
			keep(other, 100+byte(i))
		}
	}
	for n := range byte(10) {
		kept := n == 7 || n == 8 || n == 9
		if got := of("b").Find(id(n)) != nil; got != kept {
			t.Errorf("id %d is kept: %v", n, got)
		}
		if before := n <= 5; of("b").IsBefore(id(n)) != before {
			t.Errorf("id %d is before what is kept: %v", n, !before)
		}
	}
	if got := rows.IDWindows.Find(tx, "fact b").Kept; got != 3 {
		t.Errorf("%d ids are kept, not 3", got)
	}
}
