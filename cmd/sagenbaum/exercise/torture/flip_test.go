//go:build exercise && linux

package torture

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// What becomes of a flipped bit of the ledger.
const (
	flipHalted   = "halted before any dispatch, and repaired"
	flipHarmless = "harmless: every record reads as before"
	flipLatent   = "folded before; the scrub halts, and repaired"
	flipTail     = "in what no host had folded: nobody has a second copy of it"
	flipMemory   = "the server runs out of memory; without the block it halts, and repaired"
	flipSilent   = "SILENT"
)

// memoryMost is what a server of a trial may take. A flipped bit in the upper half of
// a sequence has JetStream fill in a gap of up to 2^61 records, in memory, when it
// reads the block of a server that was stopped cleanly.
const memoryMost = "ulimit -d 1048576 && exec \"$@\"" // KiB

// flipTrial is a server on a copy of a folder, with one bit of its ledger flipped.
type flipTrial struct {
	dir    string           // the copy
	listen string           // where its server may listen
	before []ledger.Message // what the ledger had
	folded uint64           // the last of them that was folded, so that it is in the tiles
	block  string           // the flipped file, in dir
	at     int64            // the flipped byte
}

func (f flipTrial) String() string { return fmt.Sprintf("%s at %d", filepath.Base(f.block), f.at) }

// blocksOf are the files of a folder's ledger that hold records.
func blocksOf(t *testing.T, dir string) []string {
	t.Helper()
	blocks, err := filepath.Glob(filepath.Join(dir, "nats", "jetstream", "$G", "streams", "SAGA_"+tortureTenant, "msgs",
		"*.blk"))
	if err != nil || len(blocks) == 0 {
		t.Fatalf("no blocks in %s: %v", dir, err)
	}
	return blocks
}

// flipBit turns one bit of a file over.
func flipBit(t *testing.T, name string, at int64, bit int) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var b [1]byte
	if _, err := file.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1 << bit
	if _, err := file.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

func fileSize(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// copyFolder makes a copy, with everything that is in it.
func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v %s", err, out)
	}
}

// judge starts a server on the trial's folder, says what becomes of the bit, has the
// ledger repaired where it is damaged, and wants everything intact then. It fails the
// test where something happened that must not.
func (f flipTrial) judge(t *testing.T, ctx context.Context) (verdict string) {
	t.Helper()
	s, ready := launch(t, launching{dir: f.dir, listen: f.listen, wrap: []string{"sh", "-c", memoryMost, "sh"}})
	defer func() { s.KillGroup(t) }()
	if !ready && outOfMemory(s) {
		return f.withoutBlock(t, ctx)
	}
	if !ready {
		t.Fatalf("%s: serve ended with %d before it was ready: %s", f, s.Command.ProcessState.ExitCode(), s.Stderr)
	}
	c := tortureClient(t, s)
	defer c.Close()
	undone, stop := noteUndos(t, s)
	defer stop()
	var status api.Status
	cmdtest.Until(t, ctx, "the executor holds or has halted", func() bool {
		var err error
		status, err = c.Status(ctx)
		return s.Ended() || err == nil &&
			(status.Mode == api.ModeHalted || status.Mode == api.ModeHolding && status.Applied == status.Last)
	})
	if s.Ended() {
		_ = s.Command.Wait() // it says with which code
		if things := undone.sorted(); !outOfMemory(s) || len(things) != 0 {
			t.Fatalf("%s: serve ended with %d by itself, %v were undone: %s", f, s.Command.ProcessState.ExitCode(),
				things, s.Stderr)
		}
		return f.withoutBlock(t, ctx)
	}
	if status.Mode == api.ModeHalted {
		verdict = flipHalted
		if things := undone.sorted(); len(things) != 0 {
			t.Errorf("%s: undone by a tenant that is halted: %v", f, things)
		}
	} else {
		verdict = f.compare(t, ctx, c)
		f.scrub(t, s, &verdict)
	}
	switch verdict {
	case flipHalted, flipLatent:
		doctor := s.Ask(t, tortureTenant, "doctor")
		if doctor.Code != cli.ExitLook || !strings.Contains(doctor.Stdout, "ledger repair --dry-run") {
			t.Errorf("%s: halted, and the doctor ends with %d and says\n%s", f, doctor.Code, doctor.Stdout)
		}
		f.repaired(t, ctx, s, c, undone)
	case flipSilent:
		s.KillGroup(t)
		t.Errorf("%s: the ledger of %d, folded up to %d, is another one, and nobody says so:\n%s", f, len(f.before),
			f.folded, s.Stderr)
	}
	return verdict
}

// outOfMemory reports whether a server has ended because it got no more memory, be it for the stack
// of a thread.
func outOfMemory(s *cmdtest.Served) bool {
	text := s.Stderr.String()
	return s.Command.ProcessState.ExitCode() == cli.ExitFailed && slices.ContainsFunc(
		[]string{"out of memory", "cannot allocate memory", "pthread_create failed"},
		func(said string) bool { return strings.Contains(text, said) })
}

// withoutBlock does what the guide says of a block that no server can read: it is put
// away, and the ledger is repaired.
func (f flipTrial) withoutBlock(t *testing.T, ctx context.Context) string {
	t.Helper()
	if err := os.Rename(f.block, filepath.Join(f.dir, "put-away")); err != nil {
		t.Fatal(err)
	}
	if verdict := f.judge(t, ctx); verdict != flipHalted && verdict != flipLatent {
		t.Errorf("%s: put away, and %s", f, verdict)
	}
	return flipMemory
}

// compare reads the ledger as it is now beside what it was.
func (f flipTrial) compare(t *testing.T, ctx context.Context, c *cli.Client) string {
	t.Helper()
	store, err := c.Store(ctx)
	if err != nil {
		t.Fatal(err)
	}
	head, err := store.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	reading, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	same := 0
	for m, err := range store.Read(reading, 1) {
		if err != nil {
			var halted *ledger.Halted
			if errors.As(err, &halted) || reading.Err() != nil {
				return flipLatent
			}
			t.Fatal(err)
		}
		want := f.before[same]
		if m.Sequence != want.Sequence || m.StampNs != want.StampNs || m.Subject != want.Subject ||
			string(m.Data) != string(want.Data) {
			break
		}
		if same++; same == len(f.before) {
			return flipHarmless
		}
		if m.Sequence == head.Last {
			break
		}
	}
	if same >= int(f.folded) {
		return flipTail
	}
	return flipSilent
}

// scrub has the ledger held against the tiles. It must find what was folded before
// and is another record now, and nothing else.
func (f flipTrial) scrub(t *testing.T, s *cmdtest.Served, verdict *string) {
	t.Helper()
	answer := s.Ask(t, tortureTenant, "ledger", "scrub")
	switch {
	case answer.Code == cli.ExitLook && *verdict == flipSilent:
		*verdict = flipLatent
	case answer.Code == cli.ExitLook && *verdict != flipLatent, answer.Code == cli.ExitGood && *verdict == flipLatent,
		answer.Code != cli.ExitLook && answer.Code != cli.ExitGood:
		t.Errorf("%s: %q, and the scrub ends with %d and says\n%s%s", f, *verdict, answer.Code, answer.Stdout,
			answer.Stderr)
	}
}

// repaired has a halted ledger repaired from the tiles. Then nothing that was folded
// is lost; every plan is as it was or undone as it has to be; and state, tiles and
// stream are one fold of what the ledger had and of what came behind.
func (f flipTrial) repaired(t *testing.T, ctx context.Context, s *cmdtest.Served, c *cli.Client, undone *undoNotes) {
	t.Helper()
	done := s.Ask(t, tortureTenant, "ledger", "repair", "--reason", "a flipped bit", "-o", "json")
	if done.Code != cli.ExitGood && done.Code != cli.ExitLook {
		s.KillGroup(t)
		t.Fatalf("%s: repair ended with %d: %s\nthe server said:\n%s", f, done.Code, done.Stderr, s.Stderr)
	}
	answer := cmdtest.Decoded[api.RepairAnswer](t, done)
	// What the flip has made of its own record is kept in the file, as one of another history.
	whole := answer.Lost == "none" && answer.Carried == "none" && !strings.ContainsAny(answer.Dropped, ",-")
	if answer.Through < f.folded || !whole && f.folded == uint64(len(f.before)) {
		t.Errorf("%s: the tiles have all that was folded, up to %d, and the repair says %s", f, f.folded, done.Stdout)
		return
	}
	kept := f.before[:min(int(answer.Through), len(f.before))]
	was := refold(t, kept)
	settled(t, ctx, c)
	for id := range plansOf(was.actions) {
		if plan, _ := was.reader.Plan(id); strings.HasSuffix(id, forgotten) && plan.State == ledger.StateOpen {
			cmdtest.Until(t, ctx, "the deadline of "+id, func() bool {
				plan, err := c.Plan(ctx, id, 0)
				return err == nil && hasEnded(plan.State)
			})
		}
	}
	settled(t, ctx, c)
	s.Ask(t, tortureTenant, "ledger", "scrub").Wants(t, "ledger scrub behind a repair", cli.ExitGood)
	s.Ask(t, tortureTenant, "rebuild", "--check").Wants(t, "rebuild --check behind a repair", cli.ExitGood)
	behind := storedFrom(t, ctx, c) // the last thing: a checkpoint may be signed at any moment
	s.End(t).Wants(t, "serve", cli.ExitGood)
	if answer.Through > uint64(len(kept)) {
		return // it kept records of a session behind those that are known here
	}
	messages := slices.Concat(kept, behind)
	now := refold(t, messages)
	checkDigest(t, s, now, messages)
	f.checkPlans(t, was, now, undone.sorted())
}

// checkPlans wants each plan as it was before the flip, or undone as it had to be.
func (f flipTrial) checkPlans(t *testing.T, was, now refolded, undone []string) {
	t.Helper()
	for id := range plansOf(was.actions) {
		before, _ := was.reader.Plan(id)
		after, _ := now.reader.Plan(id)
		want := before.State
		if want == ledger.StateUnwinding || want == ledger.StateOpen && strings.HasSuffix(id, forgotten) {
			want = ledger.StateCompensated
		}
		if want == ledger.StateOpen && now.ends[id] && hasEnded(after.State) {
			// its agent had ended it, and the executor had not yet taken that up; or its end was carried
			want = after.State
		}
		if after.State != want || after.ActionCount < before.ActionCount || want == ledger.StateCompensated &&
			after.Held != 0 {
			t.Errorf("%s, repaired: plan %s was %s with %d actions and is %s with %d, %d held", f, id, before.State,
				before.ActionCount, after.State, after.ActionCount, after.Held)
		}
	}
	for _, thing := range undone {
		if now.succeeded[thing] == 0 && now.succeeded[thing+lateDuty] == 0 {
			t.Errorf("%s, repaired: %s was undone, and the ledger does not say so", f, thing)
		}
	}
	for action := range now.actions {
		if n := now.succeeded[action]; n > 1 {
			t.Errorf("%s, repaired: %s has %d effective successes", f, action, n)
		}
	}
}

// storedFrom reads the whole stream, wherever it begins.
func storedFrom(t *testing.T, ctx context.Context, c *cli.Client) (messages []ledger.Message) {
	t.Helper()
	store, err := c.Store(ctx)
	if err != nil {
		t.Fatal(err)
	}
	head, err := store.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for m, err := range store.Read(ctx, head.First) {
		if err != nil {
			t.Fatal(err)
		}
		if messages = append(messages, m); m.Sequence == head.Last {
			break
		}
	}
	return messages
}

// undoNotes are the things whose undo a worker on the side was asked for.
type undoNotes struct {
	mu     sync.Mutex
	things map[string]bool
}

func (n *undoNotes) sorted() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.things))
}

// noteUndos serves undos on the side and notes of what.
func noteUndos(t *testing.T, s *cmdtest.Served) (undone *undoNotes, stop func()) {
	t.Helper()
	undone = &undoNotes{things: map[string]bool{}}
	return undone, unmakeAside(t, s, func(thing string) {
		undone.mu.Lock()
		defer undone.mu.Unlock()
		undone.things[thing] = true
	})
}

// countUndos serves undos on the side and counts them.
func countUndos(t *testing.T, s *cmdtest.Served) (calls *atomic.Int64, stop func()) {
	t.Helper()
	calls = new(atomic.Int64)
	return calls, unmakeAside(t, s, func(string) { calls.Add(1) })
}

func unmakeAside(t *testing.T, s *cmdtest.Served, note func(thing string)) (stop func()) {
	t.Helper()
	conn := reach(t, s)
	if conn == nil {
		return func() {}
	}
	w, err := worker.New(worker.Config{Conn: conn, Tenant: tortureTenant, Name: "counter"})
	if err == nil {
		err = w.Handle(unmakeThing, func(_ context.Context, c api.Command) (worker.Result, error) {
			var arguments struct{ Thing string }
			err := json.Unmarshal(c.Arguments, &arguments)
			note(arguments.Thing)
			return worker.Result{}, err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return conn.Close
}

// strikeFlip kills the server, and tries on a copy of what it leaves what becomes
// of a flipped bit. The server goes on without it.
func strikeFlip(r *rig) {
	r.s.KillGroup(r.t)
	r.autopsy()
	copied := filepath.Join(r.t.TempDir(), "copy")
	copyFolder(r.t, r.disk.data(), copied)
	r.again()
	// The copy ends somewhere behind what was followed; what it has is read from it.
	before := readFolder(r.t, r.ctx, copied+"-read", copied)
	folded, _, err := readState(filepath.Join(copied, "executor", "state"))
	if err != nil {
		folded = 0          // an earlier crash has damaged the state: what the tiles have is not known here,
		forget(r.t, copied) // and the trial is of the ledger
	}
	blocks := blocksOf(r.t, copied)
	block := blocks[r.dice.IntN(len(blocks))]
	f := flipTrial{dir: copied, listen: "127.78.4.3:0", before: before, folded: folded, block: block,
		at: r.dice.Int64N(fileSize(r.t, block))}
	flipBit(r.t, block, f.at, r.dice.IntN(8))
	if r.dice.IntN(2) == 0 {
		forget(r.t, copied)
	}
	r.tally.flips[f.judge(r.t, r.ctx)]++
	r.started = time.Time{}
}

// readFolder reads the ledger of a folder: with nothing but a NATS server on a copy of
// its streams, which appends nothing.
func readFolder(t *testing.T, ctx context.Context, scratch, dir string) []ledger.Message {
	t.Helper()
	copyFolder(t, filepath.Join(dir, "nats"), scratch)
	defer os.RemoveAll(scratch)
	server, err := embedded.Start(embedded.Config{Dir: scratch, Port: -1, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	c := &cli.Client{Conn: cmdtest.Dial(t, server.URL()), Tenant: tortureTenant, Server: server.URL(),
		Timeout: 5 * time.Second}
	defer c.Close()
	return stored(t, ctx, c)
}

// forget deletes the folded state of a stopped server. The tiles stay: they are the
// second copy.
func forget(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, "executor", "state")); err != nil {
		t.Fatal(err)
	}
}

// referenceLedger plays agents and leaves a stopped server's folder: ended and open
// plans, records large enough for a second block, and a plan whose undo waits for a
// worker that a trial may be. killed: the server did not end, it was killed.
func referenceLedger(t *testing.T, ctx context.Context, listen string, large int, killed bool) (dir string,
	messages []ledger.Message) {
	t.Helper()
	dir = cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, dir, "--listen", listen)
	l := startLoad(t, ctx, s, false)
	l.await(t, ctx, 2*acksMin)
	close(l.stop)
	l.running.Wait()
	c := tortureClient(t, s)
	settled(t, ctx, c)
	if err := l.maker.Close(ctx); err != nil {
		t.Error(err)
	}
	appendLarge(t, ctx, s, large)
	waiting, err := l.agent.Begin(ctx, coordinator.PlanSpec{ID: "waiting", Owner: "owner1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := waiting.Report(ctx,
		coordinator.Action{ID: "a0", Capability: makeThing, Input: map[string]string{"thing": "waiting/a0"}},
		coordinator.Outcome{}); err != nil {
		t.Fatal(err)
	}
	if err := waiting.Fail(ctx, "sold out"); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, ctx, "an undo waits for its worker", func() bool {
		status, err := c.Status(ctx)
		return err == nil && status.InFlight == 1 && status.Applied == status.Last
	})
	if err := l.agent.Close(ctx); err != nil {
		t.Error(err)
	}
	messages = stored(t, ctx, c)
	if killed {
		s.Kill9(t)
	} else {
		s.End(t).Wants(t, "serve", cli.ExitGood)
	}
	return dir, messages
}

// appendLarge appends records of 30 KiB.
func appendLarge(t *testing.T, ctx context.Context, s *cmdtest.Served, large int) {
	t.Helper()
	agent, err := tortureAgent(cmdtest.Dial(t, s.URL))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := agent.Begin(ctx, coordinator.PlanSpec{ID: "large", Owner: "owner1"})
	if err != nil {
		t.Fatal(err)
	}
	for n := range large {
		input, err := json.Marshal(map[string]string{"thing": fmt.Sprint("large/", n),
			"text": strings.Repeat("x", 30<<10)})
		if err != nil {
			t.Fatal(err)
		}
		if err := plan.Report(ctx,
			coordinator.Action{ID: fmt.Sprint("a", n), Capability: makeThing, Input: json.RawMessage(input)},
			coordinator.Outcome{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := agent.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// One bit of the ledger's blocks is flipped while the server is stopped: in an
// ordinary run at each fifth of each block, in a long one at each hundredth. The
// next server halts before it dispatches anything, or nothing is different; where it
// has its folded state and needs the record no more, a scrub finds it. From the tiles
// the ledger is repaired, and every plan is what it was.
func TestAFlippedBitOfTheLedgerIsNeverSkipped(t *testing.T) {
	t.Parallel()
	for n, how := range []struct {
		name           string
		killed, forget bool
	}{{"ended", false, false}, {"killed", true, false}, {"ended, state deleted", false, true},
		{"killed, state deleted", true, true}} {
		t.Run(strings.ReplaceAll(how.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			parts, large := testenv.Cases(2, 5), 0
			if os.Getenv("SAGENBAUM_TORTURE") != "" {
				parts, large = 100, 320
			}
			ctx, cancel := context.WithTimeout(t.Context(), torturePace*time.Duration(1+parts/5))
			defer cancel()
			listen := fmt.Sprintf("127.78.5.%d:0", n+1)
			dir, messages := referenceLedger(t, ctx, listen, large, how.killed)
			verdicts := map[string]int{}
			dice := rand.New(rand.NewPCG(seedOrdinary, uint64(n)))
			trials := flipTrials{how.forget, dir, listen, messages, dice, verdicts}
			for b, block := range blocksOf(t, dir) {
				for part := range parts + 1 {
					at := (fileSize(t, block) - 1) * int64(part) / int64(parts)
					if upperSequence(t, block, at) {
						at += 8 // into the stamp: this one is tried below, once
					}
					trials.play(t, ctx, b, at, dice.IntN(8))
				}
				trials.play(t, ctx, b, headerLengthOf(t, block), 0)
				if how.killed || how.forget {
					trials.play(t, ctx, b, secondRecord(t, block)+4+5, 3) // a gap of 2^43
				}
			}
			for verdict, n := range verdicts {
				t.Logf("%4d  %s", n, verdict)
			}
		})
	}
}

// flipTrials are the trials on one folder.
type flipTrials struct {
	forget   bool
	dir      string
	listen   string
	messages []ledger.Message
	dice     *rand.Rand
	verdicts map[string]int
}

// play flips one bit of a block of a copy and judges it.
func (f flipTrials) play(t *testing.T, ctx context.Context, block int, at int64, bit int) {
	t.Helper()
	trial := flipTrial{dir: filepath.Join(t.TempDir(), "data"), listen: f.listen, before: f.messages,
		folded: uint64(len(f.messages)), at: at}
	copyFolder(t, f.dir, trial.dir)
	trial.block = blocksOf(t, trial.dir)[block]
	flipBit(t, trial.block, at, bit)
	if f.forget {
		forget(t, trial.dir)
	}
	verdict := trial.judge(t, ctx)
	f.verdicts[verdict]++
	if f.forget && verdict == flipLatent {
		t.Errorf("%s: a fold from nothing has passed a record that cannot be read", trial)
	}
	if err := os.RemoveAll(trial.dir); err != nil {
		t.Fatal(err)
	}
}

// recordLength is the length of the record at a place of a block: it begins with that,
// and the uppermost bit says that there is a header. The sequence follows, then the stamp.
func recordLength(text []byte, at int64) int64 {
	return int64(binary.LittleEndian.Uint32(text[at:]) &^ (1 << 31))
}

// secondRecord is where a block's second record begins.
func secondRecord(t *testing.T, block string) int64 {
	t.Helper()
	text, err := os.ReadFile(block)
	if err != nil {
		t.Fatal(err)
	}
	return recordLength(text, 0)
}

// upperSequence tells whether a place of a block is in the upper bytes of a sequence.
func upperSequence(t *testing.T, block string, place int64) bool {
	t.Helper()
	text, err := os.ReadFile(block)
	if err != nil {
		t.Fatal(err)
	}
	at := int64(0)
	for at+recordLength(text, at) <= place {
		at += recordLength(text, at)
	}
	return place-at >= 4+3 && place-at < 4+8
}

// headerLengthOf is where the length of the header of a block's second message is.
func headerLengthOf(t *testing.T, block string) int64 {
	t.Helper()
	text, err := os.ReadFile(block)
	if err != nil {
		t.Fatal(err)
	}
	const begin = "NATS/1.0\r\n"
	first := strings.Index(string(text), begin)
	second := strings.Index(string(text[first+1:]), begin)
	if first < 0 || second < 0 {
		t.Fatalf("%s has no two messages with headers", filepath.Base(block))
	}
	return int64(first + 1 + second - 4)
}
