package files_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp/files"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// room is a root with images.
type room struct {
	t     *testing.T
	dir   string
	state string
	*files.Files
}

func newRoom(t *testing.T) *room {
	t.Helper()
	r := &room{t: t, dir: t.TempDir(), state: t.TempDir()}
	var err error
	if r.Files, err = files.New(files.Config{Roots: []string{r.dir}, State: r.state}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *room) path(name string) string { return filepath.Join(r.dir, name) }

func (r *room) write(name, content string) {
	r.t.Helper()
	if err := os.WriteFile(r.path(name), []byte(content), 0o640); err != nil {
		r.t.Fatal(err)
	}
	long := time.Date(2020, 1, 1, 0, 0, 0, len(content), time.UTC)
	if err := os.Chtimes(r.path(name), long, long); err != nil {
		r.t.Fatal(err)
	}
}

func (r *room) take(names ...string) files.Image {
	r.t.Helper()
	image, err := r.Take(names)
	if err != nil {
		r.t.Fatal(err)
	}
	raw, err := json.Marshal(image) // as a record has it
	if err != nil {
		r.t.Fatal(err)
	}
	var again files.Image
	if err := json.Unmarshal(raw, &again); err != nil {
		r.t.Fatal(err)
	}
	return again
}

func (r *room) after(before files.Image) *files.Image {
	r.t.Helper()
	image, err := r.Again(before)
	if err != nil {
		r.t.Fatal(err)
	}
	return &image
}

func (r *room) reads(name, want string) {
	r.t.Helper()
	content, err := os.ReadFile(r.path(name))
	if err != nil || string(content) != want {
		r.t.Errorf("%s is %.40q, %v, want %.40q", name, content, err, want)
	}
}

func changed(err error) bool {
	var c *files.Changed
	return errors.As(err, &c)
}

func TestAFileIsPutBackUnlessItWasChangedSince(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 10, 6 << 10, 6<<10 + 1, 3 << 20} {
		r, old := newRoom(t), strings.Repeat("o", size)
		r.write("f", old)
		before := r.take("f")
		r.write("f", "new")
		after := r.after(before)
		r.write("f", "someone's")
		if err := r.Restore(files.Undo{Before: before, After: after}); !changed(err) {
			t.Errorf("a file that was changed since: %v", err)
		}
		r.reads("f", "someone's")
		r.write("f", "new")
		for range 2 { // it can be repeated
			if err := r.Restore(files.Undo{Before: before, After: after}); err != nil {
				t.Error(err)
			}
			r.reads("f", old)
		}
		if now := r.after(before); !files.Same(before, *now) && now.Entries[0].Modified != before.Entries[0].Modified {
			t.Errorf("times: %+v, want %+v", now, before)
		}
		if err := os.Remove(r.path("f")); err != nil {
			t.Fatal(err)
		}
		if err := r.Restore(files.Undo{Before: before, After: after}); !changed(err) {
			t.Errorf("a file that was deleted since: %v", err)
		}
	}
}

// In doubt only what was to be written tells whether a file is ours.
func TestWithoutAnImageAfterWhatWasWrittenDecides(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.write("f", "old")
	before := r.take("f")
	if err := r.Restore(files.Undo{Before: before}); err != nil {
		t.Errorf("nothing has happened: %v", err)
	}
	r.write("f", "new")
	if err := r.Restore(files.Undo{Before: before}); !changed(err) {
		t.Errorf("no one knows whose it is: %v", err)
	}
	if err := r.Restore(files.Undo{Before: before, Written: json.RawMessage(`"other"`)}); !changed(err) {
		t.Errorf("something else was to be written: %v", err)
	}
	if err := r.Restore(files.Undo{Before: before, Written: json.RawMessage(`"new"`)}); err != nil {
		t.Error(err)
	}
	r.reads("f", "old")
	r.write("f", "new")
	digest := `{"sha256":"11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437"}`
	if err := r.Restore(files.Undo{Before: before, Written: json.RawMessage(digest)}); err != nil {
		t.Error(err)
	}
	r.reads("f", "old")
}

func TestWhatAnEffectHasMadeGoesToTheTrash(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	before := r.take("a/b/new")
	if err := os.MkdirAll(r.path("a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.write("a/b/new", "mine")
	after := r.after(before)
	r.write("a/b/new", "theirs")
	if err := r.Restore(files.Undo{Before: before, After: after, Key: "k"}); !changed(err) {
		t.Errorf("a file that was changed since: %v", err)
	}
	r.write("a/b/new", "mine")
	for range 2 {
		if err := r.Restore(files.Undo{Before: before, After: after, Key: "k"}); err != nil {
			t.Error(err)
		}
	}
	if content, err := os.ReadFile(filepath.Join(r.state, "trash", "k", "new")); string(content) != "mine" {
		t.Errorf("the trash has %q, %v", content, err)
	}
	if _, err := os.Stat(r.path("a")); err == nil {
		t.Error("its folders are still there")
	}
	if err := os.MkdirAll(r.path("a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	litter := before.Entries[0].Path + "." + strings.Repeat("0", 32) + ".tmp"
	if err := os.WriteFile(litter, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Restore(files.Undo{Before: before, Litter: `\.[0-9a-f]{32}\.tmp`, Key: "k"}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(litter); err == nil {
		t.Error("what was cut short is still there")
	}
	if err := r.Prune(-time.Hour); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(filepath.Join(r.state, "trash")); err != nil || len(entries) != 0 {
		t.Errorf("the trash has %v, %v", entries, err)
	}
}

func TestFoldersAreRemovedOnlyIfEmpty(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	before := r.take("x/y/z")
	if err := os.MkdirAll(r.path("x/y/z"), 0o755); err != nil {
		t.Fatal(err)
	}
	after := r.after(before)
	r.write("x/y/theirs", "t")
	err := r.Restore(files.Undo{Before: before, After: after})
	if !changed(err) || !strings.Contains(err.Error(), "theirs") {
		t.Errorf("a folder that is not empty: %v", err)
	}
	if err := errors.Join(os.Remove(r.path("x/y/theirs")), os.Chmod(r.path("x/y"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := r.Restore(files.Undo{Before: before, After: after}); !changed(err) {
		t.Errorf("a folder with permissions of someone: %v", err)
	}
	if err := errors.Join(os.Chmod(r.path("x/y"), 0o755), os.Chmod(r.path("x/y/z"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := r.Restore(files.Undo{Before: before, After: after}); !changed(err) {
		t.Errorf("a folder with permissions of someone: %v", err)
	}
	if err := os.Chmod(r.path("x/y/z"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.Restore(files.Undo{Before: before, After: after}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(r.path("x")); err == nil {
		t.Error("x is still there")
	}
}

func TestAMoveIsUndoneUnlessSomethingIsInItsWay(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.write("from", "content")
	before := r.take("from", "to")
	if err := r.MoveBack(files.Undo{Before: before}); err != nil {
		t.Errorf("it did not happen: %v", err)
	}
	if err := os.Rename(r.path("from"), r.path("to")); err != nil {
		t.Fatal(err)
	}
	after := r.after(before)
	r.write("from", "theirs")
	if err := r.MoveBack(files.Undo{Before: before, After: after}); !changed(err) {
		t.Errorf("the source is there again: %v", err)
	}
	if err := os.Remove(r.path("from")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.MoveBack(files.Undo{Before: before, After: after}); err != nil {
			t.Error(err)
		}
		r.reads("from", "content")
	}
	if err := os.Remove(r.path("from")); err != nil {
		t.Fatal(err)
	}
	if err := r.MoveBack(files.Undo{Before: before, After: after}); !changed(err) {
		t.Errorf("both are gone: %v", err)
	}
	r.write("spare", "")       // which may get the place of the file that is gone
	r.write("from", "content") // as by the undo of what came later
	if err := r.MoveBack(files.Undo{Before: before}); err != nil {
		t.Errorf("the source has its bytes, in another file: %v", err)
	}
	r.write("other", "theirs")
	if err := os.Rename(r.path("other"), r.path("from")); err != nil {
		t.Fatal(err)
	}
	if err := r.MoveBack(files.Undo{Before: before}); !changed(err) {
		t.Errorf("the source has other bytes: %v", err)
	}
}

// Permissions that someone has given since are a conflict as changed bytes are. A file that was only
// touched is put back, with the time of that: its bytes are others than those that were touched.
func TestPermissionsOfOthersAreNotUndone(t *testing.T) {
	t.Parallel()
	chmod := func(name string, mode os.FileMode) func(*room) error {
		return func(r *room) error { return os.Chmod(r.path(name), mode) }
	}
	long := time.Date(2021, 1, 1, 0, 0, 0, 1, time.UTC)
	for _, test := range []struct {
		name     string
		old, new string // of the file; no old: there was none
		since    func(*room) error
		conflict bool
		touched  bool // its time is not that of before
	}{
		{"none", "old", "new", chmod("x/f", 0o640), false, false},
		{"chmod", "old", "new", chmod("x/f", 0o600), true, false},
		{"setuid", "old", "new", chmod("x/f", 0o640|os.ModeSetuid), true, false},
		{"touch", "old", "new", func(r *room) error { return os.Chtimes(r.path("x/f"), long, long) }, false, true},
		{"a file system without fractions", "old", "new", func(r *room) error {
			whole := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
			return os.Chtimes(r.path("x/f"), whole, whole)
		}, false, false},
		{"a new file", "", "new", chmod("x/f", 0o640), false, false},
		{"chmod of a new file", "", "new", chmod("x/f", 0o600), true, false},
		{"chmod of a new folder", "", "new", chmod("x", 0o700), true, false},
		{"chmod of the folder around it", "old", "new", chmod("x", 0o700), false, false},
	} {
		r := newRoom(t)
		if test.old != "" {
			if err := os.Mkdir(r.path("x"), 0o755); err != nil {
				t.Fatal(err)
			}
			r.write("x/f", test.old)
		}
		before := r.take("x/f")
		if err := os.MkdirAll(r.path("x"), 0o755); err != nil {
			t.Fatal(err)
		}
		r.write("x/f", test.new)
		after := r.after(before)
		if err := test.since(r); err != nil {
			t.Fatal(err)
		}
		for range 2 { // it can be repeated
			if err := r.Restore(files.Undo{Before: before, After: after, Key: "k"}); changed(err) != test.conflict ||
				err != nil && !test.conflict {
				t.Errorf("%s: %v", test.name, err)
			}
		}
		now := r.after(before).Entries[0]
		switch was := before.Entries[0]; {
		case test.conflict:
			r.reads("x/f", test.new)
		case now.SHA256 != was.SHA256 || now.Mode != was.Mode ||
			(now.Modified != was.Modified) != test.touched || now.Modified == long.Format(time.RFC3339Nano):
			t.Errorf("%s: it is %+v, and was %+v", test.name, now, was)
		}
	}
}

// An effect that has left the bytes as they were: what it has done to mode and time is undone, and
// what someone else has done since is not.
func TestModeAndTimeOfTheSameBytes(t *testing.T) {
	t.Parallel()
	for _, since := range []os.FileMode{0o644, 0o640, 0o600} { // the effect's, that of before, another's
		r := newRoom(t)
		r.write("f", "same")
		before := r.take("f")
		if err := errors.Join(os.Chmod(r.path("f"), 0o644),
			os.Chtimes(r.path("f"), time.Time{}, time.Date(2021, 1, 1, 0, 0, 0, 5, time.UTC))); err != nil {
			t.Fatal(err)
		}
		after := r.after(before)
		if err := os.Chmod(r.path("f"), since); err != nil {
			t.Fatal(err)
		}
		if err := r.Restore(files.Undo{Before: before, After: after}); err != nil {
			t.Error(err)
		}
		now, want := r.after(before).Entries[0], before.Entries[0].Mode
		if since == 0o600 {
			want = 0o600
		}
		if now.Mode != want || (now.Modified == before.Entries[0].Modified) == (since == 0o600) {
			t.Errorf("%o: it is %+v, and was %+v", since, now, before.Entries[0])
		}
	}
}

// What a registration says was missing is the way to its path, or nothing is looked at.
func TestWhatWasMissingIsTheWayToThePath(t *testing.T) {
	r, secret := newRoom(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(secret, "key"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, missing := range [][]string{{secret}, {r.path("a"), secret}, {secret, r.path("a")},
		{r.path("b")}, {r.path("a"), r.path("a")}, {r.dir, r.path("a")}} {
		forged := r.take("a")
		forged.Entries[0].Missing = missing
		err := r.Restore(files.Undo{Before: forged})
		var refused *ledger.Refused
		if !errors.As(err, &refused) || refused.Field != "missing" || strings.Contains(err.Error(), "key") {
			t.Errorf("%v: %v", missing, err)
		}
	}
	if err := r.Restore(files.Undo{Before: r.take("a/b")}); err != nil {
		t.Errorf("as taken: %v", err)
	}
}

// A call that was done and made nothing where its image was taken has made it elsewhere.
func TestWhatACallHasMadeElsewhereIsTheOwners(t *testing.T) {
	r := newRoom(t)
	before := r.take("a.txt")
	if err := r.Restore(files.Undo{Before: before, After: r.after(before)}); !changed(err) {
		t.Errorf("a file that was not made: %v", err)
	}
	r.write("\u212a.txt", "kelvin")
	if got := r.take("K.txt"); got.Entries[0].Path != r.path("\u212a.txt") {
		t.Errorf("the file of that name is %s", got.Entries[0].Path)
	}
}

func TestPathsStayInTheirRoots(t *testing.T) {
	t.Parallel()
	r, outside := newRoom(t), t.TempDir()
	if err := os.Symlink(outside, r.path("link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(r.path("nowhere"), r.path("dangling")); err != nil {
		t.Fatal(err)
	}
	var refused *ledger.Refused
	for _, path := range []string{"", "\x00", "..", "../x", "/etc/passwd", outside, "link", "link/new",
		"a/../../x", "dangling", r.dir + "x/y"} {
		if _, err := r.Take([]string{path}); !errors.As(err, &refused) {
			t.Errorf("%q: %v", path, err)
		}
	}
	for _, path := range []string{".", "a", "a/b", r.path("a"), "./a/../b"} {
		if _, err := r.Take([]string{path}); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
	// An image is no permission: neither one that was made up nor one whose path leads elsewhere now.
	if err := r.Restore(files.Undo{Before: files.Image{Entries: []files.Entry{{Path: "/etc/passwd",
		Kind: files.Absent, Anchor: "/etc"}}}}); !errors.As(err, &refused) {
		t.Errorf("a path outside: %v", err)
	}
	r.write("f", "f")
	if err := os.Mkdir(r.path("sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	before := r.take("sub/f")
	if err := errors.Join(os.Remove(r.path("sub")), os.Symlink(outside, r.path("sub")),
		os.WriteFile(filepath.Join(outside, "f"), []byte("f"), 0o600)); err != nil {
		t.Fatal(err)
	}
	err := r.Restore(files.Undo{Before: before, Written: json.RawMessage(`"f"`)})
	if _, there := os.Stat(filepath.Join(outside, "f")); !changed(err) || there != nil {
		t.Errorf("a folder that became a link: %v, %v", err, there)
	}
}

func TestAnImageThatIsLostOrDamagedIsSaid(t *testing.T) {
	t.Parallel()
	r, old := newRoom(t), strings.Repeat("o", 10000)
	r.write("f", old)
	before := r.take("f")
	r.write("f", "new")
	after := r.after(before)
	blob := filepath.Join(r.state, "blobs", before.Entries[0].SHA256)
	content, err := os.ReadFile(blob)
	if err != nil || !bytes.Equal(content, []byte(old)) {
		t.Fatalf("the blob: %v", err)
	}
	if err := os.WriteFile(blob, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Restore(files.Undo{Before: before, After: after}); !changed(err) ||
		!strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged image: %v", err)
	}
	if err := os.Remove(blob); err != nil {
		t.Fatal(err)
	}
	if err := r.Restore(files.Undo{Before: before, After: after}); !changed(err) {
		t.Errorf("a lost image: %v", err)
	}
	r.reads("f", "new")
	large, err := os.Create(r.path("large"))
	if err == nil {
		err = errors.Join(large.Truncate(files.SizeMax+1), large.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	var refused *ledger.Refused
	if _, err := r.Take([]string{"large"}); !errors.As(err, &refused) {
		t.Errorf("a file that is too large: %v", err)
	}
}

// A name may be as long as the file system lets it be: what is written beside it has a shorter one.
func TestAFileWithALongNameIsPutBack(t *testing.T) {
	t.Parallel()
	r, long := newRoom(t), strings.Repeat("n", 255)
	r.write(long, "old")
	before := r.take(long)
	r.write(long, "new")
	undo := files.Undo{Before: before, After: r.after(before), Key: "k"}
	if err := r.Restore(undo); err != nil {
		t.Error(err)
	}
	r.reads(long, "old")
	if err := os.Remove(r.path(long)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the trash has one of this name the second time
		missing := r.take(long)
		r.write(long, "new")
		if err := r.Restore(files.Undo{Before: missing, After: r.after(missing), Key: "k"}); err != nil {
			t.Error(err)
		}
	}
}

// What is known of a call that was cut short is what it was to write: a beginning of that is its own.
func TestABeginningOfWhatWasToBeWrittenIsOfTheCall(t *testing.T) {
	t.Parallel()
	const long = `{"sha256":"00","bytes":5000}`
	for _, test := range []struct{ written, there, says string }{
		{`"hello world"`, "hello", ""},
		{`"hello world"`, "hello world", ""},
		{`"hello world"`, "", ""},
		{long, "", ""},
		{`"hello world"`, "hello world, and more", "was cut short, or someone has changed it"},
		{`"hello world"`, "theirs", "was cut short, or someone has changed it"},
		{long, "hello", "was cut short, or someone has changed it"},
		{``, "", "was cut short, or someone has changed it"}, // it was to write no file
	} {
		r := newRoom(t)
		before := r.take("new")
		r.write("new", test.there)
		err := r.Restore(files.Undo{Before: before, Written: json.RawMessage(test.written), Key: "k"})
		_, missing := os.Stat(r.path("new"))
		if changed(err) != (test.says != "") || os.IsNotExist(missing) != (test.says == "") ||
			err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: of %q: %v, %v", test.written, test.there, err, missing)
		}
	}
}
