// Package ids keeps the ids of the records that counted, so that a copy that is stored again,
// however late, is known. What is kept of a writer is bounded: the ids that were made last. Whether
// an earlier one is new cannot be told any more, and its record is refused. One writer's ids are
// nothing to another's: a clock that is wrong, or a flood, is its own loss.
package ids

import (
	"bytes"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Window has the ids of one writer.
type Window struct {
	tx     *rows.Tx
	writer string
	row    *rowspb.IdWindow
}

// Of returns the window of a writer.
func Of(tx *rows.Tx, s ledger.Source) Window {
	w := Window{tx: tx, writer: s.Writer()}
	if w.row = rows.IDWindows.Find(tx, w.writer); w.row == nil {
		w.row = new(rowspb.IdWindow)
	}
	return w
}

// Find returns the record that counted under an id; nil: none, or it is kept no more.
func (w Window) Find(id ledger.RecordID) *rowspb.IdRow { return rows.IDs.Find(w.tx, w.known(id)) }

func (w Window) known(id [16]byte) rows.Known { return rows.Known{Writer: w.writer, ID: id} }

// IsBefore reports whether an id was made before those that are kept.
func (w Window) IsBefore(id ledger.RecordID) bool {
	return len(w.row.Before) > 0 && bytes.Compare(id[:], w.row.Before) <= 0
}

// Keep keeps the record that counts under an id, and as many others as max says: those that were
// made last.
func (w Window) Keep(id ledger.RecordID, row *rowspb.IdRow, max uint64) {
	rows.IDs.Set(w.tx, w.known(id), row)
	if w.row.Kept++; w.row.Kept > max {
		w.dropOldest()
	}
	rows.IDWindows.Set(w.tx, w.writer, w.row)
}

func (w Window) dropOldest() {
	all := rows.IDs.WithinSized(w.writer)
	from := all
	if len(w.row.Before) > 0 {
		// From the last one that was dropped on: a store that merges later finds its place at once.
		from = rows.IDs.Key(w.known([16]byte(w.row.Before)))
	}
	for key := range w.tx.Scan(from, rows.After(all)) {
		oldest := [16]byte(key[len(all):])
		rows.IDs.Delete(w.tx, w.known(oldest))
		w.row.Before = oldest[:]
		w.row.Kept--
		return
	}
}
