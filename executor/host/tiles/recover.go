package tiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// recover finds how far the files are whole, and cuts off what is not.
func (t *Writer) recover() error {
	info, err := t.hashes.Stat()
	if err != nil {
		return err
	}
	found, from, err := t.extentOf(hashedIn(info.Size()))
	if err != nil {
		return err
	}
	if said, ok := t.readSynced(); ok && said > from { // before anything grows there again
		if err := t.saySynced(from); err != nil {
			return err
		}
	}
	t.synced.Store(from)
	t.settled = from > 0
	if hashed := hashedIn(info.Size()); hashed > found.size {
		t.Log.Warn("records did not reach the disk; they are filled in again from the stream", "from",
			found.size, "to", hashed)
	}
	if err := t.cut(found); err != nil {
		return err
	}
	if err := t.rewriteAbove(); err != nil {
		return err
	}
	t.Edge, err = t.openEdge(found.size)
	return err
}

// extentOf finds how far the files are whole, where they have hashes of so many records, and how
// many of them are on disk.
func (t *Files) extentOf(hashed uint64) (found extent, synced uint64, err error) {
	if synced, _ = t.readSynced(); synced > hashed {
		synced = 0
	}
	found, err = t.whole(synced)
	if err == nil && found.size < synced { // not even what was on disk: all is verified
		synced = 0
		found, err = t.whole(0)
	}
	return found, synced, err
}

// Read opens a copy of a tenant's folder that no host writes, to be read as far as it is
// whole.
func Read(dir string) (*Files, error) {
	t := &Files{Dir: dir}
	info, err := os.Stat(t.Path(HashesName))
	if err != nil {
		return nil, fmt.Errorf("%s is no folder of tiles: %w", dir, err)
	}
	found, _, err := t.extentOf(hashedIn(info.Size()))
	if err != nil {
		return nil, err
	}
	t.extent.Store(&found)
	return t, nil
}

// whole finds how far the files are whole, when they are up to a record: each entry has its
// hash, and is of the record that follows the one before.
func (t *Files) whole(from uint64) (found extent, err error) {
	n, at := uint64(0), int64(0)
	if from > 0 {
		n = (from - 1) / ledger.TileWidth
		if at, err = t.place(n); err != nil {
			return found, err
		}
	}
	found.size = n * ledger.TileWidth
	var before *ledger.Leafed
	for ; ; n++ {
		if n%segmentTiles == 0 {
			at = 0
		}
		if place, err := t.place(n); err != nil || place != at {
			return found, nil
		}
		entries, _ := t.scan(n, at) // what cannot be read is not whole
		hashes := t.scanHashes(n)
		for i, entry := range entries {
			if i == len(hashes) || ledger.LeafHash(entry) != hashes[i] {
				return found, nil
			}
			leaf, err := ledger.ParseLeaf(entry)
			if err != nil || found.size >= from && !follows(before, leaf) {
				return found, nil
			}
			at += 4 + int64(len(entry))
			found.size, found.end, found.last, before = found.size+1, at, leaf.Sequence, &leaf
			if !leaf.Last() {
				found.last--
			}
		}
		if len(entries) < ledger.TileWidth {
			return found, nil
		}
	}
}

// scanHashes returns the hashes of tile n of level 0 that are in the file.
func (t *Files) scanHashes(n uint64) []ledger.Hash {
	f, err := os.Open(t.Path(HashesName))
	if err != nil {
		return nil
	}
	data := make([]byte, ledger.TileWidth*ledger.LeafSize)
	read, _ := f.ReadAt(data, int64(n)*tileSize+placeSize) // it ends somewhere
	_ = f.Close()
	return hashesOf(data[:read])
}

// follows reports whether a record comes right after another one, or is the first of all.
func follows(before *ledger.Leafed, leaf ledger.Leafed) bool {
	switch {
	case before == nil:
		return leaf.Sequence == 1 && leaf.Index == 0
	case before.Last():
		return leaf.Sequence == before.Sequence+1 && leaf.Index == 0
	}
	return leaf.Sequence == before.Sequence && leaf.Index == before.Index+1
}

// cut cuts off all that comes after an extent, and opens the growing segment there. That
// is on disk before anything is written over: a power cut would mix the two.
func (t *Writer) cut(keep extent) error {
	t.syncing.Lock()
	defer t.syncing.Unlock()
	if t.Entries != nil {
		if err := t.Entries.Close(); err != nil {
			return err
		}
		t.Entries = nil
	}
	if t.synced.Load() > keep.size {
		if err := t.saySynced(keep.size); err != nil {
			return err
		}
	}
	growing, within := keep.size/segmentRecords, keep.size%segmentRecords > 0
	if err := t.cutSegments(growing, within); err != nil {
		return err
	}
	if t.entriesAt = 0; within {
		t.entriesAt = keep.end
		name := t.Path(segmentName(growing))
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			if err := t.unpack(growing, keep.end); err != nil {
				return err
			}
		}
		var err error
		if t.Entries, err = os.OpenFile(name, os.O_RDWR, 0o600); err != nil {
			return err
		}
		if err := truncate(t.Entries, keep.end); err != nil {
			return err
		}
	}
	if err := truncate(t.hashes, hashPlace(keep.size)); err != nil {
		return err
	}
	t.extent.Store(&keep)
	return nil
}

// cutSegments removes the segments from one on, or from the one after where a part of it
// stays; and what a kill has left of those that were being packed, or unpacked.
func (t *Writer) cutSegments(growing uint64, within bool) error {
	files, err := os.ReadDir(t.Path(entriesFolder))
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, file := range files {
		there[file.Name()] = true
	}
	t.packed = growing
	removed := false
	for name := range there {
		text, isPacked := strings.CutSuffix(name, packedSuffix)
		k, err := strconv.ParseUint(text, 10, 64)
		drop := false
		switch {
		case err != nil:
			drop = name == filepath.Base(packingFile)
		case k > growing || k == growing && !within:
			drop = true
		case k == growing: // was being unpacked, and the segment is whole
			drop = isPacked && there[text]
		case !isPacked:
			if drop = there[name+packedSuffix]; !drop { // was being packed, and that is whole
				t.packed = min(t.packed, k)
			}
		}
		if drop {
			removed = true
			if err := os.Remove(filepath.Join(t.Path(entriesFolder), name)); err != nil {
				return err
			}
		}
	}
	if removed {
		return store.SyncFile(t.Path(entriesFolder))
	}
	return nil
}

// truncate cuts a file off, and has that on disk.
func truncate(f *os.File, size int64) error {
	info, err := f.Stat()
	if err != nil || info.Size() == size {
		return err
	}
	return errors.Join(f.Truncate(size), f.Sync())
}

// rewriteAbove writes the tiles above level 0 that are not known to be on disk.
func (t *Writer) rewriteAbove() error {
	size, from := t.Size(), t.synced.Load()
	for level := 1; size>>(8*(level+1)) > 0; level++ {
		for n := from >> (8 * (level + 1)); n < size>>(8*(level+1)); n++ {
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
