package mcp

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/mcp/started"
)

// A host serves what a folder of states remembers, in each tenant that gateways have recorded in,
// and nothing that would be another server here.
func TestAHostServesTheGatewaysThatAFolderRemembers(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	state, here := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(here, "data"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	headers := &options{url: "http://127.0.0.1:1/mcp", headers: []string{"Authorization=TOKEN_OF_THE_CLIENT"}}
	for n, c := range []struct {
		flags   options
		args    []string
		env     map[string]string
		tenants []string
		change  func(g *started.Gateway)
		says    string // empty: it is served
	}{
		{args: []string{"cat"}, env: map[string]string{}, tenants: []string{"a", "b"}},
		{args: []string{"cat"}, env: map[string]string{"MEMORY_FILE_PATH": "/x"}, tenants: []string{"c"}},
		{args: []string{"cat", "data"}, env: map[string]string{}, tenants: []string{"d"}, says: "data is relative"},
		{args: []string{"cat", "./data"}, env: map[string]string{}, tenants: []string{"d"}, says: "./data is relative"},
		{args: []string{"cat", "1"}, tenants: []string{"d"}, says: "does not say which variables"},
		{args: []string{"cat", "2"}, env: map[string]string{}}, // of an earlier version
		{args: []string{"cat", "3"}, env: map[string]string{}, tenants: []string{"no tenant"}, says: "is no tenant"},
		{args: []string{"no-such-program"}, env: map[string]string{}, tenants: []string{"d"}, says: "no-such-program"},
		{args: []string{"cat", "4"}, env: map[string]string{}, tenants: []string{"d"}, says: "another server here",
			change: func(g *started.Gateway) { g.Environment = map[string]string{"MEMORY_FILE_PATH": "/x"} }},
		{args: []string{"cat", "5"}, env: map[string]string{}, tenants: []string{"d"}, says: "no command line",
			change: func(g *started.Gateway) { g.Worker = []string{"rm", "-r", "/"} }},
		{flags: *headers, env: map[string]string{}, tenants: []string{"d"}, says: "names no variable"},
	} {
		config := mcp.ServerConfig{Name: "cat", State: state, Inherited: c.env, URL: c.flags.url}
		if len(c.args) > 0 {
			config.Name, config.Command, config.Args = nameOf(c.args), c.args[0], c.args[1:]
		}
		server, err := mcp.NewServer(config)
		if err != nil {
			t.Fatal(err)
		}
		server.Close()
		g := started.Gateway{Undo: server.Undo(), Folder: here, Worker: c.flags.workerLine(c.args),
			Environment: c.env, Tenants: c.tenants}
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
		var tenants []string
		for _, h := range list {
			if h.undo != g.Undo || h.gateway.Server == "" {
				t.Errorf("%d: it serves %s in tenant %s", n, h.undo, h.gateway.Tenant)
			}
			tenants = append(tenants, h.gateway.Tenant)
		}
		want := c.tenants
		if c.says != "" {
			want = nil
		}
		if !slices.Equal(tenants, want) || !strings.Contains(said, c.says) || (said == "") != (c.says == "") ||
			!slices.Contains(looked, g.File(state)) {
			t.Errorf("%d: it serves %v, says %q, and looks at %v; want %v and %q", n, tenants, said, looked, want, c.says)
		}
		if err := os.Remove(g.File(state)); err != nil {
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
	var leave func()
	for tenant, args := range map[string][]string{"a": {"cat", "1"}, "b": {"cat", "2"}} {
		server, err := mcp.NewServer(mcp.ServerConfig{Name: "cat", State: state, Command: args[0], Args: args[1:]})
		if err != nil {
			t.Fatal(err)
		}
		server.Close()
		if err := started.Remember(state, started.Gateway{Undo: server.Undo(), Worker: new(options).workerLine(args),
			Environment: map[string]string{}, Tenants: []string{tenant}}, time.Hour, time.Now()); err != nil {
			t.Fatal(err)
		}
		if tenant == "a" {
			if leave, err = started.Serve(state, server.Undo(), "a"); err != nil {
				t.Fatal(err)
			}
		}
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
