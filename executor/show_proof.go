package executor

import (
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// RotationView is one rotation of the key that checkpoints are signed by.
type RotationView struct {
	At      string `json:"at"` // address of its record
	StampNs int64  `json:"stamp_ns"`
	OldKey  string `json:"old_key"` // verifier key
	NewKey  string `json:"new_key"`
	Signed  bool   `json:"signed"` // by the old key; else that one was lost
	Reason  string `json:"reason"`
	Actor   string `json:"actor"`
}

// CheckpointView is what status says of a tenant's checkpoints.
type CheckpointView struct {
	Size         uint64         `json:"size"`     // records of the largest in the ledger; 0: none yet
	StampNs      int64          `json:"stamp_ns"` // of its record
	Root         []byte         `json:"root,omitempty"`
	Key          string         `json:"key,omitempty"`           // verifier key that this host signs with
	Problem      string         `json:"problem,omitempty"`       // why this host does not sign
	Alarm        bool           `json:"alarm,omitempty"`         // the ledger is not the one that was signed
	Witness      string         `json:"witness,omitempty"`       // name of its key
	Cosigned     uint64         `json:"cosigned,omitempty"`      // size of the largest checkpoint that it has cosigned
	Away         string         `json:"away,omitempty"`          // why it has not cosigned the last one
	WitnessAlarm bool           `json:"witness_alarm,omitempty"` // it says that the ledger is not the one that it has seen
	Rotations    []RotationView `json:"rotations,omitempty"`
}

// Key returns the verifier key in force, as State.Key, and the text of the largest
// checkpoint; nil: none.
func (r *Reader) Key() (key string, last []byte) {
	if row := r.s.Signed(); row != nil {
		last = []byte(row.Signed.Note)
	}
	return r.s.Key(), last
}

// Checkpoint shows the largest checkpoint and the rotations; what a host adds is empty.
func (r *Reader) Checkpoint() (v CheckpointView) {
	if row := r.s.Signed(); row != nil {
		v.Size, v.StampNs, v.Root = row.Signed.Size, row.StampNs, row.Signed.Root
	}
	for _, text := range r.s.tx.Scan(rows.Rotations.Key(rows.Place{}), rows.After(rows.Rotations.Prefix())) {
		row := new(rowspb.KeyRow)
		rows.Decode("scan", text, row)
		v.Rotations = append(v.Rotations, RotationView{
			At: ledger.FormatAddress(row.At), StampNs: row.StampNs, OldKey: row.Rotated.OldKey, NewKey: row.Rotated.NewKey,
			Signed: len(row.Rotated.Signature) > 0, Reason: row.Rotated.Reason, Actor: row.Rotated.Actor,
		})
	}
	return v
}
