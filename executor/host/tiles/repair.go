package tiles

import (
	"errors"

	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Settle has all tiles on disk, the growing one too.
func (t *Writer) Settle() error {
	return errors.Join(t.Entries.Sync(), t.hashes.Sync(), t.publish(), store.SyncFile(t.Dir))
}

// CutToLast drops the records of a message that is not whole.
func (t *Writer) CutToLast() error {
	size := t.Size()
	if err := t.FromMessage(t.Last() + 1); err != nil {
		return err
	}
	if t.cursor == size {
		return nil
	}
	n, width := t.cursor/ledger.TileWidth, int(t.cursor%ledger.TileWidth)
	if n < size/ledger.TileWidth { // the growing tile is a full one again
		if err := errors.Join(t.Entries.Close(), t.hashes.Close(),
			t.rename(ledger.BundlePath(n, ledger.TileWidth), EdgeEntries),
			t.rename(ledger.TilePath(0, n, ledger.TileWidth), EdgeHashes), t.cutFull(n)); err != nil {
			return err
		}
		if err := t.openEdgeFiles(); err != nil {
			return err
		}
	}
	if err := t.hashes.Truncate(int64(width * ledger.LeafSize)); err != nil {
		return err
	}
	if err := errors.Join(t.recoverEdge(n), t.Entries.Sync()); err != nil {
		return err
	}
	return t.abandon()
}
