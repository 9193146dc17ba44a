package store

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// slowDisk is a disk in memory that writes no table before it may, and counts what a log's sync has
// to bring to it at once.
type slowDisk struct {
	vfs.FS
	tables chan struct{} // closed: tables may be written

	mu       sync.Mutex
	begun    int   // logs
	unsynced int64 // bytes of a log, the most that its sync has found
}

func (d *slowDisk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, category)
	if err != nil || !strings.HasSuffix(name, ".log") && !strings.HasSuffix(name, ".sst") {
		return f, err
	}
	if strings.HasSuffix(name, ".log") {
		d.mu.Lock()
		d.begun++
		d.mu.Unlock()
	}
	return &slowFile{File: f, disk: d, log: strings.HasSuffix(name, ".log")}, nil
}

type slowFile struct {
	vfs.File
	disk           *slowDisk
	log            bool
	written, onWay atomic.Int64
}

func (f *slowFile) Write(p []byte) (int, error) {
	if !f.log {
		<-f.disk.tables
	}
	f.written.Add(int64(len(p)))
	return f.File.Write(p)
}

// SyncTo has the file on its way up to a place.
func (f *slowFile) SyncTo(to int64) (bool, error) {
	f.onWay.Store(to)
	return false, nil
}

func (f *slowFile) Sync() error { return f.SyncData() }

func (f *slowFile) SyncData() error {
	if f.log {
		f.disk.mu.Lock()
		f.disk.unsynced = max(f.disk.unsynced, f.written.Load()-f.onWay.Load())
		f.disk.mu.Unlock()
	}
	f.onWay.Store(f.written.Load())
	return nil
}

// A tenant's loop writes its rows itself. While a disk takes no table at all, three memtables of
// rows are written without a wait, and a log that is full has little left to be synced.
func TestASlowDiskHoldsUpNoWrite(t *testing.T) {
	t.Parallel()
	disk := &slowDisk{FS: vfs.NewMem(), tables: make(chan struct{})}
	var waits atomic.Int64
	release := sync.OnceFunc(func() { close(disk.tables) })
	events := &pebble.EventListener{
		WriteStallBegin: func(pebble.WriteStallBeginInfo) { waits.Add(1); release() },
	}
	log := slog.New(slog.DiscardHandler)
	dir := filepath.Join(t.TempDir(), "state") // of the disk in memory: nothing is there outside
	db, err := openDB(dir, disk, events, log)
	if err != nil {
		t.Fatal(err)
	}
	value := bytes.Repeat([]byte{1}, 1<<20)
	kv := NewKV(db, "t")
	for n := range 3 * memTableSize >> 20 {
		kv.Set([]byte{byte(n)}, value)
		kv.Commit()
	}
	release()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if waits.Load() != 0 {
		t.Errorf("%d writes have waited for the disk", waits.Load())
	}
	disk.mu.Lock()
	defer disk.mu.Unlock()
	if disk.begun < 3 {
		t.Errorf("%d logs: none was full", disk.begun)
	}
	if most := int64(4 << 20); disk.unsynced > most {
		t.Errorf("a log had %d bytes left to be synced when it was full, at most %d", disk.unsynced, most)
	}
}

// Whoever writes rows syncs nothing to name the log that they begin, unless the one before has no
// name yet.
func TestALogIsNamedBesideTheWritesBeforeAnotherFollows(t *testing.T) {
	t.Parallel()
	l := &logs{dir: t.TempDir(), log: slog.New(slog.DiscardHandler)}
	events := new(pebble.EventListener)
	l.listen(events)
	begin := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(l.dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		events.WALCreated(pebble.WALCreateInfo{})
	}
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"while the store is opened", func() { begin("000002.log") }, "000002.log\n"},
		{"by a write", func() { l.opened.Store(true); begin("000004.log") }, "000002.log\n"},
		{"beside the writes", func() { events.TableCreated(pebble.TableCreateInfo{}) },
			"000002.log\n000004.log\n"},
		{"by the next write", func() { begin("000006.log") }, "000002.log\n000004.log\n"},
		{"before another follows", func() { begin("000008.log") },
			"000002.log\n000004.log\n000006.log\n000008.log\n"},
	} {
		step.do()
		got, err := os.ReadFile(filepath.Join(l.dir, logsFile))
		if err != nil || string(got) != step.want {
			t.Errorf("%s: %q (%v), want %q", step.name, got, err, step.want)
		}
	}
}
