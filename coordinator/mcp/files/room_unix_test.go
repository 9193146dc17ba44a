//go:build unix

package files_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp/files"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// On a full disk no image is kept, so that its call is refused, and an undo that finds no room leaves
// what is there, and works once there is.
func TestWithoutRoomNothingIsLost(t *testing.T) {
	testenv.Alone(t, func(t *testing.T) {
		r, old, now := newRoom(t), strings.Repeat("o", 1<<20), strings.Repeat("n", 1<<10)
		r.write("f", old)
		r.write("g", old+"g")
		before := r.take("f")
		r.write("f", now)
		after := r.after(before)
		lift := testenv.LimitFileSize(t, 64<<10)
		if image, err := r.Take([]string{"g"}); err == nil {
			t.Errorf("an image is kept: %+v", image)
		}
		err := r.Restore(files.Undo{Before: before, After: after})
		if err == nil || changed(err) { // another attempt mends it
			t.Errorf("it is put back: %v", err)
		}
		r.reads("f", now)
		lift()
		if err := r.Restore(files.Undo{Before: before, After: after}); err != nil {
			t.Error(err)
		}
		r.reads("f", old)
		r.reads("g", old+"g")
		if left, err := os.ReadDir(r.dir); err != nil || len(left) != 2 {
			t.Errorf("left %v, %v", left, err)
		}
	})
}

// What is a folder or a link by now is of others: it stays, and so does what it leads to.
func TestWhatIsNoFileAnyMoreIsOfOthers(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *room) error{
		"a folder": func(r *room) error { return os.Mkdir(r.path("f"), 0o755) },
		"a link":   func(r *room) error { return os.Symlink(r.path("other"), r.path("f")) },
	} {
		r := newRoom(t)
		r.write("f", "old")
		r.write("other", "new")
		before := r.take("f")
		r.write("f", "new")
		after := r.after(before)
		if err := errors.Join(os.Remove(r.path("f")), change(r)); err != nil {
			t.Fatal(err)
		}
		is, err := os.Lstat(r.path("f"))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Restore(files.Undo{Before: before, After: after}); !changed(err) {
			t.Errorf("%s: %v", name, err)
		}
		if now, err := os.Lstat(r.path("f")); err != nil || now.Mode() != is.Mode() {
			t.Errorf("%s is %v, %v", name, now, err)
		}
		r.reads("other", "new")
	}
}
