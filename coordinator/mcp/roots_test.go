package mcp_test

//lint:file-ignore SA1019 the protocol has deprecated roots; who has them keeps them

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// rooted connects a client with roots to a gateway.
func (w *world) rooted(g *mcp.Gateway, dirs ...string) (*sdk.Client, *client) {
	w.t.Helper()
	own := sdk.NewClient(&sdk.Implementation{Name: "rooted", Version: "1"}, nil)
	own.AddRoots(rootsOf(dirs...)...)
	here, there := sdk.NewInMemoryTransports()
	served := make(chan error, 1)
	go func() { served <- g.Serve(context.Background(), there) }()
	session, err := own.Connect(w.t.Context(), here, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	c := &client{t: w.t, gateway: g, session: session}
	c.leave = func() { _ = session.Close(); c.end = <-served }
	return own, c
}

func rootsOf(dirs ...string) (list []*sdk.Root) {
	for _, dir := range dirs {
		list = append(list, &sdk.Root{Name: "a root", URI: (&url.URL{Scheme: "file", Path: dir}).String()})
	}
	return list
}

// shown is what people are shown of a plan.
func (w *world) shown(plan string) string {
	w.t.Helper()
	reply, err := w.conn.Request(api.PlanShow.Subject("default"), fmt.Appendf(nil, `{"plan":%q}`, plan),
		testenv.Patience)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(reply.Data)
}

// worker serves the undos of a server from a process of its own.
func (w *world) worker(config mcp.ServerConfig) {
	w.t.Helper()
	work, err := mcp.NewWorker(w.t.Context(), mcp.WorkerConfig{Conn: w.conn, Tenant: "default", Name: "host",
		Servers: []*mcp.Server{w.server(config)}, Idle: time.Minute})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = work.Close(context.Background()) })
}

// The real server works in its client's roots and not in the folder of its command, through the
// gateway as without it, also once the client has changed them; and whoever undoes that without a
// client undoes it in the roots in which it was done.
func TestWhatWasDoneInTheRootsOfAClientIsUndoneThere(t *testing.T) {
	t.Parallel()
	w, own, one, two := newWorld(t), t.TempDir(), filepath.Join(t.TempDir(), "one ünï"), t.TempDir()
	for _, dir := range []string{own, one, two} {
		furnish(t, dir)
	}
	before := []map[string]string{picture(t, own), picture(t, one), picture(t, two)}
	config := w.files(own)
	g := w.gateway(mcp.Config{}, nil, config).gateway
	said, c := w.rooted(g, one)
	c.does("write_file", map[string]any{"path": filepath.Join(one, "a.txt"), "content": "new"})
	c.does("write_file", map[string]any{"path": "made", "content": "in the first root"})
	if made := filepath.Join(one, "made"); read(t, made) != "in the first root" {
		t.Errorf("a relative path means %q", read(t, made))
	}
	if r := c.call("write_file", map[string]any{"path": filepath.Join(own, "x"), "content": ""}); !r.IsError {
		t.Error("it works in the folder of its command, too")
	}
	said.AddRoots(rootsOf(two)...)
	said.RemoveRoots(rootsOf(one)[0].URI)
	c.does("move_file", map[string]any{"source": filepath.Join(two, "a.txt"),
		"destination": filepath.Join(two, "sub", "moved")})
	r := c.call("edit_file", map[string]any{"path": filepath.Join(two, "windows.txt"),
		"edits": []map[string]any{{"oldText": "one", "newText": "1"}}})
	if r := c.call("write_file", map[string]any{"path": filepath.Join(one, "x"), "content": ""}); !r.IsError {
		t.Error("it works in a root that its client has no longer")
	}
	said.RemoveRoots(rootsOf(two)[0].URI)
	c.does("write_file", map[string]any{"path": filepath.Join(own, "made"), "content": "made"})
	plan := planOf(r)
	c.leave()
	_ = g.Close()
	w.worker(config)
	w.undoes(plan, "")
	for i, dir := range []string{own, one, two} {
		if d := differ(before[i], picture(t, dir)); d != "" {
			t.Errorf("%s has\n%s", dir, d)
		}
	}
}

// A record alone gives no worker a folder: roots that no gateway of this user has had, or that are
// not there any more, or lead elsewhere by now, leave the undo to its owner.
func TestAnUndoWorksInNoOtherRoots(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, state, root string){
		"no client of this server is known": func(t *testing.T, state, _ string) {
			paths, err := filepath.Glob(filepath.Join(state, "*.roots.json"))
			if err != nil || len(paths) != 1 {
				t.Fatal(paths, err)
			}
			if err := os.Remove(paths[0]); err != nil {
				t.Fatal(err)
			}
		},
		"is no longer there": func(t *testing.T, _, root string) {
			if err := os.Rename(root, root+"-away"); err != nil {
				t.Fatal(err)
			}
		},
		"one is no longer there": func(t *testing.T, _, root string) {
			if err := os.Rename(root, root+"-away"); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(t.TempDir(), root); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, root, other := newWorld(t), filepath.Join(t.TempDir(), "root"), t.TempDir()
			furnish(t, root)
			config := w.files(t.TempDir())
			g := w.gateway(mcp.Config{}, nil, config).gateway
			dirs := []string{root}
			if strings.HasPrefix(name, "one ") {
				dirs = append(dirs, other)
			}
			_, c := w.rooted(g, dirs...)
			plan := planOf(c.call("write_file", map[string]any{"path": filepath.Join(root, "a.txt"), "content": "new"}))
			c.leave()
			_ = g.Close()
			spoil(t, config.State, root)
			w.worker(config)
			w.operates(&pb.Record{Plan: plan, Kind: &pb.Record_CompensationRequested{
				CompensationRequested: &pb.CompensationRequested{Reason: "wrong", Actor: "ann"}}})
			if state := w.state(plan, "quarantined"); state != "quarantined" {
				t.Errorf("it is %s", state)
			}
			if said := w.shown(plan); !strings.Contains(said, strings.TrimPrefix(name, "one ")) ||
				!strings.Contains(said, root) {
				t.Errorf("it says %s", said)
			}
			for _, path := range []string{root, root + "-away"} {
				if now, err := os.ReadFile(filepath.Join(path, "a.txt")); err == nil && string(now) != "new" {
					t.Errorf("%s was undone all the same", path)
				}
			}
		})
	}
}

// A server whose tools are called for an undo is started in the roots of the call. Clients that want
// other roots of the same gateway are refused, and a root that a client names as an argument is
// none.
func TestAnUndoThatCallsToolsHasTheRootsOfTheCall(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t), t.TempDir()
	config, file := w.notes(t)
	pack, err := mcp.ParsePack("places.yaml", []byte("apiVersion: sagenbaum/v1\nkind: MCPPack\n"+
		"server: notes-server\ntools:\n  place: {class: compensable, fidelity: exact, undo: [{tool: unplace}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	config.Packs = []mcp.Pack{pack}
	g := w.gateway(mcp.Config{}, nil, config).gateway
	_, c := w.rooted(g, dir)
	plan := planOf(c.call("place", map[string]any{}))
	if got := lines(file); len(got) != 1 || got[0] != rootsOf(dir)[0].URI {
		t.Fatalf("the server has %q", got)
	}
	_, other := w.rooted(g, t.TempDir())
	if r := other.call("place", map[string]any{}); !r.IsError || !strings.Contains(said(r), dir) {
		t.Errorf("a client with other roots: %s", said(r))
	}
	other.leave()
	if r := c.call("place", map[string]any{"sagenbaum/roots": []string{"file:///"}}); !r.IsError {
		t.Errorf("roots as an argument: %s", said(r))
	}
	c.leave()
	_ = g.Close()
	w.worker(config)
	w.undoes(plan, "")
	if got := lines(file); len(got) != 0 {
		t.Errorf("the server has %q", got)
	}
}

// A folder that the configuration pins holds, whatever roots a client has.
func TestRootsThatTheConfigurationNamesHold(t *testing.T) {
	t.Parallel()
	w, own, other := newWorld(t), t.TempDir(), t.TempDir()
	config := w.files(own)
	config.Roots = []string{own}
	g := w.gateway(mcp.Config{}, nil, config).gateway
	_, c := w.rooted(g, other)
	c.does("write_file", map[string]any{"path": filepath.Join(own, "x"), "content": ""})
	if r := c.call("write_file", map[string]any{"path": filepath.Join(other, "x"), "content": ""}); !r.IsError {
		t.Error("it works in the roots of its client")
	}
	c.leave()
}

// Clients over HTTP share a server and may be on other machines: their roots open no folder here.
func TestRootsOfClientsOverHTTPCountForNothing(t *testing.T) {
	t.Parallel()
	w, own, other := newWorld(t), t.TempDir(), t.TempDir()
	server := serves(t, w.gateway(mcp.Config{}, nil, w.files(own)).gateway.Handler("secret"))
	client := sdk.NewClient(&sdk.Implementation{Name: "rooted", Version: "1"}, nil)
	client.AddRoots(rootsOf(other)...)
	session, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: server.URL,
		HTTPClient: &http.Client{Transport: bearer("secret")}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	for dir, works := range map[string]bool{own: true, other: false} {
		r, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "write_file",
			Arguments: map[string]any{"path": filepath.Join(dir, "x"), "content": ""}})
		if err != nil || r.IsError == works {
			t.Errorf("in %s: %v, %+v", dir, err, r)
		}
	}
}

// Packs that say of roots what means nothing are refused.
func TestAPackSaysOfRootsWhatMeansSomething(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"roots: other":                 `roots: "other"`,
		"roots: ignored\nfiles: true":  "roots",
		"folders: list":                "folders",
		"folders: list\nfiles: true":   "",
		"roots: ignored\nfiles: false": "",
	} {
		_, err := mcp.ParsePack("p.yaml", fmt.Appendf(nil,
			"apiVersion: sagenbaum/v1\nkind: MCPPack\nserver: s\n%s\ntools: {a: {class: effectless}}\n", text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
