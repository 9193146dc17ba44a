package proof

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// keep adds a message to the tiles, and returns its records.
func keep(t *testing.T, tl *tiles.Writer, m ledger.Message) []ledger.Entry {
	t.Helper()
	entries, err := ledger.Decode("t", m)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := tl.Keep(m, e); err != nil {
			t.Fatal(err)
		}
	}
	if err := tl.Flush(); err != nil {
		t.Fatal(err)
	}
	return entries
}

// message is one record as the ledger has it.
func message(t *testing.T, sequence uint64, source ledger.Source, record *pb.Record) ledger.Message {
	t.Helper()
	data, err := ledger.EncodeCommit([]*pb.Record{record})
	if err != nil {
		t.Fatal(err)
	}
	return ledger.Message{Sequence: sequence, StampNs: int64(sequence), Subject: source.Subject(), Data: data}
}

func factAt(t *testing.T, sequence uint64) ledger.Message {
	return message(t, sequence, ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "src"},
		&pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: "k", Value: []byte("1")}}})
}

func emptyTiles(t *testing.T) *tiles.Writer {
	t.Helper()
	tl, err := tiles.Open(t.TempDir(), "t", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	tl.From(0)
	t.Cleanup(func() {
		if err := tl.Close(); err != nil {
			t.Error(err)
		}
	})
	return tl
}

// TestATreeThatContradictsTheLedgersCheckpointIsNotSigned: with no file beside the tiles, as
// on another disk, the last checkpoint in the ledger is what holds a tree.
func TestATreeThatContradictsTheLedgersCheckpointIsNotSigned(t *testing.T) {
	t.Parallel()
	tl := emptyTiles(t)
	for sequence := uint64(1); sequence <= 3; sequence++ {
		keep(t, tl, factAt(t, sequence))
	}
	tree := tiles.NewTree(tl.Files, tl.Edge.Clone())
	root, err := tree.Prover().Root(2)
	if err != nil {
		t.Fatal(err)
	}
	other := root
	other[0] ^= 1
	for name, c := range map[string]struct {
		last ledger.Checkpoint
		ok   bool
	}{
		"another root":      {ledger.Checkpoint{Size: 2, Root: other}, false},
		"records were lost": {ledger.Checkpoint{Size: 9, Root: root}, false},
		"its own":           {ledger.Checkpoint{Size: 2, Root: root}, true},
	} {
		keys := t.TempDir()
		key, err := NewKey(keys, "t")
		if err != nil {
			t.Fatal(err)
		}
		signer, err := key.Signer()
		if err != nil {
			t.Fatal(err)
		}
		c.last.Origin = ledger.Origin("t")
		text, err := note.Sign(&note.Note{Text: c.last.Text()}, signer)
		if err != nil {
			t.Fatal(err)
		}
		j := signJob{
			tenant: "t", keys: keys, tree: tiles.NewTree(tl.Files, tl.Edge.Clone()),
			last: &pb.CheckpointSigned{Size: c.last.Size, Root: c.last.Root[:], Note: string(text)},
			file: new(sync.Mutex), log: slog.New(slog.DiscardHandler),
		}
		_, err = j.sign()
		_, noFile := os.Stat(tl.Path(tiles.CheckpointName))
		if errors.Is(err, errForked) == c.ok || c.ok != (err == nil) || c.ok != (noFile == nil) {
			t.Errorf("%s: %v; the file: %v", name, err, noFile)
		}
		if err := os.Remove(tl.Path(tiles.CheckpointName)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
}

// TestADigestOfBeforeARotationIsNotSigned: what is smaller than a rotation the old key has
// signed, and the new one never signs it; what came after it is signed.
func TestADigestOfBeforeARotationIsNotSigned(t *testing.T) {
	t.Parallel()
	tl, keys := emptyTiles(t), t.TempDir()
	state := executor.Open(rows.NewMemoryKV(), "t", nil)
	s := New(Config{Tenant: "t", KeysDir: keys, Log: slog.New(slog.DiscardHandler)})
	fold := func(m ledger.Message) {
		t.Helper()
		for _, e := range keep(t, tl, m) {
			result := state.Apply(e)
			s.Folded(e, result.Verdict == executor.Effective, result.Reason)
		}
		state.Flush()
	}
	s.Open(t.Context(), state, tl, nil)
	t.Cleanup(s.Close)
	fold(message(t, 1, ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true},
		&pb.Record{Term: 1, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h1"}}}))
	if _, err := NewKey(keys, "t"); err != nil {
		t.Fatal(err)
	}
	fold(factAt(t, 2))
	s.Rotate(api.RotationQuery{Reason: "it is time", Actor: "eve"}, true, func(a api.RotationAnswer, err error) {
		if err != nil || a.NewKey == "" {
			t.Errorf("%+v, %v", a, err)
		}
	})
	records := s.Records(1, 3)
	if len(records) != 1 || records[0].GetKeyRotated() == nil {
		t.Fatalf("no rotation: %v", records)
	}
	fold(message(t, 3, ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, records[0]))
	fold(factAt(t, 4))
	for size, signed := range map[uint64]bool{2: false, 3: true, 4: true} {
		s.Digest(size, bytes.Repeat([]byte{1}, 32))
		s.Take()
		s.since = time.Time{}
		if err := s.Sign(true, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		if s.busy != signed || s.digest != nil {
			t.Errorf("the digest of %d records, after a rotation at 3: signed %v, want %v", size, s.busy, signed)
		}
		if s.busy {
			if r := <-s.results; r.err != nil || r.checkpoint.Size != size {
				t.Errorf("the digest of %d records: %+v", size, r)
			}
			s.busy = false
		}
	}
}

// TestAFileThatWaitsForTheDiskHoldsUpNoTurn: while the checkpoint's file is being written, the
// loop shows and takes what there is.
func TestAFileThatWaitsForTheDiskHoldsUpNoTurn(t *testing.T) {
	t.Parallel()
	tl := emptyTiles(t)
	state := executor.Open(rows.NewMemoryKV(), "t", nil)
	s := New(Config{Tenant: "t", KeysDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	s.Open(t.Context(), state, tl, nil)
	t.Cleanup(s.Close)
	keep(t, tl, factAt(t, 1))
	s.file.Lock() // whoever writes it waits for the disk
	if err := s.start(nil, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	s.take(signed{err: errors.New("of another tree")})
	if v := s.View(api.Checkpoint{}); v.Problem == "" {
		t.Errorf("%+v", v)
	}
	select {
	case r := <-s.results:
		t.Errorf("a checkpoint was published without its file: %+v", r.checkpoint)
	default:
	}
	s.file.Unlock()
	<-s.Wake()
	if s.Take(); s.ready == nil || s.ready.checkpoint.Size != 1 {
		t.Errorf("not signed: %+v", s.shown)
	}
}

// TestARotationBeforeTheFirstKeySaysHowThereWillBeOne.
func TestARotationBeforeTheFirstKeySaysHowThereWillBeOne(t *testing.T) {
	t.Parallel()
	s := New(Config{Tenant: "t", KeysDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	s.Open(t.Context(), executor.Open(rows.NewMemoryKV(), "t", nil), emptyTiles(t), nil)
	t.Cleanup(s.Close)
	s.Rotate(api.RotationQuery{Reason: "early", Actor: "eve"}, true, func(_ api.RotationAnswer, err error) {
		if err == nil || !strings.Contains(err.Error(), "checkpoint, at the latest serve --sign-after") {
			t.Errorf("%v", err)
		}
	})
}
