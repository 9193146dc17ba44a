//go:build exercise && linux

package torture

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/demo"
)

const (
	clockFile  = "SAGENBAUM_TORTURE_CLOCK" // seconds that the wall clock is ahead, 8 bytes
	clockAsked = "SAGENBAUM_TORTURE_JUMPS" // 1: build a binary with a clock of its own

	hour = 3600 // seconds
	// sentinelDeadline is farther away than any test takes, and nearer than the clock
	// jumps.
	sentinelDeadline = 30 * time.Minute
)

// shiftedClock is a whole binary, embedded NATS included, whose wall clock a file
// moves while it runs. Its monotonic clock is the machine's.
type shiftedClock struct {
	program, file string
}

// newShiftedClock builds that binary: package time is replaced by a copy in which
// Now adds what the file says. Everything is compiled anew for it, minutes of work,
// so it is done when asked for.
func newShiftedClock(t *testing.T) *shiftedClock {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatalf("cannot find the Go toolchain: %v", err)
	}
	dir := t.TempDir()
	c := &shiftedClock{program: filepath.Join(dir, "sagenbaum"), file: filepath.Join(dir, "clock")}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	const begin = "\tmono -= startNano\n\tsec += unixToInternal - minWall\n"
	if strings.Count(string(text), begin) != 1 {
		t.Fatalf("time.Now of %s is not as this test knows it", original)
	}
	moved := strings.Replace(string(text), begin, "\tsec += wallShift()\n"+begin, 1)
	overlay := map[string]map[string]string{"Replace": {
		original: filepath.Join(dir, "time.go"),
		filepath.Join(filepath.Dir(original), "shift_torture.go"): filepath.Join(dir, "shift_torture.go"),
	}}
	plan, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"time.go": moved, "shift_torture.go": wallShiftSource,
		"overlay.json": string(plan)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.set(t, 0)
	cmdtest.Build(t, c.program, "-overlay", filepath.Join(dir, "overlay.json"))
	return c
}

// wallShiftSource reads the shift from memory that is shared with the test.
const wallShiftSource = `package time

import (
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

var (
	shiftOnce sync.Once
	shiftSec  *int64
)

func wallShift() int64 {
	shiftOnce.Do(func() {
		name, ok := syscall.Getenv("` + clockFile + `")
		if !ok {
			return
		}
		fd, err := syscall.Open(name, syscall.O_RDONLY, 0)
		if err != nil {
			panic("cannot open the shifted clock: " + name)
		}
		page, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
		if err != nil {
			panic("cannot map the shifted clock: " + name)
		}
		shiftSec = (*int64)(unsafe.Pointer(&page[0]))
	})
	if shiftSec == nil {
		return 0
	}
	return atomic.LoadInt64(shiftSec)
}
`

// set moves the wall clock of every process with this clock.
func (c *shiftedClock) set(t *testing.T, seconds int64) {
	t.Helper()
	file, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(seconds)), 0); err != nil {
		t.Fatal(err)
	}
}

func (c *shiftedClock) environment() []string { return []string{clockFile + "=" + c.file} }

// sentinel opens a plan whose deadline no test lives to see.
func sentinel(t *testing.T, s *cmdtest.Served, id string) {
	t.Helper()
	agent, err := tortureAgent(cmdtest.Dial(t, s.URL))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := agent.Begin(t.Context(), coordinator.PlanSpec{ID: id, Owner: "owner1", Deadline: sentinelDeadline})
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Report(t.Context(),
		coordinator.Action{ID: "a0", Capability: makeThing, Input: map[string]string{"thing": id + "/a0"}},
		coordinator.Outcome{}); err != nil {
		t.Fatal(err)
	}
	if err := agent.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// awaitMode waits until the executor says that it is in a mode.
func awaitMode(t *testing.T, ctx context.Context, c *cli.Client, mode string) (status api.Status) {
	t.Helper()
	cmdtest.Until(t, ctx, "the executor is "+mode, func() (is bool) {
		var err error
		status, err = c.Status(ctx)
		return err == nil && status.Mode == mode
	})
	return status
}

// watchTime looks at a tenant for a while: its logical time must not go back, and
// the sentinel must stay open.
func watchTime(t *testing.T, ctx context.Context, c *cli.Client, id string, span time.Duration) {
	t.Helper()
	last := int64(0)
	for end := time.Now().Add(span); time.Now().Before(end) && ctx.Err() == nil; {
		if status, err := c.Status(ctx); err == nil {
			if status.TimeNs < last {
				t.Errorf("logical time went back by %v", time.Duration(last-status.TimeNs))
			}
			last = max(last, status.TimeNs)
		}
		if plan, err := c.Plan(ctx, id, 0); err == nil && plan.State != ledger.StateOpen {
			t.Errorf("a plan with a deadline in %v is %s: %s", sentinelDeadline, plan.State, plan.Reason)
			return
		}
		<-time.After(demo.AgainPause)
	}
}

// strikeClock has the wall clock jump by an hour, forward or back, under load, and
// come back.
func strikeClock(r *rig) {
	id := fmt.Sprint("sentinel-", r.tally.cycles)
	r.reach()
	sentinel(r.t, r.s, id)
	c := r.client(tortureTenant)
	defer c.Close()
	forward := r.dice.IntN(2) == 0
	if forward {
		r.clock.set(r.t, hour)
		awaitMode(r.t, r.ctx, c, api.ModeGuard)
	} else {
		r.clock.set(r.t, -hour)
	}
	watchTime(r.t, r.ctx, c, id, time.Second)
	r.clock.set(r.t, 0)
	awaitMode(r.t, r.ctx, c, api.ModeHolding)
	watchTime(r.t, r.ctx, c, id, time.Second)
	r.started = time.Now()
}

// The wall clock jumps by an hour while a deadline is half an hour away. Forward,
// it must not fire: not while the clocks disagree, which the doctor says, nor when
// they agree again, nor behind a kill. It fires when an operator confirms the clock,
// and when the server is started under the new clock, which nothing contradicts.
func TestClockJumpsFireNothingEarly(t *testing.T) {
	t.Parallel()
	if os.Getenv(clockAsked) != "1" {
		t.Skipf("*** SKIPPED: the wall clock does not jump; %s=1 builds a binary whose clock can (minutes) ***",
			clockAsked)
	}
	clock := newShiftedClock(t)
	for _, jump := range []struct {
		name  string
		play  func(j *jumping)
		fires bool
	}{
		{"forward and back", func(j *jumping) { j.forward(); j.to(0) }, false},
		{"forward, back, killed", func(j *jumping) { j.forward(); j.to(0); j.restart() }, false},
		{"forward, the embedded server again, and back", func(j *jumping) { j.forward(); j.serverAgain(); j.to(0) },
			false},
		{"back", func(j *jumping) { j.to(-hour) }, false},
		{"back and forward", func(j *jumping) { j.to(-hour); j.append(); j.to(0) }, false},
		{"back while it is down", func(j *jumping) { j.clock.set(j.t, -hour); j.restart() }, false},
		{"forward, confirmed by an operator", func(j *jumping) { j.forward(); j.confirm() }, true},
		{"forward while it is down", func(j *jumping) { j.clock.set(j.t, hour); j.restart() }, true},
	} {
		t.Run(strings.ReplaceAll(jump.name, " ", "_"), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), torturePace)
			defer cancel()
			clock.set(t, 0)
			j := &jumping{t: t, ctx: ctx, clock: clock,
				launching: launching{dir: cmdtest.DataDir(t), listen: "127.78.6.1:0", program: clock.program,
					env: clock.environment()}}
			j.start()
			defer clock.set(t, 0)
			sentinel(t, j.s, "p")
			newProvider().serveUnmake(t, cmdtest.Dial(t, j.s.URL))
			jump.play(j)
			c := tortureClient(t, j.s)
			if !jump.fires {
				watchTime(t, ctx, c, "p", 2*time.Second)
			} else {
				cmdtest.Until(t, ctx, "the deadline fires", func() bool {
					plan, err := c.Plan(ctx, "p", 0)
					return err == nil && plan.State == ledger.StateCompensated
				})
			}
			clock.set(t, 0)
			messages := stored(t, ctx, c)
			j.s.KillGroup(t)
			f := refold(t, messages)
			if at, digest, err := readState(j.s.StatePath()); err != nil || at == uint64(len(messages)) &&
				digest != rows.Digest(f.kv) {
				t.Errorf("the state at %d is no fold of the ledger (%v)", at, err)
			}
		})
	}
}

// jumping is one case of a clock that jumps.
type jumping struct {
	launching
	t     *testing.T
	ctx   context.Context
	clock *shiftedClock
	s     *cmdtest.Served
}

func (j *jumping) start() {
	j.t.Helper()
	s, ready := launch(j.t, j.launching)
	if !ready {
		j.t.Fatalf("serve ended at once: %s", s.Stderr)
	}
	j.s = s
	j.listen = strings.TrimPrefix(s.URL, "nats://")
}

func (j *jumping) restart() {
	j.t.Helper()
	j.s.KillGroup(j.t)
	j.start()
	j.append()
}

// forward has the clock jump ahead and waits until the guard holds.
func (j *jumping) forward() {
	j.t.Helper()
	j.clock.set(j.t, hour)
	j.append() // an executor with nothing to do does not look at its clock
	c := tortureClient(j.t, j.s)
	awaitMode(j.t, j.ctx, c, api.ModeGuard)
	watchTime(j.t, j.ctx, c, "p", time.Second)
	doctor := j.s.Ask(j.t, tortureTenant, "doctor")
	if doctor.Wants(j.t, "doctor", cli.ExitLook); !strings.Contains(doctor.Stdout, "ahead of the monotonic clock") {
		j.t.Errorf("the doctor says\n%s", doctor.Stdout)
	}
}

// serverAgain has the process start its embedded server again, as after a write error:
// what the process knows of the time stays.
func (j *jumping) serverAgain() {
	j.t.Helper()
	c := tortureClient(j.t, j.s)
	bogus := filepath.Join(j.dir, "nats", "jetstream", "$G", "streams", "NONE")
	if err := os.Mkdir(bogus, 0o700); err != nil {
		j.t.Fatal(err)
	}
	cmdtest.Until(j.t, j.ctx, "the embedded server is started again", func() bool {
		return strings.Contains(j.s.Stderr.String(), "starting the embedded server again")
	})
	if err := os.Remove(bogus); err != nil {
		j.t.Fatal(err)
	}
	cmdtest.Until(j.t, j.ctx, "it answers again", func() bool {
		_, err := c.Status(j.ctx)
		return err == nil
	})
	j.append()
	awaitMode(j.t, j.ctx, c, api.ModeGuard)
	watchTime(j.t, j.ctx, c, "p", time.Second)
}

// to sets the clock and has something happen under it.
func (j *jumping) to(seconds int64) {
	j.t.Helper()
	j.clock.set(j.t, seconds)
	awaitMode(j.t, j.ctx, tortureClient(j.t, j.s), api.ModeHolding)
	j.append()
}

// append has a plan of another agent committed: its records carry the clock's stamp.
func (j *jumping) append() {
	j.t.Helper()
	cmdtest.OpenPlan(j.t, cmdtest.Dial(j.t, j.s.URL), tortureTenant, fmt.Sprint("beside-", time.Now().UnixNano()))
}

// confirm is an operator's word that the clock is right.
func (j *jumping) confirm() {
	j.t.Helper()
	record := &pb.Record{Kind: &pb.Record_ClockConfirmed{ClockConfirmed: &pb.ClockConfirmed{Actor: "operator1",
		Reason: "the clock had stood still"}}}
	data, err := ledger.EncodeCommit([]*pb.Record{record})
	if err != nil {
		j.t.Fatal(err)
	}
	source := ledger.Source{Tenant: tortureTenant, Class: ledger.ClassOperator, Name: "operator1"}
	c := tortureClient(j.t, j.s)
	if _, err := c.Append(j.ctx,
		ledger.Append{Subject: source.Subject(), ID: fmt.Sprintf("%032x", 7), Data: data}); err != nil {
		j.t.Fatal(err)
	}
}
