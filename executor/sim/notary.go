package sim

import (
	"bytes"

	"golang.org/x/mod/sumdb/note"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/bundle"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// notary is the keys that holders sign checkpoints with, in the worlds where they do. It
// has draws of its own, so that in the others nothing changes.
type notary struct {
	draws *random
	every uint64 // records between two checkpoints; 0: this world signs none
	keys  []notaryKey
}

// notaryKey is a key of the tenant with its verifier key.
type notaryKey struct {
	note.Signer
	verifier string
}

func newNotary(seed uint64) notary {
	n := notary{draws: newRandom(seed, streamNotary)}
	if n.draws.percent(12) {
		n.every = uint64(5 + n.draws.below(60))
	}
	return n
}

// key is the n-th key, the same in every world.
func (n *notary) key(i int) notaryKey {
	for len(n.keys) <= i {
		seed := bytes.Repeat([]byte{byte(len(n.keys) + 1)}, 64)
		secret, verifier, err := note.GenerateKey(bytes.NewReader(seed), ledger.Origin(tenant))
		if err != nil {
			panic("sim: cannot make a key: " + err.Error())
		}
		signer, err := note.NewSigner(secret)
		if err != nil {
			panic("sim: cannot sign with a key: " + err.Error())
		}
		n.keys = append(n.keys, notaryKey{signer, verifier})
	}
	return n.keys[i]
}

// inForce is the number of a verifier key; none is the first.
func (n *notary) inForce(verifier string) (i int) {
	for verifier != "" && n.key(i).verifier != verifier {
		i++
	}
	return i
}

// sign makes the checkpoint of a tree.
func (k notaryKey) sign(tree *bundle.Tree) string {
	c := ledger.Checkpoint{Origin: ledger.Origin(tenant), Size: tree.Size(), Root: tree.Root()}
	text, err := note.Sign(&note.Note{Text: c.Text()}, k)
	if err != nil {
		panic("sim: cannot sign a checkpoint: " + err.Error())
	}
	return string(text)
}

// signs reports whether so many records have come that the holder signs a checkpoint.
func (h *host) signs() bool {
	every := h.w.notary.every
	return every > 0 && h.state.Meta().Records >= h.state.Signed().GetSigned().GetSize()+every
}

// proof are the records about the tree that a holder appends with its decisions: a
// checkpoint of all that it has folded, and now and then another key.
func (h *host) proof() (records []*pb.Record) {
	if !h.signs() {
		return nil
	}
	var tree bundle.Tree
	for sequence := uint64(1); sequence <= h.cursor(); sequence++ {
		m, err := h.w.stream.read(sequence)
		if err != nil {
			return nil // what the stream has lost is for a guard
		}
		for _, e := range m.entries {
			tree.Append(ledger.Hash(e.Address.Leaf))
		}
	}
	if tree.Size() != h.state.Meta().Records {
		return nil
	}
	n := &h.w.notary
	now := n.inForce(h.state.Key())
	key, root := n.key(now), tree.Root()
	epochNs := h.clock.instant().EpochNs
	records = append(records, &pb.Record{Term: h.session.Term(), EpochNs: epochNs,
		Kind: &pb.Record_CheckpointSigned{CheckpointSigned: &pb.CheckpointSigned{
			Size: tree.Size(), Root: root[:], Note: key.sign(&tree)}}})
	h.w.say(h.name, "signs %d records", tree.Size())
	if !n.draws.percent(20) {
		return records
	}
	k := &pb.KeyRotated{OldKey: key.verifier, NewKey: n.key(now + 1).verifier, Size: tree.Size(),
		Reason: "it is time", Actor: "ops"}
	signature, err := key.Sign([]byte(ledger.RotationText(tenant, k)))
	if err != nil {
		panic("sim: cannot sign a rotation: " + err.Error())
	}
	k.Signature = signature
	h.w.say(h.name, "rotates the key of checkpoints")
	return append(records, &pb.Record{Term: h.session.Term(), EpochNs: epochNs,
		Kind: &pb.Record_KeyRotated{KeyRotated: k}})
}
