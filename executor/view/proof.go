package view

import (
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Key returns the verifier key in force, as State.Key, and the text of the largest
// checkpoint; nil: none.
func (r *Reader) Key() (key string, last []byte) {
	if row := r.core.Signed(); row != nil {
		last = []byte(row.Signed.Note)
	}
	return r.core.Key(), last
}

// Checkpoint shows the largest checkpoint and the rotations; what a host adds is empty.
func (r *Reader) Checkpoint() (v api.Checkpoint) {
	if row := r.core.Signed(); row != nil {
		v.Size, v.StampNs, v.Root = row.Signed.Size, row.StampNs, row.Signed.Root
	}
	for _, text := range r.tx.Scan(rows.Rotations.Key(rows.Place{}),
		rows.After(rows.Rotations.Prefix())) {
		row := new(rowspb.KeyRow)
		rows.Decode("scan", text, row)
		v.Rotations = append(v.Rotations, api.Rotation{
			At: ledger.FormatAddress(row.At), StampNs: row.StampNs, OldKey: row.Rotated.OldKey,
			NewKey: row.Rotated.NewKey,
			Signed: len(row.Rotated.Signature) > 0, Reason: row.Rotated.Reason, Actor: row.Rotated.Actor,
		})
	}
	return v
}

// Repairs lists the repairs of the ledger, the first one first.
func (r *Reader) Repairs() (views []api.Repair) {
	for _, v := range r.tx.Scan(rows.Repairs.Prefix(), rows.After(rows.Repairs.Prefix())) {
		row := new(rowspb.RepairRow)
		rows.Decode("scan", v, row)
		k := row.Repaired
		views = append(views, api.Repair{
			At: ledger.FormatAddress(row.At), StampNs: row.StampNs, Through: k.Through, Size: k.Size,
			Root:         k.Root,
			OldCreatedNs: k.OldCreatedNs, NewCreatedNs: k.NewCreatedNs, OldLast: k.OldLast,
			Lost: ledger.FormatRanges(k.Lost), Carried: ledger.FormatRanges(k.Carried),
			Dropped: ledger.FormatRanges(k.Dropped),
			Problem: k.Problem, Reason: k.Reason, Actor: k.Actor,
		})
	}
	return views
}
