//go:build unix

package testenv

import (
	"os/signal"
	"syscall"
	"testing"
)

// LimitFileSize makes every write after size bytes of a file fail, as on a full disk, until
// lift is called. It works inside Alone only: the limit is the whole process's, and would
// fail what the go command itself writes.
func LimitFileSize(t *testing.T, size uint64) (lift func()) {
	t.Helper()
	mustBeAlone(t, "LimitFileSize")
	signal.Ignore(syscall.SIGXFSZ) // the write fails instead
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	limited := old
	limited.Cur = size
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limited); err != nil {
		t.Fatal(err)
	}
	lift = func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(lift)
	return lift
}

// Umask sets the mask of files that are made, until the test ends. It works inside Alone
// only: the mask is the whole process's.
func Umask(t *testing.T, mask int) {
	t.Helper()
	mustBeAlone(t, "Umask")
	old := syscall.Umask(mask)
	t.Cleanup(func() { syscall.Umask(old) })
}
