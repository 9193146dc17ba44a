package view

import (
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Rotation is one rotation of the key that checkpoints are signed by.
type Rotation struct {
	At      string `json:"at"` // address of its record
	StampNs int64  `json:"stamp_ns"`
	OldKey  string `json:"old_key"` // verifier key
	NewKey  string `json:"new_key"`
	Signed  bool   `json:"signed"` // by the old key; else that one was lost
	Reason  string `json:"reason"`
	Actor   string `json:"actor"`
}

// Checkpoint is what status says of a tenant's checkpoints.
type Checkpoint struct {
	Size    uint64 `json:"size"`     // records of the largest in the ledger; 0: none yet
	StampNs int64  `json:"stamp_ns"` // of its record
	Root    []byte `json:"root,omitempty"`
	Key     string `json:"key,omitempty"`     // verifier key that this host signs with
	Problem string `json:"problem,omitempty"` // why this host does not sign
	// NoKey: it lacks the key in force, or cannot use it.
	NoKey bool `json:"no_key,omitempty"`
	// the ledger is not the one that was signed
	Alarm   bool   `json:"alarm,omitempty"`
	Witness string `json:"witness,omitempty"` // name of its key
	// size of the largest checkpoint that it has cosigned
	Cosigned uint64 `json:"cosigned,omitempty"`
	Away     string `json:"away,omitempty"` // why it has not cosigned the last one
	// it says that the ledger is not the one that it has seen
	WitnessAlarm bool       `json:"witness_alarm,omitempty"`
	Rotations    []Rotation `json:"rotations,omitempty"`
}

// Key returns the verifier key in force, as State.Key, and the text of the largest
// checkpoint; nil: none.
func (r *Reader) Key() (key string, last []byte) {
	if row := r.core.Signed(); row != nil {
		last = []byte(row.Signed.Note)
	}
	return r.core.Key(), last
}

// Checkpoint shows the largest checkpoint and the rotations; what a host adds is empty.
func (r *Reader) Checkpoint() (v Checkpoint) {
	if row := r.core.Signed(); row != nil {
		v.Size, v.StampNs, v.Root = row.Signed.Size, row.StampNs, row.Signed.Root
	}
	for _, text := range r.tx.Scan(rows.Rotations.Key(rows.Place{}),
		rows.After(rows.Rotations.Prefix())) {
		row := new(rowspb.KeyRow)
		rows.Decode("scan", text, row)
		v.Rotations = append(v.Rotations, Rotation{
			At: ledger.FormatAddress(row.At), StampNs: row.StampNs, OldKey: row.Rotated.OldKey,
			NewKey: row.Rotated.NewKey,
			Signed: len(row.Rotated.Signature) > 0, Reason: row.Rotated.Reason, Actor: row.Rotated.Actor,
		})
	}
	return v
}

// Repairs lists the repairs of the ledger, the first one first.
func (r *Reader) Repairs() (views []Repair) {
	for _, v := range r.tx.Scan(rows.Repairs.Prefix(), rows.After(rows.Repairs.Prefix())) {
		row := new(rowspb.RepairRow)
		rows.Decode("scan", v, row)
		k := row.Repaired
		views = append(views, Repair{
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
