//go:build exercise

package mcp

//lint:file-ignore SA1019 the protocol has deprecated roots; who has them keeps them

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/mcp/started"
)

// Gateway and server are killed. The server that is started again with the client's configuration
// undoes what the session has done, with no worker beside it.
func TestAHostUndoesWhatAGatewayThatWasKilledHasDone(t *testing.T) {
	t.Parallel()
	dir, state, data := t.TempDir(), t.TempDir(), t.TempDir()
	command := filesServer(t, dir)
	old := filepath.Join(dir, "old")
	if err := os.WriteFile(old, []byte("was here"), 0o640); err != nil {
		t.Fatal(err)
	}
	start := treeOf(t, dir)
	file := configuration(t, `{"mcpServers": {
		"files": {"command": "sagenbaum", "args": ["mcp", "--state", %q, "--", %q, %q, %q]},
		"broken": {"command": "sagenbaum", "args": ["mcp", "--state", %q, "--", "/no/such/program"]},
		"far": {"type": "http", "url": "https://example.com/mcp"}}}`,
		state, command[0], command[1], dir, state)
	s := cmdtest.ServeFor(t, data)
	client, gateway := mcpClient(t, s, state, append([]string{"--"}, command...)...)
	result := mcpCall(t, client, "write_file", map[string]any{"path": old, "content": "overwritten"})
	mcpCall(t, client, "move_file", map[string]any{"source": old, "destination": filepath.Join(dir, "new")})
	plan, _ := result.Meta["sagenbaum/plan"].(string)
	if plan == "" {
		t.Fatalf("no plan in %v", result.Meta)
	}
	recorded(t, s, plan, 2)
	again := elsewhere(t, s, client, gateway, file)
	idle := command[1] + " " + dir
	for deadline := time.After(testenv.Patience); ; { // a machine may take long to start what undoes
		r := again.Ask(t, "default", "worker", "ls", "-o", "json")
		if strings.Contains(r.Stdout, `"served":"yes"`) || strings.Contains(r.Stdout, `"served": "yes"`) {
			break
		}
		select {
		case <-deadline:
			t.Fatalf("no undo is served: %s%s", r.Stdout, r.Stderr)
		case <-time.After(100 * time.Millisecond):
		}
	}
	if runs := running(t, idle); len(runs) > 0 {
		t.Errorf("a host without an undo runs the server: %v", runs)
	}
	again.Ask(t, "default", "plan", "cancel", plan, "--reason", "the client is gone", "--wait").Wants(t,
		"plan cancel", cli.ExitGood)
	if now := treeOf(t, dir); now != start {
		t.Errorf("the folder is\n%s\nwant\n%s", now, start)
	}
	ended := again.End(t)
	ended.Wants(t, "serve", cli.ExitGood, "/no/such/program")
	if t.Failed() {
		t.Logf("the host says\n%s", ended.Stderr)
	}
	if left := running(t, idle); len(left) > 0 {
		t.Errorf("the server of a host that has ended still runs: %v", left)
	}
	cmdtest.Run(t, "serve", "--data", t.TempDir(), "--mcp", file, "--nats", again.URL).Wants(t, "serve --nats",
		cli.ExitUsage, "--mcp is for the embedded server")
}

// The client has the server work in its roots, outside of the folder of the command. The gateway is
// killed, and a server that is started in another folder undoes it there, byte for byte.
func TestAHostUndoesWhatWasDoneInTheRootsOfAClient(t *testing.T) {
	t.Parallel()
	own, dir, state, data := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	command := filesServer(t, own)
	if err := os.WriteFile(filepath.Join(dir, "old"), []byte("was here"), 0o640); err != nil {
		t.Fatal(err)
	}
	start := treeOf(t, dir)
	file := configuration(t, `{"mcpServers": {
		"files": {"command": "sagenbaum", "args": ["mcp", "--state", %q, "--", %q, %q, %q]}}}`,
		state, command[0], command[1], own)
	s := cmdtest.ServeFor(t, data)
	client, gateway := mcpClientIn(t, []*sdk.Root{{URI: "file://" + dir}}, s, state,
		append([]string{"--"}, command...)...)
	plan, _ := mcpCall(t, client, "write_file", map[string]any{"path": filepath.Join(dir, "old"),
		"content": "new"}).Meta["sagenbaum/plan"].(string)
	mcpCall(t, client, "create_directory", map[string]any{"path": filepath.Join(dir, "a", "b")})
	mcpCall(t, client, "move_file", map[string]any{"source": filepath.Join(dir, "old"),
		"destination": filepath.Join(dir, "a", "new")})
	recorded(t, s, plan, 3)
	again := elsewhere(t, s, client, gateway, file)
	again.Ask(t, "default", "plan", "cancel", plan, "--reason", "the client is gone", "--wait").Wants(t,
		"plan cancel", cli.ExitGood)
	if now := treeOf(t, dir); now != start {
		t.Errorf("the folder is\n%s\nwant\n%s", now, start)
	}
}

// elsewhere kills a gateway and its server, and starts the server again as one that undoes what the
// gateways of a client's configuration have done.
func elsewhere(t *testing.T, s *cmdtest.Served, client *sdk.ClientSession, gateway *exec.Cmd,
	file string, env ...string) *cmdtest.Served {
	t.Helper()
	if err := gateway.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = client.Close()
	if err := s.Command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.Command.Wait()
	again := cmdtest.ServeCommand(t, s.Dir, "--mcp", file)
	again.Env = append(again.Environ(), env...)
	return cmdtest.ServeAs(t, s.Dir, again)
}

// recorded waits until so many calls of a plan are known to have happened: what a gateway that is
// killed has not recorded yet is in doubt, and is not undone before the call can no longer land.
func recorded(t *testing.T, s *cmdtest.Served, plan string, calls int) {
	t.Helper()
	cmdtest.Eventually(t, "they are recorded", func() (string, bool) {
		r := s.Ask(t, "default", "plan", "show", plan, "-o", "json")
		return r.Stdout, strings.Count(strings.ReplaceAll(r.Stdout, " ", ""), `"outcome":"completed"`) == calls
	})
}

// After kill -9 of a gateway the next command and the next gateway, of whichever server, say what to
// start, and that undoes it.
func TestWhatAGatewayThatWasKilledHasDoneIsNotForgotten(t *testing.T) {
	t.Parallel()
	dir, state := t.TempDir(), t.TempDir()
	command := filesServer(t, dir)
	start := treeOf(t, dir)
	s := cmdtest.ServeFor(t, t.TempDir())
	client, gateway := mcpClient(t, s, state, append([]string{"--"}, command...)...)
	plan, _ := mcpCall(t, client, "write_file", map[string]any{"path": filepath.Join(dir, "new"),
		"content": "new"}).Meta["sagenbaum/plan"].(string)
	recorded(t, s, plan, 1)
	if err := gateway.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = client.Close()
	undo := s.Ask(t, "default", "undo", "--last", "1", "--reason", "wrong", "--yes", "--wait-timeout", "1ms")
	if undo.Code != cli.ExitLook || !strings.Contains(undo.Stdout, "no worker serves mcp.filesystem-") ||
		!strings.Contains(undo.Stdout, "next: sagenbaum serve --mcp FILE") {
		t.Errorf("undo says %+v", undo)
	}
	next := cmdtest.Sagenbaum(t, "mcp", "--server", s.URL, "--state", state, "--", command[0],
		strings.Replace(command[1], "server-filesystem", "server-memory", 1))
	said := make(chan string, 1)
	in, err := next.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := next.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if strings.Contains(lines.Text(), "nothing serves them") {
				said <- lines.Text()
			}
		}
		close(said)
	}()
	if line := <-said; !strings.Contains(line, plan) || !strings.Contains(line, "sagenbaum mcp worker --state "+state+
		" -- "+command[0]+" "+command[1]+" "+dir) {
		t.Errorf("the next gateway says %q", line)
	}
	_ = in.Close()
	for range said {
	}
	_ = next.Wait()
	for _, g := range started.List(state) {
		if strings.HasPrefix(g.Undo, "mcp.filesystem-") {
			works(t, slices.Insert(slices.Clone(g.Worker[1:]), 2, "--server", s.URL)...)
		}
	}
	cmdtest.Eventually(t, "it is undone", func() (string, bool) {
		r := s.Ask(t, "default", "plan", "show", plan, "-o", "json")
		return r.Stdout, strings.Contains(strings.ReplaceAll(r.Stdout, " ", ""), `"state":"compensated"`)
	})
	if now := treeOf(t, dir); now != start {
		t.Errorf("the folder is\n%s\nwant\n%s", now, start)
	}
}
