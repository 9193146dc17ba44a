package tiles

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// The layout before this one had a file for each 256 hashes and each 256 entries
// (tile/0/<N>, tile/entries/<N>), two for the growing tile, and partial tiles.
const (
	oldEntries = "edge.entries"
	oldHashes  = "edge.hashes"
	takingOver = "taking-over" // folder that the old files are written into, in the new layout
	takenOver  = "taken-over"  // the same when it is whole and on disk: the old files may go
)

// takeOver takes over a folder in the old layout. Its records may be all that is left of a
// stream that was repaired: they are on disk in the new layout before anything is removed,
// and a process that is killed in between goes on at the next start.
func (t *Writer) takeOver() error {
	if _, err := os.Stat(t.Path(takenOver)); err == nil {
		return t.moveIn()
	}
	old := false
	for _, name := range [...]string{oldEntries, oldHashes, "tile/0", "tile/entries"} {
		_, err := os.Stat(t.Path(name))
		old = old || err == nil
	}
	if !old {
		return nil
	}
	t.Log.Info("the tiles are written again, in few files")
	if err := os.RemoveAll(t.Path(takingOver)); err != nil {
		return err
	}
	records, err := t.copyOld(&Files{Dir: t.Path(takingOver)})
	if err != nil {
		return fmt.Errorf("cannot take over the tiles of an earlier version: %w", err)
	}
	// An earlier version may have run here meanwhile: it has begun new files, and is right where
	// it has more.
	if info, err := os.Stat(t.Path(HashesName)); err == nil && hashedIn(info.Size()) > records {
		return errors.Join(os.RemoveAll(t.Path(takingOver)), t.removeOld())
	}
	if err := os.Rename(t.Path(takingOver), t.Path(takenOver)); err != nil {
		return err
	}
	if err := store.SyncFile(t.Dir); err != nil {
		return err
	}
	return t.moveIn()
}

// copyOld writes what the old files have into a folder of its own, and has it on disk. Tiles
// that were on disk are taken as they are, damaged or not; later ones as far as they are
// whole.
func (t *Writer) copyOld(to *Files) (records uint64, err error) {
	if err := os.MkdirAll(to.Path(entriesFolder), 0o700); err != nil {
		return 0, err
	}
	hashes, err := os.OpenFile(to.Path(HashesName), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	c := oldCopy{from: t.Files, to: to, hashes: hashes, synced: t.oldSynced()}
	for n, more := uint64(0), true; more && err == nil; n++ {
		more, err = c.tile(n)
	}
	if c.segment != nil {
		err = errors.Join(err, c.segment.Sync(), c.segment.Close())
	}
	err = errors.Join(err, hashes.Sync(), hashes.Close())
	for _, folder := range [...]string{entriesFolder, "."} {
		err = errors.Join(err, store.SyncFile(to.Path(folder)))
	}
	return c.records, err
}

// oldSynced is how many full tiles of the old layout were known to be on disk.
func (t *Files) oldSynced() uint64 {
	var said struct {
		Tiles uint64 `json:"tiles"`
	}
	data, err := os.ReadFile(t.Path(SyncedName))
	if err != nil || json.Unmarshal(data, &said) != nil || said.Tiles == 0 {
		return 0
	}
	for _, path := range [...]string{ledger.BundlePath(said.Tiles-1, ledger.TileWidth),
		ledger.TilePath(0, said.Tiles-1, ledger.TileWidth)} {
		if _, err := os.Stat(t.Path(path)); err != nil {
			return 0
		}
	}
	return said.Tiles
}

// oldCopy is a copy that is being made.
type oldCopy struct {
	from, to *Files
	hashes   *os.File
	segment  *os.File // that grows
	at       int64    // bytes in it
	synced   uint64   // tiles that were on disk
	records  uint64
	before   *ledger.Leafed // last record, where that is known
}

// tile copies a tile, full or growing; more says whether another one may follow.
func (c *oldCopy) tile(n uint64) (more bool, err error) {
	entries, err := os.ReadFile(c.from.Path(ledger.BundlePath(n, ledger.TileWidth)))
	hashes, err2 := os.ReadFile(c.from.Path(ledger.TilePath(0, n, ledger.TileWidth)))
	full := err == nil && err2 == nil
	if !full && n >= c.synced {
		entries, err = os.ReadFile(c.from.Path(oldEntries))
		hashes, err2 = os.ReadFile(c.from.Path(oldHashes))
		if err != nil || err2 != nil {
			return false, nil
		}
	}
	width, bytes, last := c.whole(entries, hashes)
	switch {
	case n < c.synced: // as it is
		width, bytes = ledger.TileWidth, len(entries)
		hashes = append(hashes, make([]byte, ledger.TileWidth*ledger.LeafSize)...)
	case full && width < ledger.TileWidth, width == 0:
		return false, nil
	}
	c.before = last
	return width == ledger.TileWidth, c.write(n, entries[:bytes], hashes[:width*ledger.LeafSize],
		width)
}

// whole is how many entries have their hash and follow each other, and how many bytes they are.
func (c *oldCopy) whole(entries, hashes []byte) (width, size int, last *ledger.Leafed) {
	last = c.before
	known := hashesOf(hashes)
	for rest := entries; width < min(ledger.TileWidth, len(known)); width++ {
		entry, behind, ok := ledger.NextEntry(rest)
		if !ok || ledger.LeafHash(entry) != known[width] {
			break
		}
		leaf, err := ledger.ParseLeaf(entry)
		if err != nil || (last != nil || c.records == 0) && !follows(last, leaf) {
			break
		}
		last, rest = &leaf, behind
		size = len(entries) - len(rest)
	}
	return width, size, last
}

// write adds a tile to the new files.
func (c *oldCopy) write(n uint64, entries, hashes []byte, width int) (err error) {
	if c.segment == nil {
		name := c.to.Path(segmentName(n / segmentTiles))
		if c.segment, err = os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
			return err
		}
		c.at = 0
	}
	place := binary.BigEndian.AppendUint64(nil, uint64(c.at))
	_, err = c.segment.Write(entries)
	_, err2 := c.hashes.Write(append(place, hashes...))
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	c.at += int64(len(entries))
	c.records += uint64(width)
	if width < ledger.TileWidth || (n+1)%segmentTiles != 0 {
		return nil
	}
	err = errors.Join(c.segment.Sync(), c.segment.Close())
	c.segment = nil
	if err != nil {
		return err
	}
	if err := c.to.pack(n / segmentTiles); err != nil && store.Unwritable(err) {
		return err
	}
	return nil // one that is damaged stays as it is
}

// moveIn puts the files of the new layout in the place of the old ones.
func (t *Writer) moveIn() error {
	taken := &Files{Dir: t.Path(takenOver)}
	if _, err := os.Stat(taken.Path(entriesFolder)); err == nil {
		if err := os.RemoveAll(t.Path(entriesFolder)); err != nil {
			return err
		}
	}
	if err := t.removeOld(); err != nil {
		return err
	}
	for _, name := range [...]string{HashesName, entriesFolder} {
		err := os.Rename(taken.Path(name), t.Path(name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	info, err := os.Stat(t.Path(HashesName))
	if err != nil {
		return err
	}
	t.extent.Store(&extent{size: hashedIn(info.Size())})
	if err := errors.Join(t.rewriteAbove(), store.SyncFile(t.Dir), t.Sync()); err != nil {
		return err
	}
	t.Log.Info("the tiles are written again", "records", t.Size())
	return errors.Join(os.RemoveAll(t.Path(takenOver)), store.SyncFile(t.Dir))
}

// removeOld removes the files of the old layout.
func (t *Writer) removeOld() error {
	var err error
	for _, name := range [...]string{"tile", oldEntries, oldHashes, SyncedName, newFile,
		"signing.new"} {
		err = errors.Join(err, os.RemoveAll(t.Path(name)))
	}
	return errors.Join(err, store.SyncFile(t.Dir))
}
