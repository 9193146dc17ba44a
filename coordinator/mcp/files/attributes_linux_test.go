package files_test

import (
	"errors"
	"maps"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp/files"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// reader is an access control list by which user 1234 may read a file of mode 0640.
const reader = "\x02\x00\x00\x00" + "\x01\x00\x06\x00\xff\xff\xff\xff" + "\x02\x00\x04\x00\xd2\x04\x00\x00" +
	"\x04\x00\x04\x00\xff\xff\xff\xff" + "\x10\x00\x04\x00\xff\xff\xff\xff" + "\x20\x00\x00\x00\xff\xff\xff\xff"

const accessList = "system.posix_acl_access"

// attributed gives a file extended attributes. It skips the test where a file system has none.
func (r *room) attributed(name string, of map[string]string) {
	r.t.Helper()
	for attribute, value := range of {
		err := unix.Setxattr(r.path(name), attribute, []byte(value), 0)
		if errors.Is(err, unix.ENOTSUP) {
			r.t.Skipf("SKIPPED: %s has no attributes %s", r.dir, attribute)
		} else if err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *room) attributes(name string) map[string]string {
	of := map[string]string{}
	for _, attribute := range []string{"user.tag", "user.other", accessList} {
		value := make([]byte, 256)
		if n, err := unix.Getxattr(r.path(name), attribute, value); err == nil {
			of[attribute] = string(value[:n])
		}
	}
	return of
}

// A server that writes another file in the place of one loses its extended attributes and its
// access control list. The undo gives them back, once or again after a kill.
func TestAttributesAreBackAsTheyWere(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.write("f", "old")
	was := map[string]string{"user.tag": "a\x00b&=", accessList: reader}
	r.attributed("f", was)
	before := r.take("f")
	r.write("new", "new")
	if err := os.Rename(r.path("new"), r.path("f")); err != nil {
		t.Fatal(err)
	}
	after := r.after(before)
	for range 2 {
		if err := r.Restore(files.Undo{Before: before, After: after}); err != nil {
			t.Fatal(err)
		}
		if now := r.attributes("f"); !maps.Equal(now, was) {
			t.Errorf("it has %q, want %q", now, was)
		}
		r.reads("f", "old")
	}

	// A call that has put the same bytes there has lost them alone.
	r.write("new", "old")
	if err := os.Rename(r.path("new"), r.path("f")); err != nil {
		t.Fatal(err)
	}
	if err := r.Restore(files.Undo{Before: before, After: r.after(before)}); err != nil ||
		!maps.Equal(r.attributes("f"), was) {
		t.Errorf("it has %q, %v", r.attributes("f"), err)
	}

	// An image of before that does not have them leaves them.
	old := r.take("f")
	old.Entries[0].Attributes = ""
	r.write("f", "newer")
	if err := r.Restore(files.Undo{Before: old, After: r.after(old)}); err != nil {
		t.Error(err)
	}
	r.reads("f", "old")
}

// Attributes that someone has given a file since are never taken away, as its mode is not.
func TestAttributesOfOthersStay(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"new", "old"} {
		r := newRoom(t)
		r.write("f", "old")
		r.attributed("f", map[string]string{"user.tag": "1"})
		before := r.take("f")
		r.write("f", content)
		after := r.after(before)
		given := map[string]string{"user.tag": "1", "user.other": "2"}
		r.attributed("f", given)
		err := r.Restore(files.Undo{Before: before, After: after})
		if changed(err) != (content == "new") || content == "new" &&
			!strings.Contains(err.Error(), "other extended attributes") {
			t.Errorf("%s: %v", content, err)
		}
		r.reads("f", content)
		if now := r.attributes("f"); !maps.Equal(now, given) {
			t.Errorf("%s: it has %q", content, now)
		}
	}
}

// More attributes than an image carries are refused before the call.
func TestAttributesThatNoImageCarriesAreRefused(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.write("f", "old")
	for _, name := range []string{"user.a", "user.b"} {
		r.attributed("f", map[string]string{name: strings.Repeat("x", 1100)})
	}
	var refused *ledger.Refused
	if _, err := r.Take([]string{r.path("f")}); !errors.As(err, &refused) ||
		!strings.Contains(err.Error(), "at most 2048 bytes") {
		t.Errorf("it is taken: %v", err)
	}
}

// Git writes other files in the place of those that it changes. After the undo of all of a
// repository they have their attributes, and so have folders.
func TestAttributesInARepositoryAreBack(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	for _, dir := range []string{".git", "sub"} {
		if err := os.Mkdir(r.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.write("sub/f", "old")
	was := map[string]string{"user.tag": "1", accessList: reader}
	r.attributed("sub/f", was)
	r.attributed("sub", map[string]string{"user.tag": "2"})
	before, err := r.TakeRepository(r.dir, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(r.path("sub")); err != nil {
		t.Fatal(err)
	}
	left, err := r.TakeRepository(r.dir, false)
	if err != nil {
		t.Fatal(err)
	}
	undo := files.RepositoryUndo{Repository: before, Left: &left, Key: "k"}
	if err := r.RestoreRepository(t.Context(), undo); err != nil {
		t.Fatal(err)
	}
	if now := r.attributes("sub/f"); !maps.Equal(now, was) {
		t.Errorf("the file has %q", now)
	}
	if now := r.attributes("sub"); now["user.tag"] != "2" {
		t.Errorf("the folder has %q", now)
	}
	r.reads("sub/f", "old")
}
