//go:build exercise

package torture

import (
	"bufio"
	"bytes"
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

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// soleServer starts a NATS server of its own on an address, over what it has stored in dir, and
// returns when it takes connections.
func soleServer(t *testing.T, ctx context.Context, dir, address string) *natsNode {
	t.Helper()
	conf := filepath.Join(dir, "nats.conf")
	text := fmt.Sprintf("listen: %q\njetstream { store_dir: %q, sync_interval: always, strict: true }\n", address,
		filepath.Join(dir, "store"))
	self, err := os.Executable()
	if err := errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(conf, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	n := &natsNode{name: "sole", dir: dir, command: exec.Command(self, "-c", conf, "-l", filepath.Join(dir, "log"))}
	n.command.Env = []string{asNATS + "=" + keepToAddress, "PATH=" + os.Getenv("PATH")}
	if _, err := n.command.StdinPipe(); err != nil { // it ends with this process
		t.Fatal(err)
	}
	if err := n.command.Start(); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, ctx, "the NATS server takes connections", func() bool {
		conn, err := nats.Connect("nats://" + address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return n
}

// goneFor is how long the NATS server of others stays away.
const goneFor = 3 * time.Second

// The NATS server that `serve --nats` uses is killed under load, stays away for
// seconds and comes back, twice. The executor stays, says so, and goes on.
func TestNATSGoneWhileRunning(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), torturePace)
	defer cancel()
	address := cmdtest.FreeAddress(t)
	folder := filepath.Join(t.TempDir(), "broker")
	broker := soleServer(t, ctx, folder, address)
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--nats", "nats://"+address, "--accept-lossy-broker")
	s.Confess(t)
	l := startLoad(t, ctx, s, false)
	var working []time.Duration
	for range 2 {
		l.await(t, ctx, l.count()+acksMin)
		broker.kill9(t)
		s.Ask(t, tortureTenant, "status").Wants(t, "status without a server", cli.ExitNoServer, "no server at")
		<-time.After(goneFor)
		before := l.count()
		broker = soleServer(t, ctx, folder, address)
		back := time.Now()
		l.await(t, ctx, before+1)
		working = append(working, time.Since(back))
		c := tortureClient(t, s)
		cmdtest.Until(t, ctx, "the executor holds its tenant again", func() bool {
			status, err := c.Status(ctx)
			return err == nil && status.Mode == api.ModeHolding
		})
	}
	t.Logf("2 times gone for %v; to the first new acknowledgement: %s", goneFor, spread(working))
	l.finish(t, ctx, s)
	broker.interrupt(t)
}

// failFsyncs makes every fsync of a server fail with EIO until the returned
// function is called.
func failFsyncs(t *testing.T, ctx context.Context, s *cmdtest.Served) (stop func()) {
	t.Helper()
	strace := exec.CommandContext(ctx, "strace", "-f", "-p", fmt.Sprint(s.Command.Process.Pid), "-o", "/dev/null", "-e",
		"trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO")
	stderr, err := strace.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := strace.Start(); err != nil {
		t.Skipf("*** SKIPPED: this test needs strace (apt-get install strace): %v ***", err)
	}
	lines := bufio.NewScanner(stderr)
	if !lines.Scan() || !strings.Contains(lines.Text(), "attached") {
		_ = strace.Wait()
		t.Skipf("*** SKIPPED: strace may not attach here: %s ***", lines.Text())
	}
	go func() { // ends with strace
		for lines.Scan() {
		}
	}()
	return func() {
		if err := strace.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = strace.Wait() // it says that it was interrupted
	}
}

// Every fsync fails for seconds: nothing may be acknowledged then, the server
// notices and starts again until it can, or ends with a code that says so, and
// then the work goes on.
func TestFailingFsyncsAcknowledgeNothing(t *testing.T) {
	t.Parallel()
	testenv.Strace(t)
	ctx, cancel := context.WithTimeout(t.Context(), torturePace)
	defer cancel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.78.3.2:0")
	s.Confess(t)
	l := startLoad(t, ctx, s, false)
	l.await(t, ctx, acksMin)
	stop := failFsyncs(t, ctx, s)
	// A commit that was synced before the first failure may be acknowledged still.
	<-time.After(goneFor / 3)
	before := l.count()
	<-time.After(goneFor)
	if after := l.count(); after != before {
		t.Errorf("%d acknowledgements while every fsync failed", after-before)
	}
	stop()
	healed, ended := time.Now(), s.Ended()
	if ended {
		// Pebble ends the process when it cannot sync a log that it closes; whoever
		// supervises the server then starts it again.
		_ = s.Command.Wait() // it says with which code
		if s.Command.ProcessState.ExitCode() == cli.ExitGood {
			t.Error("the server ended as if all were well")
		}
		s = s.Again(t)
		s.Confess(t)
	}
	l.await(t, ctx, before+1)
	t.Logf("first acknowledgement %v after the disk had healed", time.Since(healed).Round(time.Millisecond))
	l.await(t, ctx, before+acksMin)
	l.finish(t, ctx, s)
	if !ended && !bytes.Contains(s.Stderr.Bytes(), []byte("starting the embedded server again")) {
		t.Error("the server did not say that it had to start again")
	}
}
