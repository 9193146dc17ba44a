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
	dir := t.TempDir()
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no repository: %v %s", err, out)
	}
	f, err := New(Config{Roots: []string{dir}, State: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
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
