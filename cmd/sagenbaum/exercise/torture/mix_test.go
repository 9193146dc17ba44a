//go:build exercise && linux

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/demo"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

const (
	cyclesFew    = 100  // of the mix in a run of all tests with SAGENBAUM_LONG
	cyclesFull   = 1000 // from which on every named crash point must have been hit
	roundCycles  = 25   // after which a round ends and everything is compared
	seedOrdinary = 1
	// pauseLong is the longest pause of a long run; ordinary runs pause briefly.
	pauseLong  = 15 * time.Second
	pauseBrief = 2 * time.Second
)

// crash is one way to do the server, the worker or the agent harm under load. Its
// strike returns with everything running again.
type crash struct {
	name   string
	weight int // in the mix
	strike func(r *rig)
}

var crashes = []crash{
	{"kill", 9, strikeKill},
	{"power", 6, strikePower},
	{"syscall", 4, strikeSyscall},
	{"pebble", 3, strikeState},
	{"pause", 1, strikePause},
	{"flip", 1, strikeFlip},
	{"disk", 1, strikeDisk},
	{"clock", 1, strikeClock},
}

// tortureWish is what the environment asks the torture to do; `make torture` sets it.
type tortureWish struct {
	fs     string // ext4 or xfs
	kinds  []crash
	seed   uint64
	cycles int
	clock  *shiftedClock // nil: there is no binary with a clock of its own
}

// readWish reads SAGENBAUM_TORTURE (cycles) and its FS, CRASH and SEED.
func readWish(t *testing.T) tortureWish {
	t.Helper()
	o := tortureWish{fs: "ext4", seed: seedOrdinary, cycles: tortureCycles(t, testenv.Cases(10, cyclesFew))}
	if fs := os.Getenv("SAGENBAUM_TORTURE_FS"); fs != "" {
		o.fs = fs
	}
	if o.fs != "ext4" && o.fs != "xfs" {
		t.Fatalf("SAGENBAUM_TORTURE_FS is %q, want ext4 or xfs", o.fs)
	}
	if text := os.Getenv("SAGENBAUM_TORTURE_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SAGENBAUM_TORTURE_SEED is %q, want a number", text)
		}
		o.seed = seed
	}
	asked := os.Getenv("SAGENBAUM_TORTURE_CRASH")
	if strings.Contains(asked, "clock") || asked == "" && o.long() && os.Getenv(clockAsked) == "1" {
		o.clock = newShiftedClock(t)
	}
	var known []string
	for _, c := range crashes {
		known = append(known, c.name)
		if c.name == "clock" && o.clock == nil {
			continue
		}
		if asked == "" || slices.Contains(strings.Split(asked, ","), c.name) {
			o.kinds = append(o.kinds, c)
		}
	}
	if len(o.kinds) == 0 || asked != "" && len(o.kinds) != len(strings.Split(asked, ",")) {
		t.Fatalf("SAGENBAUM_TORTURE_CRASH is %q, want some of %s, with commas", asked, strings.Join(known, ","))
	}
	return o
}

// long reports whether this is more than a run of all tests.
func (o tortureWish) long() bool { return o.cycles > cyclesFew }

func (o tortureWish) pick(dice *rand.Rand) crash {
	all := 0
	for _, c := range o.kinds {
		all += c.weight
	}
	n := dice.IntN(all)
	for _, c := range o.kinds {
		if n -= c.weight; n < 0 {
			return c
		}
	}
	panic("the weights do not add up")
}

// The mix: under the load of eight agents, over real disks and processes, one
// crash after the other, of a kind that the seed picks. After each, nothing that
// was acknowledged is lost, nothing happened twice, and the server's state is the
// fold of its ledger.
func TestTortureLosesNothing(t *testing.T) {
	t.Parallel()
	o := readWish(t)
	newDiskOf(t, o.fs, 512) // skips where it cannot be
	testenv.Strace(t)
	counts := newTally()
	defer func() { t.Logf("seed %d, %s\n%s", o.seed, o.fs, counts.table()) }()
	for round := 0; counts.cycles < o.cycles; round++ {
		playRound(t, o, round, counts)
		if t.Failed() {
			t.Fatalf("in round %d: repeat with SAGENBAUM_TORTURE_SEED=%d", round, o.seed)
		}
	}
	if o.cycles >= cyclesFull && len(o.kinds) == len(crashes) {
		if missed := counts.missed(); len(missed) > 0 {
			t.Errorf("crash points that were never hit in %d cycles: %s", counts.cycles, strings.Join(missed, "; "))
		}
	}
}

// playRound plays some cycles on one ledger and compares everything at its end.
func playRound(t *testing.T, o tortureWish, round int, counts *tally) {
	cycles := min(roundCycles, o.cycles-counts.cycles)
	ctx, cancel := context.WithTimeout(t.Context(), torturePace+time.Duration(cycles)*time.Minute)
	defer cancel()
	r := newRig(t, ctx, o.seed, round, o, counts)
	gitAt := r.dice.IntN(cycles)
	for cycle := range cycles {
		if cycle == gitAt {
			r.reach()
			r.git = startGit(t, ctx, r.s.URL)
		}
		r.cycle(o.pick(r.dice), o)
		if t.Failed() {
			t.Logf("the server said:\n%s\nthe state was damaged last by %s", r.lastWords(), r.struck)
			t.Fatalf("in cycle %d of round %d", cycle, round)
		}
	}
	r.finish()
}

// lastWords ends the server and returns its log.
func (r *rig) lastWords() string {
	r.s.KillGroup(r.t)
	return r.s.Stderr.String()
}

// cycle is load, one crash, and the checks.
func (r *rig) cycle(c crash, o tortureWish) {
	r.t.Helper()
	base := r.notes.said().acks
	r.await(base + acksMin)
	r.look() // it need not answer
	r.tally.long = o.long()
	r.started = time.Time{}
	c.strike(r)
	struck := r.notes.said().acks
	r.await(struck + 1)
	if !r.started.IsZero() {
		r.tally.working = append(r.tally.working, time.Since(r.started))
	}
	r.check()
	r.tally.cycles++
	r.tally.kinds[c.name]++
	if r.tally.cycles%10 == 0 {
		r.t.Logf("%d cycles, the last %s: %d acknowledged in this round, ledger of %d, lost %d", r.tally.cycles, c.name,
			r.notes.said().acks, r.fold.at, r.tally.lost)
	}
}

// wait lets a random part of a span pass.
func (r *rig) wait(most time.Duration) {
	select {
	case <-time.After(time.Duration(r.dice.Int64N(int64(most)))):
	case <-r.ctx.Done():
	}
}

// strikeKill kills the server, the worker, the agent or all of them with -9.
func strikeKill(r *rig) {
	r.wait(30 * time.Millisecond)
	who := r.dice.IntN(10)
	all := who == 9
	if who < 6 || all {
		r.s.KillGroup(r.t)
	}
	if who == 6 || who == 7 || all {
		r.killMaker()
	}
	if who == 8 || all {
		r.agent.kill9(r.t)
		r.tally.points[pointAgentKilled]++
	}
	if who < 6 || all {
		r.autopsy()
		r.again()
	}
	if who == 6 || who == 7 || all {
		r.maker = startActor(r.t, roleWorker, r.s.URL, r.world.url, "", r.notes)
	}
	if who == 8 || all {
		r.newAgent()
	}
}

// killMaker kills the worker and names where it was. Sometimes the world lets an undo
// wait at its door until the one who asked for it is dead.
func (r *rig) killMaker() {
	if r.dice.IntN(3) == 0 {
		r.world.shutDoor()
		late := time.Now().Add(time.Second) // the server may be gone
		for r.world.atDoor() == 0 && time.Now().Before(late) {
			<-time.After(time.Millisecond)
		}
		defer r.world.openDoor()
		defer cmdtest.Until(r.t, r.ctx, "the world notices that the worker is dead",
			func() bool { return r.world.atDoor() == 0 })
	} else if r.dice.IntN(2) == 0 {
		late := time.Now().Add(time.Second) // the server may be gone
		for asked := len(r.notes.said().asked); len(r.notes.said().asked) == asked && time.Now().Before(late); {
			<-time.After(time.Millisecond) // until it is asked for one more
		}
	}
	r.maker.kill9(r.t)
	said := r.notes.said()
	for thing := range said.asked {
		if said.undid[thing] {
			continue
		}
		// What it was asked for and did not say that it had done.
		if r.world.called(unmakeThing, thing) == 0 {
			r.tally.points[pointBeforeEffect]++
		} else {
			r.tally.points[pointAfterEffect]++
		}
		r.notes.take("undid " + thing) // counted
	}
}

// strikePower cuts the power.
func strikePower(r *rig) {
	r.s.Freeze(r.t)
	r.disk.cut(r.t)
	r.s.KillGroup(r.t)
	r.disk.back(r.t)
	r.autopsy()
	r.again()
}

// strikePause stops the server or the worker for a while.
func strikePause(r *rig) {
	pid := r.s.Command.Process.Pid
	if r.dice.IntN(4) == 0 {
		pid = r.maker.command.Process.Pid
	}
	goOn := stopped(r.t, pid)
	long := pauseBrief
	if r.tally.long {
		long = pauseLong
	}
	<-time.After(time.Second) // 1 s is the shortest
	r.wait(long - time.Second)
	goOn()
	r.started = time.Now()
}

// strikeDisk fills the disk for a while, or lets every fsync fail. The server
// notices and starts again; where Pebble ends it, its supervisor does.
func strikeDisk(r *rig) {
	if r.dice.IntN(2) == 0 {
		empty := cmdtest.FillDisk(r.t, r.disk.dir)
		<-time.After(fullFor)
		empty()
	} else {
		stop := failFsyncs(r.t, r.ctx, r.s)
		<-time.After(goneFor)
		stop()
	}
	r.started = time.Now()
	if r.s.Ended() {
		_ = r.s.Command.Wait() // it says with which code
		if code := r.s.Command.ProcessState.ExitCode(); code == cli.ExitGood {
			r.t.Error("the server ended as if all were well")
		}
		r.autopsy()
		r.again()
	}
}

// stopped stops a process and returns what lets it go on.
func stopped(t *testing.T, pid int) (goOn func()) {
	t.Helper()
	signal := func(name string) {
		if out, err := exec.Command("kill", "-"+name, fmt.Sprint(pid)).CombinedOutput(); err != nil {
			t.Fatalf("kill -%s: %v %s", name, err, out)
		}
	}
	signal("STOP")
	return func() { signal("CONT") }
}

// gitPlay is the git demo's first act beside the load: four of five actions happen
// and are undone.
type gitPlay struct {
	world  demo.World
	before []string
	maker  *worker.Worker
	asked  *undoCounter
	said   <-chan string
}

func startGit(t *testing.T, ctx context.Context, server string) *gitPlay {
	t.Helper()
	world, err := demo.MakeWorld(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	act := demo.Scripts["one"][0]
	act.Deadline = 0 // a paused server is no reason to undo it
	if err := (&demo.Demo{World: world}).OccupyTag(ctx, act.Tag); err != nil {
		t.Fatal(err)
	}
	g := &gitPlay{world: world, before: cmdtest.Look(t, world), asked: &undoCounter{keys: map[string]map[string]bool{}}}
	g.maker = startWorker(t, cmdtest.Dial(t, server), g.asked)
	g.said = playInBackground(ctx, cmdtest.Dial(t, server), world, act)
	return g
}

// finish waits until the work is undone and compares the repositories.
func (g *gitPlay) finish(r *rig) {
	r.t.Helper()
	said := <-g.said
	c := r.client(demo.Tenant)
	defer c.Close()
	id := demo.Scripts["one"][0].Plan
	var plan api.Plan
	cmdtest.Until(r.t, r.ctx, "the git plan has ended", func() bool {
		var err error
		plan, err = c.Plan(r.ctx, id, 0)
		return err == nil && hasEnded(plan.State)
	})
	right := plan.State == ledger.StateCompensated && plan.Compensated == 4 && plan.Skipped == 1
	if strings.Contains(said, coordinator.ErrUnheard.Error()) {
		// A restart took so long that the agent gave up a call: it got less far.
		right = plan.State == ledger.StateCompensated || plan.State == ledger.StateFailed && plan.Compensated == 0
	}
	if !right {
		r.tally.wrong++
		r.t.Errorf("the git plan is %s, %d compensated, %d skipped; its agent said %q", plan.State, plan.Compensated,
			plan.Skipped, said)
	}
	cmdtest.SameState(r.t, "after the git plan", g.before, cmdtest.Look(r.t, g.world))
	checkOnce(r.t, r.ctx, r.tally.cycles, c, id, g.asked)
	if err := g.maker.Close(r.ctx); err != nil {
		r.t.Error(err)
	}
	r.tally.git++
}
