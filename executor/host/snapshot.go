package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Snapshots are copies of the state store as of some turn, so that a store that is
// lost or broken costs the fold of what came after. They lie in Dir/snapshots, the
// last two of them, and are Pebble checkpoints: tables are hard links to those of
// the store, its log and manifest are copies. So a table that rots does so in both:
// then the digest beside them says it, and the ledger is folded from its beginning.
const (
	snapshotsFolder = "snapshots"
	snapshotName    = "snapshot.json" // in the folder of each
	newSnapshot     = "new"
)

// snapshotFile says what is in a snapshot.
type snapshotFile struct {
	FoldVersion uint32                    `json:"fold_version"`
	Tenants     map[string]snapshotTenant `json:"tenants"`
}

type snapshotTenant struct {
	Applied uint64 `json:"applied"` // sequence
	Records uint64 `json:"records"`
	Leaf    []byte `json:"leaf"` // of the last of them
	Digest  []byte `json:"digest"`
}

// takeSnapshots takes a snapshot whenever enough was folded since the last one,
// until ctx ends. It leaves at least twenty times as long between two as one takes.
func (h *Host) takeSnapshots(ctx context.Context) {
	taken, at := h.folded.Load(), time.Now()
	for pause := snapshotPoll; sleep(ctx, pause); {
		pause = snapshotPoll
		since := h.folded.Load() - taken
		if since < snapshotRecords && (since == 0 || time.Since(at) < snapshotEvery) {
			continue
		}
		start := time.Now()
		taken, at = h.folded.Load(), start
		if err := h.snapshot(ctx); err != nil && ctx.Err() == nil {
			h.log.Warn("no snapshot of the state; the next one is tried later", "error", err)
		}
		pause = max(snapshotPoll, 20*time.Since(start))
	}
}

// snapshot takes one, whole or not at all, and removes the older ones.
func (h *Host) snapshot(ctx context.Context) error {
	dir := filepath.Join(h.cfg.Dir, snapshotsFolder)
	making := filepath.Join(dir, newSnapshot)
	if err := errors.Join(os.RemoveAll(making), os.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	if err := h.db.Checkpoint(making, pebble.WithFlushedWAL()); err != nil {
		return err
	}
	file := snapshotFile{FoldVersion: executor.FoldVersion, Tenants: map[string]snapshotTenant{}}
	err := withSnapshot(making, h.log, func(db *pebble.DB) {
		for _, tenant := range h.cfg.Tenants {
			if ctx.Err() != nil {
				return
			}
			kv, view := viewOf(db, tenant)
			meta := executor.Open(kv, tenant, nil).Meta()
			if meta.FoldVersion == executor.FoldVersion && meta.Applied != nil {
				digest := executor.Digest(kv)
				file.Tenants[tenant] = snapshotTenant{meta.Applied.Sequence, meta.Records, meta.Applied.Leaf, digest[:]}
			}
			_ = view.Close()
		}
	})
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	data, err := json.Marshal(file)
	if err != nil {
		return err
	}
	if err := writeSynced(filepath.Join(making, snapshotName), data); err != nil {
		return err
	}
	older := h.snapshots()
	next := int64(1)
	if len(older) > 0 {
		next = older[0] + 1
	}
	if err := os.Rename(making, filepath.Join(dir, strconv.FormatInt(next, 10))); err != nil {
		return err
	}
	for _, n := range older[min(snapshotsKept-1, len(older)):] {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, strconv.FormatInt(n, 10))))
	}
	for _, a := range h.actors {
		if said, ok := file.Tenants[a.tenant]; ok {
			a.tellDigest(stateDigest{said.Records, said.Digest})
		}
	}
	return errors.Join(err, syncFile(dir))
}

// snapshots lists the snapshots by number, the newest first.
func (h *Host) snapshots() (numbers []int64) {
	entries, _ := os.ReadDir(filepath.Join(h.cfg.Dir, snapshotsFolder)) // no folder: none
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
			broken, ok := r.(*executor.StoreError)
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

// viewOf is a tenant's rows in a snapshot.
func viewOf(db *pebble.DB, tenant string) (snapshotKV, *pebble.Snapshot) {
	view := db.NewSnapshot()
	return snapshotKV{view, tenantPrefix(tenant)}, view
}

// restore fills an empty state from the newest snapshot that is whole and of this
// ledger, and reports whether there was one.
func (a *actor) restore() bool {
	for _, n := range a.host.snapshots() {
		dir := filepath.Join(a.host.cfg.Dir, snapshotsFolder, strconv.FormatInt(n, 10))
		said, err := a.restoreFrom(dir)
		if err == nil {
			a.log.Info("state taken from a snapshot", "snapshot", n, "applied", said.Applied)
			return true
		}
		a.log.Warn("snapshot not used", "snapshot", n, "error", err)
	}
	return false
}

func (a *actor) restoreFrom(dir string) (said snapshotTenant, err error) {
	data, err := os.ReadFile(filepath.Join(dir, snapshotName))
	if err != nil {
		return said, err
	}
	var file snapshotFile
	if err := json.Unmarshal(data, &file); err != nil {
		return said, err
	}
	said, ok := file.Tenants[a.tenant]
	switch {
	case !ok || said.Records == 0:
		return said, errors.New("the tenant is not in it")
	case file.FoldVersion != executor.FoldVersion:
		return said, fmt.Errorf("it was folded by version %d of the rules, this is %d", file.FoldVersion, executor.FoldVersion)
	case len(said.Leaf) != ledger.LeafSize:
		return said, fmt.Errorf("its leaf has %d bytes, want %d", len(said.Leaf), ledger.LeafSize)
	case said.Records > a.tiles.size():
		return said, fmt.Errorf("it is ahead of the tiles, by %d records", said.Records-a.tiles.size())
	}
	leaf, err := a.tiles.leaf(said.Records - 1)
	if err != nil {
		return said, err
	}
	if leaf != ledger.Hash(said.Leaf) {
		return said, errors.New("it is of another history than the tiles")
	}
	var problem error
	err = withSnapshot(dir, a.log, func(db *pebble.DB) {
		kv, view := viewOf(db, a.tenant)
		defer func() { _ = view.Close() }()
		if digest := executor.Digest(kv); string(digest[:]) != string(said.Digest) {
			problem = errors.New("its rows are not those that were written")
			return
		}
		problem = a.kv.fill(kv)
	})
	return said, errors.Join(err, problem)
}

// fill makes rows the state of the tenant. The head of the state, by which it counts
// as there, comes last.
func (t *tenantKV) fill(rows executor.KV) error {
	if err := t.wipe(); err != nil {
		return err
	}
	batch := t.db.NewBatch()
	var head []byte
	for k, v := range rows.Scan([]byte{0}, []byte{0xff}) {
		if string(k) == "m" { // executor's Meta
			head = slices.Clone(v)
			continue
		}
		if err := batch.Set(t.full(k), v, nil); err != nil {
			return err
		}
		if batch.Len() > turnBytesMax {
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
