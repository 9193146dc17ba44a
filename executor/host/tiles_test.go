package host

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
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
			records = append(records, &pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: fmt.Sprint("k", i, k), Value: []byte("1")}}})
		}
		var err error
		if m.Data, err = ledger.EncodeCommit(records); err != nil {
			t.Fatal(err)
		}
		messages = append(messages, m)
	}
	return messages
}

func openTestTiles(t *testing.T, dir string) *tiles {
	t.Helper()
	tl, err := openTiles(dir, "t", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

func addAll(t *testing.T, tl *tiles, messages []ledger.Message, turn int) {
	t.Helper()
	for i, m := range messages {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if err := tl.add(m, e); err != nil {
				t.Fatalf("sequence %d: %v", m.Sequence, err)
			}
		}
		if i%turn == turn-1 {
			if err := tl.flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tl.flush(); err != nil {
		t.Fatal(err)
	}
}

func wantMessages(t *testing.T, tl *tileFiles, want []ledger.Message) {
	t.Helper()
	if got := tl.last(); got != uint64(len(want)) {
		t.Fatalf("the tiles end at %d, want %d", got, len(want))
	}
	n := 0
	for m, err := range tl.messages(1) {
		if err != nil {
			t.Fatal(err)
		}
		if !sameMessage(m, want[n]) {
			t.Fatalf("message %d: %+v, want %+v", n+1, m, want[n])
		}
		n++
	}
	if n != len(want) {
		t.Fatalf("%d messages, want %d", n, len(want))
	}
}

// killed releases the folder without what a clean stop does.
func (t *tiles) killed() error {
	close(t.wake)
	t.ended.Wait()
	return t.release()
}

func TestTilesGiveBackEveryMessageByteForByte(t *testing.T) {
	messages := ledgerOf(t, 900)
	for _, turn := range []int{1, 7, 2000} {
		for _, clean := range []bool{true, false} {
			dir := t.TempDir()
			var roots []ledger.Hash
			for upTo := range []int{0, 1, 2} {
				tl := openTestTiles(t, dir)
				from := int(tl.last())
				tl.from(tl.size())
				addAll(t, tl, messages[from:(upTo+1)*300], turn)
				wantMessages(t, tl.tileFiles, messages[:(upTo+1)*300])
				for _, at := range []uint64{1, 2, 255, tl.last()} {
					if m, err := tl.message(at); err != nil || !sameMessage(m, messages[at-1]) {
						t.Fatalf("message %d: %+v, %v", at, m, err)
					}
				}
				roots = append(roots, tl.edge.Root())
				end := tl.close
				if !clean {
					end = tl.killed
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
	messages := ledgerOf(t, 600)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 5))
		dir := t.TempDir()
		tl := openTestTiles(t, dir)
		addAll(t, tl, messages, 50)
		root := tl.edge.Root()
		if err := tl.killed(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, "t", syncedName)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		files := []string{edgeEntries, edgeHashes}
		for n := range tl.size() / ledger.TileWidth {
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
		last := tl.last()
		if err := tl.fromMessage(last + 1); err != nil {
			t.Fatal(err)
		}
		addAll(t, tl, messages[last:], 50)
		wantMessages(t, tl.tileFiles, messages)
		if tl.edge.Root() != root {
			t.Fatalf("seed %d: root %x, want %x", seed, tl.edge.Root(), root)
		}
		if err := tl.close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestARecordThatIsNotTheOneInTheTilesIsFound(t *testing.T) {
	messages := ledgerOf(t, 400)
	tl := openTestTiles(t, t.TempDir())
	addAll(t, tl, messages, 100)
	for _, at := range []int{0, 17, 399} {
		m := messages[at]
		m.StampNs++
		entries, _ := ledger.Decode("t", m)
		if err := tl.fromMessage(m.Sequence); err != nil {
			t.Fatal(err)
		}
		if err := tl.add(m, entries[0]); err != errOtherRecord {
			t.Fatalf("sequence %d: %v", m.Sequence, err)
		}
	}
	if err := tl.fromMessage(1); err != nil {
		t.Fatal(err)
	}
	addAll(t, tl, messages, 100) // the same ones are taken, and change nothing
	wantMessages(t, tl.tileFiles, messages)
	if err := tl.close(); err != nil {
		t.Fatal(err)
	}
}

// A message whose last records did not come is dropped whole, wherever its first
// ones are.
func TestTilesAreCutToTheLastWholeMessage(t *testing.T) {
	messages := ledgerOf(t, 400)
	for _, at := range []int{250, 257, 511} { // records, near the ends of tiles
		tl := openTestTiles(t, t.TempDir())
		whole := 0
		for _, m := range messages {
			entries, _ := ledger.Decode("t", m)
			for _, e := range entries {
				if int(tl.edge.Size()) < at {
					if err := tl.add(m, e); err != nil {
						t.Fatal(err)
					}
				}
			}
			if int(tl.edge.Size()) >= at {
				break
			}
			whole++
		}
		if err := tl.flush(); err != nil {
			t.Fatal(err)
		}
		whole = max(whole, int(tl.last()))
		if err := tl.cutToLast(); err != nil {
			t.Fatal(err)
		}
		wantMessages(t, tl.tileFiles, messages[:whole])
		tl.from(tl.size())
		addAll(t, tl, messages[whole:], 100)
		wantMessages(t, tl.tileFiles, messages)
		if err := tl.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkTilesPerRecord is what the tiles add to the fold of one record.
func BenchmarkTilesPerRecord(b *testing.B) {
	m := ledger.Message{Sequence: 1, Subject: "saga.t.agent.coder.01JD3BX7", Data: make([]byte, 64)}
	tl, err := openTiles(b.TempDir(), "t", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		b.Fatal(err)
	}
	e := ledger.Entry{Address: &pb.Address{Leaf: make([]byte, ledger.LeafSize)}, Count: 1, Reader: 1, Body: make([]byte, 120)}
	for i := range b.N {
		m.Sequence = uint64(i + 1)
		if err := tl.add(m, e); err != nil {
			b.Fatal(err)
		}
		if i%1000 == 999 {
			if err := tl.flush(); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := tl.flush(); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	if err := tl.killed(); err != nil {
		b.Fatal(err)
	}
}
