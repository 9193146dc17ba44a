package executor

import (
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Repairs lists the repairs of the ledger, the first one first.
func (r *Reader) Repairs() (views []view.Repair) {
	for _, v := range r.s.tx.Scan(rows.Repairs.Prefix(), rows.After(rows.Repairs.Prefix())) {
		row := new(rowspb.RepairRow)
		rows.Decode("scan", v, row)
		k := row.Repaired
		views = append(views, view.Repair{
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
