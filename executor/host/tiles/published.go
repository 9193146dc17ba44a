package tiles

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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

// partial is one partial tile of a tree.
type partial struct {
	level int
	n     uint64
	width int
}

// PartialsOf are the partial tiles of the tree of a size.
func PartialsOf(size uint64) (all []partial) {
	for level := 0; size>>(8*level) > 0; level++ {
		if width := int(size >> (8 * level) % ledger.TileWidth); width > 0 {
			all = append(all, partial{level, size >> (8 * (level + 1)), width})
		}
	}
	return all
}

// Paths are the files of a partial tile.
func (p partial) Paths() (paths []string) {
	if p.level == 0 {
		paths = append(paths, ledger.BundlePath(p.n, p.width))
	}
	return append(paths, ledger.TilePath(p.level, p.n, p.width))
}

// WritePartials writes the partial tiles of a tree, so that the folder can be read as
// any tlog-tiles at its size. temp is the caller's alone.
func (t *Files) WritePartials(edge *ledger.Edge, temp string) error {
	for _, p := range PartialsOf(edge.Size()) {
		var data []byte
		for _, h := range edge.Partial(p.level) {
			data = append(data, h[:]...)
		}
		if err := t.placeAs(temp, ledger.TilePath(p.level, p.n, p.width), data); err != nil {
			return err
		}
		if p.level > 0 {
			continue
		}
		data, err := t.read(ledger.BundlePath(p.n, ledger.TileWidth), EdgeEntries, p.n)
		if err != nil {
			return err
		}
		rest := data
		for i := range p.width {
			var ok bool
			if _, rest, ok = ledger.NextEntry(rest); !ok {
				return fmt.Errorf("the entries of tile %d end in entry %d of %d", p.n, i, p.width)
			}
		}
		if err := t.placeAs(temp, ledger.BundlePath(p.n, p.width), data[:len(data)-len(rest)]); err != nil {
			return err
		}
	}
	return nil
}

// placeAs writes a file under another name first.
func (t *Files) placeAs(temp, path string, data []byte) error {
	if err := os.WriteFile(t.Path(temp), data, 0o600); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(t.Path(path)), 0o700); err != nil {
		return err
	}
	return os.Rename(t.Path(temp), t.Path(path))
}

// DropPartials removes all partial tiles but those of the kept sizes, from the folders
// that trees of the given sizes have them in.
func (t *Files) DropPartials(of []uint64, kept ...uint64) error {
	keep := map[string]bool{}
	for _, size := range kept {
		for _, p := range PartialsOf(size) {
			for _, path := range p.Paths() {
				keep[t.Path(path)] = true
			}
		}
	}
	for _, size := range of {
		for level := 0; size>>(8*level) > 0; level++ {
			for _, path := range (partial{level, size >> (8 * (level + 1)), 0}).Paths() {
				if err := emptyFolder(filepath.Dir(t.Path(path)), keep); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// emptyFolder removes the files of a folder that are not to be kept, and the folder
// with the last one.
func emptyFolder(dir string, keep map[string]bool) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	left := len(entries)
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if keep[path] {
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		left--
	}
	if left > 0 {
		return nil
	}
	return os.Remove(dir)
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
