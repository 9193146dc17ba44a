package ids_test

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/ids"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// TestTheIDsThatWereMadeLastAreKept, whatever order they come in.
func TestTheIDsThatWereMadeLastAreKept(t *testing.T) {
	tx, meta := rows.Over(rows.NewMemoryKV()), new(rowspb.Meta)
	id := func(n byte) ledger.RecordID { return ledger.RecordID{n, 0xff, 15: n} }
	for i, n := range []byte{5, 2, 9, 7, 3, 8} {
		if ids.IsBefore(meta, id(n)) {
			continue
		}
		ids.Keep(tx, meta, id(n), &rowspb.IdRow{Sequence: uint64(i)}, 3)
	}
	for n := range byte(10) {
		kept := n == 7 || n == 8 || n == 9
		if got := ids.Find(tx, id(n)) != nil; got != kept {
			t.Errorf("id %d is kept: %v", n, got)
		}
		if before := n <= 5; ids.IsBefore(meta, id(n)) != before {
			t.Errorf("id %d is before what is kept: %v", n, !before)
		}
	}
	if meta.Ids != 3 {
		t.Errorf("%d ids are kept, not 3", meta.Ids)
	}
}
