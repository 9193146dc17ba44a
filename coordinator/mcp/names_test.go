package mcp_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
)

// Names that are not UTF-8, as older systems have them: "café" in Latin-1.
const (
	latin       = "caf\xe9"
	latinFolder = "dossier\xff"
)

// latinNames adds a file and a folder with such names. Some file systems have no such names.
func latinNames(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "sub", latinFolder), 0o750); err != nil {
		t.Skipf("SKIPPED: this file system wants names in UTF-8: %v", err)
	}
	for _, name := range []string{latin, "sub/" + latin, "sub/" + latinFolder + "/" + latin} {
		writeIn(t, dir, name, name+"\n")
	}
}

// JSON cannot carry a name that is not UTF-8, so a call cannot name it. Calls beside it, and of the
// folder that it is in, are undone.
func TestNamesThatAreNotUTF8AreThereAgain(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t), t.TempDir()
	latinNames(t, dir)
	furnish(t, dir)
	start := picture(t, dir)
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.files(dir))
	in := func(name string) string { return filepath.Join(dir, name) }
	c.does("write_file", map[string]any{"path": in("a.txt"), "content": "new"})
	c.does("write_file", map[string]any{"path": in("sub/new"), "content": "new"})
	c.does("create_directory", map[string]any{"path": in("sub/made/of")})
	c.does("move_file", map[string]any{"source": in("sub"), "destination": in("moved")})
	if read(t, in("moved/"+latinFolder+"/"+latin)) == "" {
		t.Fatal("nothing was moved")
	}
	c.does("write_file", map[string]any{"path": in("moved/run.sh"), "content": "new"})
	if r := c.reports("plan_fail", nil); r.State != "compensated" || len(r.Undone) != 5 {
		t.Errorf("plan_fail: %+v", r)
	}
	if d := differ(start, picture(t, dir)); d != "" {
		t.Errorf("left:\n%s", d)
	}
}

// A link leads to a name that is not UTF-8: what is there could not be named in a record, so the
// call is refused.
func TestACallThatLeadsToANameThatIsNotUTF8IsRefused(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t), t.TempDir()
	latinNames(t, dir)
	for link, to := range map[string]string{"folder": "sub/" + latinFolder, "file": latin} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	writeIn(t, dir, "a.txt", "a")
	start := picture(t, dir)
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.files(dir))
	for _, call := range []struct {
		tool string
		with map[string]any
	}{
		{"write_file", map[string]any{"path": dir + "/folder/new", "content": "new"}},
		{"write_file", map[string]any{"path": dir + "/file", "content": "new"}},
		{"create_directory", map[string]any{"path": dir + "/folder/made"}},
		{"move_file", map[string]any{"source": dir + "/a.txt", "destination": dir + "/folder/a.txt"}},
	} {
		if r := c.call(call.tool, call.with); !r.IsError || !strings.Contains(said(r), "is not UTF-8") ||
			!strings.HasSuffix(said(r), "Nothing was done.") {
			t.Errorf("%s %v: %s", call.tool, call.with, said(r))
		}
	}
	if d := differ(start, picture(t, dir)); d != "" {
		t.Errorf("it has changed\n%s", d)
	}
}

// What others have put into a folder that a call has made is theirs, whatever its name.
func TestAnUndoThatMeetsANameThatIsNotUTF8SaysIt(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t), t.TempDir()
	latinNames(t, dir)
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.files(dir))
	c.does("create_directory", map[string]any{"path": filepath.Join(dir, "made")})
	writeIn(t, dir, "made/"+latin, "theirs")
	left := picture(t, dir)
	r := c.reports("plan_fail", nil)
	if r.State != "quarantined" || len(r.Stands) != 1 ||
		!strings.Contains(r.Stands[0].How, "is not empty: it has caf") {
		t.Errorf("plan_fail: %+v", r)
	}
	if d := differ(left, picture(t, dir)); d != "" {
		t.Errorf("it has changed\n%s", d)
	}
}

// In a repository such a name is staged, committed, dropped and taken away by calls that do not name
// it, and is there again; what others have changed of it is theirs.
func TestNamesThatAreNotUTF8AreThereAgainInARepository(t *testing.T) {
	t.Parallel()
	for _, theirs := range []bool{false, true} {
		w, dir := newWorld(t), repository(t)
		latinNames(t, dir)
		runGit(t, dir, "add", "sub")
		runGit(t, dir, "commit", "-q", "-m", "latin", "sub")
		writeIn(t, dir, "sub/"+latin, "changed\n")
		if err := os.Symlink(latin, filepath.Join(dir, latin+"-link")); err != nil {
			t.Fatal(err)
		}
		start := gitPicture(t, dir)
		c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.git(t, dir))
		calls := []struct {
			tool string
			with map[string]any
		}{
			{"add", map[string]any{"all": true}},
			{"commit", map[string]any{"message": "latin"}},
			{"checkout", map[string]any{"target": "side"}},
			{"reset", map[string]any{"mode": "hard", "target": "main", "confirmed": true}},
			{"reset", map[string]any{"mode": "mixed", "target": "v1", "confirmed": true}},
			{"clean", map[string]any{"force": true, "directories": true}},
		}
		for _, call := range calls {
			call.with["path"] = dir
			c.does("git_"+call.tool, call.with)
		}
		if _, err := os.Lstat(filepath.Join(dir, latin)); !os.IsNotExist(err) {
			t.Fatalf("the session has taken nothing away: %v", err)
		}
		if theirs {
			writeIn(t, dir, latin, "theirs\n")
			start = gitPicture(t, dir)
		}
		r := c.reports("plan_fail", nil)
		switch {
		case !theirs && (r.State != "compensated" || len(r.Undone) != len(calls)):
			t.Errorf("plan_fail: %+v", r)
		case theirs && (r.State != "quarantined" || !strings.Contains(r.Stands[0].How, "was changed since")):
			t.Errorf("plan_fail: %+v", r)
		}
		if d := differ(start, gitPicture(t, dir)); d != "" {
			t.Errorf("theirs: %v; left:\n%s", theirs, d)
		}
		runGit(t, dir, "fsck", "--strict")
	}
}
