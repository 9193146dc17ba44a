//go:build exercise && linux

package torture

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/demo"
)

// loopDisk is a file system of a test's own in a file, which can be cut off as by
// a power failure: what was not synced is gone, exactly.
type loopDisk struct {
	image, dir string
	options    string // of mount
	mounted    bool
}

// newLoopDisk makes and mounts an ext4 file system, for which the test must be
// root and have the tools.
func newLoopDisk(t *testing.T, mebibytes int64) *loopDisk {
	t.Helper()
	return newDiskOf(t, "ext4", mebibytes)
}

// newDiskOf is newLoopDisk for another file system: ext4 or xfs.
func newDiskOf(t *testing.T, fs string, mebibytes int64) *loopDisk {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("*** SKIPPED: only root can mount the file system of this test ***")
	}
	for _, tool := range []string{"mkfs." + fs, "mount", "umount", "xfs_io"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("*** SKIPPED: this test needs %s (apt-get install e2fsprogs mount xfsprogs) ***", tool)
		}
	}
	d := &loopDisk{image: filepath.Join(imageFolder(t), "image"), dir: t.TempDir()}
	file, err := os.Create(d.image)
	if err == nil {
		err = file.Truncate(mebibytes << 20)
	}
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	force, options := "-F", "loop"
	if fs == "xfs" {
		force, options = "-f", "loop,nouuid" // a copy of it may be mounted beside it
	}
	d.options = options
	if out, err := exec.Command("mkfs."+fs, "-q", force, d.image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.%s: %v %s", fs, err, out)
	}
	if out, err := d.mount(); err != nil {
		t.Skipf("*** SKIPPED: cannot mount a loop device here: %v %s ***", err, out)
	}
	t.Cleanup(func() {
		if d.mounted {
			_ = exec.Command("umount", "-l", d.dir).Run() // a server may still be there
		}
	})
	return d
}

// imageFolder is where the disks of a test lie: in memory in an ordinary run, where
// there is plenty, for they are synced all the time; on the machine's disk in a long
// one, where a sync takes as long as it does.
func imageFolder(t *testing.T) string {
	t.Helper()
	const memory = "/dev/shm"
	var machine syscall.Sysinfo_t
	var room syscall.Statfs_t
	if os.Getenv("SAGENBAUM_TORTURE") == "" && syscall.Sysinfo(&machine) == nil &&
		machine.Freeram*uint64(machine.Unit) > 6<<30 &&
		syscall.Statfs(memory, &room) == nil && room.Bavail*uint64(room.Bsize) > 4<<30 {
		if dir, err := os.MkdirTemp(memory, "sagenbaum-torture-"); err == nil {
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			return dir
		}
	}
	return t.TempDir()
}

func (d *loopDisk) mount() ([]byte, error) {
	out, err := exec.Command("mount", "-o", d.options, d.image, d.dir).CombinedOutput()
	d.mounted = err == nil
	return out, err
}

// data is the server's folder on the disk.
func (d *loopDisk) data() string { return filepath.Join(d.dir, "data") }

// cut takes the disk away: from now on nothing reaches it, and what was not synced
// before never will.
func (d *loopDisk) cut(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("xfs_io", "-x", "-c", "shutdown", d.dir).CombinedOutput(); err != nil {
		t.Fatalf("xfs_io: %v %s", err, out)
	}
}

// back mounts the disk again, as after the power has come back. While somebody else
// still has the old mount, as a process in a mount namespace of its own that began
// meanwhile, the kernel gives out the file system that was cut: it is tried again,
// then with a copy of the image, which has what had reached the disk.
func (d *loopDisk) back(t *testing.T) {
	t.Helper()
	copied := false
	for started := time.Now(); ; {
		out, err := exec.Command("umount", d.dir).CombinedOutput()
		if err == nil {
			d.mounted = false
			if late := time.Since(started) > 3*time.Second; late && !copied {
				d.copyImage(t)
				copied = true
			}
			if out, err = d.mount(); err == nil {
				if err = d.takesFiles(); err == nil {
					return
				}
			}
		}
		if time.Since(started) > time.Minute {
			t.Fatalf("the disk does not come back: %v %s", err, out)
		}
		<-time.After(demo.AgainPause) // the kernel is still closing the killed server's files
	}
}

// takesFiles tells whether the disk can be written, which one that was cut cannot.
func (d *loopDisk) takesFiles() error {
	name := filepath.Join(d.dir, "back")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		return err
	}
	return os.Remove(name)
}

func (d *loopDisk) copyImage(t *testing.T) {
	t.Helper()
	fresh := d.image + "+"
	if out, err := exec.Command("cp", "--sparse=always", d.image, fresh).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v %s", err, out)
	}
	if err := os.Remove(d.image); err != nil {
		t.Fatal(err)
	}
	d.image = fresh
}

// powerCut fails the power under load: it stops the server wherever it is, cuts
// the disk, kills the server, and brings the disk back. It returns what had been
// promised. The server must stand still first: an fsync that is under way while
// ext4 is cut may say that it succeeded and has not (3 of 80 cuts of a program
// that only writes and syncs, Linux 6.18), and when the power fails nobody is
// there to hear it.
func powerCut(t *testing.T, s *cmdtest.Served, d *loopDisk, l *load) (acked map[string]bool, ends map[string]string) {
	t.Helper()
	s.Freeze(t)
	d.cut(t)
	s.Kill9(t)
	acked, ends = l.promises()
	d.back(t)
	return acked, ends
}

// Power cuts under load: whatever was acknowledged is in the ledger afterwards,
// and nothing is there by half.
func TestPowerCutLosesNoAcknowledgedCommit(t *testing.T) {
	t.Parallel()
	d := newLoopDisk(t, 256)
	cycles := tortureCycles(t, 5)
	ctx, cancel := context.WithTimeout(t.Context(), torturePace+time.Duration(cycles)*10*time.Second)
	defer cancel()
	s := cmdtest.ServeFor(t, d.data(), "--listen", "127.78.1.1:0")
	l := startLoad(t, ctx, s, false)
	var ready []time.Duration
	for cycle := range cycles {
		l.await(t, ctx, l.count()+acksMin)
		acked, ends := powerCut(t, s, d, l)
		started := time.Now()
		s = s.Again(t)
		ready = append(ready, time.Since(started))
		f := refold(t, stored(t, ctx, tortureClient(t, s)))
		if missing := lost(f, acked, ends); len(missing) > 0 {
			t.Fatalf("cut %d: acknowledged and lost: %d of %d: %v", cycle+1, len(missing), len(acked), missing)
		}
	}
	t.Logf("%d power cuts; from start to ready: %s", cycles, spread(ready))
	l.finish(t, ctx, s)
}

// The same with --no-sync must lose something, or the test above cuts nothing.
func TestPowerCutWithoutSyncLosesAcknowledgedCommits(t *testing.T) {
	t.Parallel()
	const tries = 3
	for range tries {
		d := newLoopDisk(t, 256)
		ctx, cancel := context.WithTimeout(t.Context(), torturePace)
		s := cmdtest.ServeFor(t, d.data(), "--listen", "127.78.1.2:0", "--no-sync")
		l := startLoad(t, ctx, s, true)
		l.await(t, ctx, acksMin)
		acked, ends := powerCut(t, s, d, l)
		cancel() // agents that go on would register again what was lost
		l.running.Wait()
		l.conn.Close()
		s = s.Again(t, "--no-sync")
		readable, done := context.WithTimeout(t.Context(), torturePace)
		missing := lost(refold(t, stored(t, readable, tortureClient(t, s))), acked, ends)
		done()
		s.Kill9(t)
		if len(missing) > 0 {
			t.Logf("lost %d of %d acknowledged pairs", len(missing), len(acked))
			return
		}
	}
	t.Fatalf("%d power cuts without sync lost nothing: this harness does not cut the power", tries)
}

// A server that was killed may leave commits that it wrote and did not sync. The
// next one acknowledges their retries as duplicates, so it must sync them first.
// Here the first does not sync at all, and the next one serves another tenant, so
// that nothing of its own syncs this ledger.
func TestWhatAKilledServerLeftIsSyncedBeforeItIsAcknowledged(t *testing.T) {
	t.Parallel()
	d := newLoopDisk(t, 256)
	ctx, cancel := context.WithTimeout(t.Context(), torturePace)
	defer cancel()
	s := cmdtest.ServeFor(t, d.data(), "--listen", "127.78.1.3:0", "--no-sync")
	var commits []ledger.Append
	for n := range 20 {
		commits = append(commits, pairCommit(t, n))
	}
	written := appendAll(t, ctx, s, commits)
	s.Kill9(t)
	s = s.Again(t, "--tenant", "other") // this one syncs
	if again := appendAll(t, ctx, s, commits); !slices.Equal(again, written) {
		t.Fatalf("commits of %d are known again at %d", written, again)
	}
	s.Freeze(t)
	d.cut(t)
	s.Kill9(t)
	d.back(t)
	s = s.Again(t)
	f := refold(t, stored(t, ctx, tortureClient(t, s)))
	for n := range commits {
		if action := fmt.Sprintf("p/a%d", n); !f.actions[action] {
			t.Errorf("%s was acknowledged by a server that syncs, and a power cut took it", action)
		}
	}
}

// appendAll appends commits, as retries when they were appended before, and returns the sequence of
// each.
func appendAll(t *testing.T, ctx context.Context, s *cmdtest.Served,
	commits []ledger.Append) []uint64 {
	t.Helper()
	appender, err := jetstream.Attach(cmdtest.Dial(t, s.URL), tortureTenant)
	if err != nil {
		t.Fatal(err)
	}
	var sequences []uint64
	for _, c := range commits {
		sequence, err := appender.Append(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		sequences = append(sequences, sequence)
	}
	return sequences
}

// pairCommit is the registration of one action, with its id.
func pairCommit(t *testing.T, n int) ledger.Append {
	t.Helper()
	action := fmt.Sprint("a", n)
	data, err := ledger.EncodeCommit([]*pb.Record{
		{Plan: "p", Action: action,
			Kind: &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{Capability: makeThing,
				Class: pb.Class_CLASS_COMPENSABLE, ContractDigest: make([]byte, 32)}}},
		{Plan: "p", Action: action,
			Kind: &pb.Record_CompensationRegistered{CompensationRegistered: &pb.CompensationRegistered{
				Capability: unmakeThing, Key: ledger.Key(tortureTenant, "p", action, "undo"), Attempts: 1,
				OnInDoubt: pb.OnInDoubt_ON_IN_DOUBT_COMPENSATE,
				TimeoutNs: int64(time.Second), BackoffNs: int64(time.Second), BackoffMaxNs: int64(time.Second),
			}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	source := ledger.Source{Tenant: tortureTenant, Class: ledger.ClassAgent, Name: "tester", Plan: "p"}
	return ledger.Append{Subject: source.Subject(), ID: fmt.Sprintf("%032x", n+1), Data: data}
}

// fullFor is how long a disk stays full.
const fullFor = 4 * time.Second

// The disk runs full under load: no acknowledgement that does not hold, the
// server notices although only agents append, and when there is room again the
// work goes on by itself.
func TestDiskFullUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	for n, what := range []string{"only agents append", "all append"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := newLoopDisk(t, 256)
			ctx, cancel := context.WithTimeout(t.Context(), torturePace)
			defer cancel()
			s := cmdtest.ServeFor(t, d.data(), "--listen", fmt.Sprintf("127.78.2.%d:0", n+1))
			s.Confess(t)
			l := startLoad(t, ctx, s, n == 0)
			l.await(t, ctx, acksMin)
			starve(t, ctx, d, l)
			l.finish(t, ctx, s)
			if log := s.Stderr.String(); !strings.Contains(log, "starting the embedded server again") {
				t.Error("the server did not say that it had to start again")
			}
		})
	}
}

// starve fills a disk under load, keeps it full for a while, and returns when the
// agents have worked on with room.
func starve(t *testing.T, ctx context.Context, d *loopDisk, l *load) {
	t.Helper()
	empty := cmdtest.FillDisk(t, d.dir)
	full, stop := context.WithTimeout(ctx, fullFor)
	defer stop()
	l.openUntil(full)
	before := l.count()
	empty()
	room := time.Now()
	l.await(t, ctx, before+1)
	t.Logf("first acknowledgement %v after there was room", time.Since(room).Round(time.Millisecond))
	l.await(t, ctx, before+acksMin)
}

// stateElsewhere makes a server's folder whose folded state is on a disk.
func stateElsewhere(t *testing.T, d *loopDisk) (dir string) {
	t.Helper()
	dir = cmdtest.DataDir(t)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.Symlink(d.dir, filepath.Join(dir, "executor"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Only the disk of the folded state runs full. The ledger is elsewhere and goes on
// taking records; they are folded when there is room.
func TestDiskOfTheStateFullLosesNothing(t *testing.T) {
	t.Parallel()
	d := newLoopDisk(t, 256)
	ctx, cancel := context.WithTimeout(t.Context(), torturePace)
	defer cancel()
	s := cmdtest.ServeFor(t, stateElsewhere(t, d), "--listen", "127.78.2.9:0")
	s.Confess(t)
	l := startLoad(t, ctx, s, false)
	l.await(t, ctx, acksMin)
	starve(t, ctx, d, l)
	l.finish(t, ctx, s)
	if log := s.Stderr.String(); !strings.Contains(log, "waiting for room") {
		t.Error("the server did not say that its disk was full")
	}
}

// The disk of the folded state breaks: the server ends. The next one
// folds what that disk still has, and the rest from the ledger.
func TestDiskOfTheStateGoneEndsTheServerAndLosesNothing(t *testing.T) {
	t.Parallel()
	d := newLoopDisk(t, 256)
	ctx, cancel := context.WithTimeout(t.Context(), torturePace)
	defer cancel()
	s := cmdtest.ServeFor(t, stateElsewhere(t, d), "--listen", "127.78.2.10:0")
	l := startLoad(t, ctx, s, false)
	l.await(t, ctx, acksMin)
	d.cut(t)
	late := time.AfterFunc(testenv.Patience, func() { s.Command.Process.Kill() })
	_ = s.Command.Wait() // it says with which code
	late.Stop()
	r := cmdtest.Result{Code: s.Command.ProcessState.ExitCode(), Stderr: s.Stderr.String()}
	// Pebble may end the process itself, with the same code.
	r.Wants(t, "serve without the disk of its state", cli.ExitFailed)
	d.back(t)
	before := l.count()
	s = s.Again(t)
	s.Confess(t)
	l.await(t, ctx, before+acksMin)
	l.finish(t, ctx, s)
}
