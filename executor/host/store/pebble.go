package store

import (
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"

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
	return OpenWatched(dir, log, giveUp, func(error) {})
}

// OpenWatched is openPebble for an owner that wants to know when a block turns out to be
// corrupt, from any goroutine and more than once.
func OpenWatched(dir string, log *slog.Logger, giveUp <-chan struct{},
	corrupt func(error)) (*pebble.DB, error) {
	room := Room{dir: filepath.Dir(dir), log: log, giveUp: giveUp}
	if !room.there() {
		return nil, ErrNoRoom // Pebble would try on for ever
	}
	if err := ownFiles(dir); err != nil {
		log.Warn("others may read files of the state store", "error", err)
	}
	options := func() *pebble.Options {
		events := &pebble.EventListener{DataCorruption: onCorrupt(dir, log, corrupt)}
		(&logs{dir: dir, log: log}).listen(events)
		o := &pebble.Options{
			FS:                 vfs.OnDiskFull(ownFS{vfs.Default}, room.Await),
			FormatMajorVersion: pebble.FormatValueSeparation,
			Logger:             pebbleLog{log},
			EventListener:      events,
			MemTableSize:       32 << 20,
			Cache:              pebble.NewCache(256 << 20),
		}
		for i := range o.Levels {
			o.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // most facts are read by no one
		}
		return o
	}
	var db *pebble.DB
	err := checkManifest(dir)
	if err == nil {
		db, err = pebble.Open(dir, options())
	}
	if err == nil || isAny(err, closedDisk) || isLocked(err) { // its content is not what is wrong
		return db, err
	}
	aside := dir + ".broken"
	log.Error("state store cannot be opened; folding the ledger again", "dir", dir, "moved_to", aside,
		"error", err)
	if err := os.RemoveAll(aside); err != nil {
		return nil, fmt.Errorf("cannot remove %s: %w", aside, err)
	}
	if err := os.Rename(dir, aside); err != nil {
		return nil, fmt.Errorf("cannot move the broken state store aside: %w", err)
	}
	return pebble.Open(dir, options())
}

// isLocked reports whether another process holds the folder.
func isLocked(err error) bool {
	return errors.Is(err, errWouldBlock) || errors.Is(err, errAgain)
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

// KV is one tenant's rows.KV: a batch over the store, so that state
// and cursor are committed as one. A turn reads its own writes from a map, which
// is much cheaper than an indexed batch; the first scan within a turn that has
// written (facts do that) turns the batch into an indexed one.
type KV struct {
	db     *pebble.DB
	batch  *pebble.Batch
	wrote  map[string][]byte // this turn's writes by whole key; nil value: deleted
	prefix []byte
	key    []byte // scratch
}

// wroteMax is when the map of a turn's writes is made again instead of cleared.
const wroteMax = 1 << 16

// NewKV is the part of a tenant.
func NewKV(db *pebble.DB, tenant string) *KV {
	return &KV{db: db, batch: db.NewBatch(), wrote: map[string][]byte{}, prefix: TenantPrefix(tenant)}
}

func (t *KV) full(key []byte) []byte {
	t.key = append(append(t.key[:0], t.prefix...), key...)
	return t.key
}

// Get implements rows.KV.
func (t *KV) Get(key []byte) ([]byte, bool) {
	full := t.full(key)
	if v, ok := t.wrote[string(full)]; ok {
		return v, v != nil
	}
	return Get(t.db, full)
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

// Set implements rows.KV.
func (t *KV) Set(key, value []byte) {
	full := t.full(key)
	if err := t.batch.Set(full, value, nil); err != nil {
		panic(&rows.StoreError{Op: "set", Err: err})
	}
	t.wrote[string(full)] = append([]byte{}, value...)
}

// Delete implements rows.KV.
func (t *KV) Delete(key []byte) {
	full := t.full(key)
	if err := t.batch.Delete(full, nil); err != nil {
		panic(&rows.StoreError{Op: "delete", Err: err})
	}
	t.wrote[string(full)] = nil
}

// Scan implements rows.KV.
func (t *KV) Scan(from, to []byte) iter.Seq2[[]byte, []byte] {
	if t.batch.Empty() {
		return scan(t.db, t.prefix, from, to)
	}
	if !t.batch.Indexed() {
		indexed := t.db.NewIndexedBatch()
		if err := indexed.Apply(t.batch, nil); err != nil {
			panic(&rows.StoreError{Op: "scan", Err: err})
		}
		t.drop()
		t.batch = indexed
	}
	return scan(t.batch, t.prefix, from, to)
}

func (t *KV) drop() {
	if err := t.batch.Close(); err != nil {
		panic(&rows.StoreError{Op: "commit", Err: err})
	}
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

// Commit ends a turn: its rows and its cursor become the state together. There
// is no fsync: what a power cut takes is folded again from the ledger.
func (t *KV) Commit() {
	if t.batch.Empty() {
		return
	}
	if err := t.write(); err != nil {
		panic(&rows.StoreError{Op: "commit", Err: err})
	}
	t.drop()
	t.reset()
}

// write commits the batch. Pebble panics when it cannot write its log, with locks
// held: the store cannot be used, nor closed, from then on.
func (t *KV) write() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrState, r)
		}
	}()
	return t.batch.Commit(pebble.NoSync)
}

func (t *KV) reset() {
	t.batch = t.db.NewBatch()
	if len(t.wrote) > wroteMax {
		t.wrote = map[string][]byte{}
		return
	}
	clear(t.wrote)
}

// Abandon forgets what this turn has written.
func (t *KV) Abandon() {
	_ = t.batch.Close()
	t.reset()
}

// Wipe forgets the whole state of the tenant.
func (t *KV) Wipe() error {
	t.Abandon()
	end := append([]byte{}, t.prefix...)
	end[len(end)-1] = 1
	return t.db.DeleteRange(t.prefix, end, pebble.NoSync)
}

// Close drops what was written and not committed.
func (t *KV) Close() error { return t.batch.Close() }

// View is a read-only rows.KV over a snapshot, for queries beside the
// actor.
type View struct {
	snapshot *pebble.Snapshot
	prefix   []byte
}

// NewView is the part of a tenant in a snapshot, which the caller closes.
func NewView(s *pebble.Snapshot, tenant string) View {
	return View{s, TenantPrefix(tenant)}
}

// Get implements rows.KV.
func (s View) Get(key []byte) ([]byte, bool) {
	return Get(s.snapshot, append(append([]byte{}, s.prefix...), key...))
}

// Set implements rows.KV; a snapshot cannot be written.
func (s View) Set(_, _ []byte) { panic("host: write to a snapshot") }

// Delete implements rows.KV; a snapshot cannot be written.
func (s View) Delete(_ []byte) { panic("host: write to a snapshot") }

// Scan implements rows.KV.
func (s View) Scan(from, to []byte) iter.Seq2[[]byte, []byte] {
	return scan(s.snapshot, s.prefix, from, to)
}
