//go:build unix

package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// On a full disk no lock of Git stays that could not be written: an undo that puts nothing back needs
// none, and another one works once there is room.
func TestWithoutRoomForALockNoneStays(t *testing.T) {
	testenv.Alone(t, func(t *testing.T) {
		dir, f := repository(t)
		path := filepath.Join(dir, "a")
		if err := os.WriteFile(path, []byte("1"), 0o644); err != nil {
			t.Fatal(err)
		}
		before, err := f.TakeRepository(dir, true)
		if err != nil {
			t.Fatal(err)
		}
		undo := RepositoryUndo{Repository: before, Left: &before, Key: "key"}
		lift := testenv.LimitFileSize(t, 0)
		if err := f.RestoreRepository(t.Context(), undo); err != nil {
			t.Errorf("nothing is to be put back: %v", err)
		}
		lift()
		if err := os.WriteFile(path, []byte("2"), 0o644); err != nil {
			t.Fatal(err)
		}
		left, err := f.TakeRepository(dir, true)
		if err != nil {
			t.Fatal(err)
		}
		undo.Left = &left
		lift = testenv.LimitFileSize(t, 0)
		for range 2 {
			if err := f.RestoreRepository(t.Context(), undo); err == nil ||
				!strings.Contains(err.Error(), "cannot keep Git from working") {
				t.Errorf("without room: %v", err)
			}
		}
		lift()
		if now, err := f.TakeRepository(dir, false); err != nil || now != left {
			t.Errorf("it is %+v, want %+v: %v", now, left, err)
		}
		if err := f.RestoreRepository(t.Context(), undo); err != nil {
			t.Error(err)
		}
		if now, err := f.TakeRepository(dir, false); err != nil || now != before {
			t.Errorf("it is %+v, want %+v: %v", now, before, err)
		}
	})
}
