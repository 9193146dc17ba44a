//go:build exercise

package mcp

//lint:file-ignore SA1019 the protocol has deprecated roots; who has them keeps them

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// filesServer is the command of the filesystem server of npm on a folder.
func filesServer(t *testing.T, dir string) []string {
	t.Helper()
	const name, version = "@modelcontextprotocol/server-filesystem", "2026.8.31"
	installed := testenv.NPM(t, name+"@"+version, "@modelcontextprotocol/server-memory@"+version)
	return []string{"node", filepath.Join(installed, "node_modules", name, "dist", "index.js"), dir}
}

// mcpClient starts a gateway as a client's configuration does, and talks to it.
func mcpClient(t *testing.T, s *cmdtest.Served, state string, args ...string) (*sdk.ClientSession, *exec.Cmd) {
	t.Helper()
	return mcpClientIn(t, nil, s, state, args...)
}

// mcpClientIn is mcpClient for a client with roots.
func mcpClientIn(t *testing.T, roots []*sdk.Root, s *cmdtest.Served, state string, args ...string) (
	*sdk.ClientSession, *exec.Cmd) {
	t.Helper()
	command := cmdtest.Sagenbaum(t, append([]string{"mcp", "--server", s.URL, "--state", state}, args...)...)
	return mcpClientOf(t, roots, command), command
}

// mcpClientOf starts a gateway, and is a client of it with roots.
func mcpClientOf(t *testing.T, roots []*sdk.Root, command *exec.Cmd) *sdk.ClientSession {
	t.Helper()
	command.Stderr = t.Output()
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	client.AddRoots(roots...)
	session, err := client.Connect(t.Context(), &sdk.CommandTransport{Command: command}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// mcpCall calls a tool that must not fail, and returns what it says.
func mcpCall(t *testing.T, c *sdk.ClientSession, tool string, arguments map[string]any) *sdk.CallToolResult {
	t.Helper()
	result, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	if result.IsError {
		t.Fatalf("%s: %s", tool, result.Content[0].(*sdk.TextContent).Text)
	}
	return result
}

// treeOf is every file of a folder, with its bytes, mode and time.
func treeOf(t *testing.T, dir string) (tree string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		tree += fmt.Sprintf("%s %s %s\n", path, info.Mode(), info.ModTime().UTC().Format(time.RFC3339Nano))
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			tree += fmt.Sprintf("%q\n", content)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// running lists the processes whose command line has a text.
func running(t *testing.T, text string) (pids []string) {
	t.Helper()
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, line := range lines {
		if content, err := os.ReadFile(line); err == nil &&
			strings.Contains(strings.ReplaceAll(string(content), "\x00", " "), text) {
			pids = append(pids, filepath.Base(filepath.Dir(line)))
		}
	}
	return pids
}

// works runs a worker until the test ends.
func works(t *testing.T, args ...string) {
	t.Helper()
	worker := cmdtest.Sagenbaum(t, args...)
	worker.Stderr = t.Output()
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = worker.Process.Signal(os.Interrupt)
		_ = worker.Wait()
	})
}

// The client and its gateway are killed; the server of the gateway goes with them. A worker that is
// started later undoes what the session has done.
func TestAnUndoOutlivesItsGateway(t *testing.T) {
	t.Parallel()
	dir, state := t.TempDir(), t.TempDir()
	command := filesServer(t, dir)
	old := filepath.Join(dir, "old")
	if err := os.WriteFile(old, []byte("was here"), 0o640); err != nil {
		t.Fatal(err)
	}
	long := time.Date(2020, 1, 2, 3, 4, 5, 678, time.UTC)
	for _, path := range []string{old, dir} {
		if err := os.Chtimes(path, long, long); err != nil {
			t.Fatal(err)
		}
	}
	start := treeOf(t, dir)
	s := cmdtest.ServeFor(t, t.TempDir())
	client, gateway := mcpClient(t, s, state, append([]string{"--"}, command...)...)
	result := mcpCall(t, client, "write_file", map[string]any{"path": old, "content": "overwritten"})
	mcpCall(t, client, "create_directory", map[string]any{"path": filepath.Join(dir, "a", "b")})
	mcpCall(t, client, "move_file", map[string]any{"source": old, "destination": filepath.Join(dir, "a", "new")})
	plan, _ := result.Meta["sagenbaum/plan"].(string)
	if plan == "" {
		t.Fatalf("no plan in %v", result.Meta)
	}
	if len(running(t, strings.Join(command, " "))) < 1 {
		t.Error("no server runs")
	}
	if err := gateway.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = client.Close()
	for deadline := time.After(testenv.Patience); len(running(t, strings.Join(command, " "))) > 0; {
		select {
		case <-deadline:
			t.Fatal("the server of a gateway that was killed still runs")
		case <-time.After(20 * time.Millisecond):
		}
	}
	works(t, append([]string{"mcp", "worker", "--server", s.URL, "--state", state, "--"}, command...)...)
	s.Ask(t, "default", "plan", "cancel", plan, "--reason", "the client is gone", "--wait").Wants(t,
		"plan cancel", cli.ExitGood)
	if now := treeOf(t, dir); now != start {
		t.Errorf("the folder is\n%s\nwant\n%s", now, start)
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// The client closes the input of its gateway, as clients do at their end, or the gateway is told to
// end: with --on-disconnect fail all is undone when it has ended, and no worker is needed.
func TestWhatAClientLeavesIsUndoneBeforeItsGatewayEnds(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, t.TempDir())
	for name, end := range map[string]func(*sdk.ClientSession, *exec.Cmd) error{
		"its input ends": func(c *sdk.ClientSession, _ *exec.Cmd) error { return c.Close() },
		"SIGTERM": func(c *sdk.ClientSession, gateway *exec.Cmd) error {
			err := gateway.Process.Signal(syscall.SIGTERM)
			_ = c.Wait() // its output ends with the process
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, state := t.TempDir(), t.TempDir()
			start := treeOf(t, dir)
			client, gateway := mcpClient(t, s, state, append([]string{"--on-disconnect", "fail", "--"},
				filesServer(t, dir)...)...)
			mcpCall(t, client, "write_file", map[string]any{"path": filepath.Join(dir, "new"), "content": "new"})
			if err := end(client, gateway); err != nil {
				t.Error(err)
			}
			if now := treeOf(t, dir); now != start {
				t.Errorf("the folder is\n%s\nwant\n%s", now, start)
			}
		})
	}
}

func TestTheCommandsOfMCPSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	command := filesServer(t, t.TempDir())
	check := cmdtest.Run(t, append([]string{"mcp", "check", "--"}, command...)...)
	check.Wants(t, "mcp check", cli.ExitGood)
	if !strings.Contains(check.Stdout, "write_file") || !strings.Contains(check.Stdout, "exact") {
		t.Errorf("mcp check says\n%s", check.Stdout)
	}
	draft := cmdtest.Run(t, append([]string{"contract", "init", "--from-mcp", "--"}, command...)...)
	draft.Wants(t, "contract init", cli.ExitGood)
	if !strings.Contains(draft.Stdout, "server: \"secure-filesystem-server\"\ndraft: true") {
		t.Errorf("contract init says\n%s", draft.Stdout)
	}
	config := filepath.Join(t.TempDir(), "mcp.json")
	text := fmt.Sprintf(`{"mcpServers": {"files": {"command": "/usr/bin/sagenbaum", "args": ["mcp", "--deadline", "1h",
		"--agent", "x", "--", %q, %q, %q]}}}`, command[0], command[1], command[2])
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	inner := cmdtest.Run(t, "mcp", "check", "--config", config)
	inner.Wants(t, "mcp check --config", cli.ExitGood)
	if inner.Stdout != check.Stdout {
		t.Errorf("through the configuration of a client: %s", inner.Stdout)
	}
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"mcp"}, cli.ExitUsage, "there is no server"},
		{[]string{"mcp", "node", "x"}, cli.ExitUsage, "comes after --"},
		{[]string{"mcp", "--unknown", "maybe", "--", "node"}, cli.ExitUsage, "--unknown cannot be"},
		{[]string{"mcp", "--on-disconnect", "cry", "--", "node"}, cli.ExitUsage, "--on-disconnect cannot be"},
		{[]string{"mcp", "--deadline", "0s", "--", "node"}, cli.ExitUsage, "--deadline cannot be"},
		{[]string{"mcp", "--listen", "0.0.0.0:1", "--", "node"}, cli.ExitUsage, "this machine alone"},
		{[]string{"mcp", "--stateless", "--", "node"}, cli.ExitUsage, "--stateless is for clients over HTTP"},
		{[]string{"mcp", "--listen", "1", "--", "node"}, cli.ExitUsage, "--listen cannot be"},
		{[]string{"mcp", "--config", config, "--", "node"}, cli.ExitUsage, "--config names the servers"},
		{[]string{"mcp", "--server", "nats://127.0.0.1:1", "--", "node"}, cli.ExitNoServer, "no server at"},
		{[]string{"mcp", "check", "--", "/no/such/program"}, cli.ExitFailed, "cannot start server"},
		{[]string{"mcp", "check", "--pack", "/none", "--", "node"}, cli.ExitFailed, "no such file"},
		{[]string{"contract", "init"}, cli.ExitUsage, "what to draft contracts from"},
	} {
		cmdtest.Run(t, test.args...).Wants(t, strings.Join(test.args, " "), test.code, test.says)
	}
}
