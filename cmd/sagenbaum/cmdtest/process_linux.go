//go:build linux

package cmdtest

import (
	"syscall"
	"testing"
)

// Resume lets a stopped process go on.
func (s *Served) Resume(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(s.Command.Process.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// Freeze stops all threads of a server, between two system calls each.
func (s *Served) Freeze(t *testing.T) {
	t.Helper()
	pid := s.Command.Process.Pid
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	for !status.Stopped() {
		_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
		if err != nil && err != syscall.EINTR {
			t.Fatalf("cannot stop the server: %v", err)
		}
	}
}

// KillGroup ends a server at once, with what it runs under.
func (s *Served) KillGroup(t *testing.T) {
	t.Helper()
	err := syscall.Kill(-s.Command.Process.Pid, syscall.SIGKILL)
	if err != nil && err != syscall.ESRCH {
		t.Fatal(err)
	}
	_ = s.Command.Wait() // it says that it was killed
}
