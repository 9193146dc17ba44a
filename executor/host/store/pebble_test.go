package store

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/rows"
)

// The same contract holds for memory and Pebble: a turn reads its own writes,
// in order, whatever was committed before.
func TestPebbleAndMemoryKeepTheSameContract(t *testing.T) {
	t.Parallel()
	db, err := Open(t.TempDir(), slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	other := NewKV(db, "s")
	other.Set([]byte("k1"), []byte("of another tenant"))
	other.Commit()
	kv, model := NewKV(db, "t"), rows.NewMemoryKV()
	r := rand.New(rand.NewPCG(1, 2))
	key := func() []byte { return fmt.Appendf(nil, "k%d", r.IntN(40)) }
	for i := range 20_000 {
		switch k := key(); r.IntN(8) {
		case 0, 1, 2:
			v := fmt.Appendf(nil, "v%d", i)
			if r.IntN(4) == 0 {
				v = nil
			}
			kv.Set(k, v)
			model.Set(k, v)
		case 3:
			kv.Delete(k)
			model.Delete(k)
		case 4, 5:
			got, ok := kv.Get(k)
			want, ok2 := model.Get(k)
			if ok != ok2 || !bytes.Equal(got, want) {
				t.Fatalf("step %d: get %s = %q %v, want %q %v", i, k, got, ok, want, ok2)
			}
		case 6:
			kv.Commit()
		case 7:
			from, to := key(), key()
			if got, want := scanned(kv, from, to), scanned(model, from, to); got != want {
				t.Fatalf("step %d: scan %s..%s\n%s\nwant\n%s", i, from, to, got, want)
			}
		}
	}
	kv.Commit()
	if rows.Digest(kv) != rows.Digest(model) {
		t.Fatal("digests differ")
	}
	if err := kv.Wipe(); err != nil {
		t.Fatal(err)
	}
	if got := scanned(kv, []byte{0}, []byte{0xff}); got != "" {
		t.Fatalf("left after wipe: %s", got)
	}
	if v, ok := other.Get([]byte("k1")); !ok || string(v) != "of another tenant" {
		t.Fatal("wipe reached another tenant")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func scanned(kv rows.KV, from, to []byte) string {
	var out []byte
	for k, v := range kv.Scan(from, to) {
		out = fmt.Appendf(out, "%s=%s;", k, v)
	}
	return string(out)
}

// A folder that a store of this process holds is not moved from under it.
func TestAStoreThatIsOpenIsNotMovedAside(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "state")
	db, err := Open(dir, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for range 2 {
		if _, err := Open(dir, slog.New(slog.DiscardHandler), nil); !isLocked(err) {
			t.Errorf("it is opened again with %v", err)
		}
	}
	if _, err := os.Stat(dir + brokenSuffix); !os.IsNotExist(err) {
		t.Errorf("it was moved aside: %v", err)
	}
}
