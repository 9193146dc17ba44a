package tiles

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Names beside the tiles.
const (
	newFile = "tile.new"
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

	synced   atomic.Uint64 // records that are known to be on disk
	syncing  sync.Mutex    // guards all below, and the files against two that sync, pack or cut them
	syncedAt time.Time     // the last time
	settled  bool          // the names that Open has found or made are on disk
	packed   uint64        // the segments before are packed, as far as that is possible
}

// extent is how much of a ledger the files hold.
type extent struct {
	size uint64 // records
	last uint64 // sequence of the last message that is whole
	end  int64  // bytes up to its end in the segment of the last record
}

// Path is a file or folder of the tenant, by its name with slashes.
func (t *Files) Path(name string) string { return filepath.Join(t.Dir, filepath.FromSlash(name)) }

// held is how much the files hold now.
func (t *Files) held() extent {
	if e := t.extent.Load(); e != nil {
		return *e
	}
	return extent{}
}

// Size is the number of records in the files.
func (t *Files) Size() uint64 { return t.held().size }

// Last is the sequence of the last message that is whole in the files.
func (t *Files) Last() uint64 { return t.held().last }

// readHashes returns the hashes of tile n of a level, of level 0 as many as there are.
func (t *Files) readHashes(level int, n uint64) ([]ledger.Hash, error) {
	if level == 0 {
		return t.leafHashes(n, t.held().width(n))
	}
	data, err := os.ReadFile(t.Path(ledger.TilePath(level, n, ledger.TileWidth)))
	if err != nil {
		return nil, err
	}
	if len(data) != ledger.TileWidth*ledger.LeafSize {
		return nil, fmt.Errorf("tile %d of level %d has %d bytes", n, level, len(data))
	}
	return hashesOf(data), nil
}

// leafHashes returns the first hashes of tile n of level 0.
func (t *Files) leafHashes(n uint64, width int) ([]ledger.Hash, error) {
	data := make([]byte, width*ledger.LeafSize)
	if err := t.readHashFile(data, int64(n)*tileSize+placeSize); err != nil {
		return nil, err
	}
	return hashesOf(data), nil
}

func hashesOf(data []byte) []ledger.Hash {
	hashes := make([]ledger.Hash, len(data)/ledger.LeafSize)
	for i := range hashes {
		copy(hashes[i][:], data[i*ledger.LeafSize:])
	}
	return hashes
}

// width is how many records tile n of level 0 has.
func (e extent) width(n uint64) int {
	first := n * ledger.TileWidth
	return int(min(max(e.size, first)-first, ledger.TileWidth))
}

// entriesOf returns the leaf data of the records of tile n, each held against its hash. The
// error is a *ReadError.
func (t *Files) entriesOf(n uint64) ([][]byte, error) {
	e, first := t.held(), n*ledger.TileWidth
	if e.width(n) == 0 {
		return nil, &ReadError{first, "it is not there yet"}
	}
	data, err := t.readBundle(e, n)
	if err != nil {
		return nil, &ReadError{first, err.Error()}
	}
	hashes, err := t.leafHashes(n, e.width(n))
	if err != nil {
		return nil, &ReadError{first, err.Error()}
	}
	entries := make([][]byte, len(hashes))
	for i := range entries {
		var ok bool
		if entries[i], data, ok = ledger.NextEntry(data); !ok {
			return nil, &ReadError{first + uint64(i), fmt.Sprintf("bundle %d ends in entry %d", n, i)}
		}
		if ledger.LeafHash(entries[i]) != hashes[i] {
			return nil, &ReadError{first + uint64(i), "an entry has another hash than its tile says"}
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
	entries, err := t.entriesOf(n)
	if err != nil {
		return nil, err
	}
	leaves := make([]ledger.Leafed, len(entries))
	for i := range leaves {
		index := n*ledger.TileWidth + uint64(i)
		if leaves[i], err = ledger.ParseLeaf(entries[i]); err != nil {
			return nil, &ReadError{index, err.Error()}
		}
		if err := t.ownRecord(index, leaves[i]); err != nil {
			return nil, err
		}
	}
	return leaves, nil
}

// ownRecord refuses a record of another tenant: a copy of its folder was put in the place of this
// one. The error names no tenant: whoever reads may know no other.
func (t *Files) ownRecord(index uint64, leaf ledger.Leafed) error {
	if t.tenant == "" || leaf.Tenant == t.tenant { // without a tenant, they are whose they say
		return nil
	}
	return &ReadError{index, "it is another tenant's"}
}

// Whose is the tenant whose records these are; empty: there are none that can be read.
func (t *Files) Whose() string {
	if t.Size() == 0 {
		return ""
	}
	leaf, err := t.first(0)
	if err != nil { // damage is found where it is met
		return ""
	}
	return leaf.Tenant
}

// CheckOwn halts a tenant whose tiles are another one's.
func (t *Files) CheckOwn() error {
	if whose := t.Whose(); whose == "" || whose == t.tenant {
		return nil
	}
	return &ledger.Halted{Guard: "G3", Sequence: 1,
		Problem: "the tiles of this host are another tenant's: put those of this tenant back"}
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
	entries, err := t.entriesOf(n)
	if err != nil {
		return ledger.Leafed{}, err
	}
	leaf, err := ledger.ParseLeaf(entries[0])
	if err != nil {
		return ledger.Leafed{}, &ReadError{n * ledger.TileWidth, err.Error()}
	}
	return leaf, nil
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
