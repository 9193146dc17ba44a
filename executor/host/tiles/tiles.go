package tiles

import (
	"bytes"
	"encoding/binary"
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

// Writer is one tenant's second copy of its ledger, and what guards G3 and G4 hold the
// stream against. Below its folder:
//
//	hashes          of each tile of 256 records where its entries begin in their segment, u64
//	                big endian, then the 32 bytes of each record's hash: level 0 of the tree
//	entries/<K>     segment K: the entries of 16,384 records, one after the other
//	entries/<K>.s2  the same when it is full, packed
//	tile/<L>/<N>    full tiles of level 1 and above, as ledger/tile.go has them
//	synced.json     how many records are known to be on disk
//
// What they promise: a record is in these files before it is folded state. Nothing
// waits for the disk: kill -9 loses nothing, a power cut may lose what is not
// synced yet. Open finds that by the hashes and cuts it off, and the stream fills it in
// again. What was folded is synced, and full segments are packed, on a goroutine of their
// own. Whoever may write the folder is trusted as far as no one has an older root.
//
// One goroutine, the actor's, writes; Files reads beside it.
type Writer struct {
	*Files
	Log  *slog.Logger
	room store.Room
	lock io.Closer
	Edge *ledger.Edge // with what is not written yet

	Entries        *os.File // the growing segment; nil before its first record
	hashes         *os.File
	entriesAt      int64  // bytes in Entries
	pendingEntries []byte // since the last Flush
	pendingHashes  []byte
	pendingLast    uint64 // last whole message of them
	scratch        []byte

	known  []ledger.Hash // hashes of tile knownN, to hold records against that come again
	knownN uint64

	wake   chan struct{} // buffered 1: there is something to sync or to pack
	ending chan struct{} // closed: no more of that
	ended  sync.WaitGroup
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
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	lock, err := store.Lock(filepath.Join(dir, "lock"))
	if err != nil {
		return fail(err)
	}
	t := &Writer{
		Files: &Files{Dir: dir, tenant: tenant}, Log: log, lock: lock,
		room: store.NewRoom(dir, log, giveUp), wake: make(chan struct{}, 1), ending: make(chan struct{}),
	}
	if err := t.open(); err != nil {
		return fail(errors.Join(err, t.release()))
	}
	t.ended.Go(t.syncLater) // ends with close
	t.wakeSyncer()
	return t, nil
}

// open takes over what an earlier layout has, and finds how far the files are whole.
func (t *Writer) open() error {
	if err := t.takeOver(); err != nil {
		return err
	}
	if err := os.MkdirAll(t.Path(entriesFolder), 0o700); err != nil {
		return err
	}
	var err error
	if t.hashes, err = os.OpenFile(t.Path(HashesName), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	return t.recover()
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
	if index%ledger.TileWidth == 0 {
		begins := t.entriesAt + int64(len(t.pendingEntries))
		t.pendingHashes = binary.BigEndian.AppendUint64(t.pendingHashes, uint64(begins))
	}
	t.scratch = ledger.AppendLeaf(t.scratch[:0], t.tenant, m, e.Address.Index, e.Count, e.Reader,
		e.Body)
	t.pendingEntries = ledger.AppendEntry(t.pendingEntries, t.scratch)
	t.pendingHashes = append(t.pendingHashes, e.Address.Leaf...)
	if e.Address.Index+1 >= e.Count {
		t.pendingLast = m.Sequence
	}
	full := t.Edge.Append(ledger.Hash(e.Address.Leaf))
	if t.Edge.Size()%segmentRecords == 0 {
		return t.fill(full[1:])
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

// Flush writes what was added since the last one.
func (t *Writer) Flush() error {
	if t.Edge.Size() == t.Size() {
		return nil
	}
	if err := t.writePending(); err != nil {
		return err
	}
	t.grown()
	if t.Size()-t.synced.Load() >= ledger.TileWidth {
		t.wakeSyncer()
	}
	return nil
}

// writePending writes what was added: no one reads it before the size has grown.
func (t *Writer) writePending() error {
	if t.Entries == nil {
		var err error
		if t.Entries, err = os.OpenFile(t.Path(segmentName(t.Size()/segmentRecords)),
			os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600); err != nil {
			return err
		}
	}
	if err := t.write(t.Entries, t.entriesAt, t.pendingEntries); err != nil {
		return err
	}
	if err := t.write(t.hashes, hashPlace(t.Size()), t.pendingHashes); err != nil {
		return err
	}
	t.entriesAt += int64(len(t.pendingEntries))
	t.pendingEntries, t.pendingHashes = t.pendingEntries[:0], t.pendingHashes[:0]
	return nil
}

// grown lets readers see what was written.
func (t *Writer) grown() {
	t.extent.Store(&extent{t.Edge.Size(), max(t.Last(), t.pendingLast), t.entriesAt})
}

// OnFull has waits told when writes wait for room, as store.Room.Waits says. It is called before
// anything is written.
func (t *Writer) OnFull(waits func(problem string)) { t.room.Waits = waits }

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

// fill ends the growing segment, and writes the tiles above level 0 that end with it: the
// size grows last.
func (t *Writer) fill(above []ledger.Tile) error {
	if err := t.writePending(); err != nil {
		return err
	}
	for _, tile := range above {
		if err := t.writeTile(tile.Level, tile.N, tile.Hashes); err != nil {
			return err
		}
	}
	t.grown()
	err := t.Entries.Close()
	t.Entries, t.entriesAt = nil, 0
	t.wakeSyncer()
	return err
}

// writeTile writes a full tile of hashes, whole or not at all.
func (t *Writer) writeTile(level int, n uint64, hashes []ledger.Hash) error {
	var data []byte
	for _, h := range hashes {
		data = append(data, h[:]...)
	}
	f, err := os.OpenFile(t.Path(newFile), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(t.write(f, 0, data), f.Close()); err != nil {
		return err
	}
	return t.rename(newFile, ledger.TilePath(level, n, ledger.TileWidth))
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

// abandon forgets what was added and not written.
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
	close(t.ending)
	t.ended.Wait()
	return errors.Join(t.abandon(), t.Sync(), t.release())
}

// Kill gives the folder back as a kill of the process does: nothing more is written.
func (t *Writer) Kill() error {
	close(t.ending)
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
