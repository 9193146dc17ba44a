package mcp_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// disk mounts a file system with room for so many KiB, for which the test must be root.
func disk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if os.Getuid() != 0 {
		t.Skip("*** SKIPPED: only root can mount the small disk of this test ***")
	}
	mount := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir)
	if out, err := mount.CombinedOutput(); err != nil {
		t.Skipf("*** SKIPPED: cannot mount the small disk of this test: %v %s ***", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("cannot unmount %s: %v %s", dir, err, out)
		}
	})
	return dir
}

// fill takes all room of a disk but for some KiB.
func fill(t *testing.T, dir string, but int) {
	t.Helper()
	ballast, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer ballast.Close()
	size := int64(0)
	for n := 0; err == nil; size += int64(n) {
		n, err = ballast.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	if err := ballast.Truncate(size - int64(but)<<10); err != nil {
		t.Fatal(err)
	}
}

// The server of files finds no room for what it writes, or for a part of it: all is as before once
// that is undone, of a new file the beginning as well.
func TestWhatAServerOfFilesWritesWithoutRoomIsUndone(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t), disk(t, "256k")
	in := func(name string) string { return filepath.Join(dir, name) }
	large := strings.Repeat("new", 50_000)
	writeIn(t, dir, "old", "old\n")
	for _, test := range []struct {
		name, tool string
		room       int // in KiB
		with       map[string]any
		left       bool
	}{
		{"a beginning", "write_file", 20, map[string]any{"path": in("new"), "content": large}, true},
		{"a name alone", "write_file", 0, map[string]any{"path": in("new"), "content": large}, true},
		{"a short text", "write_file", 0, map[string]any{"path": in("new"), "content": "short"}, true},
		{"a file that is there", "write_file", 20, map[string]any{"path": in("old"), "content": large}, false},
		{"an edit", "edit_file", 20, map[string]any{"path": in("old"),
			"edits": []map[string]any{{"oldText": "old", "newText": large}}}, false},
	} {
		fill(t, dir, test.room)
		start := picture(t, dir)
		c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.files(dir))
		if r := c.call(test.tool, test.with); !r.IsError || !strings.Contains(said(r), "ENOSPC") {
			t.Errorf("%s: there is room: %s", test.name, said(r))
		}
		if d := differ(start, picture(t, dir)); (d != "") != test.left {
			t.Errorf("%s: the call has left\n%s", test.name, d)
		}
		if r := c.reports("what_can_be_undone", nil); test.left && (len(r.Can) != 1 || r.Can[0].How != "exact") {
			t.Errorf("%s: %+v", test.name, r)
		}
		if r := c.reports("plan_fail", nil); len(r.Stands) > 0 || test.left && r.State != "compensated" {
			t.Errorf("%s: %+v", test.name, r)
		}
		if d := differ(start, picture(t, dir)); d != "" {
			t.Errorf("%s: left:\n%s", test.name, d)
		}
	}
}

// A call that has failed and has left a beginning has failed, too, for a gateway that finds it by its
// key. What others have written there since is theirs.
func TestABeginningIsOfACallThatHasFailed(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t), disk(t, "64k")
	fill(t, dir, 8)
	config, path := w.files(dir), filepath.Join(dir, "new")
	with := map[string]any{"path": path, "content": strings.Repeat("new", 50_000)}
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	plan := planOf(c.call("write_file", with, "sagenbaum/key", "k"))
	c.leave()
	if err := c.gateway.Close(); err != nil {
		t.Fatal(err)
	}
	c = w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	meta := []any{"sagenbaum/plan", plan, "sagenbaum/key", "k"}
	if r := c.call("write_file", with, meta...); !r.IsError || !strings.Contains(said(r), "ENOSPC") {
		t.Errorf("repeated it says %s", said(r))
	}
	writeIn(t, dir, "new", "theirs")
	w.operates(&pb.Record{Plan: plan, Kind: &pb.Record_CompensationRequested{
		CompensationRequested: &pb.CompensationRequested{Reason: "wrong", Actor: "ann"}}})
	if state := w.state(plan, "quarantined"); state != "quarantined" ||
		!strings.Contains(w.shown(plan), "was changed since") || read(t, path) != "theirs" {
		t.Errorf("it is %s: %s: %s", state, w.shown(plan), read(t, path))
	}
}

// The servers of memory and of Git leave nothing where they find no room.
func TestWhatOtherServersDoWithoutRoomIsUndone(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t), disk(t, "2m")
	file, project := filepath.Join(dir, "memory.jsonl"), filepath.Join(dir, "project")
	if out, err := exec.Command("cp", "-a", repository(t), project).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	noise := make([]byte, 100_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // it does not fail
	writeIn(t, project, "noise", string(noise))
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.memory(file), w.git(t, project))
	entity := func(name, fact string) map[string]any {
		return map[string]any{"entities": []map[string]any{{"name": name, "entityType": "t",
			"observations": []string{fact}}}}
	}
	c.does("memory__create_entities", entity("Ada", "tall"))
	c.does("plan_commit", nil)
	fill(t, dir, 20)
	graph, start := read(t, file), gitPicture(t, project)
	if r := c.call("memory__create_entities", entity("Bert", strings.Repeat("o", 30_000))); !r.IsError ||
		!strings.Contains(said(r), "ENOSPC") {
		t.Errorf("there is room: %s", said(r))
	}
	if r := c.call("git__git_add", map[string]any{"path": project, "all": true}); !r.IsError {
		t.Errorf("there is room: %s", said(r))
	}
	if r := c.reports("plan_fail", nil); len(r.Stands) > 0 || r.State != "compensated" {
		t.Errorf("plan_fail: %+v", r)
	}
	if read(t, file) != graph {
		t.Errorf("the graph is %s", read(t, file))
	}
	if d := differ(start, gitPicture(t, project)); d != "" {
		t.Errorf("left:\n%s", d)
	}
	runGit(t, project, "fsck", "--strict")
}
