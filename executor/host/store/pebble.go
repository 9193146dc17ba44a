package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sagenbaum/sagenbaum/executor/rows"
)

// ErrNoRoom is what opening a state store returns when its disk is full. Try again when
// there is room.
var ErrNoRoom = errors.New("no room on the disk of the state store")

// ErrState says that the disk of a state store has failed. This process cannot use the
// store any more; the next one can, or folds the ledger again.
var ErrState = errors.New("the state store has failed")

// Open opens the state store of a host. The store is a cache of the
// ledgers: one that cannot be opened is moved aside and built again.
func Open(dir string, log *slog.Logger, giveUp <-chan struct{}) (*pebble.DB, error) {
	return OpenWatched(dir, log, giveUp, func(error) {}, func(string) {})
}

// OpenWatched is Open for an owner that wants to know when a block turns out to be corrupt, from
// any goroutine and more than once, and when writes wait for room, as Room.Waits says.
func OpenWatched(dir string, log *slog.Logger, giveUp <-chan struct{},
	corrupt func(error), waits func(problem string)) (*pebble.DB, error) {
	room := NewRoom(filepath.Dir(dir), log, giveUp)
	room.Waits = waits
	if !room.there() {
		return nil, ErrNoRoom // Pebble would try on for ever
	}
	if err := ownFiles(dir); err != nil {
		log.Warn("others may read files of the state store", "error", err)
	}
	files := vfs.OnDiskFull(ownFS{vfs.Default}, room.Await)
	events := func() *pebble.EventListener {
		return &pebble.EventListener{DataCorruption: onCorrupt(dir, log, corrupt)}
	}
	var db *pebble.DB
	err := checkManifest(dir)
	if err == nil {
		db, err = openDB(dir, files, events(), log)
	}
	if err == nil || isAny(err, closedDisk) || isLocked(err) { // its content is not what is wrong
		return db, err
	}
	aside := dir + brokenSuffix
	log.Error("state store cannot be opened; folding the ledger again", "dir", dir, "moved_to", aside,
		"error", err)
	if err := os.RemoveAll(aside); err != nil {
		return nil, fmt.Errorf("cannot remove %s: %w", aside, err)
	}
	if err := os.Rename(dir, aside); err != nil {
		return nil, fmt.Errorf("cannot move the broken state store aside: %w", err)
	}
	return openDB(dir, files, events(), log)
}

// openDB opens a store on files.
func openDB(dir string, files vfs.FS, events *pebble.EventListener,
	log *slog.Logger) (*pebble.DB, error) {
	l := &logs{dir: dir, log: log}
	l.listen(events)
	db, err := pebble.Open(dir, options(files, events, log))
	l.opened.Store(err == nil)
	return db, err
}

// options are those of a store on files. A tenant's loop writes its rows itself, so nothing may
// hold up a write for long, and least of all a disk that is slow for a while:
//
//   - When a memtable is full its log is synced before the next one is begun. By then all but the
//     last megabytes are on their way to the disk.
//   - Tables that are slow to be written are no reason to wait before four memtables are full, nor
//     is a level 0 that grows: then reading takes longer, and that is all.
func options(files vfs.FS, events *pebble.EventListener, log *slog.Logger) *pebble.Options {
	o := &pebble.Options{
		FS:                          files,
		FormatMajorVersion:          pebble.FormatValueSeparation,
		Logger:                      pebbleLog{log},
		EventListener:               events,
		MemTableSize:                memTableSize,
		MemTableStopWritesThreshold: memTablesMax,
		L0StopWritesThreshold:       level0Max,
		WALBytesPerSync:             logSyncBytes,
		Cache:                       pebble.NewCache(cacheSize),
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // most facts are read by no one
	}
	return o
}

// A store that could not be opened is kept aside, beside the one that was made in its place;
// BrokenFolder is its name below a host's folder.
const (
	brokenSuffix = ".broken"
	BrokenFolder = "state" + brokenSuffix
)

// lockedHere is what Pebble says, without a value of its own, of a folder that this process holds:
// a store whose disk has failed keeps its lock until the process ends.
const lockedHere = "lock held by current process"

// isLocked reports whether another process holds the folder, or a store of this one.
func isLocked(err error) bool {
	return errors.Is(err, errWouldBlock) || errors.Is(err, errAgain) ||
		err != nil && strings.Contains(err.Error(), lockedHere)
}

// pebbleLog sends Pebble's chatter to the debug level.
type pebbleLog struct{ log *slog.Logger }

func (l pebbleLog) Infof(format string, args ...any) {
	l.log.Debug("pebble: " + fmt.Sprintf(format, args...))
}
func (l pebbleLog) Errorf(format string, args ...any) {
	l.log.Error("pebble: " + fmt.Sprintf(format, args...))
}
func (l pebbleLog) Fatalf(format string, args ...any) {
	panic(&rows.StoreError{Op: "run", Err: fmt.Errorf(format, args...)})
}

// TenantPrefix keeps tenants apart in one store; a token has no zero byte.
func TenantPrefix(tenant string) []byte { return append([]byte(tenant), 0) }

// KV is one tenant's rows.KV. What is written stays in memory until Commit, so that state and
// cursor are committed as one.
type KV struct {
	rows.Pending
	db     *pebble.DB
	prefix []byte
}

// NewKV is the part of a tenant.
func NewKV(db *pebble.DB, tenant string) *KV {
	prefix := TenantPrefix(tenant)
	return &KV{Pending: *rows.NewPending(&part{r: db, prefix: prefix}), db: db, prefix: prefix}
}

func (t *KV) full(key []byte) []byte { return append(append([]byte{}, t.prefix...), key...) }

// part is what a store has of one tenant.
type part struct {
	r      pebble.Reader
	prefix []byte
	key    []byte // scratch
}

// Get implements rows.Stored.
func (p *part) Get(key []byte) ([]byte, bool) {
	p.key = append(append(p.key[:0], p.prefix...), key...)
	return Get(p.r, p.key)
}

// Scan implements rows.Stored.
func (p *part) Scan(from, to []byte) iter.Seq2[[]byte, []byte] {
	return scan(p.r, p.prefix, from, to)
}

// Get reads a key of the whole store. A failing store panics with *rows.StoreError.
func Get(r pebble.Reader, key []byte) ([]byte, bool) {
	v, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false
	}
	if err != nil {
		panic(&rows.StoreError{Op: "get", Err: err})
	}
	out := append([]byte{}, v...)
	if err := closer.Close(); err != nil {
		panic(&rows.StoreError{Op: "get", Err: err})
	}
	return out, true
}

func scan(r pebble.Reader, prefix, from, to []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		bound := func(key []byte) []byte { return append(append([]byte{}, prefix...), key...) }
		it, err := r.NewIter(&pebble.IterOptions{LowerBound: bound(from), UpperBound: bound(to)})
		if err != nil {
			panic(&rows.StoreError{Op: "scan", Err: err})
		}
		defer func() {
			if err := it.Close(); err != nil {
				panic(&rows.StoreError{Op: "scan", Err: err})
			}
		}()
		for ok := it.First(); ok; ok = it.Next() {
			if !yield(it.Key()[len(prefix):], it.Value()) {
				return
			}
		}
		if err := it.Error(); err != nil {
			panic(&rows.StoreError{Op: "scan", Err: err})
		}
	}
}

// Commit makes what was written the state, in one batch. There is no fsync: what a power cut
// takes is folded again from the ledger.
func (t *KV) Commit() {
	if t.Bytes() == 0 {
		return
	}
	batch, key := t.db.NewBatchWithSize(t.Bytes()), t.prefix
	t.Drain(func(k string, v []byte) {
		key = append(key[:len(t.prefix)], k...)
		err := error(nil)
		if v == nil {
			err = batch.Delete(key, nil)
		} else {
			err = batch.Set(key, v, nil)
		}
		if err != nil {
			panic(&rows.StoreError{Op: "set", Err: err})
		}
	})
	if err := errors.Join(write(batch), batch.Close()); err != nil {
		panic(&rows.StoreError{Op: "commit", Err: err})
	}
}

// write commits the batch. Pebble panics when it cannot write its log, with locks
// held: the store cannot be used, nor closed, from then on.
func write(batch *pebble.Batch) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrState, r)
		}
	}()
	return batch.Commit(pebble.NoSync)
}

// Wipe forgets the whole state of the tenant.
func (t *KV) Wipe() error {
	t.Forget()
	end := append([]byte{}, t.prefix...)
	end[len(end)-1] = 1
	return t.db.DeleteRange(t.prefix, end, pebble.NoSync)
}

// Erase forgets the whole state of the tenant, and has no file of the store hold it any more.
func (t *KV) Erase(ctx context.Context) error {
	if err := t.Wipe(); err != nil {
		return err
	}
	// A log that is not needed any more is kept, as it is, until a later one takes its place.
	for range logsKept {
		if err := t.db.Delete(t.prefix, pebble.NoSync); err != nil {
			return err
		}
		if err := t.db.Flush(); err != nil {
			return err
		}
	}
	end := append([]byte{}, t.prefix...)
	end[len(end)-1] = 1
	return t.db.Compact(ctx, t.prefix, end, false)
}

// logsKept is how many logs there may be when all but the last are not needed: Pebble keeps
// MemTableStopWritesThreshold+1 for later, the one that is written, and that of the wipe.
const logsKept = memTablesMax + 1 + 2

// View is a read-only rows.KV over a snapshot, for queries beside the
// actor.
type View struct{ *part }

// NewView is the part of a tenant in a snapshot, which the caller closes.
func NewView(s *pebble.Snapshot, tenant string) View {
	return View{&part{r: s, prefix: TenantPrefix(tenant)}}
}

// Set implements rows.KV; a snapshot cannot be written.
func (View) Set(_, _ []byte) { panic("store: write to a snapshot") }

// Delete implements rows.KV; a snapshot cannot be written.
func (View) Delete(_ []byte) { panic("store: write to a snapshot") }
