package executor

import (
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Key returns the verifier key in force, as State.Key, and the text of the largest
// checkpoint; nil: none.
func (r *Reader) Key() (key string, last []byte) {
	if row := r.s.Signed(); row != nil {
		last = []byte(row.Signed.Note)
	}
	return r.s.Key(), last
}

// Checkpoint shows the largest checkpoint and the rotations; what a host adds is empty.
func (r *Reader) Checkpoint() (v view.Checkpoint) {
	if row := r.s.Signed(); row != nil {
		v.Size, v.StampNs, v.Root = row.Signed.Size, row.StampNs, row.Signed.Root
	}
	for _, text := range r.s.tx.Scan(rows.Rotations.Key(rows.Place{}),
		rows.After(rows.Rotations.Prefix())) {
		row := new(rowspb.KeyRow)
		rows.Decode("scan", text, row)
		v.Rotations = append(v.Rotations, view.Rotation{
			At: ledger.FormatAddress(row.At), StampNs: row.StampNs, OldKey: row.Rotated.OldKey,
			NewKey: row.Rotated.NewKey,
			Signed: len(row.Rotated.Signature) > 0, Reason: row.Rotated.Reason, Actor: row.Rotated.Actor,
		})
	}
	return v
}
