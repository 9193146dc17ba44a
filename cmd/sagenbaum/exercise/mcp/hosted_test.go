//go:build exercise

package mcp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
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
	if err := gateway.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = client.Close()
	if err := s.Command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.Command.Wait()
	again := cmdtest.ServeFor(t, data, "--mcp", file)
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
