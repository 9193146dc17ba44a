//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// What becomes of a flipped bit of the ledger.
const (
	flipRefused  = "the server does not start"
	flipHalted   = "halted before any dispatch"
	flipHarmless = "harmless: every record reads as before"
	flipLatent   = "folded before; who reads the record is told that it is gone"
	flipCutOff   = "NOT DETECTED: the ledger ends before the bit, behind all that the state had folded"
	flipChanged  = "NOT DETECTED: JetStream gives out another record, its own checksum does not cover the bit"
	flipSilent   = "SILENT"
)

// secondCopy says whether there is a copy of the ledger beside the stream that a
// start holds it against. Without one, what JetStream cuts off behind a flipped bit
// is missed by nobody who has not folded it; and the length of a record's header is
// in no checksum of JetStream's, so that a bit of it moves the border between header
// and record.
const secondCopy = false

// flipTrial is a server on a copy of a folder, with one bit of its ledger flipped.
type flipTrial struct {
	dir    string           // the copy
	listen string           // where its server may listen
	before []ledger.Message // what the ledger had
	block  string           // the flipped file, in dir
	at     int64            // the flipped byte
}

// blocksOf are the files of a folder's ledger that hold records.
func blocksOf(t *testing.T, dir string) []string {
	t.Helper()
	blocks, err := filepath.Glob(filepath.Join(dir, "nats", "jetstream", "$G", "streams", "SAGA_"+tortureTenant, "msgs", "*.blk"))
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

// judge starts a server on the trial's folder and says what becomes of the bit. It
// fails the test where something happened that must not.
func (f flipTrial) judge(t *testing.T, ctx context.Context) (verdict string) {
	t.Helper()
	cursor, _, _ := readState(filepath.Join(f.dir, "executor", "state")) // none: 0
	s, ready := launch(t, launching{dir: f.dir, listen: f.listen})
	defer s.killGroup(t)
	if !ready {
		if s.command.ProcessState.ExitCode() == exitGood {
			t.Errorf("%s at %d: the server ended as if all were well: %s", filepath.Base(f.block), f.at, s.stderr)
		}
		return flipRefused
	}
	c := tortureClient(t, s)
	defer c.close()
	calls, stop := countUndos(t, s)
	defer stop()
	var status executor.StatusView
	until(t, ctx, "the executor holds or has halted", func() bool {
		var err error
		status, err = c.status(ctx)
		return err == nil && (status.Mode == executor.ModeHalted || status.Mode == executor.ModeHolding && status.Applied == status.Last)
	})
	if status.Mode == executor.ModeHalted {
		doctor := s.ask(t, tortureTenant, "doctor")
		if doctor.code != exitLook || !strings.Contains(doctor.stdout, "halted") {
			t.Errorf("%s at %d: halted, and the doctor ends with %d and says\n%s", filepath.Base(f.block), f.at, doctor.code, doctor.stdout)
		}
		if n := calls.Load(); n != 0 {
			t.Errorf("%s at %d: %d undos by a tenant that is halted", filepath.Base(f.block), f.at, n)
		}
		return flipHalted
	}
	verdict = f.compare(t, ctx, c, int(cursor))
	if verdict == flipSilent {
		s.killGroup(t)
		t.Errorf("%s at %d: the ledger of %d is another one than the state at %d was folded from, and nobody says so:\n%s", filepath.Base(f.block), f.at, len(f.before), cursor, s.stderr)
	}
	return verdict
}

// compare reads the ledger as it is now beside what it was, and the last sequence
// that the state had folded.
func (f flipTrial) compare(t *testing.T, ctx context.Context, c *client, cursor int) string {
	t.Helper()
	store, err := c.store(ctx)
	if err != nil {
		t.Fatal(err)
	}
	head, err := store.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	reading, cancel := context.WithTimeout(ctx, 20*time.Second)
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
		if m.Sequence != want.Sequence || m.StampNs != want.StampNs || m.Subject != want.Subject || string(m.Data) != string(want.Data) {
			if m.Sequence == want.Sequence && m.StampNs == want.StampNs && !secondCopy {
				return flipChanged
			}
			break
		}
		if same++; same == len(f.before) {
			return flipHarmless
		}
		if m.Sequence == head.Last {
			break
		}
	}
	if same >= cursor && !secondCopy {
		return flipCutOff
	}
	return flipSilent
}

// countUndos serves undos on the side and counts them.
func countUndos(t *testing.T, s *served) (calls *atomic.Int64, stop func()) {
	t.Helper()
	calls = new(atomic.Int64)
	conn := dial(t, s.url)
	w, err := worker.New(worker.Config{Conn: conn, Tenant: tortureTenant, Name: "counter"})
	if err == nil {
		err = w.Handle(unmakeThing, func(context.Context, ledger.Command) (worker.Result, error) {
			calls.Add(1)
			return worker.Result{}, nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return calls, conn.Close
}

// strikeFlip kills the server, and tries on a copy of what it leaves what becomes
// of a flipped bit. The server goes on without it.
func strikeFlip(r *rig) {
	r.s.killGroup(r.t)
	r.autopsy()
	copied := filepath.Join(r.t.TempDir(), "copy")
	copyFolder(r.t, r.disk.data(), copied)
	r.again()
	// The copy ends somewhere behind what was followed; what it has is read from it.
	before := readFolder(r.t, r.ctx, copied+"-read", copied, "127.78.4.2:0")
	blocks := blocksOf(r.t, copied)
	block := blocks[r.dice.IntN(len(blocks))]
	f := flipTrial{dir: copied, listen: "127.78.4.3:0", before: before, block: block, at: r.dice.Int64N(fileSize(r.t, block))}
	flipBit(r.t, block, f.at, r.dice.IntN(8))
	if r.dice.IntN(2) == 0 {
		forget(r.t, copied)
	}
	r.tally.flips[f.judge(r.t, r.ctx)]++
	r.started = time.Time{}
}

// readFolder reads the ledger of a folder with a server on a copy of it. Its own
// term is not part of it.
func readFolder(t *testing.T, ctx context.Context, scratch, dir, listen string) []ledger.Message {
	t.Helper()
	copyFolder(t, dir, scratch)
	defer os.RemoveAll(scratch)
	marked := time.Now()
	s, ready := launch(t, launching{dir: scratch, listen: listen})
	if !ready {
		t.Fatalf("serve ended at once: %s", s.stderr)
	}
	defer s.killGroup(t)
	c := tortureClient(t, s)
	defer c.close()
	messages := stored(t, ctx, c)
	return slices.DeleteFunc(messages, func(m ledger.Message) bool { return m.StampNs > marked.UnixNano() })
}

// forget deletes the folded state of a stopped server.
func forget(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, "executor", "state")); err != nil {
		t.Fatal(err)
	}
}

// repair makes a folder whose ledger has a flipped bit whole again, from a copy of
// its block.
func repair(t *testing.T, f flipTrial, original string) {
	t.Helper()
	index := filepath.Join(filepath.Dir(f.block), "index.db")
	if err := os.Remove(index); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err) // the server looks into the blocks without it
	}
	text, err := os.ReadFile(original)
	if err == nil {
		err = os.WriteFile(f.block, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// referenceLedger plays agents and leaves a stopped server's folder: ended and open
// plans, records large enough for a second block, and a plan whose undo waits for a
// worker that a trial may be. killed: the server did not end, it was killed.
func referenceLedger(t *testing.T, ctx context.Context, listen string, large int, killed bool) (dir string, messages []ledger.Message) {
	t.Helper()
	dir = dataDir(t)
	s := serveFor(t, dir, "--listen", listen)
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
	waiting, err := l.agent.Begin(ctx, coordinator.Plan{ID: "waiting", Owner: "owner1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := waiting.Report(ctx, coordinator.Action{ID: "a0", Capability: makeThing, Input: map[string]string{"thing": "waiting/a0"}}, coordinator.Outcome{}); err != nil {
		t.Fatal(err)
	}
	if err := waiting.Fail(ctx, "sold out"); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, "an undo waits for its worker", func() bool {
		status, err := c.status(ctx)
		return err == nil && status.InFlight == 1 && status.Applied == status.Last
	})
	if err := l.agent.Close(ctx); err != nil {
		t.Error(err)
	}
	messages = stored(t, ctx, c)
	if killed {
		s.kill9(t)
	} else {
		s.end(t).wants(t, "serve", exitGood)
	}
	return dir, messages
}

// appendLarge appends records of 30 KiB.
func appendLarge(t *testing.T, ctx context.Context, s *served, large int) {
	t.Helper()
	agent, err := tortureAgent(dial(t, s.url))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := agent.Begin(ctx, coordinator.Plan{ID: "large", Owner: "owner1"})
	if err != nil {
		t.Fatal(err)
	}
	for n := range large {
		input, err := json.Marshal(map[string]string{"thing": fmt.Sprint("large/", n), "text": strings.Repeat("x", 30<<10)})
		if err != nil {
			t.Fatal(err)
		}
		if err := plan.Report(ctx, coordinator.Action{ID: fmt.Sprint("a", n), Capability: makeThing, Input: json.RawMessage(input)}, coordinator.Outcome{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := agent.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// One bit of the ledger's blocks is flipped while the server is stopped: in an
// ordinary run at each tenth of each block, in a long one at each hundredth. The
// next server says so before it dispatches anything, or nothing is different. Where
// it has its folded state and needs the record no more it may go on; whoever reads
// that record is told that it is gone.
func TestAFlippedBitOfTheLedgerIsNeverSkipped(t *testing.T) {
	for n, how := range []struct {
		name           string
		killed, forget bool
	}{{"ended", false, false}, {"killed", true, false}, {"ended, state deleted", false, true}, {"killed, state deleted", true, true}} {
		t.Run(strings.ReplaceAll(how.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			parts, large := 10, 0
			if os.Getenv("SAGENBAUM_TORTURE") != "" {
				parts, large = 100, 320
			}
			ctx, cancel := context.WithTimeout(t.Context(), torturePace*time.Duration(1+parts/10))
			defer cancel()
			listen := fmt.Sprintf("127.78.5.%d:0", n+1)
			dir, messages := referenceLedger(t, ctx, listen, large, how.killed)
			verdicts := map[string]int{}
			dice := rand.New(rand.NewPCG(seedOrdinary, uint64(n)))
			trials := flipTrials{how.forget, dir, listen, messages, dice, verdicts}
			for b, block := range blocksOf(t, dir) {
				for part := range parts + 1 {
					at := (fileSize(t, block) - 1) * int64(part) / int64(parts)
					trials.play(t, ctx, b, at, dice.IntN(8), part == parts/2)
				}
				trials.play(t, ctx, b, headerLengthOf(t, block), 0, true)
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

// play flips one bit of a block of a copy, judges it, and repairs it where asked.
func (f flipTrials) play(t *testing.T, ctx context.Context, block int, at int64, bit int, repaired bool) {
	t.Helper()
	trial := flipTrial{dir: filepath.Join(t.TempDir(), "data"), listen: f.listen, before: f.messages, at: at}
	copyFolder(t, f.dir, trial.dir)
	trial.block = blocksOf(t, trial.dir)[block]
	flipBit(t, trial.block, at, bit)
	if f.forget {
		forget(t, trial.dir)
	}
	verdict := trial.judge(t, ctx)
	f.verdicts[verdict]++
	if f.forget && verdict == flipLatent {
		t.Errorf("%s at %d: a fold from nothing has passed a record that cannot be read", filepath.Base(trial.block), at)
	}
	if repaired && (verdict == flipHalted || verdict == flipRefused) {
		repair(t, trial, blocksOf(t, f.dir)[block])
		if verdict := trial.judge(t, ctx); verdict != flipHarmless {
			t.Errorf("%s at %d, repaired: %s", filepath.Base(trial.block), at, verdict)
		}
	}
	if err := os.RemoveAll(trial.dir); err != nil {
		t.Fatal(err)
	}
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
