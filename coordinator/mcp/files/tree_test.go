package files

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// An undo that was killed half way is finished by the next attempt, whose lock it has; others wait
// for it. What is no repository of its own, or too large, has no image.
func TestARepositoryIsPutBackAfterAnAttemptThatWasKilled(t *testing.T) {
	t.Parallel()
	dir, f := repository(t)
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("a", "1")
	write("b", "1")
	before, err := f.TakeRepository(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	write("a", "2")
	write("b", "2")
	write("made/c", "2")
	left, err := f.TakeRepository(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	write("a", "1") // as far as the attempt got
	write(".git/index.lock", "key")
	undo := RepositoryUndo{Repository: before, Left: &left, Key: "other"}
	if err := f.RestoreRepository(t.Context(), undo); err == nil {
		t.Error("it goes on under the lock of another process")
	}
	undo.Key = "key"
	write("made/d", "of others")
	var changed *Changed
	if err := f.RestoreRepository(t.Context(), undo); !errors.As(err, &changed) ||
		!strings.HasSuffix(changed.Path, "made/d") {
		t.Errorf("a file of others in a folder that is to go: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "made/d")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.RestoreRepository(t.Context(), undo); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"a": "1", "b": "1", "made": "", ".git/index.lock": ""} {
		if content, _ := os.ReadFile(filepath.Join(dir, name)); string(content) != want {
			t.Errorf("%s has %q, want %q", name, content, want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "made")); !os.IsNotExist(err) {
		t.Errorf("the folder is there: %v", err)
	}
	write("large", strings.Repeat("x", treeBytes/2+1))
	write("larger", strings.Repeat("x", treeBytes/2+1))
	for _, path := range []string{dir, ".", filepath.Join(dir, "none"), t.TempDir()} {
		var refused *ledger.Refused
		if _, err := f.TakeRepository(path, true); !errors.As(err, &refused) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A name that is not UTF-8 is one as others: what a call has taken away is there again under it, what
// it has made is gone, and a link leads where it led.
func TestNamesThatAreNotUTF8ArePutBack(t *testing.T) {
	t.Parallel()
	dir, f := repository(t)
	gone, stays := filepath.Join(dir, "caf\xe9"), filepath.Join(dir, "caf\xe8")
	made := filepath.Join(dir, "new\xff", "x\xff")
	link := filepath.Join(dir, "link")
	if err := os.WriteFile(gone, []byte("1"), 0o644); err != nil {
		t.Skipf("SKIPPED: no such names here: %v", err)
	}
	if err := errors.Join(os.WriteFile(stays, []byte("2"), 0o644), os.Symlink("caf\xe9", link)); err != nil {
		t.Fatal(err)
	}
	before, err := f.TakeRepository(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(gone), os.Remove(link), os.Symlink("caf\xe8", link),
		os.Mkdir(filepath.Dir(made), 0o755), os.WriteFile(made, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	left, err := f.TakeRepository(dir, false)
	if err == nil {
		err = f.RestoreRepository(t.Context(), RepositoryUndo{Repository: before, Left: &left, Key: "k"})
	}
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{gone: "1", stays: "2", link: "1"} {
		if content, err := os.ReadFile(path); string(content) != want {
			t.Errorf("%q has %q, %v, want %q", path, content, err, want)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 4 { // with .git
		t.Errorf("there is %q, %v", entries, err)
	}
}

// repository is an empty one of Git, and what serves it.
func repository(t *testing.T) (dir string, f *Files) {
	t.Helper()
	dir = t.TempDir()
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no repository: %v %s", err, out)
	}
	f, err := New(Config{Roots: []string{dir}, State: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return dir, f
}
