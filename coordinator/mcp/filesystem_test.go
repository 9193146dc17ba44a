package mcp_test

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
)

func sum(content []byte) []byte {
	digest := sha256.Sum256(content)
	return digest[:]
}

// furnish fills a folder with files of several kinds, with times long past.
func furnish(t testing.TB, dir string) {
	t.Helper()
	for name, content := range map[string]string{
		"a.txt": "one\ntwo\nthree\n", "windows.txt": "one\r\ntwo\r\n", "empty": "",
		"sub/b.txt": strings.Repeat("line\n", 20000), "sub/run.sh": "#!/bin/sh\n",
		"sub/deep/c.bin": "\x00\xff\xfe\x80binary",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "sub/run.sh"), 0o751); err != nil {
		t.Fatal(err)
	}
	long := time.Date(2020, 2, 3, 4, 5, 6, 123456789, time.UTC)
	for _, name := range []string{"a.txt", "windows.txt", "empty", "sub/b.txt", "sub/run.sh",
		"sub/deep/c.bin", "sub/deep", "sub", "."} {
		long = long.Add(time.Hour)
		if err := os.Chtimes(filepath.Join(dir, name), long, long); err != nil {
			t.Fatal(err)
		}
	}
}

func TestASessionOnFilesIsUndone(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t), t.TempDir()
	furnish(t, dir)
	start := picture(t, dir)
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.files(dir))
	in := func(name string) string { return filepath.Join(dir, name) }

	c.does("write_file", map[string]any{"path": in("a.txt"), "content": "new"})
	c.does("write_file", map[string]any{"path": in("sub/b.txt"), "content": strings.Repeat("x", 100000)})
	one := picture(t, dir)
	c.does("write_file", map[string]any{"path": in("made.txt"), "content": "made"})
	if r := c.reports("undo_last", nil); len(r.Undone) != 1 || r.Undone[0].Tool != "write_file" {
		t.Errorf("undo_last: %+v", r)
	}
	if d := differ(one, picture(t, dir)); d != "" {
		t.Errorf("undo_last left:\n%s", d)
	}
	c.does("edit_file", map[string]any{"path": in("windows.txt"),
		"edits": []map[string]any{{"oldText": "one", "newText": "1"}}})
	c.does("create_directory", map[string]any{"path": in("x/y/z")})
	c.does("write_file", map[string]any{"path": in("x/y/z/f"), "content": "f"})
	c.does("move_file", map[string]any{"source": in("sub/deep"), "destination": in("x/moved")})
	c.does("move_file", map[string]any{"source": in("sub/run.sh"), "destination": in("run")})
	if r := c.call("edit_file", map[string]any{"path": in("run"),
		"edits": []map[string]any{{"oldText": "not there", "newText": "1"}}}); !r.IsError {
		t.Errorf("an edit without a match: %s", said(r))
	}
	r := c.reports("what_can_be_undone", nil)
	if len(r.Can) != 7 || r.Can[0].Tool != "move_file" || r.Can[0].How != "exact" {
		t.Errorf("what_can_be_undone: %+v", r)
	}
	r = c.reports("plan_fail", map[string]any{"reason": "a mess"})
	if r.State != "compensated" || len(r.Undone) != 7 || len(r.Stands) != 0 {
		t.Errorf("plan_fail: %+v", r)
	}
	if d := differ(start, picture(t, dir)); d != "" {
		t.Errorf("left:\n%s", d)
	}
}
