//go:build unix

package child_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp/child"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// asParent makes the test binary one that starts a child, and says what the child says.
const asParent = "SAGENBAUM_TEST_AS_PARENT"

// stubborn is a child that starts another one, which reads no input and minds no signal but one.
const stubborn = `sh -c 'trap "" HUP INT TERM; echo $$; while :; do sleep 1; done' </dev/null & exec cat`

func TestMain(m *testing.M) {
	if os.Getenv(asParent) == "" {
		os.Exit(m.Run())
	}
	_, out, err := child.New(exec.Command("/bin/sh", "-c", stubborn), time.Second).Start()
	if err != nil {
		fmt.Println(err)
	}
	_, _ = io.Copy(os.Stdout, out)
}

// left waits until no process of a group is there.
func left(t *testing.T, group int) {
	t.Helper()
	for late := time.After(testenv.Patience); syscall.Kill(-group, 0) == nil; {
		select {
		case <-late:
			_ = syscall.Kill(-group, syscall.SIGKILL)
			t.Fatal("what a child has started is still there")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// groupOf is the group of the process whose number comes first.
func groupOf(t *testing.T, out io.Reader) int {
	t.Helper()
	line, err := bufio.NewReader(out).ReadString('\n')
	var pid int
	if err == nil {
		_, err = fmt.Sscan(line, &pid)
	}
	group, failed := syscall.Getpgid(pid)
	if err != nil || failed != nil || group == syscall.Getpgrp() {
		t.Fatalf("%q: %v, %v, group %d", line, err, failed, group)
	}
	return group
}

// A process is killed, and with it goes what its child has started: it has no one to tell it.
func TestWhatAChildHasStartedEndsWithAProcessThatIsKilled(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), asParent+"=yes")
	out, err := parent.StdoutPipe()
	if err == nil {
		err = parent.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	group := groupOf(t, out)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	left(t, group)
	_ = parent.Wait()
}

// A child that is ended takes with it what it has started, and nothing is left that watches.
func TestWhatAChildHasStartedEndsWithIt(t *testing.T) {
	t.Parallel()
	process := child.New(exec.Command("/bin/sh", "-c", stubborn), time.Second)
	in, out, err := process.Start()
	if err != nil {
		t.Fatal(err)
	}
	group := groupOf(t, out)
	if err := in.Close(); err != nil {
		t.Errorf("the child did not end well: %v", err)
	}
	if syscall.Kill(-group, 0) != nil {
		t.Error("what it has started ended by itself: the test proves nothing")
	}
	process.End()
	process.End()
	left(t, group)
	for late := time.After(testenv.Patience); ; {
		ps, err := exec.Command("ps", "-A", "-o", "args").Output()
		if err != nil {
			t.Skip("SKIPPED: there is no ps, so that what watches is not looked for")
		}
		if !strings.Contains(string(ps), fmt.Sprintf("sagenbaum-watch %d\n", group)) {
			return
		}
		select {
		case <-late:
			t.Fatal("what watches is still there")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// A child that minds neither the end of its input nor a signal is killed, and one that cannot be
// started is said.
func TestAChildThatDoesNotEndIsKilled(t *testing.T) {
	t.Parallel()
	process := child.New(exec.Command("/bin/sh", "-c", `trap "" TERM; echo $$; while :; do sleep 1; done`),
		100*time.Millisecond)
	in, out, err := process.Start()
	if err != nil {
		t.Fatal(err)
	}
	group := groupOf(t, out)
	if err := in.Close(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("it ended with %v", err)
	}
	process.End()
	left(t, group)
	none := child.New(exec.Command("/no/such/program"), time.Second)
	if _, _, err := none.Start(); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("it is started: %v", err)
	}
	none.End()
	(*child.Process)(nil).End()
}
