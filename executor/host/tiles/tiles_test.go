package tiles

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
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

// longLedger is one of more than a segment of records, 1 to 5 a message.
func longLedger(t *testing.T) []ledger.Message { return ledgerOf(t, 6000) }

// A power cut takes any part of what was not synced: any suffix of the files that grow, pages
// of them, and whole files. What is left is a prefix, and filling in the rest gives the same
// files.
func TestTilesThatDidNotReachTheDiskAreFilledInAgain(t *testing.T) {
	t.Parallel()
	messages := longLedger(t)
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 5))
		dir := t.TempDir()
		tl := openTestTiles(t, dir)
		tl.From(0)
		addAll(t, tl, messages, 50)
		root := tl.Edge.Root()
		synced := seed%2 == 0 // and the first segment packed
		if synced {
			tl.settleAndPack(t)
		}
		if err := tl.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(tl.Path(SyncedName)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "t", "entries", "*"))
		if err != nil || len(files) != 2 {
			t.Fatalf("%v, %v", files, err)
		}
		files = append(files, tl.Path(HashesName))
		for range 1 + r.IntN(3) {
			path := files[r.IntN(len(files))]
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
		tl.settleAndPack(t)
		wantMessages(t, tl.Files, messages)
		if tl.Edge.Root() != root {
			t.Fatalf("seed %d: root %x, want %x", seed, tl.Edge.Root(), root)
		}
		if err := tl.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// settleAndPack has all on disk, and full segments packed.
func (t *Writer) settleAndPack(test *testing.T) {
	test.Helper()
	if err := t.Sync(); err != nil {
		test.Fatal(err)
	}
	t.packFull()
	for k := range t.Size() / segmentRecords {
		_, packed := os.Stat(t.Path(segmentName(k) + packedSuffix))
		if _, raw := os.Stat(t.Path(segmentName(k))); packed != nil || raw == nil {
			test.Fatalf("segment %d is not packed: %v, raw %v", k, packed, raw)
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
	messages := longLedger(t)
	// records, near the ends of tiles and of a segment, which is packed
	for _, at := range []int{250, 257, 511, segmentRecords - 1, segmentRecords, segmentRecords + 2} {
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
		tl.settleAndPack(t)
		if err := tl.CutToLast(); err != nil {
			t.Fatal(err)
		}
		wantMessages(t, tl.Files, messages[:whole])
		if at < segmentRecords+2 {
			again := openCopy(t, tl.Dir)
			wantMessages(t, again.Files, messages[:whole])
			if err := again.Kill(); err != nil {
				t.Fatal(err)
			}
		}
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

// TestTilesOfAnotherTenantAreNotRead: a copy of its folder was put in the place of this one, also
// where the host has begun to read.
func TestTilesOfAnotherTenantAreNotRead(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	tl := openTestTiles(t, root)
	addAll(t, tl, ledgerOf(t, 300), 7)
	if err := errors.Join(tl.CheckOwn(), tl.Close(),
		os.Rename(filepath.Join(root, "t"), filepath.Join(root, "u"))); err != nil {
		t.Fatal(err)
	}
	other, err := Open(root, "u", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	var halted *ledger.Halted
	if err := other.CheckOwn(); !errors.As(err, &halted) || other.Whose() != "t" {
		t.Errorf("%v, of %q", err, other.Whose())
	}
	read, err := other.StoredFrom(api.ReadQuery{From: 280})
	if err == nil || len(read.Messages) > 0 {
		t.Errorf("%d messages are shown, %v", len(read.Messages), err)
	}
	answer, err := other.Export(api.ExportQuery{Index: 300, BytesMax: 1 << 16})
	if err == nil || len(answer.Entries) > 0 {
		t.Errorf("%d bytes are exported, %v", len(answer.Entries), err)
	}
}
