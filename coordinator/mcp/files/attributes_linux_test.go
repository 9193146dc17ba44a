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

	// An image that an earlier version has taken says nothing of them.
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

// Attributes that were changed are what they were, none that were added stay, and a file without any
// has none again. What no image carries is never set.
func TestAttributesThatACallHasGivenAreTakenBack(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	for name, was := range map[string]map[string]string{"f": {"user.tag": "1"}, "g": {}} {
		r.write(name, "old")
		r.attributed(name, was)
		before := r.take(name)
		r.write(name, "new")
		r.attributed(name, map[string]string{"user.tag": "2", "user.other": "2", accessList: reader})
		if err := r.Restore(files.Undo{Before: before, After: r.after(before)}); err != nil {
			t.Error(err)
		}
		if now := r.attributes(name); !maps.Equal(now, was) {
			t.Errorf("%s has %q, want %q", name, now, was)
		}
	}
	forged := r.take("f")
	forged.Entries[0].Attributes = "trusted.tag=1"
	r.write("f", "new")
	var refused *ledger.Refused
	if err := r.Restore(files.Undo{Before: forged, After: r.after(forged)}); !errors.As(err, &refused) {
		t.Errorf("an attribute of the system is set: %v", err)
	}
}

// A folder that a call has made on its way, and to which someone has given attributes, is theirs.
func TestAFolderThatHasAttributesSinceStays(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	before := r.take("a/b/f")
	if err := os.MkdirAll(r.path("a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.write("a/b/f", "new")
	after := r.after(before)
	r.attributed("a", map[string]string{"user.tag": "1"})
	if err := r.Restore(files.Undo{Before: before, After: after}); !changed(err) {
		t.Errorf("it says %v", err)
	}
	r.reads("a/b/f", "new")
}

// repositoryWith makes a folder that counts as a repository.
func (r *room) repositoryWith(names ...string) {
	r.t.Helper()
	for _, dir := range []string{".git", "sub"} {
		if err := os.Mkdir(r.path(dir), 0o755); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, name := range names {
		r.write(name, "old")
	}
}

func (r *room) repository(with bool) files.Repository {
	r.t.Helper()
	image, err := r.TakeRepository(r.dir, with)
	if err != nil {
		r.t.Fatal(err)
	}
	return image
}

// What others have given to files and folders of a repository that the call has not changed stays,
// however much it is, and what they have given to one that it has changed is theirs.
func TestAttributesOfOthersInARepositoryStay(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.repositoryWith("f", "sub/g")
	before := r.repository(true)
	r.write("f", "newer")
	left := r.repository(false)
	undo := files.RepositoryUndo{Repository: before, Left: &left, Key: "k"}
	r.attributed("f", map[string]string{"user.tag": "1"})
	if err := r.RestoreRepository(t.Context(), undo); !changed(err) {
		t.Errorf("it says %v", err)
	}
	if err := unix.Removexattr(r.path("f"), "user.tag"); err != nil {
		t.Fatal(err)
	}
	given := map[string]string{"user.tag": "1", accessList: reader}
	r.attributed("sub", given)
	r.attributed("sub/g", map[string]string{"user.a": strings.Repeat("x", 1500), "user.b": strings.Repeat("x", 1500)})
	if err := os.Chmod(r.path("sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	list := r.attributes("sub")
	if err := r.RestoreRepository(t.Context(), undo); err != nil {
		t.Fatal(err)
	}
	r.reads("f", "old")
	info, err := os.Stat(r.path("sub"))
	if now := r.attributes("sub"); err != nil || !maps.Equal(now, list) || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder has %q, %v, %v", now, info.Mode(), err)
	}
	if now := r.attributes("sub/g"); len(now) != 0 {
		t.Errorf("the file has %q", now)
	}

	// A file with more than an image keeps is its owner's once the call has changed it.
	before = r.repository(true)
	r.write("sub/g", "newer")
	if err := unix.Removexattr(r.path("sub/g"), "user.a"); err != nil {
		t.Fatal(err)
	}
	left = r.repository(false)
	undo = files.RepositoryUndo{Repository: before, Left: &left, Key: "k"}
	err = r.RestoreRepository(t.Context(), undo)
	if !changed(err) || !strings.Contains(err.Error(), "an image keeps") {
		t.Errorf("it says %v", err)
	}
}

// A folder that a call has made again is what it was, also where someone has made a file in it since.
func TestAFolderThatWasMadeAgainIsAsItWas(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.repositoryWith("sub/f")
	was := map[string]string{"user.tag": "1", accessList: reader}
	r.attributed("sub", was)
	if err := os.Chmod(r.path("sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	was = r.attributes("sub")
	before := r.repository(true)
	if err := errors.Join(os.RemoveAll(r.path("sub")), os.Mkdir(r.path("sub"), 0o755)); err != nil {
		t.Fatal(err)
	}
	left := r.repository(false)
	r.write("sub/theirs", "theirs")
	undo := files.RepositoryUndo{Repository: before, Left: &left, Key: "k"}
	if err := r.RestoreRepository(t.Context(), undo); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(r.path("sub"))
	if now := r.attributes("sub"); err != nil || info.Mode().Perm() != 0o700 || !maps.Equal(now, was) {
		t.Errorf("it has %q, %v, %v", now, info.Mode(), err)
	}
	r.reads("sub/f", "old")
	r.reads("sub/theirs", "theirs")
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
