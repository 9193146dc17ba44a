package tiles

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// openCopy opens a copy of a tenant's folder, as a power cut that takes nothing leaves it.
func openCopy(t *testing.T, dir string) *Writer {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "t"), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return openTestTiles(t, root)
}

// bigLedger is one of more than 65,536 records, in few messages.
func bigLedger(t *testing.T) (messages []ledger.Message) {
	t.Helper()
	var records []*pb.Record
	for i := range 500 {
		records = append(records, &pb.Record{Kind: &pb.Record_FactAsserted{
			FactAsserted: &pb.FactAsserted{Key: fmt.Sprint("k", i), Value: []byte("1")}}})
	}
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint64(140) {
		messages = append(messages,
			ledger.Message{Sequence: n + 1, Subject: "saga.t.fact.src", Data: data})
	}
	return messages
}

// The tiles above level 0 are there when a reader needs them, also where they were lost with
// what was said of them, and they prove the tree.
func TestTilesAboveTheFirstLevelAreThere(t *testing.T) {
	t.Parallel()
	messages := bigLedger(t)
	tl := openTestTiles(t, t.TempDir())
	addAll(t, tl, messages, 3)
	path := ledger.TilePath(1, 0, ledger.TileWidth)
	want, err := os.ReadFile(tl.Path(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, lost := range [][]string{nil, {SyncedName}, {SyncedName, path}} {
		again := openCopy(t, tl.Dir)
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		for _, name := range lost {
			if err := os.Remove(again.Path(name)); err != nil {
				t.Fatal(err)
			}
		}
		again = openTestTiles(t, filepath.Dir(again.Dir))
		got, err := os.ReadFile(again.Path(path))
		if err != nil || string(got) != string(want) {
			t.Errorf("without %v: %v", lost, err)
		}
		root, err := NewTree(again.Files, again.Edge.Clone()).Prover().Root(69_999)
		if err != nil || again.Edge.Root() != tl.Edge.Root() {
			t.Errorf("without %v: %x, %v", lost, root, err)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := tl.Close(); err != nil {
		t.Fatal(err)
	}
}

// A reader takes what is below the size for whole: the size grows when both files have it,
// and with a segment when the tiles above it are there.
func TestTheSizeGrowsWhenAllIsWritten(t *testing.T) {
	t.Parallel()
	for name, breakIt := range map[string]func(tl *Writer) error{
		"no entries": func(tl *Writer) error { return tl.Entries.Close() },
		"no hashes":  func(tl *Writer) error { return tl.hashes.Close() },
		"no tile above": func(tl *Writer) error {
			return os.WriteFile(tl.Path("tile"), nil, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tl := openTestTiles(t, t.TempDir())
			messages := bigLedger(t)
			addAll(t, tl, messages[:50], 7)
			size := tl.Size()
			if err := breakIt(tl); err != nil {
				t.Fatal(err)
			}
			var failed error
			for _, m := range messages[50:] {
				entries, err := ledger.Decode("t", m)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					if failed = tl.Add(m, e); failed != nil {
						break
					}
				}
				if failed == nil {
					failed = tl.Flush()
				}
				if failed != nil {
					break
				}
				size = tl.Size()
			}
			if failed == nil || tl.Size() != size {
				t.Fatalf("%d records, then %d: %v", size, tl.Size(), failed)
			}
			read := uint64(0)
			for _, err := range tl.Records(0) {
				if err != nil {
					t.Fatalf("record %d of %d: %v", read, size, err)
				}
				read++
			}
			if read != size {
				t.Errorf("%d records read, the size is %d", read, size)
			}
			_ = tl.Kill() // some files are closed already
		})
	}
}

// What is not known to be on disk is not packed: the segment that is removed then could be all
// that a power cut would leave.
func TestASegmentIsPackedWhenItIsOnDisk(t *testing.T) {
	t.Parallel()
	tl := openTestTiles(t, t.TempDir())
	tl.syncing.Lock()
	tl.syncedAt = time.Now().Add(time.Hour) // the background's turn does not come
	tl.syncing.Unlock()
	addAll(t, tl, longLedger(t), 10_000)
	if tl.packNext() {
		t.Error("it was packed")
	}
	tl.settleAndPack(t)
	if err := tl.Close(); err != nil {
		t.Fatal(err)
	}
}

// Checkpoints that sync all the time leave the background nothing to sync. It packs all the same.
func TestSegmentsArePackedWhileCheckpointsSync(t *testing.T) {
	t.Parallel()
	tl := openTestTiles(t, t.TempDir())
	messages := bigLedger(t)
	for n := 40; n <= len(messages); n++ {
		if n == 40 {
			addAll(t, tl, messages[:n], 10)
		} else {
			addAll(t, tl, messages[n-1:n], 1)
		}
		if err := tl.Sync(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(tl.Path(segmentName(0) + packedSuffix)); err == nil {
			return
		}
		<-time.After(100 * time.Millisecond)
	}
	t.Error("no segment was packed")
}

// While a segment is packed, and unpacked by a repair, its records are read whole.
func TestASegmentThatIsPackedWhileItIsReadIsReadWhole(t *testing.T) {
	t.Parallel()
	messages := longLedger(t)
	tl := openTestTiles(t, t.TempDir())
	addAll(t, tl, messages, 100)
	tl.settleAndPack(t)
	want, err := tl.entriesOf(63)
	if err != nil {
		t.Fatal(err)
	}
	size, err := tl.begins(63)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range want {
		size += 4 + int64(len(entry))
	}
	ended := make(chan error)
	go func() { // ends by itself
		var err error
		for range 25 {
			if err = tl.unpack(0, size); err == nil {
				err = tl.pack(0)
			}
			if err != nil {
				break
			}
		}
		ended <- err
	}()
	reads := 0
	for {
		select {
		case err := <-ended:
			if err != nil || reads < 25 {
				t.Errorf("%d reads, %v", reads, err)
			}
			if err := tl.Close(); err != nil {
				t.Fatal(err)
			}
			return
		default:
			reads++
			if got, err := tl.entriesOf(63); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("read %d: %v", reads, err)
			}
		}
	}
}

// One bit that flips on the disk, wherever that is, is never read as a record: readers and
// exports fail, or have what was written.
func TestAFlippedBitInTheTilesIsNeverRead(t *testing.T) {
	t.Parallel()
	messages := longLedger(t)
	tl := openTestTiles(t, t.TempDir())
	addAll(t, tl, messages, 100)
	tl.settleAndPack(t)
	for _, c := range []struct {
		file    string
		foundAt float64 // of the flips, found at least
	}{{segmentName(0) + packedSuffix, 1}, {segmentName(1), 1}, {HashesName, 0.99}} {
		whole, err := os.ReadFile(tl.Path(c.file))
		if err != nil {
			t.Fatal(err)
		}
		r, found := rand.New(rand.NewPCG(9, 9)), 0
		const flips = 60
		for range flips {
			at, bit := r.IntN(len(whole)), byte(1)<<r.IntN(8)
			damaged := []byte(string(whole))
			damaged[at] ^= bit
			if err := os.WriteFile(tl.Path(c.file), damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			if tl.wantWholeOrNothing(t, messages) {
				found++
			}
		}
		if float64(found) < c.foundAt*flips {
			t.Errorf("%s: %d of %d flips were found", c.file, found, flips)
		}
		if err := os.WriteFile(tl.Path(c.file), whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := tl.Close(); err != nil {
		t.Fatal(err)
	}
}

// wantWholeOrNothing reads all twice, and reports whether that has found damage.
func (t *Writer) wantWholeOrNothing(test *testing.T, want []ledger.Message) (found bool) {
	test.Helper()
	n := 0
	var damaged *ReadError
	for m, err := range t.Messages(1) {
		if err != nil {
			if !errors.As(err, &damaged) {
				test.Errorf("message %d: %v", n+1, err)
			}
			found = true
			break
		}
		if !SameMessage(m, want[n]) {
			test.Fatalf("message %d is another one", n+1)
		}
		n++
	}
	if !found && n != len(want) {
		test.Fatalf("%d messages", n)
	}
	for index := uint64(0); index < t.Size(); {
		answer, err := t.Export(api.ExportQuery{Index: index, BytesMax: exportMax})
		if err != nil {
			if !found {
				test.Errorf("readers find nothing, and the export %v", err)
			}
			return true
		}
		for rest := answer.Entries; len(rest) > 0; index++ {
			_, rest, _ = ledger.NextEntry(rest)
		}
	}
	return found
}

// What was on disk and is not there any more, or is damaged, is found at the start, and
// filled in again.
func TestWhatWasOnDiskAndIsNotAnyMoreIsFilledInAgain(t *testing.T) {
	t.Parallel()
	messages := longLedger(t)
	tl := openTestTiles(t, t.TempDir())
	addAll(t, tl, messages, 100)
	tl.settleAndPack(t)
	root := tl.Edge.Root()
	if err := tl.Close(); err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(tl *Writer) error{
		"entries cut off":      func(tl *Writer) error { return os.Truncate(tl.Path(segmentName(1)), 100) },
		"hashes cut off":       func(tl *Writer) error { return os.Truncate(tl.Path(HashesName), 9000) },
		"no segment":           func(tl *Writer) error { return os.Remove(tl.Path(segmentName(1))) },
		"no hashes":            func(tl *Writer) error { return os.Remove(tl.Path(HashesName)) },
		"synced.json damaged":  func(tl *Writer) error { return os.WriteFile(tl.Path(SyncedName), []byte("{"), 0o600) },
		"synced.json too much": func(tl *Writer) error { return tl.saySynced(tl.Size() + 5) },
		"packed one cut off, and synced.json gone": func(tl *Writer) error {
			return errors.Join(os.Truncate(tl.Path(segmentName(0)+packedSuffix), 5000), os.Remove(tl.Path(SyncedName)))
		},
		"a stray file": func(tl *Writer) error { return os.WriteFile(tl.Path(packingFile), []byte("x"), 0o600) },
		"packed and not": func(tl *Writer) error { // killed in between
			return os.WriteFile(tl.Path(segmentName(0)), []byte("what was packed"), 0o600)
		},
	} {
		again := openCopy(t, tl.Dir)
		if err := errors.Join(again.Kill(), damage(again)); err != nil {
			t.Fatal(err)
		}
		again = openTestTiles(t, filepath.Dir(again.Dir))
		last := again.Last()
		if said, ok := again.readSynced(); ok && said > again.Size() {
			t.Errorf("%s: %d records are there, and %d said to be on disk", name, again.Size(), said)
		}
		if err := again.FromMessage(last + 1); err != nil {
			t.Fatal(err)
		}
		addAll(t, again, messages[last:], 50)
		again.settleAndPack(t)
		wantMessages(t, again.Files, messages)
		if again.Edge.Root() != root {
			t.Errorf("%s: another root", name)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(again.Path(packingFile)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// beforeDir is a folder as the version before this layout has left it when it was killed: 210
// messages of ledgerOf, of which synced.json knows one tile of two, and the rest grows.
const beforeDir = "testdata/before"

// A folder in the layout before is taken over, whatever was done of that already.
func TestAFolderInTheLayoutBeforeIsTakenOver(t *testing.T) {
	t.Parallel()
	messages := ledgerOf(t, 210)
	steps := func(tl *Writer) []func() error {
		taken := &Files{Dir: tl.Path(takenOver)}
		return []func() error{
			func() error { return os.MkdirAll(tl.Path(takingOver+"/entries"), 0o700) },
			func() error { return os.WriteFile(tl.Path(takingOver+"/hashes"), []byte("begun"), 0o600) },
			func() error {
				if err := os.RemoveAll(tl.Path(takingOver)); err != nil {
					return err
				}
				_, err := tl.copyOld(&Files{Dir: tl.Path(takingOver)})
				return err
			},
			func() error { return os.Rename(tl.Path(takingOver), tl.Path(takenOver)) },
			func() error { return os.Remove(tl.Path(oldHashes)) },
			func() error { return os.RemoveAll(tl.Path("tile/0")) },
			tl.removeOld,
			func() error { return os.Rename(taken.Path(HashesName), tl.Path(HashesName)) },
			func() error { return os.Rename(taken.Path(entriesFolder), tl.Path(entriesFolder)) },
			func() error { return tl.saySynced(631) },
		}
	}
	for killed := range 11 {
		root := t.TempDir()
		dir := filepath.Join(root, "t")
		if err := os.CopyFS(dir, os.DirFS(beforeDir)); err != nil {
			t.Fatal(err)
		}
		old := &Writer{Files: &Files{Dir: dir, tenant: "t"}, Log: slog.New(slog.DiscardHandler)}
		for i, step := range steps(old)[:killed] {
			if err := step(); err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
		}
		tl := openTestTiles(t, root)
		wantMessages(t, tl.Files, messages)
		if said, ok := tl.readSynced(); !ok || said != tl.Size() || said != 631 {
			t.Errorf("killed before step %d: %d records, and %d are said to be on disk", killed, tl.Size(), said)
		}
		tl.From(tl.Size())
		if err := tl.Close(); err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, file := range mustReadDir(t, dir) {
			left = append(left, file.Name())
		}
		if got := strings.Join(left, " "); got != "entries hashes lock synced.json" {
			t.Errorf("killed before step %d: %s", killed, got)
		}
		tl = openTestTiles(t, root) // nothing is left to be taken over
		wantMessages(t, tl.Files, messages)
		if err := tl.Kill(); err != nil {
			t.Fatal(err)
		}
	}
}

func mustReadDir(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// What was on disk is taken over as it is, damaged or not: it may be all that is left. What
// was not is taken over as far as it is whole.
func TestDamageInTheLayoutBeforeStaysWhereItIs(t *testing.T) {
	t.Parallel()
	messages := ledgerOf(t, 210)
	for file, want := range map[string]uint64{"tile/entries/000": 631, "tile/0/000": 631,
		"tile/entries/001": 256, "tile/0/001": 256, "edge.hashes": 512, "edge.entries": 512} {
		root := t.TempDir()
		dir := filepath.Join(root, "t")
		if err := os.CopyFS(dir, os.DirFS(beforeDir)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, file)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[20] ^= 1
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		tl := openTestTiles(t, root)
		if tl.Size() != want {
			t.Errorf("%s: %d records, want %d", file, tl.Size(), want)
		}
		damaged := 0
		for _, err := range tl.Records(0) {
			if err != nil {
				damaged++
			}
		}
		if (damaged == 1) != (want == 631) {
			t.Errorf("%s: damage found %d times", file, damaged)
		}
		if tl.Size() < 631 {
			last := tl.Last()
			if err := tl.FromMessage(last + 1); err != nil {
				t.Fatal(err)
			}
			addAll(t, tl, messages[last:], 50)
			wantMessages(t, tl.Files, messages)
		}
		if err := tl.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// An earlier version that has run again begins with nothing. What this one had is kept, unless
// the other has more.
func TestAnEarlierVersionThatHasRunAgainTakesNothingAway(t *testing.T) {
	t.Parallel()
	messages := ledgerOf(t, 400)
	for _, have := range []int{100, 400} {
		root := t.TempDir()
		tl := openTestTiles(t, root)
		addAll(t, tl, messages[:have], 50)
		if err := tl.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(tl.Path(SyncedName)); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(tl.Dir, os.DirFS(beforeDir)); err != nil {
			t.Fatal(err)
		}
		tl = openTestTiles(t, root)
		wantMessages(t, tl.Files, messages[:max(have, 210)])
		if err := tl.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
