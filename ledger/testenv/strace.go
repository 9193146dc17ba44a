package testenv

import (
	"os/exec"
	"testing"
)

// Strace skips a test that follows system calls where strace is missing, or may not follow a
// process: in some containers, and where the test is followed itself.
func Strace(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("*** SKIPPED: this test needs strace (apt-get install strace) ***")
	}
	if said, err := exec.Command("strace", "-o", "/dev/null", "true").CombinedOutput(); err != nil {
		t.Skipf("*** SKIPPED: strace may not follow a process here: %v: %.200s ***", err, said)
	}
}
