//go:build exercise

package mcp

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// endServers ends the servers that a test has had started, by what is in their command lines.
func endServers(t *testing.T, listens string) {
	for _, pid := range running(t, listens) {
		if number, err := strconv.Atoi(pid); err == nil {
			_ = syscall.Kill(number, syscall.SIGINT)
		}
	}
	ctx, stop := context.WithTimeout(context.Background(), testenv.Patience)
	defer stop()
	cmdtest.Until(t, ctx, "the server ends", func() bool { return len(running(t, listens)) == 0 })
}

// TestGatewaysAloneShareAServerThatTheyStart, at the same time, in an environment with a secret; it
// stays when one is killed and the others end, and every command finds it.
func TestGatewaysAloneShareAServerThatTheyStart(t *testing.T) {
	address, home := cmdtest.FreeAddress(t), t.TempDir()
	listens := "--listen " + address
	t.Cleanup(func() { endServers(t, listens) })
	var all sync.WaitGroup
	var commands [4]*exec.Cmd
	var sessions [4]*sdk.ClientSession
	for n := range commands {
		server := filesServer(t, t.TempDir())
		commands[n] = cmdtest.Sagenbaum(t, append([]string{"mcp", "--start", address, "--"}, server...)...)
		commands[n].Env = append(cmdtest.Environment(home), "KEY_OF_ANOTHER_SERVER=secret")
		commands[n].Stderr = t.Output()
	}
	gateway := func(n int) {
		var err error
		if sessions[n], err = sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
			&sdk.CommandTransport{Command: commands[n]}, nil); err != nil {
			t.Error(err)
		}
	}
	for n := range 3 {
		all.Go(func() { gateway(n) })
	}
	if all.Wait(); t.Failed() {
		t.FailNow()
	}
	for n, session := range sessions[:3] {
		mcpCall(t, session, "write_file", map[string]any{"path": filepath.Join(commands[n].Args[len(commands[n].Args)-1],
			"a"), "content": "x"})
	}
	_ = commands[0].Process.Kill()
	for _, session := range sessions[:3] {
		_ = session.Close()
	}
	cmdtest.Eventually(t, "one server", func() (string, bool) {
		pids := running(t, listens)
		return fmt.Sprint(pids), len(pids) == 1
	})
	environment, err := os.ReadFile(filepath.Join("/proc", running(t, listens)[0], "environ"))
	if err != nil || strings.Contains(string(environment), "KEY_OF_ANOTHER_SERVER") {
		t.Errorf("the server has the environment of a client: %v", err)
	}
	list := func() cmdtest.Result {
		command := cmdtest.Sagenbaum(t, "plan", "ls", "--server", "nats://"+address)
		command.Env = cmdtest.Environment(home)
		return cmdtest.Finished(t, command)
	}
	if r := list(); r.Code != cli.ExitGood || strings.Count(r.Stdout, "MCP session") != 3 {
		t.Errorf("%+v", r)
	}
	pid, err := strconv.Atoi(running(t, listens)[0])
	if err != nil || syscall.Kill(pid, syscall.SIGKILL) != nil {
		t.Fatal("the server cannot be killed", err)
	}
	cmdtest.Eventually(t, "no server", func() (string, bool) {
		pids := running(t, listens)
		return fmt.Sprint(pids), len(pids) == 0
	})
	if r := list(); r.Code != cli.ExitNoServer || !strings.Contains(r.Stderr, "next: sagenbaum serve --data "+home) {
		t.Errorf("another folder would be another ledger: %+v", r)
	}
	if gateway(3); t.Failed() {
		t.FailNow()
	}
	if r := list(); r.Code != cli.ExitGood || strings.Count(r.Stdout, "MCP session") != 3 {
		t.Errorf("once it was killed: %+v", r)
	}
	_ = sessions[3].Close()
}

// TestAServerThatCannotBeStartedIsSaid, and one that may not be.
func TestAServerThatCannotBeStartedIsSaid(t *testing.T) {
	command, address := filesServer(t, t.TempDir()), cmdtest.FreeAddress(t)
	for _, c := range []struct {
		start string
		code  int
		says  string
	}{
		{"0.0.0.0:4222", cli.ExitUsage, "--start cannot be"},
		{"127.0.0.1:0", cli.ExitUsage, "--start cannot be"},
		{"here", cli.ExitUsage, "--start cannot be"},
		{address, cli.ExitNoServer, "its log ends with:"},
	} {
		gateway := cmdtest.Sagenbaum(t, append([]string{"mcp", "--start", c.start, "--"}, command...)...)
		state := filepath.Join(gateway.Dir, ".local", "state", "sagenbaum")
		if err := os.MkdirAll(state, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(state, "data"), nil, 0o600); err != nil { // where a folder is wanted
			t.Fatal(err)
		}
		r := cmdtest.Finished(t, gateway)
		if r.Code != c.code || !strings.Contains(r.Stderr, c.says) || !strings.Contains(r.Stderr, "next: ") {
			t.Errorf("--start %s: %+v", c.start, r)
		}
	}
}

// The server that a gateway has started is killed while it runs: it is started again, on the same
// data, and the client sees nothing of it but a call that takes longer.
func TestAServerThatIsKilledIsStartedAgain(t *testing.T) {
	address, dir := cmdtest.FreeAddress(t), t.TempDir()
	listens := "--listen " + address
	t.Cleanup(func() { endServers(t, listens) })
	gateway := cmdtest.Sagenbaum(t, append([]string{"mcp", "--start", address, "--"}, filesServer(t, dir)...)...)
	gateway.Env, gateway.Stderr = cmdtest.Environment(t.TempDir()), t.Output()
	client, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		&sdk.CommandTransport{Command: gateway}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	for range 2 {
		before := running(t, listens)
		mcpCall(t, client, "write_file", map[string]any{"path": filepath.Join(dir, "a"), "content": "x"})
		pid, err := strconv.Atoi(before[0])
		if err != nil || len(before) != 1 || syscall.Kill(pid, syscall.SIGKILL) != nil {
			t.Fatalf("servers %v: %v", before, err)
		}
		mcpCall(t, client, "write_file", map[string]any{"path": filepath.Join(dir, "b"), "content": "x"})
		if now := running(t, listens); len(now) != 1 || now[0] == before[0] {
			t.Errorf("servers %v, then %v", before, now)
		}
	}
	mcpCall(t, client, "undo_last", map[string]any{"count": 4})
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// Client, gateway and its server are killed, and no one starts anything: the server that the gateway
// has started undoes what they did once it is asked to, also after it was killed and started again by
// the gateway of another server; and what one does that leaves its undos to others, with its images in
// another folder.
func TestTheServerThatAGatewayStartedUndoesWhenItIsGone(t *testing.T) {
	t.Parallel()
	address, home := cmdtest.FreeAddress(t), t.TempDir()
	listens := "--listen " + address
	t.Cleanup(func() { endServers(t, listens) })
	ask := func(args ...string) cmdtest.Result {
		t.Helper()
		command := cmdtest.Sagenbaum(t, append(args, "--server", "nats://"+address)...)
		command.Env = cmdtest.Environment(home)
		return cmdtest.Finished(t, command)
	}
	var dirs, starts, plans []string
	for _, flags := range [][]string{{}, {}, {"--no-undo", "--state", t.TempDir()}} {
		dir := t.TempDir()
		dirs, starts = append(dirs, dir), append(starts, treeOf(t, dir))
		gateway := cmdtest.Sagenbaum(t, slices.Concat([]string{"mcp", "--start", address}, flags, []string{"--"},
			filesServer(t, dir))...)
		gateway.Env = cmdtest.Environment(home)
		client, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
			&sdk.CommandTransport{Command: gateway}, nil)
		if err != nil {
			t.Fatal(err)
		}
		mcpCall(t, client, "write_file", map[string]any{"path": filepath.Join(dir, "a"), "content": "x"})
		plan, _ := mcpCall(t, client, "create_directory", map[string]any{"path": filepath.Join(dir, "b")}).
			Meta["sagenbaum/plan"].(string)
		plans = append(plans, plan)
		cmdtest.Eventually(t, "they are recorded", func() (string, bool) {
			r := ask("plan", "show", plan, "-o", "json")
			return r.Stdout, strings.Count(strings.ReplaceAll(r.Stdout, " ", ""), `"outcome":"completed"`) == 2
		})
		if len(flags) > 0 {
			t.Cleanup(func() { _ = client.Close() })
			continue
		}
		_ = gateway.Process.Kill()
		_ = client.Close()
		if pid, err := strconv.Atoi(running(t, listens)[0]); err != nil || len(plans) == 1 &&
			syscall.Kill(pid, syscall.SIGKILL) != nil {
			t.Fatal("the server cannot be killed", err)
		}
	}
	for n, plan := range plans {
		r := ask("undo", "--plan", plan, "--reason", "wrong", "--yes")
		if r.Code != cli.ExitGood || !strings.Contains(r.Stdout, "compensated") {
			t.Errorf("undo says %+v", r)
		}
		if now := treeOf(t, dirs[n]); now != starts[n] {
			t.Errorf("the folder is\n%s\nwant\n%s", now, starts[n])
		}
	}
	next := cmdtest.Sagenbaum(t, append([]string{"mcp", "--start", address, "--"}, filesServer(t, dirs[0])...)...)
	next.Env = cmdtest.Environment(home)
	client, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		&sdk.CommandTransport{Command: next}, nil)
	if err != nil {
		t.Fatal(err)
	}
	cmdtest.Eventually(t, "a gateway that runs has its undos", func() (string, bool) {
		log, _ := os.ReadFile(filepath.Join(home, ".local", "state", "sagenbaum", "serve.log")) // where it is there
		return string(log), strings.Contains(string(log), "are left to its gateway")
	})
	_ = client.Close()
}

// A server that someone else has started is theirs, and a call that cannot be recorded says so.
func TestACallWithoutALedgerSaysSo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := cmdtest.ServeFor(t, t.TempDir())
	client, _ := mcpClient(t, s, t.TempDir(), append([]string{"--"}, filesServer(t, dir)...)...)
	s.Kill9(t)
	result, err := client.CallTool(t.Context(), &sdk.CallToolParams{Name: "write_file",
		Arguments: map[string]any{"path": filepath.Join(dir, "a"), "content": "x"}})
	if err != nil || !result.IsError {
		t.Fatalf("%v, %+v", err, result)
	}
	if text := result.Content[0].(*sdk.TextContent).Text; !strings.Contains(text, "is sagenbaum serve still running?") ||
		!strings.Contains(text, "Nothing was done") {
		t.Errorf("it says %q", text)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
