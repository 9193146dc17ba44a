package tiles

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Tree gives the hashes of a tree as it was at some turn, from its tiles. It
// belongs to one goroutine, beside the one that writes.
type Tree struct {
	Files *Files
	Edge  *ledger.Edge // of that turn; not changed any more
	read  map[[2]uint64][]ledger.Hash
}

// NewTree is the tree of an edge, which must not change any more.
func NewTree(files *Files, edge *ledger.Edge) *Tree {
	return &Tree{files, edge, map[[2]uint64][]ledger.Hash{}}
}

// Prover proves from the tree.
func (t *Tree) Prover() ledger.Prover { return ledger.Prover{Read: t.node} }

// node returns the root of the index-th perfect subtree of 2^level leaves.
func (t *Tree) node(level int, index uint64) (ledger.Hash, error) {
	above, within := level/8, level%8
	start := index << within
	n, at, count := start/ledger.TileWidth, int(start%ledger.TileWidth), 1<<within
	hashes, err := t.tile(above, n)
	if err == nil && at+count > len(hashes) {
		err = fmt.Errorf("tile %d of level %d has %d hashes", n, above, len(hashes))
	}
	if err != nil {
		return ledger.Hash{}, &ReadError{start << (8 * above), err.Error()}
	}
	return ledger.PerfectHash(hashes[at : at+count]), nil
}

func (t *Tree) tile(level int, n uint64) ([]ledger.Hash, error) {
	if n == t.Edge.Size()>>(8*(level+1)) {
		return t.Edge.Partial(level), nil
	}
	key := [2]uint64{uint64(level), n}
	if hashes, ok := t.read[key]; ok {
		return hashes, nil
	}
	hashes, err := t.Files.readHashes(level, n)
	if err == nil {
		t.read[key] = hashes
	}
	return hashes, err
}

// ReadCheckpoint reads the checkpoint in the file; of size 0 when there is none. Who
// has signed it the caller must know.
func (t *Files) ReadCheckpoint() (ledger.Checkpoint, []byte, error) {
	text, err := os.ReadFile(t.Path(CheckpointName))
	if errors.Is(err, os.ErrNotExist) {
		return ledger.Checkpoint{}, nil, nil
	}
	if err != nil {
		return ledger.Checkpoint{}, nil, err
	}
	body, _ := SplitNote(text)
	c, err := ledger.ParseCheckpoint(body)
	if err != nil {
		return ledger.Checkpoint{}, nil, fmt.Errorf("%s is not as it was written, put it away: %w",
			t.Path(CheckpointName), err)
	}
	return c, text, nil
}

// SplitNote splits a signed note into its text and its signature lines.
func SplitNote(message []byte) (text, signatures string) {
	at := bytes.LastIndex(message, []byte("\n\n"))
	if at < 0 {
		return string(message), ""
	}
	return string(message[:at+1]), string(message[at+2:])
}
