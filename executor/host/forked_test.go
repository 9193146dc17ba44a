package host

import (
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"

	"golang.org/x/mod/sumdb/note"

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
	tree := readTree(a.tiles.tileFiles, a.tiles.edge.Clone())
	root, err := tree.prover().Root(2)
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
			tenant: "t", keys: keys, tree: readTree(a.tiles.tileFiles, a.tiles.edge.Clone()),
			last: &pb.CheckpointSigned{Size: c.last.Size, Root: c.last.Root[:], Note: string(text)},
			file: new(sync.Mutex), log: slog.New(slog.DiscardHandler),
		}
		_, err = j.sign()
		_, noFile := os.Stat(a.tiles.path(checkpointName))
		if errors.Is(err, errForked) == c.ok || c.ok != (err == nil) || c.ok != (noFile == nil) {
			t.Errorf("%s: %v; the file: %v", name, err, noFile)
		}
		if err := os.Remove(a.tiles.path(checkpointName)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
}
