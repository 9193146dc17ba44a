package executor

import (
	"errors"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// checkpointSigned keeps the largest checkpoint. The state has no tree: whether the
// root is the one of so many records is for who has the leaves, the host before it
// signs and an auditor. One of size 0 says nothing, and one that is not larger than
// the last is said for its digest: both count, and change nothing.
func (s *State) checkpointSigned(e ledger.Entry, k *pb.CheckpointSigned) Result {
	if before := s.meta.Records - 1; k.Size > before {
		return void("it is about %d records, and stands behind %d", k.Size, before)
	}
	if k.Size > 0 && len(k.Root) != ledger.LeafSize {
		return void("its root has %d bytes", len(k.Root))
	}
	if last := s.Signed(); k.Size > last.GetSigned().GetSize() {
		s.set([]byte{keySigned}, encode(&rowspb.CheckpointRow{Signed: k, At: e.Address, StampNs: e.StampNs}))
	}
	return effective
}

// keyRotated takes over the key that signs from here on. The old one is the one in
// force, as far as the ledger has named it.
func (s *State) keyRotated(e ledger.Entry, k *pb.KeyRotated) Result {
	if before := s.meta.Records - 1; k.Size > before {
		return void("it was signed at %d records, and stands behind %d", k.Size, before)
	}
	if now := s.Key(); now != "" && now != k.OldKey {
		return void("it ends key %s, and %s is in force", k.OldKey, now)
	}
	if last := s.Signed(); s.Key() == "" && last != nil && !ledger.SignedBy([]byte(last.Signed.Note), s.tenant, k.OldKey) {
		return void("it ends key %s, which has not signed the checkpoint at %s", k.OldKey, ledger.FormatAddress(last.At))
	}
	if err := ledger.VerifyRotation(s.tenant, k); err != nil && !errors.Is(err, ledger.ErrKeyLost) {
		return void("%v", err)
	}
	row := encode(&rowspb.KeyRow{Rotated: k, At: e.Address, StampNs: e.StampNs})
	s.set([]byte{keyKey}, row)
	s.set(recordKey(keyKey, e.Address.Sequence, e.Address.Index), row)
	return effective
}

// Signed returns the largest checkpoint in the ledger; nil: none. It must not be
// changed.
func (s *State) Signed() *rowspb.CheckpointRow {
	v, ok := s.get([]byte{keySigned})
	if !ok {
		return nil
	}
	row := new(rowspb.CheckpointRow)
	decode("get", v, row)
	return row
}

// Key returns the verifier key in force, as the last rotation names it; empty: there
// was none.
func (s *State) Key() string {
	v, ok := s.get([]byte{keyKey})
	if !ok {
		return ""
	}
	row := new(rowspb.KeyRow)
	decode("get", v, row)
	return row.Rotated.NewKey
}

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
	for _, text := range r.s.kv.Scan(recordKey(keyKey, 0, 0), after([]byte{keyKey})) {
		row := new(rowspb.KeyRow)
		decode("scan", text, row)
		v.Rotations = append(v.Rotations, RotationView{
			At: ledger.FormatAddress(row.At), StampNs: row.StampNs, OldKey: row.Rotated.OldKey, NewKey: row.Rotated.NewKey,
			Signed: len(row.Rotated.Signature) > 0, Reason: row.Rotated.Reason, Actor: row.Rotated.Actor,
		})
	}
	return v
}
