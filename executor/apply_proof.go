package executor

import (
	"errors"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// checkpointSigned keeps the largest checkpoint. The state has no tree: whether the
// root is the one of so many records is checked by those who have the leaves: the host before it
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
		rows.Checkpoints.Set(s.tx, struct{}{}, &rowspb.CheckpointRow{
			Signed: k, At: e.Address, StampNs: e.StampNs,
		})
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
	if last := s.Signed(); s.Key() == "" && last != nil &&
		!ledger.SignedBy([]byte(last.Signed.Note), s.tenant, k.OldKey) {
		return void("it ends key %s, which has not signed the checkpoint at %s", k.OldKey,
			ledger.FormatAddress(last.At))
	}
	if err := ledger.VerifyRotation(s.tenant, k); err != nil && !errors.Is(err, ledger.ErrKeyLost) {
		return void("%v", err)
	}
	row := &rowspb.KeyRow{Rotated: k, At: e.Address, StampNs: e.StampNs}
	rows.CurrentKey.Set(s.tx, struct{}{}, row)
	rows.Rotations.Set(s.tx, rows.At(e.Address), row)
	return effective
}

// Signed returns the largest checkpoint in the ledger; nil: none. It must not be
// changed.
func (s *State) Signed() *rowspb.CheckpointRow {
	return rows.Checkpoints.Find(s.tx, struct{}{})
}

// Key returns the verifier key in force, as the last rotation names it; empty: there
// was none.
func (s *State) Key() string {
	if row := rows.CurrentKey.Find(s.tx, struct{}{}); row != nil {
		return row.Rotated.NewKey
	}
	return ""
}
