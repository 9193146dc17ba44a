package tiles

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Writer is one tenant's second copy of its ledger, in the layout of ledger/tile.go,
// and what guards G3 and G4 hold the stream against. Below its folder:
//
//	tile/<L>/<N>, tile/entries/<N>    full tiles; written once, under a name of their own first
//	edge.hashes, edge.entries         the tile of level 0 that grows, and its entries; they become full tiles by their names
//	tile/....p/<W>                    partial tiles, as of the last clean stop
//	synced.json                       how many full tiles are known to be on disk
//
// What they promise: a record is in these files before it is folded state. Nothing
// waits for the disk: kill -9 loses nothing, a power cut may lose what is not
// synced yet, the newest tiles and the growing one. open finds that by the hashes
// and cuts it off, and the stream fills it in again. Full tiles are synced behind
// the fold, on a goroutine of their own. Whoever may write the folder is trusted
// as far as no one has an older root.
//
// One goroutine, the actor's, writes; tileFiles reads beside it.
type Writer struct {
	*Files
	Log  *slog.Logger
	room store.Room
	lock io.Closer
	Edge *ledger.Edge

	Entries, hashes *os.File // the growing tile
	entriesAt       int64    // bytes in entries
	pendingEntries  []byte   // of this turn
	pendingHashes   []byte
	pendingLast     uint64 // last whole message of this turn
	scratch         []byte

	known  []ledger.Hash // hashes of tile knownN, to hold records against that come again
	knownN uint64

	wake   chan struct{} // buffered 1: there is something to sync
	ended  sync.WaitGroup
	synced uint64 // full tiles of level 0; of the syncer's goroutine, then of close
}

// errOtherRecord is what add returns of a record that is not the one in the tiles.
var errOtherRecord = errors.New("the tiles have another record here")

// ReadError is a tile that is missing or damaged.
type ReadError struct {
	index   uint64 // of a record in it
	problem string
}

func (e *ReadError) Error() string {
	return fmt.Sprintf("the tiles are damaged at record %d: %s", e.index, e.problem)
}

// Open opens the tiles of a tenant below root, and makes them when they are
// missing. The files are the host's alone until close.
func Open(root, tenant string, log *slog.Logger, giveUp <-chan struct{}) (*Writer, error) {
	dir := filepath.Join(root, tenant)
	fail := func(err error) (*Writer, error) {
		return nil, fmt.Errorf("cannot open the tiles in %s: %w", dir, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "tile"), 0o700); err != nil {
		return fail(err)
	}
	lock, err := store.Lock(filepath.Join(dir, "lock"))
	if err != nil {
		return fail(err)
	}
	t := &Writer{
		Files: &Files{Dir: dir, tenant: tenant}, Log: log, lock: lock,
		room: store.NewRoom(dir, log, giveUp), wake: make(chan struct{}, 1),
	}
	if err := t.recover(); err != nil {
		return fail(errors.Join(err, t.release()))
	}
	t.ended.Go(t.syncBehind) // ends with close
	t.wakeSyncer()
	return t, nil
}

// Add takes the record of a message: compared with the tiles where they have it
// already, and else kept until flush. The error is errOtherRecord, or a tile's.
func (t *Writer) Add(m ledger.Message, e ledger.Entry) error {
	size := t.Edge.Size()
	index := t.cursor
	t.cursor++
	if index < size {
		if index < t.Size() {
			return t.compare(index, e.Address.Leaf)
		}
		panic("host: a record of this turn came twice")
	}
	t.scratch = ledger.AppendLeaf(t.scratch[:0], t.tenant, m, e.Address.Index, e.Count, e.Reader,
		e.Body)
	t.pendingEntries = ledger.AppendEntry(t.pendingEntries, t.scratch)
	t.pendingHashes = append(t.pendingHashes, e.Address.Leaf...)
	if e.Address.Index+1 >= e.Count {
		t.pendingLast = m.Sequence
	}
	if full := t.Edge.Append(ledger.Hash(e.Address.Leaf)); full != nil {
		return t.fill(full)
	}
	return nil
}

func (t *Writer) compare(index uint64, leaf []byte) error {
	if n := index / ledger.TileWidth; t.known == nil || n != t.knownN ||
		int(index%ledger.TileWidth) >= len(t.known) {
		known, err := t.readHashes(0, n)
		if err != nil {
			return &ReadError{index, err.Error()}
		}
		t.known, t.knownN = known, n
	}
	if at := int(index % ledger.TileWidth); at >= len(t.known) || !bytes.Equal(t.known[at][:], leaf) {
		return errOtherRecord
	}
	return nil
}

// From says that the next record to be added is the one at this index.
func (t *Writer) From(index uint64) { t.cursor, t.known = index, nil }

// Flush writes what this turn has added.
func (t *Writer) Flush() error {
	added, err := t.writePending()
	if err == nil && added > 0 {
		t.grown(added, t.pendingLast)
	}
	return err
}

// writePending writes what this turn has added into the growing tile, and returns
// how many records that were. No one reads them before the files have grown.
func (t *Writer) writePending() (added uint64, err error) {
	if len(t.pendingHashes) == 0 {
		return 0, nil
	}
	if err := t.write(t.Entries, t.entriesAt, t.pendingEntries); err != nil {
		return 0, err
	}
	width := t.Size() % ledger.TileWidth
	if err := t.write(t.hashes, int64(width)*ledger.LeafSize, t.pendingHashes); err != nil {
		return 0, err
	}
	added = uint64(len(t.pendingHashes) / ledger.LeafSize)
	t.entriesAt += int64(len(t.pendingEntries))
	t.pendingEntries, t.pendingHashes = t.pendingEntries[:0], t.pendingHashes[:0]
	return added, nil
}

// write writes at a place of a file, and waits for room where the disk is full.
func (t *Writer) write(f *os.File, at int64, data []byte) error {
	for {
		_, err := f.WriteAt(data, at)
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
		if t.room.Await(); !t.room.Pause() {
			return err
		}
	}
}

// fill makes the growing tile a full one, and writes those above it that are full.
// The size grows last: a reader takes a tile behind it for a full one.
func (t *Writer) fill(full []ledger.Tile) error {
	added, err := t.writePending()
	if err != nil {
		return err
	}
	n := full[0].N
	if err := errors.Join(t.Entries.Close(), t.hashes.Close()); err != nil {
		return err
	}
	for _, move := range [...]struct {
		from,
		to string
	}{{EdgeEntries, ledger.BundlePath(n, ledger.TileWidth)},
		{EdgeHashes, ledger.TilePath(0, n, ledger.TileWidth)}} {
		if err := t.rename(move.from, move.to); err != nil {
			return err
		}
	}
	for _, tile := range full[1:] {
		if err := t.writeTile(tile.Level, tile.N, tile.Hashes); err != nil {
			return err
		}
	}
	if err := t.openEdgeFiles(); err != nil {
		return err
	}
	t.grown(added, t.pendingLast)
	t.wakeSyncer()
	return nil
}

// rename gives a file its name, in a folder that may be missing.
func (t *Writer) rename(from, to string) error {
	from, to = t.Path(from), t.Path(to)
	err := os.Rename(from, to)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(to), 0o700); err == nil {
			err = os.Rename(from, to)
		}
	}
	return err
}

// writeTile writes a tile of hashes, whole or not at all.
func (t *Writer) writeTile(level int, n uint64, hashes []ledger.Hash) error {
	var data []byte
	for _, h := range hashes {
		data = append(data, h[:]...)
	}
	return t.place(ledger.TilePath(level, n, len(hashes)), data)
}

// place writes a file under a name of its own first.
func (t *Writer) place(path string, data []byte) error {
	f, err := os.OpenFile(t.Path(NewFile), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(t.write(f, 0, data), f.Close()); err != nil {
		return err
	}
	return t.rename(NewFile, path)
}

func (t *Writer) openEdgeFiles() error {
	var err error
	if t.Entries, err = os.OpenFile(t.Path(EdgeEntries), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if t.hashes, err = os.OpenFile(t.Path(EdgeHashes), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	t.entriesAt = 0
	return nil
}

// publish writes the partial tiles of the tree as it is, so that the folder can be
// read as any tlog-tiles, and removes those of an earlier publish; those of the
// checkpoint stay.
func (t *Writer) publish() error {
	if err := t.WritePartials(t.Edge, NewFile); err != nil {
		return err
	}
	size, signed := t.Edge.Size(), uint64(0)
	if c, _, err := t.ReadCheckpoint(); err == nil {
		signed = c.Size
	}
	return t.DropPartials([]uint64{size}, size, signed)
}

// abandon forgets what this turn has added and not written.
func (t *Writer) abandon() error {
	t.pendingEntries, t.pendingHashes, t.pendingLast = nil, nil, 0
	edge, err := t.openEdge(t.Size())
	if err == nil {
		t.Edge = edge
	}
	return err
}

// Close brings all to disk and releases the folder.
func (t *Writer) Close() error {
	close(t.wake)
	t.ended.Wait()
	err := errors.Join(t.abandon(), t.publish(), t.Entries.Sync(), t.hashes.Sync(), t.syncFull())
	return errors.Join(err, t.release())
}

// Kill gives the folder back as a kill of the process does: nothing more is written.
func (t *Writer) Kill() error {
	close(t.wake)
	t.ended.Wait()
	return t.release()
}

// release gives the folder back.
func (t *Writer) release() error {
	var err error
	for _, f := range [...]*os.File{t.Entries, t.hashes} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return errors.Join(err, t.lock.Close())
}

func (t *Writer) wakeSyncer() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// syncBehind brings full tiles to disk while the fold goes on.
func (t *Writer) syncBehind() {
	for range t.wake {
		if err := t.syncFull(); err != nil {
			t.Log.Warn("tiles are not on disk yet", "error", err)
		}
	}
}

// syncedFile is the content of synced.json.
type syncedFile struct {
	Tiles uint64 `json:"tiles"`
}

// syncFull syncs the full tiles that are not known to be on disk, then says so.
func (t *Writer) syncFull() error {
	full := t.Size() / ledger.TileWidth
	if full == t.synced {
		return nil
	}
	folders := map[string]bool{t.Dir: true}
	sync := func(path string) error {
		path = t.Path(path)
		for dir := filepath.Dir(path); dir != t.Dir; dir = filepath.Dir(dir) {
			folders[dir] = true
		}
		return store.SyncFile(path)
	}
	for n := t.synced; n < full; n++ {
		if err := errors.Join(sync(ledger.BundlePath(n, ledger.TileWidth)),
			sync(ledger.TilePath(0, n, ledger.TileWidth))); err != nil {
			return err
		}
	}
	for level := 1; full>>(8*level) > 0; level++ {
		for n := t.synced >> (8 * level); n < full>>(8*level); n++ {
			if err := sync(ledger.TilePath(level, n, ledger.TileWidth)); err != nil {
				return err
			}
		}
	}
	for dir := range folders {
		if err := store.SyncFile(dir); err != nil {
			return err
		}
	}
	data, err := json.Marshal(syncedFile{full})
	if err != nil {
		return err
	}
	if err := store.WriteSynced(t.Path(SyncedName), data); err != nil {
		return err
	}
	t.synced = full
	return nil
}
