package host

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sagenbaum/sagenbaum/executor"
)

// stateWithTables leaves a state store whose rows are in a table and in a log.
func stateWithTables(t *testing.T) (dir, manifest string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "state")
	for _, key := range []string{"table", "log"} { // a start makes a table of the log before it
		db, err := openPebble(dir, slog.New(slog.DiscardHandler), nil)
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
	dir, manifest := stateWithTables(t)
	whole, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	for at := range whole {
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
	db, err := openPebble(dir, slog.New(slog.DiscardHandler), nil)
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
	db, err := openPebble(dir, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if _, broken := recover().(*executor.StoreError); !broken {
				t.Error("a corrupt block was read")
			}
		}()
		get(db, []byte("table"))
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
	dir := filepath.Join(t.TempDir(), "state")
	db, err := openPebble(dir, slog.New(slog.DiscardHandler), nil)
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
	(&logs{dir: killed, log: slog.New(slog.DiscardHandler)}).write()
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
