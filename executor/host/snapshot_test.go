package host

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/view"

	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// foldStore folds messages into a store, in turns of ten, with tables, a log and a
// manifest of several records; it returns the digest after each turn, by sequence.
func foldStore(t *testing.T, dir string, messages []ledger.Message) map[uint64][32]byte {
	t.Helper()
	f, err := store.OpenFolder(dir, "t")
	if err != nil {
		t.Fatal(err)
	}
	digests := map[uint64][32]byte{0: rows.Digest(rows.NewMemoryKV())}
	var turn []ledger.Entry
	for i, m := range messages {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			t.Fatal(err)
		}
		if turn = append(turn, entries...); i%10 == 9 {
			f.Fold(turn)
			turn = nil
			digests[m.Sequence] = f.Digest()
		}
		if i%100 == 50 {
			if _, err := f.Settle(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return digests
}

// readStore opens a store as a host does and reads all of it.
func readStore(dir string) (digest [32]byte, applied uint64, err error) {
	defer func() {
		if r := recover(); r != nil {
			broken, ok := r.(*rows.StoreError)
			if !ok {
				panic(r)
			}
			err = broken
		}
	}()
	f, err := store.OpenFolder(dir, "t")
	if err != nil {
		return digest, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return f.Digest(), f.State().Meta().GetApplied().GetSequence(), nil
}

// One bit of a state store's files is flipped. Either the damage is found, and the
// ledger folded again, or the state is one that the fold had after some turn.
func TestAFlippedBitInTheStateStoreNeverGivesAWrongState(t *testing.T) {
	t.Parallel()
	flips := testenv.Cases(20, 200)
	if many, err := strconv.Atoi(os.Getenv("SAGENBAUM_TORTURE")); err == nil {
		flips = max(flips, many)
	}
	base := filepath.Join(t.TempDir(), "state")
	digests := foldStore(t, base, ledgerOf(t, 600))
	entries, err := os.ReadDir(base)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(7, 8))
	byKind, found, kept := map[string]int{}, 0, 0
	for i := range flips {
		var file os.DirEntry
		for file == nil || file.Name() == "LOCK" {
			file = entries[(i+r.IntN(2))%len(entries)]
		}
		dir := filepath.Join(t.TempDir(), "state")
		if err := os.CopyFS(dir, os.DirFS(base)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, file.Name())
		if b, err := os.ReadFile(path); err == nil && len(b) > 0 {
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		kind := strings.TrimRight(strings.SplitN(file.Name(), "-", 2)[0], "0123456789")
		byKind[strings.TrimLeft(kind, "0123456789")]++
		digest, applied, err := readStore(dir)
		switch want, turn := digests[applied]; {
		case err != nil:
			found++
		case !turn || digest != want:
			t.Fatalf("flip %d in %s: a state at %d that no fold has had", i, file.Name(), applied)
		case applied != 600:
			found++
		default:
			kept++
		}
		_ = os.RemoveAll(dir)
	}
	t.Logf("%d flips in %v: %d found and folded again, in whole or from where they were; %d changed nothing", flips,
		byKind, found, kept)
}

func TestABrokenStateStoreCostsTheFoldSinceTheLastSnapshot(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(done)
	h, stop := r.host("h1")
	r.plan("p", 3, 0)
	r.caughtUp()
	at := r.stored(h)
	if err := h.copies.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.plan("q", 3, 0)
	r.caughtUp()
	stop()
	want, applied := digest(t, filepath.Join(r.dir, "h1"))
	for _, breaks := range []func(dir string) error{
		func(dir string) error { return os.RemoveAll(filepath.Join(dir, "state")) },
		func(dir string) error { return breakFiles(filepath.Join(dir, "state"), "MANIFEST") },
	} {
		if err := breaks(filepath.Join(r.dir, "h1")); err != nil {
			t.Fatal(err)
		}
		h, err := New(Config{Conn: r.conn, Tenants: []string{"t"}, Dir: filepath.Join(r.dir, "h1")})
		if err != nil {
			t.Fatal(err)
		}
		a := h.roster.order[0]
		if a.tiles, err = tiles.Open(h.tilesRoot(), "t", h.log, nil); err != nil {
			t.Fatal(err)
		}
		if !a.host.copies.Restore(a.kv, a.tenant, a.tiles) {
			t.Fatal("no snapshot was used")
		}
		if got := view.NewReader(a.kv, "t", nil).Applied(); got != at {
			t.Fatalf("the snapshot is of %d, want %d", got, at)
		}
		if err := errors.Join(a.tiles.Close(), h.Close()); err != nil {
			t.Fatal(err)
		}
		_, stop := r.host("h1")
		r.caughtUp()
		stop()
		if got, upTo := digest(t, filepath.Join(r.dir, "h1")); upTo < applied {
			t.Fatalf("%s at %d, was %s at %d", got, upTo, want, applied)
		} else {
			r.wantDigest(got, upTo)
		}
	}
}

// breakFiles flips a bit in the middle of each file whose name begins so.
func breakFiles(dir, prefix string) error {
	found, err := filepath.Glob(filepath.Join(dir, prefix+"*"))
	if err != nil || len(found) == 0 {
		return errors.Join(err, os.ErrNotExist)
	}
	for _, path := range found {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b[len(b)/2] ^= 4
		if err := os.WriteFile(path, b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func TestASnapshotThatIsNotWholeOrOfAnotherLedgerIsNotUsed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h, stop := r.host("h1")
	r.plan("p", 3, 0)
	r.caughtUp()
	r.stored(h)
	for range 3 {
		if err := h.copies.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := h.copies.Numbers(); len(got) != store.SnapshotsKept || got[0] != 3 {
		t.Fatalf("snapshots %v", got)
	}
	stop()
	if err := os.RemoveAll(filepath.Join(r.dir, "h1", "state")); err != nil {
		t.Fatal(err)
	}
	newest := filepath.Join(r.dir, "h1", store.SnapshotsFolder, "3")
	for i, name := range []string{"MANIFEST", "0", store.SnapshotName} { // "0": the log, by its number
		saved := t.TempDir()
		if err := os.CopyFS(saved, os.DirFS(newest)); err != nil {
			t.Fatal(err)
		}
		if err := breakFiles(newest, name); err != nil {
			t.Fatal(name, err)
		}
		h, err := New(Config{Conn: r.conn, Tenants: []string{"t"}, Dir: filepath.Join(r.dir, "h1")})
		if err != nil {
			t.Fatal(err)
		}
		a := h.roster.order[0]
		if a.tiles, err = tiles.Open(h.tilesRoot(), "t", slog.New(slog.DiscardHandler), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := a.host.copies.RestoreFrom(newest, a.kv, a.tenant, a.tiles); err == nil {
			t.Errorf("%d: a snapshot with a flipped bit in %s was used", i, name)
		}
		a.kv.Forget()
		if !a.host.copies.Restore(a.kv, a.tenant, a.tiles) {
			t.Errorf("%d: the one before it was not used", i)
		}
		other := newActor(h, "s") // the same rows under tiles of another ledger
		if other.tiles, err = tiles.Open(t.TempDir(), "s", h.log, nil); err != nil {
			t.Fatal(err)
		}
		if other.host.copies.Restore(other.kv, other.tenant, other.tiles) {
			t.Error("a snapshot of another tenant was used")
		}
		if err := errors.Join(a.kv.Wipe(), a.tiles.Close(), other.tiles.Close(), h.Close(),
			os.RemoveAll(newest), os.CopyFS(newest, os.DirFS(saved))); err != nil {
			t.Fatal(err)
		}
	}
}
