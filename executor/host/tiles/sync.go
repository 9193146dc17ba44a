package tiles

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// syncEvery is how far apart what was folded is brought to disk in the background: each time
// costs some syncs, and what is not synced the stream fills in again. While checkpoints are
// signed they do it, once a second at most.
const syncEvery = 2 * time.Second

// syncedFile is the content of synced.json.
type syncedFile struct {
	Records *uint64 `json:"records"`
}

// Sync brings what the files hold to disk, and says so in synced.json. Any goroutine may call
// it.
func (t *Files) Sync() error {
	t.syncing.Lock()
	defer t.syncing.Unlock()
	size, from := t.Size(), t.synced.Load()
	if size == from && t.settled {
		return nil
	}
	if err := store.SyncFile(t.Path(HashesName)); err != nil {
		return err
	}
	folders := map[string]bool{}
	for k := from / segmentRecords; k*segmentRecords < size; k++ {
		if k*segmentRecords >= from || !t.settled {
			folders[t.Path(entriesFolder)], folders[t.Dir] = true, true
		}
		err := store.SyncFile(t.Path(segmentName(k)))
		if errors.Is(err, fs.ErrNotExist) { // what is packed is on disk
			_, err = os.Stat(t.Path(segmentName(k) + packedSuffix))
		}
		if err != nil {
			return err
		}
	}
	for level := 1; size>>(8*(level+1)) > 0; level++ {
		for n := from >> (8 * (level + 1)); n < size>>(8*(level+1)); n++ {
			path := t.Path(ledger.TilePath(level, n, ledger.TileWidth))
			for dir := filepath.Dir(path); dir != t.Dir; dir = filepath.Dir(dir) {
				folders[dir], folders[t.Dir] = true, true
			}
			if err := store.SyncFile(path); err != nil {
				return err
			}
		}
	}
	for dir := range folders {
		if err := store.SyncFile(dir); err != nil {
			return err
		}
	}
	t.syncedAt = time.Now()
	if err := t.saySynced(size); err != nil {
		return err
	}
	t.settled = true
	return nil
}

// saySynced says in synced.json how many records are known to be on disk.
func (t *Files) saySynced(records uint64) error {
	data, err := json.Marshal(syncedFile{&records})
	if err != nil {
		return err
	}
	if err := store.WriteSynced(t.Path(SyncedName), data); err != nil {
		return err
	}
	t.synced.Store(records)
	return nil
}

// readSynced returns what synced.json says; ok is false where it says nothing, and then all
// is verified.
func (t *Files) readSynced() (records uint64, ok bool) {
	var said syncedFile
	data, err := os.ReadFile(t.Path(SyncedName))
	if err != nil || json.Unmarshal(data, &said) != nil || said.Records == nil {
		return 0, false
	}
	return *said.Records, true
}

func (t *Writer) wakeSyncer() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// syncLater brings to disk what was folded, and packs full segments, while the fold goes on.
func (t *Writer) syncLater() {
	for {
		select {
		case <-t.wake:
		case <-t.ending:
			return
		}
		select {
		case <-time.After(t.untilSync()):
		case <-t.ending:
			return
		}
		switch {
		case t.Size()-t.synced.Load() < ledger.TileWidth:
		case t.untilSync() > 0: // a checkpoint has done it meanwhile, but for what came since
			t.wakeSyncer()
		default:
			if err := t.Sync(); err != nil {
				t.Log.Warn("tiles are not on disk yet", "error", err)
			}
		}
		t.packFull()
	}
}

// untilSync is how long the next background sync must wait.
func (t *Files) untilSync() time.Duration {
	t.syncing.Lock()
	defer t.syncing.Unlock()
	return time.Until(t.syncedAt.Add(syncEvery))
}

// packFull packs the full segments that are known to be on disk. One that is damaged stays as
// it is; where the disk takes nothing, all that follow are packed later.
func (t *Writer) packFull() {
	for more := true; more; {
		select {
		case <-t.ending:
			return
		default:
			more = t.packNext()
		}
	}
}

// packNext packs one segment; false: there is none, or it must wait.
func (t *Writer) packNext() bool {
	t.syncing.Lock()
	defer t.syncing.Unlock()
	if (t.packed+1)*segmentRecords > t.synced.Load() {
		return false
	}
	if err := t.pack(t.packed); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Log.Warn("a segment of the tiles stays as it is", "error", err)
		if store.Unwritable(err) {
			return false
		}
	}
	t.packed++
	return true
}
