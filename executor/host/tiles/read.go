package tiles

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Names beside the tiles.
const (
	EdgeEntries = "edge.entries"
	EdgeHashes  = "edge.hashes"
	NewFile     = "tile.new"
	// the last one signed here, with all its signatures, as C2SP tlog-tiles has it
	CheckpointName = "checkpoint"
	SyncedName     = "synced.json"
)

// Files reads the tiles of a tenant by their names. It is safe for use beside
// the one that writes them.
type Files struct {
	Dir    string
	tenant string
	cursor uint64 // index of the next record to be added; the writer's

	extent atomic.Pointer[extent]
}

// extent is how much of a ledger the files hold.
type extent struct {
	size uint64 // records
	last uint64 // sequence of the last message that is whole
}

// Path is a file or folder of the tenant, by its name with slashes.
func (t *Files) Path(name string) string { return filepath.Join(t.Dir, filepath.FromSlash(name)) }

// Size is the number of records in the files.
func (t *Files) Size() uint64 {
	if e := t.extent.Load(); e != nil {
		return e.size
	}
	return 0
}

// Last is the sequence of the last message that is whole in the files.
func (t *Files) Last() uint64 {
	if e := t.extent.Load(); e != nil {
		return e.last
	}
	return 0
}

func (t *Files) grown(records, last uint64) {
	t.extent.Store(&extent{t.Size() + records, max(t.Last(), last)})
}

// read reads a full tile's file, or the growing one while it is that.
func (t *Files) read(full, edge string, n uint64) ([]byte, error) {
	growing := n == t.Size()/ledger.TileWidth // first: a tile that is full to the size has its name
	data, err := os.ReadFile(t.Path(full))
	if !growing || !errors.Is(err, fs.ErrNotExist) {
		return data, err
	}
	data, err = os.ReadFile(t.Path(edge))
	// Filled meanwhile? Then what was read is of the next tile, or nothing.
	if filled, late := os.ReadFile(t.Path(full)); !errors.Is(late, fs.ErrNotExist) {
		return filled, late
	}
	return data, err
}

// readHashes returns the hashes of tile n of a level, of level 0 as many as there are.
func (t *Files) readHashes(level int, n uint64) ([]ledger.Hash, error) {
	edge := EdgeHashes
	if level > 0 {
		edge = "no such file"
	}
	width := t.width(n)
	data, err := t.read(ledger.TilePath(level, n, ledger.TileWidth), edge, n)
	if err != nil {
		return nil, err
	}
	if level > 0 {
		width = ledger.TileWidth
	}
	if len(data) < width*ledger.LeafSize {
		return nil, fmt.Errorf("tile %d of level %d has %d bytes", n, level, len(data))
	}
	hashes := make([]ledger.Hash, width)
	for i := range hashes {
		copy(hashes[i][:], data[i*ledger.LeafSize:])
	}
	return hashes, nil
}

// width is how many records tile n of level 0 has.
func (t *Files) width(n uint64) int {
	if size := t.Size(); n == size/ledger.TileWidth {
		return int(size % ledger.TileWidth)
	}
	return ledger.TileWidth
}

// readEntries returns the leaf data of the records of tile n.
func (t *Files) readEntries(n uint64) ([][]byte, error) {
	width := t.width(n)
	data, err := t.read(ledger.BundlePath(n, ledger.TileWidth), EdgeEntries, n)
	if err != nil {
		return nil, err
	}
	entries := make([][]byte, width)
	for i := range entries {
		var ok bool
		if entries[i], data, ok = ledger.NextEntry(data); !ok {
			return nil, fmt.Errorf("bundle %d ends in entry %d", n, i)
		}
	}
	return entries, nil
}

// Records yields the records from an index on, each held against its hash. The
// error is a *tileReadErr.
func (t *Files) Records(index uint64) iter.Seq2[ledger.Leafed, error] {
	return func(yield func(ledger.Leafed, error) bool) {
		for index < t.Size() {
			n := index / ledger.TileWidth
			leaves, err := t.tile(n)
			if err != nil {
				yield(ledger.Leafed{}, err)
				return
			}
			for _, leaf := range leaves[index%ledger.TileWidth:] {
				if !yield(leaf, nil) {
					return
				}
				index++
			}
		}
	}
}

// tile reads the records of tile n of level 0 and holds them against their hashes.
func (t *Files) tile(n uint64) ([]ledger.Leafed, error) {
	entries, err := t.readEntries(n)
	if err != nil {
		return nil, &ReadError{n * ledger.TileWidth, err.Error()}
	}
	hashes, err := t.readHashes(0, n)
	if err != nil {
		return nil, &ReadError{n * ledger.TileWidth, err.Error()}
	}
	leaves := make([]ledger.Leafed, min(len(entries), len(hashes)))
	for i := range leaves {
		index := n*ledger.TileWidth + uint64(i)
		if ledger.LeafHash(entries[i]) != hashes[i] {
			return nil, &ReadError{index, "an entry has another hash than its tile says"}
		}
		if leaves[i], err = ledger.ParseLeaf(entries[i]); err != nil {
			return nil, &ReadError{index, err.Error()}
		}
	}
	return leaves, nil
}

// find returns the index of the first record of a message; the message must be in
// the files.
func (t *Files) find(sequence uint64) (uint64, error) {
	// the tile is in low..high-1
	low, high := uint64(0), (t.Size()+ledger.TileWidth-1)/ledger.TileWidth
	for high-low > 1 {
		middle := (low + high) / 2
		first, err := t.first(middle)
		if err != nil {
			return 0, err
		}
		if first.Sequence < sequence || first.Sequence == sequence && first.Index == 0 {
			low = middle
		} else {
			high = middle
		}
	}
	leaves, err := t.tile(low)
	if err != nil {
		return 0, err
	}
	for i, leaf := range leaves {
		if leaf.Sequence == sequence && leaf.Index == 0 {
			return low*ledger.TileWidth + uint64(i), nil
		}
	}
	return 0, &ReadError{low * ledger.TileWidth,
		fmt.Sprintf("sequence %d is not where it belongs", sequence)}
}

// first returns the first record of tile n.
func (t *Files) first(n uint64) (ledger.Leafed, error) {
	f, err := t.openBundle(n)
	if err != nil {
		return ledger.Leafed{}, &ReadError{n * ledger.TileWidth, err.Error()}
	}
	head := make([]byte, 4)
	_, err = f.ReadAt(head, 0)
	data := make([]byte,
		4+int(min(uint32(head[0])<<24|uint32(head[1])<<16|uint32(head[2])<<8|uint32(head[3]), 1<<20)))
	if err == nil {
		_, err = f.ReadAt(data, 0)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return ledger.Leafed{}, &ReadError{n * ledger.TileWidth, err.Error()}
	}
	entry, _, _ := ledger.NextEntry(data)
	leaf, err := ledger.ParseLeaf(entry)
	if err != nil {
		return ledger.Leafed{}, &ReadError{n * ledger.TileWidth, err.Error()}
	}
	return leaf, nil
}

// openBundle opens what read reads of the entries.
func (t *Files) openBundle(n uint64) (*os.File, error) {
	growing := n == t.Size()/ledger.TileWidth
	full := t.Path(ledger.BundlePath(n, ledger.TileWidth))
	f, err := os.Open(full)
	if !growing || !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	edge, err := os.Open(t.Path(EdgeEntries))
	if filled, late := os.Open(full); !errors.Is(late, fs.ErrNotExist) { // meanwhile
		if err == nil {
			late = errors.Join(late, edge.Close())
		}
		return filled, late
	}
	return edge, err
}

// Messages yields the messages from a sequence on, up to the last whole one.
func (t *Files) Messages(from uint64) iter.Seq2[ledger.Message, error] {
	return func(yield func(ledger.Message, error) bool) {
		if from > t.Last() {
			return
		}
		index, err := t.find(from)
		if err != nil {
			yield(ledger.Message{}, err)
			return
		}
		var of []ledger.Leafed
		for leaf, err := range t.Records(index) {
			if err != nil {
				yield(ledger.Message{}, err)
				return
			}
			if of = append(of, leaf); !leaf.Last() {
				continue
			}
			m, err := ledger.Assemble(of)
			if err == nil && m.Sequence != from {
				err = fmt.Errorf("sequence %d follows %d", m.Sequence, from-1)
			}
			if err != nil {
				yield(ledger.Message{}, &ReadError{index, err.Error()})
				return
			}
			if !yield(m, nil) {
				return
			}
			of, from = of[:0], from+1
		}
	}
}

// message returns the message at a sequence.
func (t *Files) message(sequence uint64) (ledger.Message, error) {
	for m, err := range t.Messages(sequence) {
		return m, err
	}
	return ledger.Message{},
		&ReadError{t.Size(), fmt.Sprintf("the tiles end before sequence %d", sequence)}
}

// Leaf returns the hash of the record at an index.
func (t *Files) Leaf(index uint64) (ledger.Hash, error) {
	hashes, err := t.readHashes(0, index/ledger.TileWidth)
	if at := int(index % ledger.TileWidth); err == nil && at < len(hashes) {
		return hashes[at], nil
	}
	return ledger.Hash{}, &ReadError{index, fmt.Sprint("no hash: ", err)}
}

// openEdge reads the right edge of the tree at a size.
func (t *Files) openEdge(size uint64) (*ledger.Edge, error) {
	return ledger.OpenEdge(size, func(level int, n uint64, width int) ([]ledger.Hash, error) {
		if level == 0 {
			hashes, err := t.readHashes(0, n)
			if err != nil || len(hashes) < width {
				return nil, &ReadError{n * ledger.TileWidth, fmt.Sprint("no hashes: ", err)}
			}
			return hashes[:width], nil
		}
		above := make([]ledger.Hash, width)
		for i := range above {
			below, err := t.readHashes(level-1, n*ledger.TileWidth+uint64(i))
			if err != nil {
				return nil, &ReadError{(n*ledger.TileWidth + uint64(i)) << (8 * level), err.Error()}
			}
			above[i] = ledger.TileHash(below)
		}
		return above, nil
	})
}

// recover finds how far the files are whole, and cuts off what is not.
func (t *Writer) recover() error {
	var said syncedFile
	if data, err := os.ReadFile(t.Path(SyncedName)); err == nil {
		_ = json.Unmarshal(data, &said) // what cannot be read says nothing: all is verified
	}
	full := said.Tiles
	if full > 0 && !t.there(full-1) {
		full = 0
	}
	t.synced = full
	t.extent.Store(&extent{size: full * ledger.TileWidth})
	for t.there(full) {
		t.extent.Store(&extent{size: (full + 1) * ledger.TileWidth})
		if _, err := t.tile(full); err != nil {
			t.Log.Warn("a tile did not reach the disk; it is filled in again from the stream", "tile", full,
				"error", err)
			break
		}
		full++
	}
	t.extent.Store(&extent{size: full * ledger.TileWidth})
	if err := t.cutFull(full); err != nil {
		return err
	}
	if err := t.recoverEdge(full); err != nil {
		return err
	}
	if err := t.rewriteAbove(full); err != nil {
		return err
	}
	var err error
	t.Edge, err = t.openEdge(t.Size())
	return err
}

// there reports whether tile n of level 0 and its entries are files.
func (t *Writer) there(n uint64) bool {
	for _, path := range [...]string{ledger.BundlePath(n, ledger.TileWidth),
		ledger.TilePath(0, n, ledger.TileWidth)} {
		if _, err := os.Stat(t.Path(path)); err != nil {
			return false
		}
	}
	return true
}

// cutFull removes the tiles of level 0 from n on.
func (t *Writer) cutFull(n uint64) error {
	for gone := 0; gone < 2; n++ { // one of the two may have come without the other
		gone++
		for _, path := range [...]string{ledger.BundlePath(n, ledger.TileWidth),
			ledger.TilePath(0, n, ledger.TileWidth)} {
			err := os.Remove(t.Path(path))
			if err == nil {
				gone = 0
			} else if !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// recoverEdge takes what is whole of the growing tile, and finds the last message.
func (t *Writer) recoverEdge(full uint64) error {
	if err := t.openEdgeFiles(); err != nil {
		return err
	}
	entries, err := os.ReadFile(t.Path(EdgeEntries))
	if err != nil {
		return err
	}
	hashes, err := os.ReadFile(t.Path(EdgeHashes))
	if err != nil {
		return err
	}
	width, rest := 0, entries
	for width < ledger.TileWidth-1 && len(hashes) >= (width+1)*ledger.LeafSize {
		entry, behind, ok := ledger.NextEntry(rest)
		h := ledger.LeafHash(entry)
		if !ok || !bytes.Equal(h[:], hashes[width*ledger.LeafSize:(width+1)*ledger.LeafSize]) {
			break
		}
		if leaf, err := ledger.ParseLeaf(entry); err != nil || !t.follows(full, width, leaf) {
			break // of a tile that was cut off
		}
		rest = behind
		width++
	}
	t.entriesAt = int64(len(entries) - len(rest))
	if err := errors.Join(t.Entries.Truncate(t.entriesAt),
		t.hashes.Truncate(int64(width*ledger.LeafSize))); err != nil {
		return err
	}
	t.extent.Store(&extent{size: full*ledger.TileWidth + uint64(width)})
	return t.findLast()
}

// follows reports whether the first record of the growing tile comes after the last
// full one; the others follow it by their hashes being where they are.
func (t *Writer) follows(full uint64, width int, leaf ledger.Leafed) bool {
	if width > 0 || full == 0 {
		return width > 0 || leaf.Sequence == 1 && leaf.Index == 0
	}
	leaves, err := t.tile(full - 1)
	if err != nil {
		return false
	}
	before := leaves[len(leaves)-1]
	if before.Last() {
		return leaf.Sequence == before.Sequence+1 && leaf.Index == 0
	}
	return leaf.Sequence == before.Sequence && leaf.Index == before.Index+1
}

// findLast finds the last message that is whole.
func (t *Writer) findLast() error {
	size := t.Size()
	if size == 0 {
		return nil
	}
	leaves, err := t.tile((size - 1) / ledger.TileWidth)
	if err != nil {
		return err
	}
	leaf := leaves[len(leaves)-1]
	last := leaf.Sequence
	if !leaf.Last() {
		last--
	}
	t.extent.Store(&extent{size, last})
	return nil
}

// rewriteAbove writes the tiles above level 0 that are not known to be on disk.
func (t *Writer) rewriteAbove(full uint64) error {
	for level := 1; full>>(8*level) > 0; level++ {
		for n := t.synced >> (8 * level); n < full>>(8*level); n++ {
			hashes := make([]ledger.Hash, ledger.TileWidth)
			for i := range hashes {
				below, err := t.readHashes(level-1, n*ledger.TileWidth+uint64(i))
				if err != nil {
					return err
				}
				hashes[i] = ledger.TileHash(below)
			}
			if err := t.writeTile(level, n, hashes); err != nil {
				return err
			}
		}
	}
	return nil
}
