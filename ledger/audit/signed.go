package audit

import (
	"errors"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// signed is what the records say of the tree that they are under. The roots themselves
// are for who has the leaves, as the verifier.
type signed struct {
	size uint64 // records of the largest checkpoint
	note string // that one
	key  string // in force, as the last rotation has it; empty: there was none
}

// checkpoint takes a signed root: of no more records than there are (I2). The largest
// one stands; one that says nothing, or nothing new of the tree, changes nothing.
func (b *book) checkpoint(k *pb.CheckpointSigned) verdict {
	switch before := b.records - 1; {
	case k.Size > before && !b.part:
		return void("I2", "it covers %d records, and stands behind %d", k.Size, before)
	case k.Size > 0 && len(k.Root) != ledger.LeafSize:
		return void("I2", "its root has %d bytes, and not %d", len(k.Root), ledger.LeafSize)
	}
	if k.Size > b.signed.size {
		b.signed.size, b.signed.note = k.Size, k.Note
	}
	return effective
}

// rotation takes a new key from the hand of the one in force: the last one that was
// rotated to, or else the one that signed the largest checkpoint (I2).
func (b *book) rotation(k *pb.KeyRotated) verdict {
	first := b.signed.key == ""
	switch before := b.records - 1; {
	case k.Size > before && !b.part:
		return void("I2", "it was signed at %d records, and stands behind %d", k.Size, before)
	case !first && k.OldKey != b.signed.key:
		return void("I2", "it ends key %s, and %s is in force", k.OldKey, b.signed.key)
	case first && b.signed.size > 0 && !ledger.SignedBy([]byte(b.signed.note), b.tenant, k.OldKey):
		return void("I2", "it ends key %s, which has not signed the last checkpoint", k.OldKey)
	}
	if err := ledger.VerifyRotation(b.tenant, k); err != nil && !errors.Is(err, ledger.ErrKeyLost) {
		return void("I2", "%s", err)
	}
	b.signed.key = k.NewKey
	return effective
}
