//go:build exercise && linux

package torture

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/demo"
)

// durable is a group of system calls that put something on the disk or take it
// away: strace kills the server as it enters the n-th call of a thread, which then
// is not made.
type durable struct {
	name  string
	point string // crash point
	calls string
	files func(dir string) []string // nil: of all files
}

var durables = []durable{
	{"sync", pointUnsynced, "fsync,fdatasync,sync_file_range", nil},
	{"write of a block", pointBlock, "pwrite64", nil},
	{"write of the state's log", pointStateLog, "write", stateLogs},
	{"write of another file", pointOpening, "write", otherFiles},
	{"rename or removal", pointRename, "rename,renameat,renameat2,unlink,unlinkat", nil},
	{"opening", pointOpening, "openat", nil},
}

// stateLogs are the names that the state's logs have had and will have.
func stateLogs(dir string) (files []string) {
	state := filepath.Join(dir, "executor", "state")
	first := 1
	entries, _ := os.ReadDir(state) // it need not be there yet
	for _, entry := range entries {
		var n int
		if _, err := fmt.Sscanf(entry.Name(), "%d.log", &n); err == nil {
			first = max(first, n)
		}
	}
	for n := first; n < first+60; n++ {
		files = append(files, filepath.Join(state, fmt.Sprintf("%06d.log", n)))
	}
	return files
}

// otherFiles are the index and the description of the ledger's stream, and the
// state's manifest.
func otherFiles(dir string) (files []string) {
	stream := filepath.Join(dir, "nats", "jetstream", "$G", "streams", "SAGA_"+tortureTenant)
	for _, name := range []string{"meta.inf.tmp", "meta.sum.tmp", "msgs/index.db"} {
		files = append(files, filepath.Join(stream, name))
	}
	for n := range 60 {
		files = append(files, filepath.Join(dir, "executor", "state", fmt.Sprintf("MANIFEST-%06d", n)))
	}
	return files
}

// killingAt is the command line that a server runs under to be killed at its n-th
// call.
func (d durable) killingAt(n int, dir string) []string {
	line := []string{"strace", "-f", "-o", "/dev/null", "-e", "trace=" + d.calls, "-e",
		fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", d.calls, n)}
	if d.files != nil {
		for _, file := range d.files(dir) {
			line = append(line, "-P", file)
		}
	}
	return line
}

// strikeSyscall starts the server so that a system call will kill it, and lets it
// work until that comes.
func strikeSyscall(r *rig) {
	r.s.KillGroup(r.t)
	d := durables[r.dice.IntN(len(durables))]
	most := 25 // of one thread
	if d.files != nil {
		most = 8
	}
	s, ready := launch(r.t, r.launching(r.address(), d.killingAt(1+r.dice.IntN(most), r.disk.data())...))
	if ready {
		enough := r.notes.said().acks + acksMin
		for !s.Ended() && r.notes.said().acks < enough && r.ctx.Err() == nil {
			<-time.After(demo.AgainPause)
		}
	}
	switch {
	case !ready:
		r.tally.points[pointStart]++
		r.tally.points[d.point]++
	case s.Ended():
		r.tally.points[d.point]++
	}
	s.KillGroup(r.t) // also where the call did not come
	r.autopsy()
	r.again()
}

// The server is killed as it enters each durable system call of the life of one
// plan: start, open, pair, outcome, fail, unwind, end of the server, restart. For
// every group of calls n counts up until a whole life needs fewer calls. An ordinary
// run takes a sample.
func TestKillAtEveryDurableSystemCall(t *testing.T) {
	t.Parallel()
	testenv.Strace(t)
	every := os.Getenv("SAGENBAUM_TORTURE") != ""
	for g, d := range durables {
		t.Run(strings.ReplaceAll(d.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			phases := map[string]int{}
			rounds := 0
			for _, ready := range []bool{false, true} {
				for n := 1; ; n++ {
					l := life{durable: d, n: n, ready: ready, listen: fmt.Sprintf("127.79.%d.%d", g, 1+n%250)}
					kills := l.play(t)
					rounds++
					for _, phase := range kills {
						phases[phase]++
					}
					if t.Failed() || n > 2000 {
						t.Fatalf("failed, or no end, at call %d", n)
					}
					if len(kills) == 0 {
						break
					}
					if !every {
						n += 4 * n // 1, 6, 31, 156, ...
					}
				}
			}
			t.Logf("%d lives; killed: %v", rounds, phases)
			if len(phases) == 0 {
				t.Error("nothing was killed: strace may not attach here, or these calls are not made")
			}
		})
	}
}

// life is one plan's, under a server that a system call kills.
type life struct {
	durable durable
	n       int
	ready   bool // count from when the server is ready, else from its start
	listen  string
	dir     string
	s       *cmdtest.Served
	kills   []string // phases in which it was killed
}

// play plays a plan whose fifth action fails, ends the server, and starts and ends
// it once more. It returns the phases in which the server was killed.
func (l *life) play(t *testing.T) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), torturePace)
	defer cancel()
	l.dir = cmdtest.DataDir(t)
	l.start(t, "start")
	world := newProvider()
	up := nats.RetryOnFailedConnect(true) // it may have been killed by now
	maker := world.serveUnmake(t, cmdtest.Dial(t, l.s.URL, up))
	agentConn := cmdtest.Dial(t, l.s.URL, up)
	c := &cli.Client{Conn: cmdtest.Dial(t, l.s.URL, up), Tenant: tortureTenant, Server: l.s.URL, Timeout: 5 * time.Second}
	played := make(chan error, 1)
	ended := make(chan api.Plan, 1)
	go func() { played <- playFive(ctx, agentConn, world, false) }() // ends with the plan or ctx
	go func() { ended <- awaitCompensated(ctx, c, "p") }()           // ends with ctx
	var plan api.Plan
	for waiting := 2; waiting > 0; {
		select {
		case plan = <-ended:
			if waiting--; plan.Plan == "" {
				t.Fatal("the plan did not end in time")
			}
		case err := <-played:
			if waiting--; err != nil {
				t.Errorf("killed at %s %d: the agent ends with %v", l.durable.name, l.n, err)
			}
		case <-time.After(demo.AgainPause / 5):
			l.revive(t, ctx, "")
		}
	}
	checkEnd(t, l.n, plan, world, killVariant{})
	messages := l.settle(t, ctx, c)
	if err := maker.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	l.end(t, "end")
	l.start(t, "restart")
	l.end(t, "end of the restart")
	l.checkAgain(t, ctx, messages, world)
	return l.kills
}

// start starts the server under the killing strace; where it dies before it is
// ready, as it is. After the first kill it starts it as it is.
func (l *life) start(t *testing.T, phase string) {
	t.Helper()
	listen := l.listen + ":0"
	if l.s != nil && l.s.URL != "" {
		_, listen, _ = strings.Cut(l.s.URL, "nats://")
	}
	if l.ready && phase == "start" {
		s, ready := launch(t, launching{dir: l.dir, listen: listen})
		if !ready {
			t.Fatalf("serve ended at once: %s", s.Stderr)
		}
		l.s = s
		l.attach(t)
		return
	}
	if len(l.kills) == 0 && !l.ready {
		s, ready := launch(t, launching{dir: l.dir, listen: listen, wrap: l.durable.killingAt(l.n, l.dir)})
		if l.s = s; ready {
			return
		}
		l.kills = append(l.kills, phase)
		s.KillGroup(t)
	}
	s, ready := launch(t, launching{dir: l.dir, listen: listen})
	if l.s = s; !ready {
		t.Fatalf("killed at %s %d, in the %s: the next server ended with %d: %s", l.durable.name, l.n,
			l.kills[len(l.kills)-1], s.Command.ProcessState.ExitCode(), s.Stderr)
	}
}

// attach has the running server killed at the n-th call from now on.
func (l *life) attach(t *testing.T) {
	t.Helper()
	line := append(l.durable.killingAt(l.n, l.dir), "-p", fmt.Sprint(l.s.Command.Process.Pid))
	strace := exec.CommandContext(t.Context(), line[0], line[1:]...)
	stderr, err := strace.StderrPipe()
	if err == nil {
		err = strace.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	if !lines.Scan() || !strings.Contains(lines.Text(), "attached") {
		if strings.Contains(lines.Text(), "Operation not permitted") {
			t.Skipf("*** SKIPPED: strace may not attach here: %s ***", lines.Text())
		}
		t.Fatalf("strace cannot attach: %s", lines.Text())
	}
	go func() { // ends with strace, which ends with the server
		for lines.Scan() {
		}
		_ = strace.Wait() // it says how the server ended
	}()
}

// revive starts the server again when it was killed, and names the phase.
func (l *life) revive(t *testing.T, ctx context.Context, phase string) {
	t.Helper()
	if !l.s.Ended() {
		return
	}
	l.s.KillGroup(t)
	marked := time.Now()
	l.kills = append(l.kills, phase)
	l.start(t, phase)
	if phase == "" {
		l.kills[len(l.kills)-1] = phaseAt(stored(t, ctx, tortureClient(t, l.s)), marked)
	}
}

// settle waits until everything is folded and undone, and returns what is stored. The call
// that kills the server may come as late as that.
func (l *life) settle(t *testing.T, ctx context.Context, c *cli.Client) (messages []ledger.Message) {
	t.Helper()
	cmdtest.Until(t, ctx, "the plan has settled and can be read", func() bool {
		l.revive(t, ctx, "")
		soon, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if status, head, err := look(soon, c); err != nil || !isSettled(status, head) {
			return false
		}
		store, err := c.Store(soon)
		if err == nil {
			messages, err = readAll(soon, store)
		}
		return err == nil
	})
	return messages
}

// end ends the server by its input. One that is killed on its way is started and
// ended once more.
func (l *life) end(t *testing.T, phase string) {
	t.Helper()
	l.s.End(t)
	if l.s.Command.ProcessState.ExitCode() == cli.ExitGood {
		return
	}
	l.s.KillGroup(t)
	l.kills = append(l.kills, phase)
	l.start(t, phase)
	if r := l.s.End(t); r.Code != cli.ExitGood {
		t.Errorf("serve ended with %d: %s", r.Code, r.Stderr)
	}
}

// checkAgain wants the ledger to have what it had, each undo once, and the state to
// be its fold.
func (l *life) checkAgain(t *testing.T, ctx context.Context, before []ledger.Message, world *provider) {
	t.Helper()
	s := cmdtest.ServeFor(t, l.dir, "--listen", l.listen+":0", "--open")
	c := tortureClient(t, s)
	settled(t, ctx, c)
	after := stored(t, ctx, c)
	sameMessages(t, fmt.Sprintf("killed at %s %d", l.durable.name, l.n), before, after)
	if r := s.End(t); r.Code != cli.ExitGood {
		t.Errorf("serve ended with %d: %s", r.Code, r.Stderr)
	}
	checkLedger(t, l.n, s, after, world)
}

// sameMessages wants a ledger to begin as it was.
func sameMessages(t *testing.T, what string, before, after []ledger.Message) {
	t.Helper()
	if len(after) < len(before) {
		t.Errorf("%s: %d of %d messages are left", what, len(after), len(before))
		return
	}
	for i, m := range before {
		if n := after[i]; m.Sequence != n.Sequence || m.StampNs != n.StampNs || m.Subject != n.Subject ||
			string(m.Data) != string(n.Data) {
			t.Errorf("%s: message %d is another one", what, m.Sequence)
			return
		}
	}
}

// phaseAt is the phase of the plan that a server died in: behind the last record
// that it had stored.
func phaseAt(messages []ledger.Message, marked time.Time) string {
	phase := "start"
	for _, m := range messages {
		if m.StampNs > marked.UnixNano() {
			break
		}
		entries, err := ledger.Decode(tortureTenant, m)
		if err != nil {
			return "unreadable"
		}
		for _, e := range entries {
			switch e.Record.GetKind().(type) {
			case *pb.Record_TermStarted:
			case *pb.Record_PlanOpened:
				phase = "open"
			case *pb.Record_ForwardRegistered, *pb.Record_CompensationRegistered:
				phase = "pair"
			case *pb.Record_ForwardCompleted, *pb.Record_ForwardFailed:
				phase = "outcome"
			case *pb.Record_PlanFailed:
				phase = "fail"
			case *pb.Record_PlanEnded:
				phase = "plan ended"
			default:
				phase = "unwind"
			}
		}
	}
	return phase
}
