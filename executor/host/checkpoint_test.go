package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/proof"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// newSigningRig is a rig whose hosts sign soon after every change.
func newSigningRig(t *testing.T) *rig {
	r := newRig(t)
	r.signAfter = time.Millisecond
	return r
}

func (r *rig) asserts(key string, value int) {
	r.t.Helper()
	r.append(ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "src"},
		&pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: key, Value: fmt.Append(nil, value)}}})
}

// checkpoint waits for one over everything that is no checkpoint, and shows it.
func (r *rig) checkpoint() api.Checkpoint {
	r.t.Helper()
	r.caughtUp()
	r.eventually("a checkpoint covers all", func() bool {
		var v api.Status
		if v = r.status(); v.Checkpoint == nil {
			return false
		}
		entries := r.records(func(*pb.Record) bool { return true })
		for _, e := range entries[min(v.Checkpoint.Size, uint64(len(entries))):] {
			if e.Record.GetCheckpointSigned() == nil {
				return false
			}
		}
		return v.Checkpoint.Size > 0
	})
	return *r.status().Checkpoint
}

func (r *rig) tilesDir(host string) string { return filepath.Join(r.dir, host, "tiles", "t") }

func (r *rig) file(host string) []byte {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.tilesDir(host), tiles.CheckpointName))
	if err != nil {
		r.t.Fatal(err)
	}
	return text
}

func (r *rig) key(host string) proof.Key {
	r.t.Helper()
	keys, err := proof.Keys(filepath.Join(r.dir, host, "keys"), "t")
	if err != nil || len(keys) == 0 {
		r.t.Fatalf("%d keys, %v", len(keys), err)
	}
	return keys[len(keys)-1]
}

// wantProven goes through the stream as an auditor does, from the first key on: every
// checkpoint has the root of its size and the signature of the key in force, and was
// asked for by something else than a checkpoint.
func (r *rig) wantProven(first string) (checkpoints int) {
	r.t.Helper()
	var edge ledger.Edge
	roots, others, covered, key := []ledger.Hash{edge.Root()}, []int{0}, uint64(0), first
	for _, e := range r.records(func(*pb.Record) bool { return true }) {
		if k := e.Record.GetKeyRotated(); k != nil {
			if err := ledger.VerifyRotation("t", k); k.OldKey != key || err != nil && !errors.Is(err, ledger.ErrKeyLost) {
				r.t.Errorf("%s: %v, %v", ledger.FormatAddress(e.Address), k, err)
			}
			key = k.NewKey
		}
		other := 1
		if k := e.Record.GetCheckpointSigned(); k != nil {
			checkpoints, other = checkpoints+1, 0
			verifier, err := note.NewVerifier(key)
			if err != nil {
				r.t.Fatal(err)
			}
			c, _, err := ledger.OpenCheckpoint([]byte(k.Note), "t", note.VerifierList(verifier))
			if err != nil || c.Size != k.Size || c.Size >= uint64(len(roots)) || c.Root != roots[c.Size] ||
				c.Root != ledger.Hash(k.Root) {
				r.t.Errorf("%s: %+v of %d records: %v", ledger.FormatAddress(e.Address), c, len(roots)-1, err)
			} else if len(k.StateDigest) == 0 {
				if others[c.Size] == others[covered] {
					r.t.Errorf("%s: from %d to %d there is nothing but checkpoints", ledger.FormatAddress(e.Address), covered, c.Size)
				}
				covered = c.Size
			}
		}
		edge.Append(ledger.Hash(e.Address.Leaf))
		roots, others = append(roots, edge.Root()), append(others, others[len(others)-1]+other)
	}
	return checkpoints
}

// TestACheckpointIsSignedOverAllRecordsAndNotForItself, and the tiles prove that it is an
// extension of one before.
func TestACheckpointIsSignedOverAllRecordsAndNotForItself(t *testing.T) {
	t.Parallel()
	r := newSigningRig(t)
	_, stop := r.host("h1")
	var older ledger.Checkpoint
	for i := range 400 { // a tile and a part
		r.asserts("k", i)
		if i == 30 {
			older = ledger.Checkpoint{Size: r.checkpoint().Size}
			older.Root = ledger.Hash(r.status().Checkpoint.Root)
		}
	}
	shown := r.checkpoint()
	key := r.key("h1")
	if shown.Key != key.Verifier || shown.Problem != "" || shown.Alarm || shown.StampNs == 0 {
		t.Fatalf("%+v, the key is %s", shown, key.Verifier)
	}
	if n := r.wantProven(key.Verifier); n < 2 {
		t.Fatalf("%d checkpoints", n)
	}
	stop()
	if info, err := os.Stat(strings.TrimSuffix(key.Path, ".pub") + ".key"); err != nil ||
		info.Mode() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	r.wantExtension("h1", key.Verifier, older)
}

// wantExtension proves from the tiles of a stopped host that the tree of the checkpoint in its file
// is an extension of an older one.
func (r *rig) wantExtension(host, key string, older ledger.Checkpoint) {
	r.t.Helper()
	verifier, err := note.NewVerifier(key)
	if err != nil {
		r.t.Fatal(err)
	}
	c, _, err := ledger.OpenCheckpoint(r.file(host), "t", note.VerifierList(verifier))
	if err != nil {
		r.t.Fatal(err)
	}
	tl := openTestTiles(r.t, filepath.Dir(r.tilesDir(host)))
	proof, err := tiles.NewTree(tl.Files, tl.Edge.Clone()).Prover().Consistency(older.Size, c.Size)
	if err == nil {
		err = ledger.VerifyConsistency(older.Size, c.Size, proof, older.Root, c.Root)
	}
	if err := errors.Join(err, tl.Close()); err != nil {
		r.t.Fatalf("%d of %d: %v", older.Size, c.Size, err)
	}
}

// TestAThousandRecordsAskForACheckpointAtOnce, whatever the time says.
func TestAThousandRecordsAskForACheckpointAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.signAfter = time.Hour
	r.host("h1")
	var records []*pb.Record
	for i := range 100 {
		records = append(records,
			&pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: fmt.Sprint("k", i),
				Value: []byte("1")}}})
	}
	for n := 1; n <= 25; n++ {
		r.append(ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "src"}, records...)
	}
	r.caughtUp()
	r.eventually("checkpoints", func() bool { return r.status().Checkpoint.Size >= 1000 })
	signed := r.records(func(k *pb.Record) bool { return k.GetCheckpointSigned() != nil })
	if len(signed) == 0 || len(signed) > 2 {
		t.Fatalf("%d checkpoints of 2,500 records", len(signed))
	}
	r.wantProven(r.key("h1").Verifier)
}

// noCheckpoints is what a fold says before the first checkpoint.
type noCheckpoints struct{}

func (noCheckpoints) Signed() *rowspb.CheckpointRow { return nil }
func (noCheckpoints) Key() string                   { return "" }
func (noCheckpoints) Meta() *rowspb.Meta            { return nil }

// signAlone signs the tree of a stopped host as the host does, up to the file: what a
// kill right behind it leaves.
func (r *rig) signAlone(host string) *pb.CheckpointSigned {
	r.t.Helper()
	tl, err := tiles.Open(filepath.Join(r.dir, host, "tiles"), "t", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	s := proof.New(proof.Config{Tenant: "t", KeysDir: filepath.Join(r.dir, host, "keys"),
		Times: proof.Times{After: 1}, Log: slog.New(slog.DiscardHandler)})
	s.Open(r.t.Context(), noCheckpoints{}, tl, nil)
	if err := s.Sign(true, nothing); err != nil {
		r.t.Fatal(err)
	}
	s.Close()
	s.Take()
	records := s.Records(1, 1)
	if len(records) != 1 {
		r.t.Fatalf("%d records: %+v", len(records), s.View(api.Checkpoint{}))
	}
	if err := tl.Kill(); err != nil {
		r.t.Fatal(err)
	}
	return records[0].GetCheckpointSigned()
}

func TestACheckpointThatWasSignedAndNotSaidIsSaidAtTheNextStart(t *testing.T) {
	t.Parallel()
	r := newSigningRig(t)
	_, stop := r.host("h1")
	r.asserts("k", 1)
	r.checkpoint()
	stop()
	before := r.signAlone("h1")
	if again := r.signAlone("h1"); again.Note != before.Note {
		t.Fatalf("signed a second time: %q", again.Note)
	}
	r.host("h1")
	r.asserts("k", 2)
	r.checkpoint()
	said := r.records(func(k *pb.Record) bool { return k.GetCheckpointSigned().GetNote() == before.Note })
	if len(said) != 1 {
		t.Fatalf("said %d times", len(said))
	}
	r.wantProven(r.key("h1").Verifier)
}

// TestATreeThatIsNoExtensionIsNotSigned: the file or the ledger has a checkpoint that
// the records contradict.
func TestATreeThatIsNoExtensionIsNotSigned(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *ledger.Checkpoint){
		"another root":      func(c *ledger.Checkpoint) { c.Root[3] ^= 1 },
		"records were lost": func(c *ledger.Checkpoint) { c.Size += 1000 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newSigningRig(t)
			_, stop := r.host("h1")
			r.asserts("k", 1)
			r.checkpoint()
			stop()
			path := filepath.Join(r.tilesDir("h1"), tiles.CheckpointName)
			body, _ := tiles.SplitNote(r.file("h1"))
			c, err := ledger.ParseCheckpoint(body)
			if err != nil {
				t.Fatal(err)
			}
			change(&c)
			signer, err := r.key("h1").Signer()
			if err != nil {
				t.Fatal(err)
			}
			forged, err := note.Sign(&note.Note{Text: c.Text()}, signer)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, forged, 0o600); err != nil {
				t.Fatal(err)
			}
			count := func() int {
				return len(r.records(func(k *pb.Record) bool { return k.GetCheckpointSigned() != nil }))
			}
			signed := count()
			_, stop = r.host("h1")
			r.asserts("k", 2)
			r.eventually("the alarm", func() bool { return r.status().Checkpoint.Alarm })
			if v := r.status(); v.Checkpoint.Problem == "" || v.Mode != api.ModeHolding || count() != signed ||
				!bytes.Equal(r.file("h1"), forged) {
				t.Fatalf("%+v, %d checkpoints, before %d", v.Checkpoint, count(), signed)
			}
			stop()
			if err := os.Remove(path); err != nil { // an operator has looked at it
				t.Fatal(err)
			}
			r.host("h1")
			r.checkpoint()
			r.wantProven(r.key("h1").Verifier)
		})
	}
}

// TestADiskThatTakesNoCheckpointDelaysNothing, and it is signed when there is room.
func TestADiskThatTakesNoCheckpointDelaysNothing(t *testing.T) {
	t.Parallel()
	r := newSigningRig(t)
	r.host("h1")
	r.asserts("k", 1)
	r.checkpoint()
	blocked := filepath.Join(r.tilesDir("h1"), tiles.CheckpointName+".new")
	if err := os.Mkdir(blocked, 0o700); err != nil {
		t.Fatal(err)
	}
	r.asserts("k", 2)
	r.eventually("a problem", func() bool { return r.status().Checkpoint.Problem != "" })
	r.asserts("k", 3)
	r.caughtUp()
	if v := r.status().Checkpoint; v.Alarm || !strings.Contains(v.Problem, tiles.CheckpointName+".new") {
		t.Fatalf("%+v", v)
	}
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	r.checkpoint()
	r.wantProven(r.key("h1").Verifier)
}

// TestWhoAsksForACheckpointNeedNotWaitForTheNext: it covers all that was there, and who
// asks again gets the one that is signed.
func TestWhoAsksForACheckpointNeedNotWaitForTheNext(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.signAfter = time.Hour
	r.host("h1")
	r.asserts("k", 1)
	r.caughtUp()
	sign := func() (answer api.SignAnswer) {
		if err := r.administer("ledger.sign", struct{}{}, &answer); err != nil {
			t.Error(err)
		}
		return answer
	}
	first := sign()
	if first.Size < 2 {
		t.Fatalf("%+v", first)
	}
	if v := r.checkpoint(); v.Size < first.Size {
		t.Fatalf("%d of %d", v.Size, first.Size)
	}
	if again := sign(); again.Size < first.Size || again.Size > r.status().Records {
		t.Fatalf("%+v", again)
	}
	r.asserts("k", 2)
	r.caughtUp()
	if next := sign(); next.Size <= first.Size {
		t.Fatalf("%+v", next)
	}
	r.checkpoint()
	if n := r.wantProven(r.key("h1").Verifier); n != 2 {
		t.Fatalf("%d checkpoints", n)
	}
}

func TestARotationIsSignedByTheOldKeyAndTheNextCheckpointByTheNewOne(t *testing.T) {
	t.Parallel()
	r := newSigningRig(t)
	_, stop := r.host("h1")
	r.asserts("k", 1)
	r.checkpoint()
	first := r.key("h1").Verifier
	rotate := func(q api.RotationQuery) (answer api.RotationAnswer, err error) {
		err = r.administer("key.rotate", q, &answer)
		return answer, err
	}
	if _, err := rotate(api.RotationQuery{Actor: "tester"}); err == nil {
		t.Fatal("a rotation without a reason")
	}
	one, err := rotate(api.RotationQuery{Reason: "a year is over", Actor: "tester"})
	if err != nil || one.OldKey != first || !one.Signed {
		t.Fatalf("%+v", one)
	}
	r.asserts("k", 2)
	if v := r.checkpoint(); v.Key != one.NewKey || len(v.Rotations) != 1 || !v.Rotations[0].Signed ||
		v.Rotations[0].Actor != "tester" {
		t.Fatalf("%+v", v)
	}
	stop()
	if err := os.RemoveAll(filepath.Join(r.dir, "h1", "keys")); err != nil { // the disk of the keys is gone
		t.Fatal(err)
	}
	r.host("h1")
	r.asserts("k", 3)
	r.eventually("the key is missed", func() bool {
		return strings.Contains(r.status().Checkpoint.Problem, strings.Split(one.NewKey, "+")[1])
	})
	if a, err := rotate(api.RotationQuery{Reason: "none", Actor: "tester"}); err == nil {
		t.Fatalf("rotated without the old key: %+v", a)
	}
	if a, err := rotate(api.RotationQuery{Reason: "gone", Actor: "tester", Lost: first}); err == nil {
		t.Fatalf("a key that is not in force was lost: %+v", a)
	}
	two, err := rotate(api.RotationQuery{Reason: "its disk is gone", Actor: "tester", Lost: one.NewKey})
	if err != nil || two.Signed || two.OldKey != one.NewKey {
		t.Fatalf("%+v", two)
	}
	if v := r.checkpoint(); v.Key != two.NewKey || v.Problem != "" {
		t.Fatalf("%+v", v)
	}
	if n := r.wantProven(first); n < 3 {
		t.Fatalf("%d checkpoints", n)
	}
}

// TestAHostWithoutTheKeySaysSoAndSignsWhenItGetsIt: the second host of a tenant.
func TestAHostWithoutTheKeySaysSoAndSignsWhenItGetsIt(t *testing.T) {
	t.Parallel()
	r := newSigningRig(t)
	_, stop := r.host("h1")
	r.asserts("k", 1)
	r.checkpoint()
	first := r.key("h1").Verifier
	h2, _ := r.host("h2")
	r.eventually("h2 says it", func() bool {
		answer, err := h2.Ask("t", "host", struct{}{})
		return err == nil && answer.(api.HostAnswer).Host.NoKey != ""
	})
	stop()
	r.eventually("h2 holds", func() bool { // until then it leaves questions to h1, which is gone
		var answer api.StatusAnswer
		err := r.ask("status", struct{}{}, &answer)
		return err == nil && answer.Status.Holder == h2.cfg.Holder && answer.Status.Mode == api.ModeHolding
	})
	r.asserts("k", 2)
	r.eventually("h2 signs nothing", func() bool { return r.status().Checkpoint.Problem != "" })
	if _, err := os.Stat(filepath.Join(r.dir, "h2", "keys")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("h2 has made a key of its own: %v", err)
	}
	err := os.CopyFS(filepath.Join(r.dir, "h2", "keys"), os.DirFS(filepath.Join(r.dir, "h1", "keys")))
	copies, _ := filepath.Glob(filepath.Join(r.dir, "h2", "keys", "*", "*.key"))
	for _, key := range copies {
		err = errors.Join(err, os.Chmod(key, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	if v := r.checkpoint(); v.Key != first || v.Problem != "" {
		t.Fatalf("%+v", v)
	}
	r.wantProven(first)
}

// TestADigestOfTheStateIsSignedBesideItsTree: that of a snapshot, at its place.
func TestADigestOfTheStateIsSignedBesideItsTree(t *testing.T) {
	t.Parallel()
	r := newSigningRig(t)
	h, stop := r.host("h1")
	r.plan("p", 3, 0)
	r.checkpoint()
	if err := h.copies.Take(context.Background()); err != nil {
		t.Fatal(err)
	}
	var with []ledger.Entry
	r.eventually("a digest", func() bool {
		with = r.records(func(k *pb.Record) bool { return len(k.GetCheckpointSigned().GetStateDigest()) > 0 })
		return len(with) == 1
	})
	r.wantProven(r.key("h1").Verifier)
	stop()
	k := with[0].Record.GetCheckpointSigned()
	kv, records := rows.NewMemoryKV(), uint64(0)
	s := executor.Open(kv, "t", nil)
	for _, e := range r.records(func(*pb.Record) bool { return true }) {
		if records++; records > k.Size {
			break
		}
		s.Apply(e)
		s.Flush()
	}
	if got := rows.Digest(kv); !bytes.Equal(got[:], k.StateDigest) {
		t.Fatalf("the digest of %d records is %x, signed was %x", k.Size, got, k.StateDigest)
	}
}

// TestARepairedLedgerIsAnExtensionOfWhatWasSigned: its tree goes on, and so do the
// checkpoints.
func TestARepairedLedgerIsAnExtensionOfWhatWasSigned(t *testing.T) {
	t.Parallel()
	r := newSigningRig(t)
	_, stop := r.host("h1")
	r.asserts("k", 1)
	before := r.checkpoint()
	stop()
	folded := r.records(func(*pb.Record) bool { return true })
	for i := range 6 {
		r.asserts(fmt.Sprint("late", i), i)
	}
	r.losesMessage(folded[len(folded)-1].Address.Sequence + 3)
	_, stop = r.host("h1")
	r.halted("G1")
	answer := r.repair()
	r.eventually("a later checkpoint", func() bool {
		v := r.status()
		return v.Mode == api.ModeHolding && v.Checkpoint.Size > answer.Size && v.Applied == v.Last
	})
	after := r.status().Checkpoint
	if after.Alarm || after.Problem != "" || after.Size <= before.Size {
		t.Fatalf("%+v, before %+v", after, before)
	}
	stop()
	r.wantExtension("h1", r.key("h1").Verifier, ledger.Checkpoint{Size: before.Size, Root: ledger.Hash(before.Root)})
}

// nothing is left to write.
func nothing() error { return nil }
