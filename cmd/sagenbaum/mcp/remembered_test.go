package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/mcp/started"
)

// remembers has a folder remember how a gateway of cat is started with these flags, and gives that.
func remembers(t *testing.T, folder string, o options, tenant string, args ...string) started.Gateway {
	t.Helper()
	server, err := mcp.NewServer(mcp.ServerConfig{Name: "cat", State: cmp.Or(o.state, folder), Command: "cat",
		Args: args, Instance: o.instance})
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	g := started.Gateway{Undo: server.Undo(), Worker: o.workerLine(append([]string{"cat"}, args...)), Files: true,
		Tenant: tenant, State: o.state}
	if err := errors.Join(os.MkdirAll(folder, 0o700), started.Remember(folder, g, time.Hour, time.Now())); err != nil {
		t.Fatal(err)
	}
	return g
}

// A host serves the servers of files that a folder of states remembers, in the tenant that each has
// recorded in, and nothing that would be another server here.
func TestAHostServesTheGatewaysThatAFolderRemembers(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	state, here, pack := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "pack.yaml")
	for _, file := range []string{filepath.Join(here, "data"), pack} {
		if err := os.WriteFile(file, []byte("apiVersion: sagenbaum/v1\nkind: MCPPack\nserver: x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(pack, 0o620); err != nil {
		t.Fatal(err)
	}
	file, elsewhere := started.Gateway{Files: true, Tenant: "a"}, t.TempDir()
	for n, c := range []struct {
		gateway started.Gateway
		flags   options
		args    []string
		change  func(g *started.Gateway)
		served  bool
		says    string
	}{
		{gateway: file, args: []string{"cat"}, served: true},
		{gateway: file, flags: options{state: elsewhere}, args: []string{"cat"}, served: true},
		{gateway: started.Gateway{Tenant: "a"}, args: []string{"cat", "1"}},
		{gateway: started.Gateway{Files: true}, args: []string{"cat", "2"}}, // of an earlier version
		{gateway: file, args: []string{"cat", "data"}, says: "data is relative"},
		{gateway: file, args: []string{"cat", "./data"}, says: "./data is relative"},
		{gateway: file, args: []string{"./cat", "data"}, says: "data is relative"},
		{gateway: started.Gateway{Files: true, Tenant: "no tenant"}, args: []string{"cat", "3"}, says: "is no tenant"},
		{gateway: file, args: []string{"no-such-program"}, says: "no-such-program"},
		{gateway: file, args: []string{"cat", "4"}, says: "another server here",
			change: func(g *started.Gateway) { g.Worker = append(g.Worker, "5") }},
		{gateway: file, args: []string{"cat", "6"}, says: "no command line",
			change: func(g *started.Gateway) { g.Worker = []string{"rm", "-r", "/"} }},
		{gateway: file, flags: options{packs: []string{pack}}, args: []string{"cat", "7"}, says: "may write " + pack},
		{gateway: file, flags: options{url: "http://127.0.0.1:1/mcp", headers: []string{"A=TOKEN_OF_THE_CLIENT"}},
			says: "names no variable"},
	} {
		config := mcp.ServerConfig{Name: "cat", State: cmp.Or(c.flags.state, state), URL: c.flags.url}
		if len(c.args) > 0 {
			config.Name, config.Command, config.Args = nameOf(c.args), c.args[0], c.args[1:]
		}
		server, err := mcp.NewServer(config)
		if err != nil {
			t.Fatal(err)
		}
		server.Close()
		g := c.gateway
		g.Undo, g.Folder, g.Worker, g.State = server.Undo(), here, c.flags.workerLine(c.args), c.flags.state
		if c.change != nil {
			c.change(&g)
		}
		if err := started.Remember(state, g, time.Hour, time.Now()); err != nil {
			t.Fatal(err)
		}
		said := ""
		list, looked := rememberedIn(state, func(file, server string, err error) {
			said += fmt.Sprintln(file, server, err)
		})
		served := len(list) == 1 && list[0].undo == g.Undo && list[0].gateway.Tenant == g.Tenant &&
			list[0].entry.config.State == config.State && list[0].gateway.Server != "" && list[0].remembered
		if served != c.served || !c.served && len(list) > 0 || !strings.Contains(said, c.says) ||
			(said == "") != (c.says == "") || !slices.Contains(looked, g.File(state)) {
			t.Errorf("%d: it serves %v, says %q, and looks at %v; want %v and %q", n, list, said, looked, c.served, c.says)
		}
		if err := os.Remove(g.File(state)); err != nil {
			t.Fatal(err)
		}
	}
}

// Who may write what a folder remembers has programs run.
func TestAHostDoesNotBelieveAFolderThatOthersMayWrite(t *testing.T) {
	state, user, apart := t.TempDir(), t.TempDir(), t.TempDir()
	g := remembers(t, state, options{}, "a")
	remembers(t, user, options{state: apart}, "a")
	if list, _ := rememberedIn(user, func(_, _ string, err error) { t.Error(err) }); len(list) != 1 {
		t.Errorf("it serves %v", list)
	}
	for path, mode := range map[string]os.FileMode{g.File(state): 0o600, state: 0o700, apart: 0o700} {
		if err := os.Chmod(path, mode|0o020); err != nil {
			t.Fatal(err)
		}
		said, folder := "", state
		if path == apart {
			folder = user
		}
		list, _ := rememberedIn(folder, func(_, _ string, err error) { said += err.Error() })
		if len(list) > 0 || !strings.Contains(said, "may write "+path) {
			t.Errorf("it serves %v, and says %q", list, said)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
}

// A host leaves what it remembers to a gateway that runs, takes it when that has gone, and does not
// say twice what a client's file says as well.
func TestAHostLeavesTheUndosOfAGatewayToIt(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_STATE_HOME", home)
	state := filepath.Join(home, "sagenbaum", "mcp")
	images := t.TempDir()
	remembers(t, state, options{}, "b", "2")
	leave, err := started.Serve(images, remembers(t, state, options{state: images}, "a", "1").Undo, "a")
	if err != nil {
		t.Fatal(err)
	}
	file := hostedFile(t, `"cat": {"command": "sagenbaum",
		"args": ["mcp", "--tenant", "b", "--server-name", "cat", "--", "cat", "2"], "env": {"TOKEN": "x"}}`)
	for _, want := range []string{"b b", "a b"} {
		tenants, said := asked(t, 2, state, file)
		if got := strings.Join(tenants, " "); got != want || strings.Contains(said, "wrong one") {
			t.Errorf("it serves %s, want %s, and says %s", got, want, said)
		}
		leave() // the first time
	}
}

// One that is to be served no more while a gateway runs is not served for a moment.
func TestWhatIsLeftToAGatewayEndsWithoutServing(t *testing.T) {
	state := t.TempDir()
	g := remembers(t, state, options{}, "a")
	leave, err := started.Serve(state, g.Undo, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	list, _ := rememberedIn(state, func(_, _ string, err error) { t.Error(err) })
	ctx, stop := context.WithCancel(t.Context())
	stop()
	list[0].run(ctx, func(string) (*nats.Conn, error) {
		t.Error("it serves")
		return nil, errors.New("not yet")
	}, slog.New(slog.DiscardHandler))
}

// A client's file whose gateway records elsewhere does not hide what a gateway of the same server
// has done here, and a folder that two name is served once.
func TestAFileOfAnotherLedgerHidesNothing(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_STATE_HOME", home)
	own, state := filepath.Join(home, "sagenbaum", "mcp"), t.TempDir()
	for _, folder := range []string{own, state} {
		remembers(t, folder, options{state: state}, "default")
	}
	for flag, want := range map[string][]string{
		`"--server", "nats://127.0.0.1:1", `: {own, "FILE"},
		"":                                   {"FILE"},
	} {
		file := hostedFile(t, fmt.Sprintf(`"cat": {"command": "sagenbaum", "args": ["mcp", %s"--state", %q, "--server-name",
			"cat", "--", "cat"]}`, flag, state))
		_, said := asked(t, 2*len(want), own, state, file) // each twice
		for _, from := range []string{own, state, file} {
			name := strings.Replace(from, file, "FILE", 1)
			if tried := strings.Contains(said, "file="+from+" "); tried != slices.Contains(want, name) {
				t.Errorf("with %q it serves %s: %v, want %s; it says %s", flag, from, tried, want, said)
			}
		}
	}
}

// Gateways of one name for their undos, with an --instance, each with a folder of its own: an undo
// could look for its images in the wrong one. The user's own is served, as if it were alone.
func TestOfOneNameTheServerOfTheFolderItselfIsServed(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_STATE_HOME", home)
	own := filepath.Join(home, "sagenbaum", "mcp")
	gone := filepath.Join(t.TempDir(), "gone")
	for _, state := range []string{"", t.TempDir(), gone} { // the last one was started last
		remembers(t, own, options{state: state, instance: "one"}, "default")
	}
	if err := os.RemoveAll(gone); err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	r := &reading{files: []string{own}, log: slog.New(slog.DiscardHandler)}
	list, _, _ := r.read()
	for key := range r.refused {
		for _, want := range []string{"could look in the wrong one", "which is not there"} {
			if strings.Contains(key, want) {
				said[want] = key
			}
		}
	}
	if len(list) != 1 || list[0].entry.config.State != own || len(said) != 2 || len(r.refused) != 2 {
		t.Errorf("it serves %+v and says %v", list, r.refused)
	}
	if _, err := os.Stat(gone); !os.IsNotExist(err) {
		t.Errorf("it has made the folder again: %v", err)
	}
}

// What a gateway does that names no server is undone by the one that gateways start, also where its
// images are in another folder.
func TestAGatewayThatNamesNoServerIsOfTheUserFolder(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/home/user/state")
	const folder = "/home/user/state/sagenbaum/mcp"
	for _, c := range []struct {
		named       bool
		state, want string
	}{{false, "/elsewhere", folder}, {false, folder, ""}, {true, "/elsewhere", ""}, {true, folder, ""}} {
		if got := (&options{named: c.named}).userFolder(c.state); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
