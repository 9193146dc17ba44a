// Package ids keeps the ids of the records that counted, so that a copy that is stored again,
// however late, is known. What is kept is bounded: the ids that were made last. Whether an earlier
// one is new cannot be told any more, and its record is refused.
package ids

import (
	"bytes"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Find returns the record that counted under an id; nil: none, or it is kept no more.
func Find(tx *rows.Tx, id ledger.RecordID) *rowspb.IdRow { return rows.IDs.Find(tx, id) }

// IsBefore reports whether an id was made before those that are kept.
func IsBefore(meta *rowspb.Meta, id ledger.RecordID) bool {
	return len(meta.IdsBefore) > 0 && bytes.Compare(id[:], meta.IdsBefore) <= 0
}

// Keep keeps the record that counts under an id, and as many others as max says: those that were
// made last.
func Keep(tx *rows.Tx, meta *rowspb.Meta, id ledger.RecordID, row *rowspb.IdRow, max uint64) {
	rows.IDs.Set(tx, id, row)
	if meta.Ids++; meta.Ids <= max {
		return
	}
	// From the last one that was dropped on: a store that merges later finds its place at once.
	from := rows.IDs.Prefix()
	if len(meta.IdsBefore) > 0 {
		from = rows.IDs.Key([16]byte(meta.IdsBefore))
	}
	for key := range tx.Scan(from, rows.After(rows.IDs.Prefix())) {
		oldest := [16]byte(key[1:])
		rows.IDs.Delete(tx, oldest)
		meta.IdsBefore = oldest[:]
		meta.Ids--
		return
	}
}
