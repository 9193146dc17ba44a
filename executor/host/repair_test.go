package host

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/executor/host/repair"
	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// administer asks what operators ask.
func (r *rig) administer(verb string, question, answer any) error {
	r.t.Helper()
	body, _ := json.Marshal(question)
	m, err := r.conn.Request(api.AdminSubject("t", verb), body, testenv.Patience)
	if err != nil {
		r.t.Fatalf("%s: %v", verb, err)
	}
	return readAnswer(m.Data, answer)
}

func (r *rig) repair() api.RepairAnswer {
	r.t.Helper()
	var answer api.RepairAnswer
	err := r.administer("ledger.repair", api.RepairQuery{Reason: "a test", Actor: "tester"}, &answer)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer
}

func (r *rig) halted(guard string) api.Status {
	r.t.Helper()
	r.eventually("halted", func() bool { return r.status().Mode == api.ModeHalted })
	s := r.status()
	if !strings.Contains(s.Problem, "halted by "+guard) || s.Halted == nil ||
		!strings.HasPrefix(s.Halted.Guard, guard) || s.Halted.Sequence == 0 {
		r.t.Fatalf("%+v", s)
	}
	return s
}

// copied starts a rig on a copy of what a stopped one has left.
func copied(t *testing.T, from string) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), effects: map[string]int{}}
	if err := os.CopyFS(r.dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return r
}

// blocks are the files of the stream's messages.
func (r *rig) blocks() []string {
	r.t.Helper()
	found, err := filepath.Glob(filepath.Join(r.dir, "nats", "jetstream", "*", "streams", "SAGA_t", "msgs", "*.blk"))
	if err != nil || len(found) == 0 {
		r.t.Fatalf("no blocks: %v", err)
	}
	return found
}

// flip flips one bit of a file, at a share of it.
func flip(t *testing.T, path string, share float64, bit int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := min(int(share*float64(len(b))), len(b)-1)
	if strings.HasSuffix(path, ".blk") && !compressed(b) && upperSequence(b, at) {
		at += 8
	}
	b[at] ^= 1 << bit
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// compressed tells whether a block was full, and is compressed since.
func compressed(block []byte) bool { return bytes.HasPrefix(block, []byte("cmp")) }

// upperSequence tells whether a place of a block is in the upper bytes of a sequence,
// which follows the length of its record. A bit there has JetStream take all memory
// for a gap that is not there (docs/reliability.md), in this process.
func upperSequence(block []byte, place int) bool {
	length := func(at int) int { return int(binary.LittleEndian.Uint32(block[at:]) &^ (1 << 31)) }
	at := 0
	for at+length(at) <= place {
		at += length(at)
	}
	return place-at >= 4+3 && place-at < 4+8
}

// flips is how many places of a block are tried: few, more in a long run, or every one
// in a hundred when SAGENBAUM_TORTURE asks for it.
func flips(t *testing.T) int {
	t.Helper()
	if many, err := strconv.Atoi(os.Getenv("SAGENBAUM_TORTURE")); err == nil && many >= 100 {
		return 100
	}
	return testenv.Cases(3, 12)
}

const flipPlans = 4

// One bit of the stream's file is flipped: after a clean stop, after a crash, and in a block
// that is compressed, with the state there and deleted. Either the tenant halts before anything is dispatched,
// or nothing is lost; and a scrub finds what no guard has met. From the tiles the
// ledger is then repaired, and every plan is undone rightly.
func TestAFlippedBitInTheStreamIsFoundBeforeAnyDispatchAndRepairedFromTheTiles(t *testing.T) {
	t.Parallel()
	begun := func(maxBytes int64, facts int) *rig {
		r := newRig(t)
		r.maxBytes = maxBytes
		_, stop := r.host("h1")
		for i := range flipPlans {
			r.plan(fmt.Sprintf("p%d", i), 3, 0)
		}
		for i := range facts {
			r.assert(fmt.Sprintf("fact%d", i), strconv.Quote(strings.Repeat("x", 4<<10)))
		}
		r.caughtUp()
		stop()
		return r
	}
	base := begun(0, 0)
	crashed := copied(t, base.dir)
	base.stopServer()
	full := begun(120_000, 8) // of a stream with so small a bound, a block is full at 32 kB
	full.eventually("the server has compressed the first block", func() bool {
		block, err := os.ReadFile(full.blocks()[0])
		return err == nil && compressed(block)
	})
	full.stopServer()
	places, found := flips(t), map[string]int{}
	for i := range places {
		for variant, from := range []*rig{base, crashed, full} {
			r := copied(t, from.dir)
			flip(t, r.blocks()[0], float64(i)/float64(places), i%8)
			deleted := (i+variant)%2 == 0
			if deleted {
				if err := os.RemoveAll(filepath.Join(r.dir, "h1", "state")); err != nil {
					t.Fatal(err)
				}
			}
			r.startServer()
			r.serve(done)
			_, stop := r.host("h1")
			found[r.recoverFromFlip()]++
			for p := range flipPlans {
				r.fail(fmt.Sprintf("p%d", p))
			}
			for p := range flipPlans {
				if got := r.ended(fmt.Sprintf("p%d", p)); got.State != ledger.StateCompensated {
					t.Fatalf("place %d, variant %d, state deleted %v: %+v", i, variant, deleted, got)
				}
			}
			r.wantUndone()
			r.caughtUp()
			stop()
			digest, applied := digest(t, filepath.Join(r.dir, "h1"))
			r.wantWhole(digest, applied)
			r.stopServer()
		}
	}
	t.Logf("found by: %v", found)
}

// recoverFromFlip brings a tenant back to holding, and says what found the damage.
func (r *rig) recoverFromFlip() string {
	r.t.Helper()
	found := "nothing"
	r.eventually("held or halted", func() bool {
		mode := r.status().Mode
		return mode == api.ModeHolding && r.status().Applied == r.status().Last || mode == api.ModeHalted
	})
	if r.status().Mode == api.ModeHalted {
		found = strings.Fields(r.status().Problem)[2]
	} else {
		var answer api.ScrubAnswer
		if err := r.administer("ledger.scrub", struct{}{}, &answer); err != nil {
			r.t.Fatal(err)
		}
		if answer.Differs != 0 {
			found = "scrub"
			r.halted("G")
		}
	}
	if n := len(r.calls); n != 0 {
		r.t.Fatalf("%d commands before anything failed", n)
	}
	if found != "nothing" {
		if answer := r.repair(); answer.Lost != "none" || answer.Dropped != "none" {
			r.t.Fatalf("the tiles have all, and yet: %+v", answer)
		}
	}
	r.eventually("held again", func() bool { return r.status().Mode == api.ModeHolding })
	return found
}

// wantUndone wants each plan's actions undone once, the last first.
func (r *rig) wantUndone() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.effects) != 3*flipPlans {
		r.t.Fatalf("%d effects, want %d", len(r.effects), 3*flipPlans)
	}
	for p := range flipPlans {
		var order []string
		for _, c := range r.calls {
			if c.Plan == fmt.Sprintf("p%d", p) && !slices.Contains(order, c.Action) {
				order = append(order, c.Action)
			}
		}
		if fmt.Sprint(order) != "[a3 a2 a1]" {
			r.t.Fatalf("p%d undone in order %v", p, order)
		}
	}
}

// wantWhole folds the tiles from nothing and compares.
func (r *rig) wantWhole(want string, upTo uint64) {
	r.t.Helper()
	tl := openTestTiles(r.t, filepath.Join(r.dir, "h1", "tiles"))
	kv := rows.NewMemoryKV()
	s := executor.Open(kv, "t", nil)
	for m, err := range tl.Messages(1) {
		if err != nil {
			r.t.Fatal(err)
		}
		entries, err := ledger.Decode("t", m)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, e := range entries {
			s.Apply(e)
		}
	}
	s.Flush()
	if err := tl.Close(); err != nil {
		r.t.Fatal(err)
	}
	if got := rows.FormatDigest(rows.Digest(kv)); got != want || tl.Last() != upTo {
		r.t.Fatalf("digest at %d is %s, of the tiles at %d %s", upTo, want, tl.Last(), got)
	}
}

// damaged is a ledger of three plans that a host has folded, and more that it has
// not, whose stream is then cut off by hand; it returns the rig with no host.
func damaged(t *testing.T, more int) *rig {
	t.Helper()
	r := newRig(t)
	r.serve(done)
	_, stop := r.host("h1")
	r.plan("p0", 3, 0)
	r.caughtUp()
	stop()
	for i := range more {
		r.append(ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "src"},
			&pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: fmt.Sprint("k", i),
				Value: []byte("1")}}})
	}
	return r
}

// losesMessage lets the server lose the message at a sequence: one bit of it is flipped.
func (r *rig) losesMessage(sequence uint64) {
	r.t.Helper()
	store, err := jetstream.Inspect(r.t.Context(), r.conn, "t")
	if err != nil || !store.There {
		r.t.Fatal(err)
	}
	var subject string
	var data []byte
	err = jetstream.Salvage(r.t.Context(), r.conn, "t", sequence, sequence, func(m ledger.Message) error {
		subject, data = m.Subject, m.Data
		return nil
	})
	if err != nil || len(data) == 0 {
		r.t.Fatalf("no message %d of %s: %v", sequence, subject, err)
	}
	r.stopServer()
	block := r.blocks()[0]
	b, err := os.ReadFile(block)
	if err != nil {
		r.t.Fatal(err)
	}
	at := strings.LastIndex(string(b), string(data))
	if at < 0 {
		r.t.Fatal("the message is not in the block")
	}
	b[at+len(data)/2] ^= 1
	if err := os.WriteFile(block, b, 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.startServer()
	r.serve(done)
}

func TestARepairKeepsWhatFollowsTheTilesAndListsWhatIsLost(t *testing.T) {
	t.Parallel()
	r := damaged(t, 10)
	inspect := func() jetstream.Inspected {
		now, err := jetstream.Inspect(t.Context(), r.conn, "t")
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	before := inspect()
	folded := before.Head.Last - 10
	r.losesMessage(folded + 4) // k3: k0..k2 follow without a gap
	r.host("h1")
	r.halted("G1")
	var dry api.RepairAnswer
	look := api.RepairQuery{DryRun: true, Reason: "look", Actor: "tester"}
	if err := r.administer("ledger.repair", look, &dry); err != nil {
		t.Fatal(err)
	}
	if now := inspect(); now.Head.CreatedNs == 0 || dry.Through == 0 || !dry.DryRun {
		t.Fatalf("%+v, the stream is %+v", dry, now)
	}
	r.halted("G1")
	answer := r.repair()
	t.Logf("%+v", answer)
	if answer.Lost != dry.Lost || answer.Carried != dry.Carried || answer.Through != dry.Through {
		t.Fatalf("a dry run said %+v", dry)
	}
	if answer.Through < folded || answer.Tiles < folded || answer.Tiles > answer.Through {
		t.Fatalf("folded up to %d: %+v", folded, answer)
	}
	r.caughtUp()
	if s := r.status(); s.Copy == nil || len(s.Copy.Repairs) != 1 || s.Copy.Repairs[0].Actor != "tester" ||
		s.Copy.Repairs[0].Lost != answer.Lost {
		t.Fatalf("%+v", s.Copy)
	}
	present := 0
	for i := range 10 {
		var fact api.FactAnswer
		if err := r.ask("fact.get", api.FactQuery{Key: fmt.Sprint("k", i)}, &fact); err == nil {
			present++
		}
	}
	lost := 0
	for at := folded + 1; at <= before.Head.Last; at++ {
		if named(answer.Lost, at) {
			lost++
		}
	}
	if lost == 0 || present+lost != 10 {
		t.Fatalf("%d facts are there, %d are listed as lost: %+v", present, lost, answer)
	}
	if kept, err := os.Stat(answer.Kept); err != nil || !kept.IsDir() {
		t.Fatalf("the old stream's files are not kept: %v", err)
	}
	r.fail("p0")
	if got := r.ended("p0"); got.State != ledger.StateCompensated {
		t.Fatalf("%+v", got)
	}
	r.wantOrder("a3", "a2", "a1")
}

// named reports whether a list of ranges has a sequence.
func named(ranges string, sequence uint64) bool {
	for part := range strings.SplitSeq(ranges, ", ") {
		from, to, wide := strings.Cut(part, "-")
		if !wide {
			to = from
		}
		a, _ := strconv.ParseUint(from, 10, 64)
		b, _ := strconv.ParseUint(to, 10, 64)
		if a <= sequence && sequence <= b {
			return true
		}
	}
	return false
}

func TestAStreamThatWasMadeAnewIsRepairedFromTheTiles(t *testing.T) {
	t.Parallel()
	for _, state := range []bool{true, false} {
		r := damaged(t, 0)
		r.deleteStream(jetstream.StreamName("t"))
		want := "G2"
		if !state {
			want = "G3" // only the tiles know
			if err := os.RemoveAll(filepath.Join(r.dir, "h1", "state")); err != nil {
				t.Fatal(err)
			}
		}
		_, stop := r.host("h1")
		r.halted(want)
		// on the stream that the host has made: another history
		r.append(ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "src"},
			&pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: "other", Value: []byte("1")}}})
		stop()
		r.host("h1") // halted over a restart
		r.halted(want)
		answer := r.repair()
		if answer.Dropped != "1" || answer.File == "" || answer.Lost != "none" || answer.Carried != "none" {
			t.Fatalf("%+v", answer)
		}
		lines, err := os.ReadFile(answer.File)
		if err != nil || !strings.Contains(string(lines), "saga.t.fact.src") {
			t.Fatalf("%s, %v", lines, err)
		}
		r.fail("p0")
		if got := r.ended("p0"); got.State != ledger.StateCompensated {
			t.Fatalf("%+v", got)
		}
		r.wantOrder("a3", "a2", "a1")
	}
}

// A repair that dies between any two of its steps is carried out by the next start.
func TestARepairThatIsCutOffAnywhereGoesOn(t *testing.T) {
	t.Parallel()
	for step := range 6 {
		r := damaged(t, 6)
		before, err := jetstream.Inspect(t.Context(), r.conn, "t")
		if err != nil {
			t.Fatal(err)
		}
		r.losesMessage(before.Head.Last - 2) // two are carried
		h, stop := r.host("h1")
		r.halted("G1")
		stop()
		a := newActor(h, "t") // what the host would do, step by step
		db, err := store.Open(filepath.Join(r.dir, "h1", "state"), h.log, nil)
		if err != nil {
			t.Fatal(err)
		}
		a.kv = store.NewKV(db, "t")
		if a.tiles, err = tiles.Open(h.tilesRoot(), "t", h.log, nil); err != nil {
			t.Fatal(err)
		}
		plan := repair.Plan{Problem: "a flipped bit", Reason: "a test", Actor: "tester"}
		if err := repair.New(a.repairs(), a.tiles).Plan(t.Context(), &plan, false); err != nil {
			t.Fatal(err)
		}
		if ledger.FormatRanges(plan.Carried) == "none" {
			t.Logf("the server has lost more than the message: %+v", plan)
		}
		if err := repair.New(a.repairs(), a.tiles).Write(plan); err != nil {
			t.Fatal(err)
		}
		a.stepsOfRepair(t, plan, step)
		if err := errors.Join(a.tiles.Close(), db.Close()); err != nil {
			t.Fatal(err)
		}
		r.host("h1")
		r.caughtUp()
		if s := r.status(); len(s.Copy.Repairs) != 1 || s.Copy.Repairs[0].Through != plan.Through {
			t.Fatalf("step %d: %+v", step, s.Copy)
		}
		r.fail("p0")
		if got := r.ended("p0"); got.State != ledger.StateCompensated {
			t.Fatalf("step %d: %+v", step, got)
		}
		r.wantOrder("a3", "a2", "a1")
		if left, err := filepath.Glob(filepath.Join(h.tilesRoot(), "t", repair.PlanName)); err != nil || len(left) != 0 {
			t.Fatalf("step %d: the plan is still there", step)
		}
	}
}

// stepsOfRepair does the first steps behind the plan.
func (a *actor) stepsOfRepair(t *testing.T, plan repair.Plan, steps int) {
	t.Helper()
	replacement, err := jetstream.Replace(a.host.ledgerConfig("t"))
	if err != nil {
		t.Fatal(err)
	}
	var made jetstream.Inspected
	var messages []ledger.Message
	for i, step := range []func() error{
		func() error { return replacement.Delete(t.Context(), plan.OldCreatedNs) },
		func() (err error) {
			if made, err = replacement.Create(t.Context(), plan.Through+1); err == nil {
				messages, err = repair.New(a.repairs(), a.tiles).Messages(plan, made.Head.CreatedNs)
			}
			return err
		},
		func() error { return replacement.Put(t.Context(), messages[0], plan.Through) },
		func() error {
			if len(messages) == 1 {
				return nil
			}
			return replacement.Put(t.Context(), messages[1], plan.Through+1)
		},
		func() error {
			for i := 2; i < len(messages); i++ {
				if err := replacement.Put(t.Context(), messages[i], plan.Through+uint64(i)); err != nil {
					return err
				}
			}
			return replacement.Finish(t.Context(), plan.Through+1)
		},
	} {
		if i < steps {
			err := step()
			for tries := 0; err != nil && tries < 50; tries++ { // the server may still be deleting the old one
				if pause.For(t.Context(), retryDelayMin) {
					err = step()
				}
			}
			if err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
		}
	}
}

func TestATenantThatIsNotHaltedIsNotRepaired(t *testing.T) {
	t.Parallel()
	r := damaged(t, 1)
	r.host("h1")
	r.caughtUp()
	err := r.administer("ledger.repair", api.RepairQuery{Reason: "a test", Actor: "tester"}, &api.RepairAnswer{})
	if !strings.Contains(says(err), "not halted") {
		t.Fatal(err)
	}
	if err := filepath.WalkDir(filepath.Join(r.dir, "h1", "tiles"), func(path string, _ fs.DirEntry, err error) error {
		if strings.Contains(path, "repair") {
			t.Errorf("it has left %s", path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
