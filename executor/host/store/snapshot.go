package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Snapshots are copies of the state store as of some turn, so that a store that is lost
// or broken costs the fold of what came after. They lie in Dir/snapshots, the last two of
// them, and are Pebble checkpoints: tables are hard links to those of the store, its log
// and manifest are copies. So a table that rots does so in both: then the digest beside
// them does not match, and the ledger is folded from its beginning.
const (
	SnapshotsFolder = "snapshots"
	SnapshotName    = "snapshot.json" // in the folder of each
	newSnapshot     = "new"
)

// SnapshotFile says what is in a snapshot.
type SnapshotFile struct {
	FoldVersion uint32              `json:"fold_version"`
	Tenants     map[string]Snapshot `json:"tenants"`
}

// Snapshot says what a snapshot has of one tenant.
type Snapshot struct {
	Applied uint64 `json:"applied"` // sequence
	Records uint64 `json:"records"`
	Leaf    []byte `json:"leaf"` // of the last of them
	Digest  []byte `json:"digest"`
}

// Snapshots takes and restores the snapshots of one state store. It is safe for
// concurrent use, but for take.
type Snapshots struct {
	dir     string // of the host
	db      *pebble.DB
	tenants func() []string
	log     *slog.Logger
	taken   func(tenant string, records uint64, digest []byte)

	making *sync.Mutex // held while one is taken, or all are dropped
}

// NewSnapshots are those of the store db of a host whose folder is dir. taken is called
// after each snapshot: the digest is that of the tenant's rows, folded from so many records.
func NewSnapshots(
	dir string, db *pebble.DB, tenants func() []string, log *slog.Logger,
	taken func(tenant string, records uint64, digest []byte),
) *Snapshots {
	return &Snapshots{dir, db, tenants, log, taken, new(sync.Mutex)}
}

// Run takes a snapshot whenever enough records were folded since the last one, until ctx
// ends. Between two snapshots it waits at least snapshotRest times as long as one takes.
func (s *Snapshots) Run(ctx context.Context, folded *atomic.Uint64) {
	taken, at := folded.Load(), time.Now()
	for wait := snapshotPoll; pause.For(ctx, wait); {
		wait = snapshotPoll
		since := folded.Load() - taken
		if since < snapshotRecords && (since == 0 || time.Since(at) < snapshotEvery) {
			continue
		}
		start := time.Now()
		taken, at = folded.Load(), start
		if err := s.Take(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("no snapshot of the state; the next one is tried later", "error", err)
		}
		wait = max(snapshotPoll, snapshotRest*time.Since(start))
	}
}

// Take takes one snapshot, whole or not at all, and removes the older ones.
func (s *Snapshots) Take(ctx context.Context) error {
	s.making.Lock()
	defer s.making.Unlock()
	return s.take(ctx)
}

// Renew drops all snapshots, which have what was in the store when they were taken, and takes
// one of what is in it now.
func (s *Snapshots) Renew(ctx context.Context) error {
	s.making.Lock()
	defer s.making.Unlock()
	if err := os.RemoveAll(filepath.Join(s.dir, SnapshotsFolder)); err != nil {
		return err
	}
	return s.take(ctx)
}

func (s *Snapshots) take(ctx context.Context) error {
	dir := filepath.Join(s.dir, SnapshotsFolder)
	making := filepath.Join(dir, newSnapshot)
	if err := errors.Join(os.RemoveAll(making), os.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	if err := s.db.Checkpoint(making, pebble.WithFlushedWAL()); err != nil {
		return err
	}
	file := SnapshotFile{FoldVersion: executor.FoldVersion, Tenants: map[string]Snapshot{}}
	err := withSnapshot(making, s.log, func(db *pebble.DB) {
		for _, tenant := range s.tenants() {
			if ctx.Err() != nil {
				return
			}
			kv, shown := viewOf(db, tenant)
			meta := executor.Open(kv, tenant, nil).Meta()
			if meta.FoldVersion == executor.FoldVersion && meta.Applied != nil {
				digest := rows.Digest(paced{kv, ctx})
				file.Tenants[tenant] = Snapshot{meta.Applied.Sequence, meta.Records, meta.Applied.Leaf,
					digest[:]}
			}
			_ = shown.Close()
		}
	})
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	data, err := json.Marshal(file)
	if err != nil {
		return err
	}
	if err := WriteSynced(filepath.Join(making, SnapshotName), data); err != nil {
		return err
	}
	older := s.Numbers()
	next := int64(1)
	if len(older) > 0 {
		next = older[0] + 1
	}
	if err := os.Rename(making, filepath.Join(dir, strconv.FormatInt(next, 10))); err != nil {
		return err
	}
	for _, n := range older[min(SnapshotsKept-1, len(older)):] {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, strconv.FormatInt(n, 10))))
	}
	for _, tenant := range s.tenants() {
		if said, ok := file.Tenants[tenant]; ok {
			s.taken(tenant, said.Records, said.Digest)
		}
	}
	return errors.Join(err, SyncFile(dir))
}

// paced is a store whose scans rest between parts: what reads all rows beside the turns
// would else keep one processor of two busy, for a second per million plans, and what is due
// meanwhile would be late.
type paced struct {
	rows.KV
	ctx context.Context // its end ends a scan that rests
}

// Scan implements rows.KV.
func (p paced) Scan(from, to []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		read := 0
		for k, v := range p.KV.Scan(from, to) {
			if read += len(k) + len(v); read > paceBytes {
				if read = 0; !pause.For(p.ctx, pacePause) {
					return
				}
			}
			if !yield(k, v) {
				return
			}
		}
	}
}

// Numbers lists the snapshots by number, the newest first.
func (s *Snapshots) Numbers() (numbers []int64) {
	entries, _ := os.ReadDir(filepath.Join(s.dir, SnapshotsFolder)) // no folder: none
	for _, e := range entries {
		if n, err := strconv.ParseInt(e.Name(), 10, 64); err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	slices.Reverse(numbers)
	return numbers
}

// withSnapshot opens a snapshot for reading. What is broken in it is an error.
func withSnapshot(dir string, log *slog.Logger, read func(*pebble.DB)) (err error) {
	if err := checkManifest(dir); err != nil {
		return err
	}
	db, err := pebble.Open(dir, &pebble.Options{
		FS: ownFS{vfs.Default}, ReadOnly: true,
		FormatMajorVersion: pebble.FormatValueSeparation, Logger: pebbleLog{log},
	})
	if err != nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil {
			broken, ok := r.(*rows.StoreError)
			if !ok {
				panic(r)
			}
			err = broken
		}
		err = errors.Join(err, db.Close())
	}()
	read(db)
	return nil
}

// viewOf is a tenant's rows as they are now.
func viewOf(db *pebble.DB, tenant string) (View, *pebble.Snapshot) {
	shown := db.NewSnapshot()
	return NewView(shown, tenant), shown
}

// secondCopy is the tree that a snapshot must be of: the tiles.
type secondCopy interface {
	Size() uint64
	Leaf(index uint64) (ledger.Hash, error)
}

// Restore fills an empty state from the newest snapshot that is whole and of this
// ledger, and reports whether there was one.
func (s *Snapshots) Restore(kv *KV, tenant string, copied secondCopy) bool {
	for _, n := range s.Numbers() {
		dir := filepath.Join(s.dir, SnapshotsFolder, strconv.FormatInt(n, 10))
		said, err := s.RestoreFrom(dir, kv, tenant, copied)
		if err == nil {
			s.log.Info("state taken from a snapshot", "tenant", tenant, "snapshot", n, "applied",
				said.Applied)
			return true
		}
		s.log.Warn("snapshot not used", "tenant", tenant, "snapshot", n, "error", err)
	}
	return false
}

// RestoreFrom fills the state of a tenant from one snapshot. The error says why it is not\nused;
// the state is empty then.
func (s *Snapshots) RestoreFrom(
	dir string, kv *KV, tenant string, copied secondCopy,
) (said Snapshot, err error) {
	data, err := os.ReadFile(filepath.Join(dir, SnapshotName))
	if err != nil {
		return said, err
	}
	var file SnapshotFile
	if err := json.Unmarshal(data, &file); err != nil {
		return said, err
	}
	said, ok := file.Tenants[tenant]
	switch {
	case !ok || said.Records == 0:
		return said, errors.New("the tenant is not in it")
	case file.FoldVersion != executor.FoldVersion:
		return said, fmt.Errorf("it was folded by version %d of the rules, this is %d", file.FoldVersion,
			executor.FoldVersion)
	case len(said.Leaf) != ledger.LeafSize:
		return said, fmt.Errorf("its leaf has %d bytes, want %d", len(said.Leaf), ledger.LeafSize)
	case said.Records > copied.Size():
		return said, fmt.Errorf("it is ahead of the tiles, by %d records", said.Records-copied.Size())
	}
	leaf, err := copied.Leaf(said.Records - 1)
	if err != nil {
		return said, err
	}
	if leaf != ledger.Hash(said.Leaf) {
		return said, errors.New("it is of another history than the tiles")
	}
	var problem error
	err = withSnapshot(dir, s.log, func(db *pebble.DB) {
		stored, shown := viewOf(db, tenant)
		defer func() { _ = shown.Close() }()
		if digest := rows.Digest(stored); string(digest[:]) != string(said.Digest) {
			problem = errors.New("its rows are not those that were written")
			return
		}
		problem = kv.fill(stored)
	})
	return said, errors.Join(err, problem)
}

// fill makes stored the state of the tenant. The head of the state, without which there is
// none, comes last.
func (t *KV) fill(stored rows.KV) error {
	if err := t.Wipe(); err != nil {
		return err
	}
	batch := t.db.NewBatch()
	var head []byte
	for k, v := range stored.Scan([]byte{0}, []byte{0xff}) {
		if string(k) == "m" { // executor's Meta
			head = slices.Clone(v)
			continue
		}
		if err := batch.Set(t.full(k), v, nil); err != nil {
			return err
		}
		if batch.Len() > turn.BytesMax {
			if err := batch.Commit(pebble.NoSync); err != nil {
				return err
			}
			batch = t.db.NewBatch()
		}
	}
	if err := batch.Set(t.full([]byte("m")), head, nil); err != nil {
		return err
	}
	return batch.Commit(pebble.NoSync)
}
