//go:build exercise && linux

package torture

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/demo"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/serve"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// The rig of the mixed torture: the server on a disk of its own, agents and a
// worker in processes of their own, the world behind HTTP, and a fold of the
// ledger that follows it from crash to crash.

const rigListen = "127.78.4.1"

type rig struct {
	t     *testing.T
	ctx   context.Context
	dice  *rand.Rand
	disk  *loopDisk
	clock *shiftedClock // nil: the machine's
	world *outside
	notes *notes
	s     *cmdtest.Served
	agent *actor
	maker *actor
	lives int // of agents
	fold  follower
	tally *tally

	yesterday string    // an older copy of the folded state
	struck    string    // how the state was damaged last
	rotten    bool      // a bit of a table was flipped
	death     *death    // what the last death of the server left; nil: it did not die
	started   time.Time // of the last server or what stood for it
	git       *gitPlay  // of this round, while it plays
}

// newRig makes a fresh world, server, worker and agent.
func newRig(t *testing.T, ctx context.Context, seed uint64, round int, o tortureWish, counts *tally) *rig {
	t.Helper()
	r := &rig{
		t: t, ctx: ctx, dice: rand.New(rand.NewPCG(seed, uint64(round))), world: newOutside(t), notes: newNotes(),
		disk: newDiskOf(t, o.fs, 512), clock: o.clock, fold: follower{f: newRefolded()}, tally: counts,
	}
	if r.clock != nil {
		r.clock.set(t, 0)
	}
	r.s = r.launched(rigListen + ":0")
	r.maker = startActor(t, roleWorker, r.s.URL, r.world.url, "", r.notes)
	r.newAgent()
	return r
}

func (r *rig) newAgent() {
	r.t.Helper()
	r.lives++
	r.agent = startActor(r.t, roleAgent, r.s.URL, r.world.url, fmt.Sprint("l", r.lives), r.notes)
}

// launching says how to start a server: by which program, and under what.
type launching struct {
	dir     string
	listen  string
	program string   // empty: the command of this checkout
	wrap    []string // strace and its arguments
	env     []string
	tenants []string // empty: the one of the torture
}

// launch starts a server in a process group of its own. It returns false when the
// server ended before it was ready.
func launch(t *testing.T, l launching) (*cmdtest.Served, bool) {
	t.Helper()
	if l.program == "" {
		l.program = cmdtest.Program(t)
	}
	line := append(slices.Clone(l.wrap), l.program, "serve", "--data", l.dir, "--console", serve.ConsoleOff,
		"--stop-on-eof", "-o", "json", "--listen", l.listen, "--open")
	for _, tenant := range l.tenants {
		line = append(line, "--tenant", tenant)
	}
	s := &cmdtest.Served{Dir: l.dir, Stderr: new(bytes.Buffer),
		Command: exec.CommandContext(t.Context(), line[0], line[1:]...)}
	home := t.TempDir()
	s.Command.Dir, s.Command.Stderr = home, s.Stderr
	s.Command.Env = append(cmdtest.Environment(home), l.env...)
	s.Command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := s.Command.StdoutPipe()
	if err == nil {
		s.Stdin, err = s.Command.StdinPipe()
	}
	if err == nil {
		err = s.Command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	group := s.Command.Process.Pid
	t.Cleanup(func() { _ = syscall.Kill(-group, syscall.SIGKILL) }) // it is gone, as a rule
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() {
		_ = s.Command.Wait() // the caller asks why
		return s, false
	}
	var r serve.Ready
	if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
		t.Fatalf("serve said %q: %v", lines.Text(), err)
	}
	s.URL = r.URL
	return s, true
}

// launching is how this rig starts its server.
func (r *rig) launching(listen string, wrap ...string) launching {
	l := launching{dir: r.disk.data(), listen: listen, wrap: wrap, tenants: []string{tortureTenant, demo.Tenant}}
	if r.clock != nil {
		l.program, l.env = r.clock.program, r.clock.environment()
	}
	return l
}

func (r *rig) launched(listen string) *cmdtest.Served {
	r.t.Helper()
	r.started = time.Now()
	s, ok := launch(r.t, r.launching(listen))
	if !ok && foundCorrupt(s) {
		r.tally.damages["found corrupt at the start"]++
		s, ok = launch(r.t, r.launching(listen))
	}
	if !ok {
		r.t.Fatalf("serve ended with %d before it was ready: %s", s.Command.ProcessState.ExitCode(), s.Stderr)
	}
	return s
}

// await returns when so many acknowledgements have come. A server that ends by
// itself, because its state turns out to be corrupt, is started again, as by a
// supervisor.
func (r *rig) await(acks int) {
	r.t.Helper()
	for r.notes.said().acks < acks {
		r.supervise()
		waiting, cancel := context.WithTimeout(r.ctx, 100*time.Millisecond)
		r.notes.await(r.t, r.ctx, acks, waiting.Done())
		cancel()
	}
}

// reach waits until the server takes connections: it may just have ended by itself, or
// start its NATS server again.
func (r *rig) reach() {
	r.t.Helper()
	cmdtest.Until(r.t, r.ctx, "the server takes connections", func() bool {
		r.supervise()
		conn, err := cmdtest.AsLocal(r.s.URL)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

func (r *rig) supervise() {
	r.t.Helper()
	if !r.s.Ended() {
		return
	}
	_ = r.s.Command.Wait() // it says with which code
	if !foundCorrupt(r.s) {
		r.t.Fatalf("serve ended with %d by itself: %s", r.s.Command.ProcessState.ExitCode(), r.s.Stderr)
	}
	r.tally.damages["found corrupt at work"]++
	r.again()
}

// foundCorrupt reports whether a server has ended because its state is corrupt: the
// next one folds it anew.
func foundCorrupt(s *cmdtest.Served) bool {
	return s.Command.ProcessState.ExitCode() == cli.ExitFailed &&
		strings.Contains(s.Stderr.String(), "the state store is corrupt")
}

// address is where the server listens, also while it is down.
func (r *rig) address() string {
	r.t.Helper()
	address, err := url.Parse(r.s.URL)
	if err != nil {
		r.t.Fatal(err)
	}
	return address.Host
}

// again starts the server anew.
func (r *rig) again() {
	r.t.Helper()
	r.s = r.launched(r.address())
	r.tally.ready = append(r.tally.ready, time.Since(r.started))
}

// die kills the server and looks at what it leaves.
func (r *rig) die() {
	r.t.Helper()
	r.s.KillGroup(r.t)
	r.autopsy()
}

// death is what is known of the moment at which a server died.
type death struct {
	said   *notes // by agents and worker until then
	at     uint64 // the last sequence in its folded state; 0: none, or unreadable
	digest [sha256.Size]byte
	marked time.Time // later than anything it has stored
}

// autopsy reads the state of the dead server. A state that cannot be read will be
// folded again, and is counted.
func (r *rig) autopsy() {
	r.t.Helper()
	r.death = &death{said: r.notes.said(), marked: time.Now()}
	var err error
	if r.death.at, r.death.digest, err = readState(filepath.Join(r.disk.data(), "executor", "state")); err != nil {
		r.death.at = 0
		r.tally.unreadable++
		r.t.Logf("the state that was left cannot be read: %v", err)
	}
}

// readState returns the cursor and the digest of a stopped server's state.
func readState(dir string) (at uint64, digest [sha256.Size]byte, err error) {
	db, err := pebble.Open(dir, &pebble.Options{ReadOnly: true, Logger: quietLog{}})
	if err != nil {
		return 0, digest, err
	}
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("cannot read the state: %v", broken)
		}
		_ = db.Close() // it was only read
	}()
	stored := stateRows{db: db, prefix: append([]byte(tortureTenant), 0),
		fail: func(args ...any) { panic(fmt.Sprint(args...)) }}
	return view.NewReader(stored, tortureTenant, nil).Applied(), rows.Digest(stored), nil
}

// follower folds the ledger piece by piece and holds what the server said at a
// place against the fold at that place.
type follower struct {
	f     refolded
	at    uint64
	marks []mark
}

// mark is a check of the fold as it is behind a sequence.
type mark struct {
	at    uint64
	check func(f *refolded)
}

func (w *follower) mark(at uint64, check func(f *refolded)) {
	if at >= w.at { // the ledger was followed further than that before
		w.marks = append(w.marks, mark{at, check})
	}
}

// follow folds what is new and makes the checks it comes by. It returns how many
// marks stay, for places behind the end.
func (w *follower) follow(t *testing.T, messages []ledger.Message) (left int) {
	t.Helper()
	w.due()
	for _, m := range messages {
		if m.Sequence != w.at+1 {
			t.Fatalf("the ledger goes on with %d behind %d", m.Sequence, w.at)
		}
		w.f.apply(t, m)
		w.at = m.Sequence
		w.due()
	}
	w.f.flush()
	left = len(w.marks)
	w.marks = nil
	return left
}

func (w *follower) due() {
	w.marks = slices.DeleteFunc(w.marks, func(m mark) bool {
		if m.at == w.at {
			w.f.flush()
			m.check(&w.f)
		}
		return m.at == w.at
	})
}

// unread reads what the ledger has behind the follower.
func (r *rig) unread() (messages []ledger.Message) {
	r.t.Helper()
	c := r.client(tortureTenant)
	defer c.Close()
	cmdtest.Until(r.t, r.ctx, "the ledger can be read", func() bool {
		store, err := c.Store(r.ctx)
		if err != nil {
			return false
		}
		head, err := store.Head(r.ctx)
		if err != nil {
			return false
		}
		messages = nil
		if head.Last < r.fold.at {
			r.t.Fatalf("the ledger ends at %d and had %d", head.Last, r.fold.at)
		}
		if head.Last == r.fold.at {
			return true
		}
		for m, err := range store.Read(r.ctx, r.fold.at+1) {
			if err != nil {
				return false
			}
			if messages = append(messages, m); m.Sequence == head.Last {
				break
			}
		}
		return true
	})
	return messages
}

func (r *rig) client(tenant string) *cli.Client {
	r.t.Helper()
	r.reach()
	return &cli.Client{Conn: cmdtest.Dial(r.t, r.s.URL), Tenant: tenant, Server: r.s.URL, Timeout: 5 * time.Second}
}

// look has the fold compared with what the server says of itself now. It returns
// false when the server does not answer.
func (r *rig) look() bool {
	r.t.Helper()
	c := r.client(tortureTenant)
	defer c.Close()
	ctx, cancel := context.WithTimeout(r.ctx, 5*time.Second)
	defer cancel()
	status, err := c.Status(ctx)
	if err != nil {
		return false
	}
	r.fold.mark(status.Applied, func(f *refolded) {
		meta := f.state.Meta()
		if meta.Held != status.Held || meta.Open != status.Open || meta.Unwinding != status.Unwinding ||
			meta.Ended != status.Ended || meta.Quarantined != status.Quarantined {
			r.tally.wrong++
			r.t.Errorf("at %d the server holds %d (%d open, %d unwinding, %d ended, %d quarantined), the fold %d "+
				"(%d, %d, %d, %d)", status.Applied,
				status.Held, status.Open, status.Unwinding, status.Ended, status.Quarantined, meta.Held, meta.Open,
				meta.Unwinding, meta.Ended, meta.Quarantined)
		}
		r.tally.looks++
	})
	return true
}

// check holds everything that was promised until now against the ledger and the
// world.
func (r *rig) check() {
	r.t.Helper()
	cmdtest.Until(r.t, r.ctx, "the executor answers", func() bool {
		r.supervise()
		return r.look()
	})
	said := r.notes.said()
	double, duties, again := r.world.doubled()
	if d := r.death; d != nil && d.at > 0 {
		r.fold.mark(d.at, func(f *refolded) {
			r.tally.digests++
			if digest := rows.Digest(f.kv); digest != d.digest {
				r.tally.wrong++
				r.t.Errorf("the dead server's state at %d is %s, a fold of the ledger gives %s", d.at,
					rows.FormatDigest(d.digest), rows.FormatDigest(digest))
			}
		})
	}
	messages := r.unread()
	before := r.fold.at
	if left := r.fold.follow(r.t, messages); left > 0 {
		r.t.Errorf("the server has folded more than the ledger has: %d of %d", left, r.fold.at)
	}
	if missing := lost(r.fold.f, said.acked, said.ends); len(missing) > 0 {
		r.tally.lost += len(missing)
		r.t.Errorf("acknowledged and lost: %d of %d: %v", len(missing), len(said.acked), missing)
	}
	r.tally.again, r.tally.dutiesNow = again, len(duties)
	for _, duty := range duties {
		if r.fold.f.dispatched[duty] == 0 {
			double = append(double, duty+", which the ledger does not know")
		}
	}
	if len(double) > 0 {
		r.tally.double += len(double)
		r.t.Errorf("twice outside: %v", double)
	}
	for action, times := range r.fold.f.succeeded {
		if times != 1 {
			r.tally.wrong++
			r.t.Errorf("%s has %d effective successes", action, times)
		}
	}
	if r.death != nil {
		r.tally.name(r.death, before, messages, &r.fold.f, r.world)
	}
	r.death = nil
}

// finish ends a round: agents end what they are at, all that has to be is undone,
// and every plan, the world and the stopped server's state are compared.
func (r *rig) finish() {
	t := r.t
	t.Helper()
	if r.git != nil {
		r.git.finish(r)
	}
	r.agent.end(t)
	c := r.client(tortureTenant)
	cmdtest.Until(t, r.ctx, "every plan that its agent forgot is undone", func() bool {
		r.fold.follow(t, r.unread())
		return len(r.unended()) == 0
	})
	status := settled(t, r.ctx, c)
	r.check()
	c.Close()
	r.maker.end(t)
	said := r.notes.said()
	if len(said.gaveUp) > 0 {
		t.Errorf("actors gave up: %v", said.gaveUp)
	}
	r.checkPlans(said, status)
	r.world.checkLedger(t)
	if end := r.s.End(t); end.Code != cli.ExitGood {
		t.Errorf("serve ended with %d: %s", end.Code, end.Stderr)
	}
	state := filepath.Join(r.disk.data(), "executor", "state")
	if _, err := os.Stat(state + ".broken"); err == nil && r.struck == "" {
		t.Error("the state was moved aside, and nothing had damaged it")
	}
	at, digest, err := readState(state)
	last, want := r.fold.at, rows.Digest(r.fold.f.kv)
	if err == nil && at > last {
		// A checkpoint was signed between the last look and the stop: what came is read now.
		r.again()
		r.fold.mark(at, func(f *refolded) { last, want = at, rows.Digest(f.kv) })
		r.fold.follow(t, r.unread())
		r.s.End(t)
	}
	switch {
	case err != nil && r.rotten: // a bit that nobody has read since: it is found when it is
		r.tally.unreadable++
		t.Logf("the state that was left cannot be read: %v", err)
	case err != nil || at != last || digest != want:
		r.tally.wrong++
		t.Errorf("the state at %d of %d is %s (%v), a fold of the ledger gives %s", at, last,
			rows.FormatDigest(digest), err, rows.FormatDigest(want))
	}
	r.tally.acks += said.acks
	r.tally.undone += r.tally.again
	r.tally.duties += r.tally.dutiesNow
	r.tally.late += r.world.late
	r.tally.landed += r.world.landed
	r.tally.found += r.world.found
}

// unended lists the plans that nobody but their deadline, or a killed agent's last
// word, ends, and that have not ended.
func (r *rig) unended() (open []string) {
	for id := range plansOf(r.fold.f.actions) {
		plan, _ := r.fold.f.reader.Plan(id)
		due := strings.HasSuffix(id, forgotten) && plan.State == ledger.StateOpen
		if due || plan.State == ledger.StateUnwinding {
			open = append(open, id)
		}
	}
	return open
}

func plansOf(actions map[string]bool) map[string]bool {
	plans := map[string]bool{}
	for action := range actions {
		id, _, _ := strings.Cut(action, "/")
		plans[id] = true
	}
	return plans
}

// checkPlans wants each plan as its agent was told, in the ledger and outside.
func (r *rig) checkPlans(said *notes, status api.Status) {
	r.t.Helper()
	standing := r.world.things()
	held := uint64(0)
	for id := range plansOf(r.fold.f.actions) {
		plan, _ := r.fold.f.reader.Plan(id)
		held += uint64(plan.Held)
		r.tally.plans++
		told := said.ends[id]
		wrong := told != "" && told != plan.State
		switch plan.State {
		case ledger.StateOpen:
			wrong = wrong || strings.HasSuffix(id, forgotten)
		case ledger.StateCompensated:
			wrong = wrong || plan.Held != 0 || plan.Compensated+plan.Skipped != plan.ActionCount
		case ledger.StateFailed: // its deadline was faster than all of its forwards
			wrong = wrong || !strings.HasSuffix(id, forgotten) || plan.Skipped != plan.ActionCount
		case ledger.StateCommitted:
			wrong = wrong || plan.Held != 0
		default:
			wrong = true
		}
		if wrong {
			r.tally.wrong++
			r.t.Errorf("plan %s is %s with %d actions, %d held, %d compensated, %d skipped; its agent was told %q",
				id, plan.State, plan.ActionCount, plan.Held, plan.Compensated, plan.Skipped, told)
		}
		r.checkThings(id, plan, said, standing)
	}
	for thing := range standing {
		r.tally.wrong++
		r.t.Errorf("%s stands and no plan has it", thing)
	}
	if status.Held != held || status.Quarantined != 0 {
		r.t.Errorf("%d held, %d quarantined, want %d and none", status.Held, status.Quarantined, held)
	}
}

// checkThings wants what a plan made to stand or not as its state says, and takes
// it out of what stands.
func (r *rig) checkThings(id string, plan api.Plan, said *notes, standing map[string]bool) {
	r.t.Helper()
	for a := range loadActions {
		thing := fmt.Sprintf("%s/a%d", id, a)
		gone := plan.State == ledger.StateCompensated || plan.State == ledger.StateFailed
		if gone && standing[thing] || !gone && said.made[thing] && !standing[thing] {
			r.tally.wrong++
			r.t.Errorf("plan %s is %s and %s stands: %v", id, plan.State, thing, standing[thing])
		}
		delete(standing, thing)
	}
}
