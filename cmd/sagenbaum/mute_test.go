package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// smallDisk mounts a file system of 64 MiB, for which the test must be root.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if os.Getuid() != 0 {
		t.Skip("*** SKIPPED: only root can mount the small disk of this test ***")
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("*** SKIPPED: cannot mount the small disk of this test: %v %s ***", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("cannot unmount %s: %v %s", dir, err, out)
		}
	})
	return dir
}

// fillDisk takes all the space that is left on a disk and returns what gives it back.
func fillDisk(t *testing.T, disk string) (empty func()) {
	t.Helper()
	ballast, err := os.Create(filepath.Join(disk, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 64<<10)
	for err == nil {
		_, err = ballast.Write(block)
	}
	defer ballast.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	return func() {
		if err := os.Remove(ballast.Name()); err != nil {
			t.Error(err)
		}
	}
}

// The disk runs full: nothing is acknowledged that is not stored, and when there
// is room again the work goes on by itself, with everything acknowledged.
func TestServeGoesOnAfterTheDiskWasFull(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	disk := smallDisk(t)
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(disk, filepath.Join(data, "nats")); err != nil {
		t.Fatal(err)
	}
	s := serveFor(t, data, "--listen", "127.0.0.1:0")
	conn := dial(t, s.url)
	openPlan(t, conn, "default", "before")
	agent, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: "default", Agent: "tester",
		AppendTimeout: 3 * time.Second, Contracts: []contract.Contract{
			{Capability: "mail.send", Class: contract.Irreversible},
		}})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := agent.Begin(t.Context(), coordinator.PlanSpec{ID: "during", Owner: "operator1"})
	if err != nil {
		t.Fatal(err)
	}
	empty := fillDisk(t, disk)
	action := coordinator.Action{ID: "a1", Capability: "mail.send", Input: strings.Repeat("x", 32<<10)}
	if err := plan.Report(t.Context(), action, coordinator.Outcome{}); !errors.Is(err, ledger.ErrInDoubt) {
		t.Errorf("a report on a full disk ended with %v, want in doubt", err)
	}
	empty()
	ctx, cancel := context.WithTimeout(t.Context(), demoMax)
	defer cancel()
	for err = ledger.ErrInDoubt; errors.Is(err, ledger.ErrInDoubt) && ctx.Err() == nil; {
		err = plan.Report(ctx, action, coordinator.Outcome{})
	}
	if err != nil {
		t.Fatalf("no work after there was room again: %v\n%s", err, s.stderr)
	}
	if err := agent.Close(ctx); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"before", "during"} {
		p := decoded[view.Plan](t, s.ask(t, "default", "plan", "show", id, "-o", "json"))
		if p.ActionCount != 1 || p.Held != 1 {
			t.Errorf("plan %s has %d actions, %d held, want one", id, p.ActionCount, p.Held)
		}
	}
	if r := s.end(t); r.code != cli.ExitGood || !strings.Contains(r.stderr, "starting the embedded server again") {
		t.Errorf("serve ended with %d and did not say that it had to start again:\n%s", r.code, r.stderr)
	}
}
