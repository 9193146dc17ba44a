package started

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

const kept = 24 * time.Hour

func remember(t *testing.T, state string, now time.Time, all ...Gateway) {
	t.Helper()
	for _, g := range all {
		if err := Remember(state, g, kept, now); err != nil {
			t.Fatal(err)
		}
	}
}

// Where nothing serves an undo, what was remembered of its gateway says what to start.
func TestWhatWasStartedSaysWhatToStart(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_STATE_HOME", home)
	state, err := Dir("")
	if err != nil || state != filepath.Join(home, "sagenbaum", "mcp") {
		t.Fatalf("the folder is %s, %v", state, err)
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "serve.js"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	worker := []string{"sagenbaum", "mcp", "worker", "--"}
	remember(t, state, time.Now(),
		Gateway{Undo: "mcp.files-1", Folder: folder, Files: true, Tenant: "a",
			Worker: append(worker, "node", "/x.js", "/my files")},
		Gateway{Undo: "mcp.notes-1", Folder: folder, Worker: append(worker, "node", "serve.js")},
		Gateway{Undo: "mcp.empty-1", Folder: folder})
	if err := os.WriteFile(filepath.Join(state, "mcp.bad-1"+suffix), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for capability, want := range map[string]string{
		"mcp.files-1": `sagenbaum mcp worker -- node /x.js '/my files'`,
		"mcp.notes-1": "cd " + folder + " && sagenbaum mcp worker -- node serve.js # with the env of its " +
			"client's configuration",
		"mcp.files-1.send": `sagenbaum mcp worker -- node /x.js '/my files'`,
		"room.free":        "",
	} {
		if got := Next(capability); got != want {
			t.Errorf("%s: %s, want %s", capability, got, want)
		}
	}
	for _, capability := range []string{"mcp.other-1", "mcp.empty-1", "mcp.bad-1"} {
		if got := Next(capability); !strings.HasPrefix(got, "sagenbaum serve --mcp FILE ") {
			t.Errorf("%s: %s", capability, got)
		}
	}
	info, err := os.Stat(filepath.Join(state, "mcp.files-1.a"+suffix))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read how it was started: %v %v", info, err)
	}
}

// A gateway that was started again counts as it is now, and one of long ago is forgotten.
func TestAGatewayIsRememberedAsLongAsItsImages(t *testing.T) {
	t.Parallel()
	state, now := t.TempDir(), time.Now()
	old := Gateway{Undo: "mcp.old-1", Worker: []string{"old"}}
	again := Gateway{Undo: "mcp.again-1", Worker: []string{"again"}, Tenant: "b"}
	other := Gateway{Undo: "mcp.again-1", Worker: []string{"other"}, Tenant: "c"} // what it did may be undone, still
	remember(t, state, now, old, other, Gateway{Undo: again.Undo, Worker: []string{"before"}, Tenant: "b"}, again)
	for n, g := range []Gateway{old, other, again} {
		at := now.Add(time.Duration(n-3) * time.Second)
		if err := os.Chtimes(g.File(state), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if got := List(state); !reflect.DeepEqual(got, []Gateway{again, other, old}) {
		t.Errorf("it remembers %v", got)
	}
	long := now.Add(-kept - time.Hour)
	leave, err := Serve(state, other.Undo, other.Tenant)
	if err != nil {
		t.Fatal(err)
	}
	away := Gateway{Undo: "mcp.away-1", Worker: []string{"away"}, Tenant: "b", State: t.TempDir()}
	here := away
	here.State = ""
	remember(t, state, now, away, here)
	goAway, err := Serve(away.State, away.Undo, away.Tenant)
	if err != nil {
		t.Fatal(err)
	}
	for n, g := range []Gateway{away, here} { // of one name, each in its folder
		at := long.Add(time.Duration(-n) * time.Second)
		if err := os.Chtimes(g.File(state), at, at); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range []Gateway{old, other} {
		if err := os.Chtimes(g.File(state), long, long); err != nil {
			t.Fatal(err)
		}
	}
	remember(t, state, now, again)
	if got := List(state); !reflect.DeepEqual(got, []Gateway{again, other, away}) {
		t.Errorf("it remembers %v, and not who runs", got)
	}
	leave()
	goAway()
	remember(t, state, now, again)
	if got := List(state); !reflect.DeepEqual(got, []Gateway{again}) {
		t.Errorf("it remembers %v", got)
	}
	if err := Remember(state, Gateway{Undo: "mcp.long-1", Worker: []string{strings.Repeat("x", sizeMax)}}, kept,
		now); err == nil {
		t.Error("it remembers what it will not read")
	}
	drafts, err := filepath.Glob(filepath.Join(state, "gateway-*"))
	if err != nil || len(drafts) > 0 {
		t.Errorf("left: %v %v", drafts, err)
	}
	if err := Remember(filepath.Join(state, "none"), again, kept, now); err == nil {
		t.Error("it remembers in no folder")
	}
}

// A gateway that serves undos by itself is known to until it leaves, in its tenant, beside others.
func TestWhoServesIsKnownUntilItLeaves(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	served := func(tenant string, want bool) {
		t.Helper()
		for range 2 { // the question changes nothing
			if got := Served(state, "mcp.files-1", tenant); got != want {
				t.Errorf("in tenant %s it is served: %v", tenant, got)
			}
		}
	}
	served("a", false)
	var leave [2]func()
	for i := range leave {
		var err error
		if leave[i], err = Serve(state, "mcp.files-1", "a"); err != nil {
			t.Fatal(err)
		}
	}
	served("a", true)
	served("b", false)
	leave[0]()
	served("a", true)
	leave[1]()
	served("a", false)
	if _, err := Serve(filepath.Join(state, "none"), "mcp.files-1", "a"); err == nil {
		t.Error("it says so in no folder")
	}
}
