//go:build exercise && linux

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/demo"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// damage is one way to break the folded state of a stopped server.
type damage struct {
	name string
	do   func(t *testing.T, dice *rand.Rand, state string, others otherStates)
}

// otherStates are folders of other states: an older one of the same ledger, and one
// of another ledger.
type otherStates struct{ yesterday, foreign string }

var damages = []damage{
	{"bit in a table",
		func(t *testing.T, dice *rand.Rand, state string, _ otherStates) { flipOneOf(t, dice, state, "*.sst") }},
	{"bit in a log",
		func(t *testing.T, dice *rand.Rand, state string, _ otherStates) { flipOneOf(t, dice, state, "*.log") }},
	{"bit in the manifest", func(t *testing.T, dice *rand.Rand, state string, _ otherStates) {
		flipOneOf(t, dice, state, "MANIFEST-*")
	}},
	{"bit in the options", func(t *testing.T, dice *rand.Rand, state string, _ otherStates) {
		flipOneOf(t, dice, state, "OPTIONS-*")
	}},
	{"file deleted", func(t *testing.T, dice *rand.Rand, state string, _ otherStates) {
		names := filesOf(t, state, "*")
		if err := os.Remove(names[dice.IntN(len(names))]); err != nil {
			t.Fatal(err)
		}
	}},
	{"all deleted", func(t *testing.T, _ *rand.Rand, state string, _ otherStates) { replaceFolder(t, state, "") }},
	{"yesterday's",
		func(t *testing.T, _ *rand.Rand, state string, o otherStates) { replaceFolder(t, state, o.yesterday) }},
	{"of another ledger",
		func(t *testing.T, _ *rand.Rand, state string, o otherStates) { replaceFolder(t, state, o.foreign) }},
}

// filesOf are files of a folder by pattern; all of them where none matches.
func filesOf(t *testing.T, dir, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err == nil && len(names) == 0 {
		names, err = filepath.Glob(filepath.Join(dir, "*"))
	}
	if err != nil || len(names) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	return names
}

func flipOneOf(t *testing.T, dice *rand.Rand, dir, pattern string) {
	t.Helper()
	names := filesOf(t, dir, pattern)
	for _, i := range dice.Perm(len(names)) {
		if size := fileSize(t, names[i]); size > 0 {
			flipBit(t, names[i], dice.Int64N(size), dice.IntN(8))
			return
		}
	}
}

// replaceFolder puts a copy of another folder in the place of one; none: it is gone.
func replaceFolder(t *testing.T, dir, by string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if by != "" {
		copyFolder(t, by, dir)
	}
}

// strikeState kills the server and breaks its folded state.
func strikeState(r *rig) {
	r.die()
	state := filepath.Join(r.disk.data(), "executor", "state")
	if r.yesterday == "" {
		r.yesterday = filepath.Join(r.t.TempDir(), "yesterday")
		copyFolder(r.t, state, r.yesterday)
	}
	d := damages[r.dice.IntN(len(damages)-1)] // another ledger's would halt it
	had := namesOf(filesOf(r.t, state, "*"))
	d.do(r.t, r.dice, state, otherStates{yesterday: r.yesterday})
	left, _ := filepath.Glob(filepath.Join(state, "*")) // the pattern is good
	r.rotten = r.rotten || d.name == "bit in a table"
	r.struck = fmt.Sprintf("%s: %v, had %v", d.name, namesOf(left), had)
	r.again()
	r.tally.damages[d.name]++
}

func namesOf(files []string) (names []string) {
	for _, file := range files {
		names = append(names, filepath.Base(file))
	}
	return names
}

// What becomes of a damaged state.
const (
	stateEqual  = "equal to the fold"
	stateHalted = "halted; equal once it was deleted"
	stateEnded  = "found corrupt at work: the server ended, the next one is equal to the fold"
)

// The folded state of a stopped server is damaged: bits flipped, files deleted, an
// older one or that of another ledger put in its place. The next server notices, or
// it made no difference: what it answers and what it leaves is the fold of the
// ledger, or it does nothing and says why.
func TestADamagedStateIsFoldedAgain(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), torturePace+time.Duration(tortureCycles(t, 1))*20*time.Second)
	defer cancel()
	const listen = "127.78.5.11:0"
	_, foreign := restarted(t, ctx, "127.78.5.12:0")
	dir, reference := restarted(t, ctx, listen)
	counts := map[string]int{}
	dice := rand.New(rand.NewPCG(seedOrdinary, 0))
	for n := range tortureCycles(t, testenv.Cases(1, 2)*len(damages)) {
		d := damages[n%len(damages)]
		trial := filepath.Join(t.TempDir(), "data")
		copyFolder(t, dir, trial)
		d.do(t, dice, filepath.Join(trial, "executor", "state"), otherStates{
			yesterday: filepath.Join(reference.yesterday, "executor", "state"),
			foreign:   filepath.Join(foreign.dir, "executor", "state"),
		})
		counts[d.name+": "+judgeState(t, ctx, trial, listen, reference.messages)]++
		if err := os.RemoveAll(trial); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Fatalf("at damage %d: %s", n, d.name)
		}
	}
	for what, n := range counts {
		t.Logf("%4d  %s", n, what)
	}
}

// reference is a stopped server's folder, what its ledger has, and a copy of the
// folder from earlier.
type reference struct {
	dir, yesterday string
	messages       []ledger.Message
}

// restarted makes a folder whose state was opened again, so that it has tables as
// well as a log.
func restarted(t *testing.T, ctx context.Context, listen string) (dir string, r reference) {
	t.Helper()
	r.dir, _ = referenceLedger(t, ctx, listen, 0, true)
	r.yesterday = filepath.Join(t.TempDir(), "yesterday")
	copyFolder(t, r.dir, r.yesterday)
	s := cmdtest.ServeFor(t, r.dir, "--listen", listen)
	cmdtest.OpenPlan(t, cmdtest.Dial(t, s.URL), tortureTenant, "later")
	c := tortureClient(t, s)
	awaitFolded(t, ctx, s)
	r.messages = stored(t, ctx, c)
	s.End(t).Wants(t, "serve", cli.ExitGood)
	return r.dir, r
}

// judgeState starts a server on a damaged state and says what became of it.
func judgeState(t *testing.T, ctx context.Context, dir, listen string, before []ledger.Message) (verdict string) {
	t.Helper()
	verdict = stateEqual
	s, ready := launch(t, launching{dir: dir, listen: listen})
	if !ready && foundCorrupt(s) {
		s, ready = launch(t, launching{dir: dir, listen: listen})
		verdict = stateEnded
	}
	if !ready {
		t.Fatalf("serve ended with %d on a damaged state: %s", s.Command.ProcessState.ExitCode(), s.Stderr)
	}
	calls, stop := countUndos(t, s)
	status := awaitFolded(t, ctx, s)
	if status.Mode == api.ModeHalted {
		if n := calls.Load(); n != 0 {
			t.Errorf("%d undos by a tenant that is halted", n)
		}
		stop()
		s.KillGroup(t)
		forget(t, dir)
		s, verdict = cmdtest.ServeFor(t, dir, "--listen", listen), stateHalted
		_, stop = countUndos(t, s)
	}
	if awaitUndone(t, ctx, s, before); s.Ended() {
		// Whoever supervises it starts it again.
		_ = s.Command.Wait() // it says with which code
		if !foundCorrupt(s) {
			t.Errorf("serve ended with %d by itself: %s", s.Command.ProcessState.ExitCode(), s.Stderr)
		}
		stop()
		s, verdict = cmdtest.ServeFor(t, dir, "--listen", listen), stateEnded
		_, stop = countUndos(t, s)
		if awaitUndone(t, ctx, s, before); s.Ended() {
			t.Fatalf("serve ended again: %s", s.Stderr)
		}
	}
	defer stop()
	c := tortureClient(t, s)
	after := stored(t, ctx, c)
	sameMessages(t, "a damaged state", before, after)
	if r := s.End(t); r.Code != cli.ExitGood {
		t.Errorf("serve ended with %d: %s", r.Code, r.Stderr)
	}
	checkDigest(t, s, refold(t, after), after)
	return verdict
}

// awaitUndone waits until the server has folded all, what waited for a worker is
// undone, and it says of every plan what the fold says, or until it has ended.
func awaitUndone(t *testing.T, ctx context.Context, s *cmdtest.Served, before []ledger.Message) {
	t.Helper()
	awaitStatus(t, ctx, s, func(status api.Status) bool {
		return status.Mode == api.ModeHolding && status.Applied == status.Last && status.InFlight == 0 &&
			status.Unwinding == 0
	})
	conn := reach(t, s)
	if conn == nil {
		return
	}
	c := clientOn(conn, s)
	defer c.Close()
	f := refold(t, before)
	for id := range plansOf(f.actions) {
		want, _ := f.reader.Plan(id)
		have, err := c.Plan(ctx, id, 0)
		for late := time.Now().Add(testenv.Patience); err != nil && !s.Ended() && time.Now().Before(late); {
			<-time.After(demo.AgainPause) // it may be about to end
			have, err = c.Plan(ctx, id, 0)
		}
		if s.Ended() {
			return
		}
		if want.State == ledger.StateUnwinding {
			want.State, want.Held, want.Compensated = ledger.StateCompensated, 0, want.ActionCount
		}
		if err != nil || have.State != want.State || have.Held != want.Held || have.Compensated != want.Compensated {
			t.Errorf("plan %s: the server says %s, %d held (%v), the fold %s, %d", id, have.State, have.Held, err,
				want.State, want.Held)
		}
	}
}

// awaitFolded waits until the executor has folded all, or has halted, or is no more.
func awaitFolded(t *testing.T, ctx context.Context, s *cmdtest.Served) api.Status {
	t.Helper()
	return awaitStatus(t, ctx, s, func(status api.Status) bool {
		return status.Mode == api.ModeHalted || status.Mode == api.ModeHolding &&
			status.Applied == status.Last
	})
}

func awaitStatus(t *testing.T, ctx context.Context, s *cmdtest.Served,
	is func(api.Status) bool) (status api.Status) {
	t.Helper()
	conn := reach(t, s)
	if conn == nil {
		return status
	}
	c := clientOn(conn, s)
	defer c.Close()
	cmdtest.Until(t, ctx, "the executor is where it has to be", func() bool {
		if s.Ended() {
			return true
		}
		asking, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		var err error
		status, err = c.Status(asking)
		return err == nil && is(status)
	})
	return status
}
