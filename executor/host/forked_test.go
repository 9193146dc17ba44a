package host

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestATreeThatContradictsTheLedgersCheckpointIsNotSigned: with no file beside the tiles, as
// on another disk, the last checkpoint in the ledger is what holds a tree.
func TestATreeThatContradictsTheLedgersCheckpointIsNotSigned(t *testing.T) {
	t.Parallel()
	a := foldingActor(t)
	for sequence := uint64(1); sequence <= 3; sequence++ {
		if err := a.foldBatch(factAt(t, sequence), nil); err != nil {
			t.Fatal(err)
		}
	}
	tree := tiles.NewTree(a.tiles.Files, a.tiles.Edge.Clone())
	root, err := tree.Prover().Root(2)
	if err != nil {
		t.Fatal(err)
	}
	other := root
	other[0] ^= 1
	for name, c := range map[string]struct {
		last ledger.Checkpoint
		ok   bool
	}{
		"another root":      {ledger.Checkpoint{Size: 2, Root: other}, false},
		"records were lost": {ledger.Checkpoint{Size: 9, Root: root}, false},
		"its own":           {ledger.Checkpoint{Size: 2, Root: root}, true},
	} {
		keys := t.TempDir()
		key, err := NewKey(keys, "t")
		if err != nil {
			t.Fatal(err)
		}
		signer, err := key.signer()
		if err != nil {
			t.Fatal(err)
		}
		c.last.Origin = ledger.Origin("t")
		text, err := note.Sign(&note.Note{Text: c.last.Text()}, signer)
		if err != nil {
			t.Fatal(err)
		}
		j := signJob{
			tenant: "t", keys: keys, tree: tiles.NewTree(a.tiles.Files, a.tiles.Edge.Clone()),
			last: &pb.CheckpointSigned{Size: c.last.Size, Root: c.last.Root[:], Note: string(text)},
			file: new(sync.Mutex), log: slog.New(slog.DiscardHandler),
		}
		_, err = j.sign()
		_, noFile := os.Stat(a.tiles.Path(tiles.CheckpointName))
		if errors.Is(err, errForked) == c.ok || c.ok != (err == nil) || c.ok != (noFile == nil) {
			t.Errorf("%s: %v; the file: %v", name, err, noFile)
		}
		if err := os.Remove(a.tiles.Path(tiles.CheckpointName)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
}

// TestADigestOfBeforeARotationIsNotSigned: what is smaller than a rotation the old key has
// signed, and the new one never signs it; what came after it is signed.
func TestADigestOfBeforeARotationIsNotSigned(t *testing.T) {
	t.Parallel()
	a, _, _ := holdingActor(t)
	a.openSigning()
	t.Cleanup(a.endSigning)
	if _, err := NewKey(a.host.keysRoot(), "t"); err != nil {
		t.Fatal(err)
	}
	fold := func(m ledger.Message) {
		t.Helper()
		if err := a.foldBatch(m, nil); err != nil {
			t.Fatal(err)
		}
	}
	fold(factAt(t, 2))
	answer := make(chan any, 1)
	a.rotateKey(request{rotation: view.RotationQuery{Reason: "it is time", Actor: "eve"}, answer: answer})
	records := a.proofRecords()
	if len(records) != 1 || records[0].GetKeyRotated() == nil {
		t.Fatalf("no rotation: %v, %v", records, answer)
	}
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		t.Fatal(err)
	}
	source := ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}
	fold(ledger.Message{Sequence: 3, StampNs: 3, Subject: source.Subject(), Data: data})
	fold(factAt(t, 4))
	for size, signed := range map[uint64]bool{2: false, 3: true, 4: true} {
		a.signing.digest = &stateDigest{records: size, digest: bytes.Repeat([]byte{1}, 32)}
		a.signing.since = time.Time{}
		a.sign()
		if a.signing.busy != signed || a.signing.digest != nil {
			t.Errorf("the digest of %d records, after a rotation at 3: signed %v, want %v", size, a.signing.busy, signed)
		}
		if a.signing.busy {
			if r := <-a.signing.results; r.err != nil || r.checkpoint.Size != size {
				t.Errorf("the digest of %d records: %+v", size, r)
			}
			a.signing.busy = false
		}
	}
}
