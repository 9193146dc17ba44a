package tiles

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// ledgerOf makes messages as a ledger has them, of 1 to 5 records each.
func ledgerOf(t *testing.T, n int) (messages []ledger.Message) {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	for i := range n {
		m := ledger.Message{Sequence: uint64(i + 1), StampNs: int64(i) * 1000, Subject: "saga.t.fact.src"}
		if r.IntN(20) == 0 {
			m.Data = []byte("garbage")
			messages = append(messages, m)
			continue
		}
		var records []*pb.Record
		for k := range 1 + r.IntN(5) {
			records = append(records,
				&pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: fmt.Sprint("k", i, k),
					Value: []byte("1")}}})
		}
		var err error
		if m.Data, err = ledger.EncodeCommit(records); err != nil {
			t.Fatal(err)
		}
		messages = append(messages, m)
	}
	return messages
}

func openTestTiles(t *testing.T, dir string) *Writer {
	t.Helper()
	tl, err := Open(dir, "t", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

func addAll(t *testing.T, tl *Writer, messages []ledger.Message, turn int) {
	t.Helper()
	for i, m := range messages {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if err := tl.Add(m, e); err != nil {
				t.Fatalf("sequence %d: %v", m.Sequence, err)
			}
		}
		if i%turn == turn-1 {
			if err := tl.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tl.Flush(); err != nil {
		t.Fatal(err)
	}
}

func wantMessages(t *testing.T, tl *Files, want []ledger.Message) {
	t.Helper()
	if got := tl.Last(); got != uint64(len(want)) {
		t.Fatalf("the tiles end at %d, want %d", got, len(want))
	}
	n := 0
	for m, err := range tl.Messages(1) {
		if err != nil {
			t.Fatal(err)
		}
		if !SameMessage(m, want[n]) {
			t.Fatalf("message %d: %+v, want %+v", n+1, m, want[n])
		}
		n++
	}
	if n != len(want) {
		t.Fatalf("%d messages, want %d", n, len(want))
	}
}

func TestTilesGiveBackEveryMessageByteForByte(t *testing.T) {
	t.Parallel()
	messages := ledgerOf(t, 900)
	for _, turn := range []int{1, 7, 2000} {
		for _, clean := range []bool{true, false} {
			dir := t.TempDir()
			var roots []ledger.Hash
			for upTo := range []int{0, 1, 2} {
				tl := openTestTiles(t, dir)
				from := int(tl.Last())
				tl.From(tl.Size())
				addAll(t, tl, messages[from:(upTo+1)*300], turn)
				wantMessages(t, tl.Files, messages[:(upTo+1)*300])
				for _, at := range []uint64{1, 2, 255, tl.Last()} {
					if m, err := tl.message(at); err != nil || !SameMessage(m, messages[at-1]) {
						t.Fatalf("message %d: %+v, %v", at, m, err)
					}
				}
				roots = append(roots, tl.Edge.Root())
				end := tl.Close
				if !clean {
					end = tl.Kill
				}
				if err := end(); err != nil {
					t.Fatal(err)
				}
			}
			var whole ledger.Edge
			for _, m := range messages {
				entries, _ := ledger.Decode("t", m)
				for _, e := range entries {
					whole.Append(ledger.Hash(e.Address.Leaf))
				}
			}
			if roots[2] != whole.Root() {
				t.Fatalf("root %x, want %x", roots[2], whole.Root())
			}
		}
	}
}

// A power cut takes any part of what was not synced: any suffix of the growing
// tile's files, and tiles that are empty, short or missing. What is left is a prefix,
// and filling in the rest gives the same files.
func TestTilesThatDidNotReachTheDiskAreFilledInAgain(t *testing.T) {
	t.Parallel()
	messages := ledgerOf(t, 600)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 5))
		dir := t.TempDir()
		tl := openTestTiles(t, dir)
		addAll(t, tl, messages, 50)
		root := tl.Edge.Root()
		if err := tl.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, "t", SyncedName)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		files := []string{EdgeEntries, EdgeHashes}
		for n := range tl.Size() / ledger.TileWidth {
			files = append(files, ledger.BundlePath(n, ledger.TileWidth), ledger.TilePath(0, n, ledger.TileWidth))
		}
		for range 1 + r.IntN(3) {
			path := filepath.Join(dir, "t", files[r.IntN(len(files))])
			switch b, err := os.ReadFile(path); {
			case err != nil: // it was taken already
			case r.IntN(3) == 0:
				_ = os.Remove(path)
			case r.IntN(2) == 0:
				_ = os.Truncate(path, int64(r.IntN(len(b)+1)))
			default:
				clear(b[r.IntN(len(b)+1):]) // pages that were never written read as zeros
				_ = os.WriteFile(path, b, 0o600)
			}
		}
		tl = openTestTiles(t, dir)
		last := tl.Last()
		if err := tl.FromMessage(last + 1); err != nil {
			t.Fatal(err)
		}
		addAll(t, tl, messages[last:], 50)
		wantMessages(t, tl.Files, messages)
		if tl.Edge.Root() != root {
			t.Fatalf("seed %d: root %x, want %x", seed, tl.Edge.Root(), root)
		}
		if err := tl.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestARecordThatIsNotTheOneInTheTilesIsFound(t *testing.T) {
	t.Parallel()
	messages := ledgerOf(t, 400)
	tl := openTestTiles(t, t.TempDir())
	addAll(t, tl, messages, 100)
	for _, at := range []int{0, 17, 399} {
		m := messages[at]
		m.StampNs++
		entries, _ := ledger.Decode("t", m)
		if err := tl.FromMessage(m.Sequence); err != nil {
			t.Fatal(err)
		}
		if err := tl.Add(m, entries[0]); err != errOtherRecord {
			t.Fatalf("sequence %d: %v", m.Sequence, err)
		}
	}
	if err := tl.FromMessage(1); err != nil {
		t.Fatal(err)
	}
	addAll(t, tl, messages, 100) // the same ones are taken, and change nothing
	wantMessages(t, tl.Files, messages)
	if err := tl.Close(); err != nil {
		t.Fatal(err)
	}
}

// A message whose last records did not come is dropped whole, wherever its first
// ones are.
func TestTilesAreCutToTheLastWholeMessage(t *testing.T) {
	t.Parallel()
	messages := ledgerOf(t, 400)
	for _, at := range []int{250, 257, 511} { // records, near the ends of tiles
		tl := openTestTiles(t, t.TempDir())
		whole := 0
		for _, m := range messages {
			entries, _ := ledger.Decode("t", m)
			for _, e := range entries {
				if int(tl.Edge.Size()) < at {
					if err := tl.Add(m, e); err != nil {
						t.Fatal(err)
					}
				}
			}
			if int(tl.Edge.Size()) >= at {
				break
			}
			whole++
		}
		if err := tl.Flush(); err != nil {
			t.Fatal(err)
		}
		whole = max(whole, int(tl.Last()))
		if err := tl.CutToLast(); err != nil {
			t.Fatal(err)
		}
		wantMessages(t, tl.Files, messages[:whole])
		tl.From(tl.Size())
		addAll(t, tl, messages[whole:], 100)
		wantMessages(t, tl.Files, messages)
		if err := tl.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkTilesPerRecord is what the tiles add to the fold of one record.
func BenchmarkTilesPerRecord(b *testing.B) {
	m := ledger.Message{Sequence: 1, Subject: "saga.t.agent.coder.01JD3BX7", Data: make([]byte, 64)}
	tl, err := Open(b.TempDir(), "t", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		b.Fatal(err)
	}
	e := ledger.Entry{Address: &pb.Address{Leaf: make([]byte, ledger.LeafSize)}, Count: 1, Reader: 1,
		Body: make([]byte, 120)}
	for i := range b.N {
		m.Sequence = uint64(i + 1)
		if err := tl.Add(m, e); err != nil {
			b.Fatal(err)
		}
		if i%1000 == 999 {
			if err := tl.Flush(); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := tl.Flush(); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	if err := tl.Kill(); err != nil {
		b.Fatal(err)
	}
}

// slowEdge puts a pipe in the place of a file of the growing tile: who reads it waits
// until meanwhile has happened, and gets nothing.
func (t *Files) slowEdge(test *testing.T, name string, meanwhile func()) {
	test.Helper()
	path := t.Path(name)
	if err := errors.Join(os.Rename(path, path+".aside"), syscall.Mkfifo(path, 0o600)); err != nil {
		test.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { // ends with the reader, or below
		f, err := os.OpenFile(path, os.O_WRONLY, 0) // waits for the reader
		if err == nil {
			meanwhile()
			err = f.Close()
		}
		ended <- err
	}()
	test.Cleanup(func() {
		if err := <-ended; err != nil {
			test.Error(err)
		}
	})
}

// A tile is filled between the two looks of a reader: at its name, where it is not
// yet, and at the growing tile, where it is no more.
func TestATileThatIsFilledWhileItIsReadIsReadWhole(t *testing.T) {
	t.Parallel()
	messages := ledgerOf(t, 60)
	for _, c := range []struct {
		name, edge string
		read       func(tl *Writer) (got string, err error)
	}{
		{"its hashes", EdgeHashes, func(tl *Writer) (string, error) {
			hashes, err := tl.readHashes(0, 0)
			return fmt.Sprint(hashes), err
		}},
		{"its entries", EdgeEntries, func(tl *Writer) (string, error) {
			entries, err := tl.readEntries(0)
			return fmt.Sprint(entries), err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tl := openTestTiles(t, t.TempDir())
			addAll(t, tl, messages, 10)
			want, err := c.read(tl)
			if err != nil {
				t.Fatal(err)
			}
			tl.slowEdge(t, c.edge, func() { // as fill does: names first, then the size
				for from, to := range map[string]string{EdgeEntries: ledger.BundlePath(0, ledger.TileWidth),
					EdgeHashes: ledger.TilePath(0, 0, ledger.TileWidth)} {
					if from == c.edge {
						from += ".aside"
					}
					if err := tl.rename(from, to); err != nil {
						t.Error(err)
					}
				}
			})
			if got, err := c.read(tl); err != nil || got != want {
				t.Errorf("%v; other than it was: %d characters, want %d", err, len(got), len(want))
			}
			if err := tl.Kill(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A reader takes a tile behind the size for a full one: the size must not grow before
// the tile has its name. Here it cannot be given one.
func TestTheSizeGrowsWhenTheFullTileHasItsName(t *testing.T) {
	t.Parallel()
	messages := ledgerOf(t, 200)
	tl := openTestTiles(t, t.TempDir())
	barrier := tl.Path("tile/entries")
	if err := os.WriteFile(barrier, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var failed error
	for _, m := range messages {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			failed = cmp.Or(failed, tl.Add(m, e))
		}
		if failed = cmp.Or(failed, tl.Flush()); failed != nil {
			break
		}
	}
	if failed == nil {
		t.Fatal("a tile was given a name that there cannot be")
	}
	if err := os.Remove(barrier); err != nil {
		t.Fatal(err)
	}
	read := uint64(0)
	for _, err := range tl.Records(0) {
		if err != nil {
			t.Fatalf("record %d of %d: %v", read, tl.Size(), err)
		}
		read++
	}
	if read != tl.Size() || read == 0 || read >= ledger.TileWidth {
		t.Errorf("%d records read, the size is %d", read, tl.Size())
	}
	_ = tl.Kill() // the files of the growing tile are closed already
}

// Somebody has cut the growing tile off behind the host's back. It says so at the
// stop, and the partial tiles stay as they were.
func TestAGrowingTileThatWasCutOffIsNotPublished(t *testing.T) {
	t.Parallel()
	tl := openTestTiles(t, t.TempDir())
	addAll(t, tl, ledgerOf(t, 40), 10)
	if err := os.Truncate(tl.Path(EdgeEntries), tl.entriesAt-1); err != nil {
		t.Fatal(err)
	}
	if err := tl.Close(); err == nil || !strings.Contains(err.Error(), "end in entry 119 of 120") {
		t.Fatalf("%v", err)
	}
	if _, err := os.Stat(tl.Path(ledger.BundlePath(0, int(tl.Size())))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
