package executor

import (
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// RepairView is one repair of the ledger.
type RepairView struct {
	At           string `json:"at"` // address of its record
	StampNs      int64  `json:"stamp_ns"`
	Through      uint64 `json:"through"` // last sequence that stands in the tiles only
	Size         uint64 `json:"size"`    // records up to there
	Root         []byte `json:"root"`
	OldCreatedNs int64  `json:"old_created_ns"`
	NewCreatedNs int64  `json:"new_created_ns"`
	OldLast      uint64 `json:"old_last"`
	Lost         string `json:"lost"` // sequences of the old stream, as in "3, 7-9"
	Carried      string `json:"carried"`
	Dropped      string `json:"dropped"`
	Problem      string `json:"problem,omitempty"`
	Reason       string `json:"reason"`
	Actor        string `json:"actor"`
}

// Repairs lists the repairs of the ledger, the first one first.
func (r *Reader) Repairs() (views []RepairView) {
	for _, v := range r.s.tx.Scan(rows.Repairs.Prefix(), rows.After(rows.Repairs.Prefix())) {
		row := new(rowspb.RepairRow)
		rows.Decode("scan", v, row)
		k := row.Repaired
		views = append(views, RepairView{
			At: ledger.FormatAddress(row.At), StampNs: row.StampNs, Through: k.Through, Size: k.Size, Root: k.Root,
			OldCreatedNs: k.OldCreatedNs, NewCreatedNs: k.NewCreatedNs, OldLast: k.OldLast,
			Lost: ledger.FormatRanges(k.Lost), Carried: ledger.FormatRanges(k.Carried), Dropped: ledger.FormatRanges(k.Dropped),
			Problem: k.Problem, Reason: k.Reason, Actor: k.Actor,
		})
	}
	return views
}
