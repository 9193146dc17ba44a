package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// stateWithTables leaves a state store whose rows are in a table and in a log.
func stateWithTables(t *testing.T) (dir, manifest string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "state")
	for _, key := range []string{"table", "log"} { // a start makes a table of the log before it
		db, err := Open(dir, slog.New(slog.DiscardHandler), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Set([]byte(key), []byte("v"), pebble.NoSync); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	manifests, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	if err != nil || len(manifests) == 0 {
		t.Fatalf("manifests %v, %v", manifests, err)
	}
	return dir, manifests[len(manifests)-1] // the last is in use
}

// Whatever bit of its manifest is flipped, a state store is empty afterwards, to be
// folded again, or whole: never a log without its tables.
func TestAFlippedBitOfTheManifestLeavesNoHalfState(t *testing.T) {
	t.Parallel()
	dir, manifest := stateWithTables(t)
	whole, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(whole); at += testenv.Cases(5, 1) {
		trial := filepath.Join(t.TempDir(), "state")
		if err := os.CopyFS(trial, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		bad := append([]byte{}, whole...)
		bad[at] ^= 1 << (at % 8)
		if err := os.WriteFile(filepath.Join(trial, filepath.Base(manifest)), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if rows := rowsOf(t, trial); rows != "" && rows != "log=v;table=v;" {
			t.Errorf("byte %d of %d flipped: the store has %q", at, len(whole), rows)
		}
	}
}

func rowsOf(t *testing.T, dir string) string {
	t.Helper()
	db, err := Open(dir, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var rows []byte
	for k, v := range scan(db, nil, []byte{0}, []byte{0xff}) {
		rows = append(append(append(append(rows, k...), '='), v...), ';')
	}
	return string(rows)
}

// A manifest that is gone takes its tables with it; the log that is left is not
// taken up alone.
func TestAStateWithoutItsManifestIsBroken(t *testing.T) {
	t.Parallel()
	dir, _ := stateWithTables(t)
	markers, err := filepath.Glob(filepath.Join(dir, "marker.manifest.*"))
	if err != nil || len(markers) != 1 {
		t.Fatalf("markers %v, %v", markers, err)
	}
	if err := checkManifest(dir); err != nil {
		t.Errorf("a whole store: %v", err)
	}
	if err := os.Remove(markers[0]); err != nil {
		t.Fatal(err)
	}
	if err := checkManifest(dir); !errors.Is(err, errManifest) {
		t.Errorf("a log without a manifest: %v", err)
	}
	if rows := rowsOf(t, dir); rows != "" {
		t.Errorf("the store has %q", rows)
	}
}

// A table that Pebble finds corrupt ends the use of the store, and the next start
// has an empty one.
func TestACorruptTableIsFoundOnce(t *testing.T) {
	t.Parallel()
	dir, _ := stateWithTables(t)
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	table, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	table[0] ^= 1 // of the first block
	if err := os.WriteFile(tables[0], table, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := Open(dir, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if _, broken := recover().(*rows.StoreError); !broken {
				t.Error("a corrupt block was read")
			}
		}()
		Get(db, []byte("table"))
	}()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if rows := rowsOf(t, dir); rows != "" {
		t.Errorf("the next store has %q", rows)
	}
}

// A log that is gone is missed, also one between the tables and a later log: what is left
// of such a store is no prefix of what was written.
func TestALogThatIsGoneIsMissed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	db, err := Open(dir, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var needed []string
	killed, large := "", make([]byte, 4<<20)
	for i := 0; len(needed) < 2; i++ { // until one has no table yet while the next is written
		if i == 1000 {
			t.Fatal("there was never more than one log")
		}
		if err := db.Set(fmt.Appendf(nil, "key%03d", i), large, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
		if there, _ := filepath.Glob(filepath.Join(dir, "*.log")); len(there) < 2 { // the pattern is good
			continue
		}
		killed = filepath.Join(t.TempDir(), "killed")
		if err := db.Checkpoint(killed); err != nil {
			t.Fatal(err)
		}
		needed, _ = filepath.Glob(filepath.Join(killed, "*.log"))
	}
	logsOf(killed).write()
	if err := checkManifest(killed); err != nil {
		t.Fatalf("with all its logs: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, logsFile)); err != nil {
		t.Errorf("a store that is used does not name its logs: %v", err)
	}
	if err := os.Remove(needed[0]); err != nil {
		t.Fatal(err)
	}
	if err := checkManifest(killed); !errors.Is(err, errManifest) {
		t.Fatalf("without a log: %v", err)
	}
	if rows := rowsOf(t, killed); rows != "" {
		t.Errorf("the store has %d bytes of rows", len(rows))
	}
}

func logsOf(dir string) *logs { return &logs{dir: dir, log: slog.New(slog.DiscardHandler)} }

// Pebble says that a log has come or gone when it has, and the list of logs is a moment
// behind: killed in that moment, a store lacks nothing. Nor does one that an earlier
// version, which keeps no list, has used since.
func TestALogThatIsNotNeededIsNotMissed(t *testing.T) {
	t.Parallel()
	dir, killed := filepath.Join(t.TempDir(), "state"), t.TempDir()
	var mu sync.Mutex
	var moments []string
	before := func() { // on a goroutine of Pebble's
		moment := filepath.Join(killed, fmt.Sprint(len(moments)))
		if err := os.CopyFS(moment, os.DirFS(dir)); err == nil { // else a file went while it was copied
			moments = append(moments, moment)
		}
	}
	use := func(listed bool) {
		events, kept := &pebble.EventListener{}, logsOf(dir)
		if listed {
			kept.listen(events)
			created, deleted := events.WALCreated, events.WALDeleted
			events.WALCreated = func(info pebble.WALCreateInfo) {
				mu.Lock()
				defer mu.Unlock()
				before()
				created(info)
			}
			events.WALDeleted = func(info pebble.WALDeleteInfo) {
				mu.Lock()
				defer mu.Unlock()
				before()
				deleted(info)
			}
		}
		db, err := pebble.Open(dir, &pebble.Options{Logger: quiet{}, EventListener: events, MemTableSize: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 400 {
			if err := db.Set(fmt.Appendf(nil, "key%03d", i), make([]byte, 1<<10), pebble.NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range 6 {
		use(true)
	}
	if len(moments) < 6 {
		t.Fatalf("%d moments", len(moments))
	}
	for _, moment := range moments {
		if err := checkManifest(moment); err != nil && strings.Contains(err.Error(), "is gone") {
			t.Errorf("at %s of %d: %v", filepath.Base(moment), len(moments), err)
		}
	}
	use(false)
	if err := checkManifest(dir); err != nil {
		t.Errorf("used by a version without the list: %v", err)
	}
}

type quiet struct{}

func (quiet) Infof(string, ...any)              {}
func (quiet) Errorf(string, ...any)             {}
func (quiet) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
