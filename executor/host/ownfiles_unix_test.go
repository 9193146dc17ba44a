//go:build unix

package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// TestNobodyElseReadsTheFilesOfAHost: whatever the umask is, also those of the state store
// and of its snapshots, and what an earlier version left readable.
func TestNobodyElseReadsTheFilesOfAHost(t *testing.T) {
	testenv.Alone(t, nobodyElseReadsTheFilesOfAHost)
}

func nobodyElseReadsTheFilesOfAHost(t *testing.T) {
	testenv.Umask(t, 0)
	r := newRig(t)
	r.serve(done)
	h, stop := r.host("a")
	r.plan("p1", 5, time.Hour)
	r.fail("p1")
	r.ended("p1")
	r.caughtUp()
	r.stored(h)
	if err := h.copies.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantOwned(t, filepath.Join(r.dir, "a"), 10)
	stop()
	state := filepath.Join(r.dir, "a", "state")
	err := filepath.WalkDir(state, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.Chmod(name, 0o755)
		}
		return os.Chmod(name, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	r.host("a")
	r.caughtUp()
	wantOwned(t, filepath.Join(r.dir, "a"), 10)
}

// wantOwned wants so many files at least below a folder, all of them their owner's alone.
func wantOwned(t *testing.T, dir string, least int) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the store has removed it meanwhile
		}
		if err != nil {
			return err
		}
		if !entry.IsDir() {
			files++
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is %v", name, info.Mode())
		}
		return nil
	})
	if err != nil || files < least {
		t.Errorf("%d files, %v", files, err)
	}
}
