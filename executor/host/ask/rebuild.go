package ask

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// differencesMax bounds the rows that a rebuild names.
const differencesMax = 20

// rebuildPrefix is what the folders of rebuilds begin with.
const rebuildPrefix = "rebuild-"

// DropRebuilds removes what a killed process has left of its rebuilds.
func DropRebuilds(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, rebuildPrefix+"*"))
	for _, path := range left {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// rebuild folds the ledger again beside the running actor, up to where a snapshot
// of its state is, and compares the two (S80). It changes nothing; one at a
// time.
func (d *Desk) rebuild() (answer api.RebuildAnswer, err error) {
	start := time.Now()
	if !d.Shared.rebuilding.CompareAndSwap(nil, &start) {
		since := ""
		if began := d.Shared.rebuilding.Load(); began != nil { // else it has ended just now
			since = fmt.Sprintf(" for %s, and goes on without whoever has asked for it",
				time.Since(*began).Round(time.Second))
		}
		return answer, alone{fmt.Errorf("another rebuild is under way%s", since)}
	}
	defer d.Shared.rebuilding.Store(nil)
	ctx, cancel := d.untilGone()
	defer cancel()
	if answer, err = d.refoldBeside(ctx); err != nil {
		return answer, alone{fmt.Errorf("cannot rebuild: %w", err)}
	}
	answer.TookMs = time.Since(start).Milliseconds()
	return answer, nil
}

func (d *Desk) refoldBeside(ctx context.Context) (answer api.RebuildAnswer, err error) {
	records, copies := d.Board.Records(), d.Board.Copies()
	if records == nil || copies == nil {
		return answer, errors.New("the ledger is not open yet")
	}
	dir, err := os.MkdirTemp(d.Dir, rebuildPrefix)
	if err != nil {
		return answer, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, err := store.Open(filepath.Join(dir, "state"), d.Log, ctx.Done())
	if err != nil {
		return answer, err
	}
	again := store.NewFolder(db, d.Tenant, store.NewArchive(d.Tenant, records))
	defer func() { err = errors.Join(err, again.Close()) }()
	snapshot := d.DB.NewSnapshot()
	defer func() { _ = snapshot.Close() }()
	had := store.NewView(snapshot, d.Tenant)
	answer.Applied = view.NewReader(had, d.Tenant, nil).Applied()
	if err := refold(ctx, again, d.Tenant, records, copies, answer.Applied); err != nil {
		return answer, err
	}
	state, rebuilt := rows.Digest(had), again.Digest()
	facts, count := rows.FactsDigest(had)
	refolded, _ := rows.FactsDigest(again.Rows())
	answer.Equal, answer.Rows = state == rebuilt, count
	answer.State, answer.Rebuilt = rows.FormatDigest(state), rows.FormatDigest(rebuilt)
	answer.Facts, answer.Refolded = rows.FormatDigest(facts), rows.FormatDigest(refolded)
	if !answer.Equal {
		answer.Differ = rows.Differences(had, again.Rows(), differencesMax)
	}
	return answer, nil
}

// refold folds a ledger into an empty folder, up to a sequence. It is held against the tiles, so
// that a server of another history is not taken for a fold that differs.
func refold(ctx context.Context, f *store.Folder, tenant string, records ledger.Store,
	copies *tiles.Files, upTo uint64) error {
	if upTo == 0 {
		return nil
	}
	bytes := 0
	for m, err := range tiles.ReadHeld(ctx, records, copies, 1) {
		if err != nil {
			return err
		}
		entries, err := ledger.Decode(tenant, m)
		if err != nil {
			return err
		}
		for _, e := range entries {
			f.State().Apply(e)
		}
		if bytes += len(m.Data); bytes > turn.BytesMax || m.Sequence == upTo {
			f.Flush()
			bytes = 0
		}
		if m.Sequence == upTo {
			return nil
		}
	}
	return ctx.Err()
}
