package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/host/repair"
	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// facts appends facts, a message each, under names of their own.
func (r *rig) facts(name string, n int) (last uint64) {
	r.t.Helper()
	for i := range n {
		last = r.append(ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "src"},
			&pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: fmt.Sprint(name, i),
				Value: []byte("1")}}})
	}
	return last
}

// wantFacts wants facts to be known to the host that holds.
func (r *rig) wantFacts(name string, n int) {
	r.t.Helper()
	for i := range n {
		var fact api.FactAnswer
		if err := r.ask("fact.get", api.FactQuery{Key: fmt.Sprint(name, i)}, &fact); err != nil {
			r.t.Errorf("fact %s%d: %v", name, i, err)
		}
	}
}

func (r *rig) inspect() jetstream.Inspected {
	r.t.Helper()
	now, err := jetstream.Inspect(r.t.Context(), r.conn, "t")
	if err != nil {
		r.t.Fatal(err)
	}
	return now
}

// deleteStream takes a stream away: that of the ledger, or of the keys.
func (r *rig) deleteStream(name string) {
	r.t.Helper()
	js, err := r.conn.JetStream()
	if err == nil {
		err = js.DeleteStream(name)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// A host that was away while another one repaired the ledger has tiles that know of
// no repair. Its own would drop everything since; it is refused, changes nothing, and
// with the tiles of the other host it goes on.
func TestARepairFromTilesThatKnowOfNoRepairIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		ahead bool // the host that was away has more tiles than the one that repaired
	}{{"behind", false}, {"ahead", true}} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.serve(done)
			_, stop := r.host("first")
			r.plan("p0", 3, 0)
			r.caughtUp()
			stop()
			_, stop = r.host("second")
			r.facts("k", 10)
			r.caughtUp()
			stop()
			away, repairs := "first", "second"
			if c.ahead {
				away, repairs = "second", "first"
			}
			_, folded := digest(t, filepath.Join(r.dir, "second"))
			r.losesMessage(folded - 4)
			_, stop = r.host(repairs)
			r.found()
			answer := r.repair()
			r.caughtUp()
			r.facts("since", 10)
			r.caughtUp()
			stop()
			before := r.inspect()

			_, stop = r.host(away)
			r.halted("G")
			err := r.administer("ledger.repair", api.RepairQuery{Reason: "a test", Actor: "tester"}, &api.RepairAnswer{})
			if !strings.Contains(says(err), "copy the tiles of the host that repaired it") {
				t.Errorf("repaired through %d; the host that was away says %v", answer.Through, err)
			}
			if after := r.inspect(); after != before {
				t.Errorf("the stream was %+v and is %+v", before, after)
			}
			stop()

			theirs := filepath.Join(r.dir, away)
			if err := errors.Join(os.RemoveAll(theirs), os.MkdirAll(theirs, 0o700),
				os.CopyFS(filepath.Join(theirs, "tiles"), os.DirFS(filepath.Join(r.dir, repairs, "tiles")))); err != nil {
				t.Fatal(err)
			}
			r.host(away)
			r.caughtUp()
			r.wantFacts("since", 10)
			r.fail("p0")
			if got := r.ended("p0"); got.State != ledger.StateCompensated {
				t.Fatalf("%+v", got)
			}
			r.wantOrder("a3", "a2", "a1")
		})
	}
}

// found waits until the host has found the damage, by its guards or by a scrub.
func (r *rig) found() {
	r.t.Helper()
	r.eventually("held or halted", func() bool {
		mode := r.status().Mode
		return mode == api.ModeHolding && r.status().Applied == r.status().Last || mode == api.ModeHalted
	})
	if r.status().Mode == api.ModeHolding {
		if err := r.administer("ledger.scrub", struct{}{}, &api.ScrubAnswer{}); err != nil {
			r.t.Error(err)
		}
	}
	r.halted("G")
}

// What was damaged and repaired once is repaired again by the same host: its tiles
// know of the first repair.
func TestARepairedLedgerIsRepairedAgain(t *testing.T) {
	t.Parallel()
	r := damaged(t, 0)
	for times := 1; times <= 2; times++ {
		_, stop := r.host("h1")
		r.facts(fmt.Sprint("time", times, "-"), 6)
		r.caughtUp()
		stop()
		_, folded := digest(t, filepath.Join(r.dir, "h1"))
		r.losesMessage(folded - 3)
		_, stop = r.host("h1")
		r.found()
		if answer := r.repair(); answer.Lost != "none" {
			t.Fatalf("repair %d: %+v", times, answer)
		}
		r.caughtUp()
		if s := r.status(); len(s.Copy.Repairs) != times {
			t.Fatalf("%d repairs, want %d", len(s.Copy.Repairs), times)
		}
		r.wantFacts(fmt.Sprint("time", times, "-"), 6)
		stop()
	}
}

// Tiles of another tenant, from a copy that was put back under the wrong name, are no history of
// this one: nothing is changed, and from its own tiles it is repaired.
func TestARepairFromTilesOfAnotherTenantIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tenants = []string{"t", "shop"}
	_, stop := r.host("h1")
	r.holds("shop")
	r.facts("k", 10)
	r.caughtUp()
	stop()
	own := filepath.Join(r.dir, "h1", "tiles", "t")
	aside := filepath.Join(t.TempDir(), "t")
	swap := func(from string) {
		t.Helper()
		if err := errors.Join(os.RemoveAll(own), os.CopyFS(own, os.DirFS(from))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(aside, os.DirFS(own)); err != nil {
		t.Fatal(err)
	}
	swap(filepath.Join(filepath.Dir(own), "shop"))
	before := r.inspect()
	// A repair that was under way there would replace this very stream.
	begun, err := json.Marshal(repair.Plan{OldCreatedNs: before.Head.CreatedNs, Through: 1, Size: 1})
	if err == nil {
		err = os.WriteFile(filepath.Join(own, repair.PlanName), begun, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, stop = r.host("h1")
	r.halted("G3")
	if s := r.status(); !strings.Contains(s.Problem, "are another tenant's") || strings.Contains(s.Problem, "shop") {
		t.Errorf("%q", s.Problem)
	}
	if after := r.inspect(); after != before {
		t.Fatalf("a repair of another tenant was carried out: the stream was %+v and is %+v", before, after)
	}
	if err := os.Remove(filepath.Join(own, repair.PlanName)); err != nil {
		t.Fatal(err)
	}
	r.showsNothing()
	for _, dry := range []bool{true, false} {
		err := r.administer("ledger.repair", api.RepairQuery{Reason: "a test", Actor: "tester", DryRun: dry},
			&api.RepairAnswer{})
		if !strings.Contains(says(err), "these tiles are of tenant shop; put those of t back") {
			t.Errorf("dry run %v: %v", dry, err)
		}
	}
	if after := r.inspect(); after != before {
		t.Errorf("the stream was %+v and is %+v", before, after)
	}
	for _, made := range []string{repair.PlanName, "repairs"} {
		if _, err := os.Stat(filepath.Join(own, made)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was made: %v", made, err)
		}
	}
	stop()
	swap(aside)
	r.host("h1")
	r.caughtUp()
	r.wantFacts("k", 10)
}

// showsNothing asks a host for records of a ledger that are not the tenant's.
func (r *rig) showsNothing() {
	r.t.Helper()
	var read api.ReadAnswer
	var export api.ExportAnswer
	err := r.ask(api.LedgerRead.Name, api.ReadQuery{From: 1}, &read)
	if says(err) == "" || len(read.Messages) > 0 {
		r.t.Errorf("%v %+v", err, read)
	}
	err = r.administer(api.LedgerExport.Name, api.ExportQuery{BytesMax: 1 << 16}, &export)
	if says(err) == "" || len(export.Entries) > 0 {
		r.t.Errorf("%v %+v", err, export)
	}
}

// actorOf is what a halted host would repair with.
func (r *rig) actorOf(name string) *actor {
	r.t.Helper()
	h, err := New(Config{Conn: r.conn, Tenants: []string{"t"}, Dir: filepath.Join(r.dir, name),
		StoreDir: filepath.Join(r.dir, "nats")})
	if err != nil {
		r.t.Fatal(err)
	}
	a := h.roster.order[0]
	if a.tiles, err = tiles.Open(h.tilesRoot(), "t", slog.New(slog.DiscardHandler), nil); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := errors.Join(a.tiles.Close(), h.Close()); err != nil {
			r.t.Error(err)
		}
	})
	return a
}

// Everything between the tiles' end and the first message of a stream that has lost
// its first ones is listed, also when that stream is empty.
func TestWhatAStreamLostBeforeItsFirstMessageIsListed(t *testing.T) {
	t.Parallel()
	for _, left := range []int{0, 2} {
		r := damaged(t, 0)
		r.deleteStream(jetstream.StreamName("t"))
		a := r.actorOf("h1")
		end := a.tiles.Last()
		replacement, err := jetstream.Replace(a.host.ledgerConfig("t"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = replacement.Create(t.Context(), end+5); err == nil {
			err = replacement.Finish(t.Context(), end+5)
		}
		if err != nil {
			t.Fatal(err)
		}
		r.facts("k", left)
		plan := repair.Plan{Problem: "a test", Reason: "a test", Actor: "tester"}
		if err := repair.New(a.repairs(), a.tiles).Plan(t.Context(), &plan, true); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%d-%d", end+1, end+4)
		if got := ledger.FormatRanges(plan.Lost); got != want || plan.Through != end {
			t.Errorf("%d left behind the gap: lost %s up from %d, want %s", left, got, plan.Through, want)
		}
	}
}

// A power cut may take the newest tiles and the stream its tail: then only the state
// knows what was there. It is listed as lost, and the state is folded again.
func TestWhatOnlyTheStateWasFoldedFromIsListedAsLost(t *testing.T) {
	t.Parallel()
	r := damaged(t, 0)
	_, stop := r.host("h1")
	r.facts("k", 10)
	r.caughtUp()
	stop()
	_, folded := digest(t, filepath.Join(r.dir, "h1"))
	hashes := filepath.Join(r.dir, "h1", "tiles", "t", tiles.HashesName)
	info, err := os.Stat(hashes)
	if err == nil {
		err = os.Truncate(hashes, info.Size()-4*ledger.LeafSize)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.deleteStream(jetstream.StreamName("t"))
	_, stop = r.host("h1")
	r.halted("G")
	answer := r.repair()
	want := fmt.Sprintf("%d-%d", folded-3, folded)
	if answer.Through != folded-4 || answer.Lost != want {
		t.Errorf("folded up to %d, the tiles end at %d: %+v, want %s lost", folded, folded-4, answer, want)
	}
	r.appended = answer.Through // what came behind it is gone
	r.caughtUp()
	r.fail("p0")
	if got := r.ended("p0"); got.State != ledger.StateCompensated {
		t.Fatalf("%+v", got)
	}
	r.wantOrder("a3", "a2", "a1")
	stop()
	got, upTo := digest(t, filepath.Join(r.dir, "h1"))
	r.wantWhole(got, upTo)
}

// A snapshot's file is JSON, and no check of its own covers it.
func TestASnapshotWhoseLeafHasAnotherLengthIsNotUsed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h, stop := r.host("h1")
	r.plan("p", 3, 0)
	r.caughtUp()
	r.stored(h)
	if err := h.copies.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	dir := filepath.Join(r.dir, "h1", store.SnapshotsFolder, "1")
	data, err := os.ReadFile(filepath.Join(dir, store.SnapshotName))
	var file store.SnapshotFile
	if err = errors.Join(err, json.Unmarshal(data, &file)); err != nil {
		t.Fatal(err)
	}
	a := r.actorOf("h1")
	whole := file.Tenants["t"]
	for _, leaf := range [][]byte{nil, whole.Leaf[:ledger.LeafSize-1], append(whole.Leaf[:ledger.LeafSize:ledger.LeafSize],
		0)} {
		said := whole
		said.Leaf = leaf
		file.Tenants["t"] = said
		if data, err = json.Marshal(file); err == nil {
			err = os.WriteFile(filepath.Join(dir, store.SnapshotName), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.host.copies.RestoreFrom(dir, a.kv, a.tenant, a.tiles); err == nil ||
			!strings.Contains(err.Error(), "its leaf has") {
			t.Errorf("a leaf of %d bytes: %v", len(leaf), err)
		}
	}
}
