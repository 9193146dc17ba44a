package cmdtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// SmallDisk mounts a file system of 64 MiB, for which the test must be root.
func SmallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if os.Getuid() != 0 {
		t.Skip("*** SKIPPED: only root can mount the small disk of this test ***")
	}
	mount := exec.Command("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", dir)
	if out, err := mount.CombinedOutput(); err != nil {
		t.Skipf("*** SKIPPED: cannot mount the small disk of this test: %v %s ***", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("cannot unmount %s: %v %s", dir, err, out)
		}
	})
	return dir
}

// FillDisk takes all the space that is left on a disk and returns what gives it back.
func FillDisk(t *testing.T, disk string) (empty func()) {
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
