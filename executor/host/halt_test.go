package host

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// otherTiles writes the tiles of a stopped host anew, right in themselves, with another
// value in the record of one sequence.
func (r *rig) otherTiles(host string, sequence uint64) {
	r.t.Helper()
	root := filepath.Join(r.dir, host, "tiles")
	old := openTestTiles(r.t, root)
	var messages []ledger.Message
	for m, err := range old.Messages(1) {
		if err != nil {
			r.t.Fatal(err)
		}
		if m.Sequence == sequence {
			data, err := ledger.EncodeCommit([]*pb.Record{{Kind: &pb.Record_FactAsserted{
				FactAsserted: &pb.FactAsserted{Key: "k", Value: []byte("2")},
			}}})
			if err != nil {
				r.t.Fatal(err)
			}
			m.Data = data
		}
		messages = append(messages, m)
	}
	if err := old.Close(); err != nil {
		r.t.Fatal(err)
	}
	if err := os.RemoveAll(root); err != nil {
		r.t.Fatal(err)
	}
	fresh := openTestTiles(r.t, root)
	addAll(r.t, fresh, messages, 10)
	if err := fresh.Close(); err != nil {
		r.t.Fatal(err)
	}
}

// TestWhatAScrubHasFoundHaltsAfterARestart: a difference in the middle of the ledger is seen
// by no guard that a start runs, but for the note of the scrub that found it. While it is
// there the tenant stays halted, whoever restarts its host; once it is not, the tenant goes
// on.
func TestWhatAScrubHasFoundHaltsAfterARestart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(done)
	_, stop := r.host("h1")
	at := r.assert("k", "1")
	r.plan("p", 1, 0)
	r.caughtUp()
	stop()
	good := filepath.Join(r.dir, "good")
	if err := os.CopyFS(good, os.DirFS(filepath.Join(r.dir, "h1", "tiles"))); err != nil {
		t.Fatal(err)
	}
	r.otherTiles("h1", at)

	_, stop = r.host("h1")
	r.eventually("holding", func() bool { return r.status().Mode == api.ModeHolding })
	err := r.ask("memory.rebuild", api.Nothing{}, new(api.RebuildAnswer))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("another record at %d than the tiles", at)) {
		t.Fatalf("what is folded is not held against the tiles: %v", err)
	}
	var answer api.ScrubAnswer
	if err := r.administer("ledger.scrub", struct{}{}, &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Differs != at {
		t.Fatalf("%+v, want a difference at %d", answer, at)
	}
	r.halted("G4")
	stop()
	_, stop = r.host("h1")
	r.halted("G4")
	stop()

	note, err := os.ReadFile(filepath.Join(r.dir, "h1", "tiles", "t", tiles.HaltedName))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(r.dir, "h1", "tiles")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(r.dir, "h1", "tiles"), os.DirFS(good)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "h1", "tiles", "t", tiles.HaltedName), note, 0o600); err != nil {
		t.Fatal(err)
	}
	r.host("h1")
	r.fail("p")
	if got := r.ended("p"); got.State != ledger.StateCompensated {
		t.Errorf("%+v", got)
	}
}

// TestAHostThatHasFoldedAnotherHistoryHaltsAtACheckpoint: as one does that has read from a server
// with another history and goes on where the two agree again. No guard sees that; what another host
// has signed shows it, when it is folded, and at the next start.
func TestAHostThatHasFoldedAnotherHistoryHaltsAtACheckpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(done)
	r.signAfter = time.Hour
	_, stop := r.host("h1")
	at := r.assert("k", "1")
	r.plan("p", 1, 0)
	r.caughtUp()
	stop()
	r.otherTiles("h1", at)

	r.signAfter = time.Millisecond
	_, stop = r.host("h2")
	r.checkpoint()
	stop()

	r.signAfter = time.Hour
	for range 2 {
		_, stop = r.host("h1")
		if s := r.halted("G5"); s.Halted.Sequence != at {
			t.Errorf("halted at %d, and the difference is at %d: %s", s.Halted.Sequence, at, s.Problem)
		}
		stop()
	}
	for _, folder := range []string{"tiles", "state", "snapshots"} {
		if err := os.RemoveAll(filepath.Join(r.dir, "h1", folder)); err != nil {
			t.Fatal(err)
		}
	}
	r.host("h1")
	r.fail("p")
	if got := r.ended("p"); got.State != ledger.StateCompensated {
		t.Errorf("%+v", got)
	}
}

// confirmClock says, as an operator, that the clock is right.
func (r *rig) confirmClock() {
	r.t.Helper()
	r.append(operator("ops"), &pb.Record{Kind: &pb.Record_ClockConfirmed{
		ClockConfirmed: &pb.ClockConfirmed{Actor: "eve", Reason: "looked at it"},
	}})
}

// TestAConfirmedClockCountsOnce: an operator's word is about the clock as it was then. When
// the ledger is folded again it does not make another jump right; a new word does.
func TestAConfirmedClockCountsOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(done)
	r.clock = NewClock()
	h, stop := r.host("a")
	r.eventually("holding", func() bool { return r.status().Mode == api.ModeHolding })
	r.confirmClock()
	r.plan("p", 1, 30*time.Minute)
	r.caughtUp()
	h.clock.shift(time.Hour)
	r.assert("k", "1")
	r.eventually("the guard", func() bool { return r.status().Mode == api.ModeGuard })
	stop()
	if err := os.RemoveAll(filepath.Join(r.dir, "a", "state")); err != nil { // all is folded again
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(r.dir, "a", "snapshots")); err != nil {
		t.Fatal(err)
	}
	r.host("a")
	r.eventually("the guard again", func() bool {
		s := r.status()
		return s.Mode == api.ModeGuard || s.Mode == api.ModeHolding && r.show("p").State != ledger.StateOpen
	})
	if v := r.show("p"); v.State != ledger.StateOpen || r.status().Mode != api.ModeGuard {
		t.Fatalf("the plan is %s, and the host %s", v.State, r.status().Mode)
	}
	r.confirmClock()
	if got := r.ended("p"); got.State == ledger.StateOpen {
		t.Errorf("%+v", got)
	}
}

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

func openTestTiles(t *testing.T, dir string) *tiles.Writer {
	t.Helper()
	tl, err := tiles.Open(dir, "t", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

func addAll(t *testing.T, tl *tiles.Writer, messages []ledger.Message, turn int) {
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
