package store

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/memory"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Folder folds records of one tenant into a state folder without a ledger, a
// server or a clock: for measuring, and for folding a ledger a second time. Nothing
// is evicted from it. It belongs to one goroutine.
type Folder struct {
	db    *pebble.DB
	kv    *KV
	state *executor.State
}

// OpenFolder opens the state of tenant in dir, which it creates; nothing else may
// have it open.
func OpenFolder(dir, tenant string) (f *Folder, err error) {
	db, err := Open(dir, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return nil, fmt.Errorf("cannot open the state folder: %w", err)
	}
	defer func() {
		if f == nil { // the first read of a damaged store panics
			_ = db.Close()
		}
	}()
	return NewFolder(db, tenant, nil), nil
}

// NewFolder is the folder of a tenant over an open store; archive may be nil.
func NewFolder(db *pebble.DB, tenant string, archive memory.Archive) *Folder {
	kv := NewKV(db, tenant)
	return &Folder{db: db, kv: kv, state: executor.Open(kv, tenant, archive)}
}

// Fold folds entries as one turn and returns what became of each. A failing store
// panics with *rows.StoreError.
func (f *Folder) Fold(entries []ledger.Entry) []executor.Result {
	results := make([]executor.Result, len(entries))
	for i, e := range entries {
		results[i] = f.state.Apply(e)
	}
	f.Flush()
	return results
}

// Flush ends a turn. What it would have sent and told is dropped: no one is there.
func (f *Folder) Flush() {
	f.state.Flush()
	f.kv.Commit()
	_, _, _, _ = f.state.Commands(), f.state.Notices(), f.state.Pages(), f.state.Erasures()
}

// State returns the folded state; Decide may be asked of it between folds.
func (f *Folder) State() *executor.State { return f.state }

// Rows are the folded rows.
func (f *Folder) Rows() rows.KV { return f.kv }

// Digest returns the digest of the folded rows.
func (f *Folder) Digest() [32]byte { return rows.Digest(f.kv) }

// Settle brings all that is in memory to disk and returns the bytes that the
// folder takes.
func (f *Folder) Settle() (bytes uint64, err error) {
	if err := f.db.Flush(); err != nil {
		return 0, fmt.Errorf("cannot flush the state: %w", err)
	}
	if err := f.db.Compact(context.Background(), []byte{0}, []byte{0xff}, true); err != nil {
		return 0, fmt.Errorf("cannot compact the state: %w", err)
	}
	return f.db.Metrics().DiskSpaceUsage(), nil
}

// Close releases the folder.
func (f *Folder) Close() error { return f.db.Close() }
