//go:build exercise

package mcp

import (
	"bufio"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// proxied serves a command over HTTP at an address by a gateway of someone else, until it is killed.
func proxied(t *testing.T, address string, command *exec.Cmd) (kill func()) {
	t.Helper()
	const name, version = "mcp-proxy", "6.7.19"
	program := filepath.Join(testenv.NPM(t, name+"@"+version), "node_modules", name, "dist", "bin", "mcp-proxy.mjs")
	_, port, _ := strings.Cut(address, ":")
	gateway := exec.Command("node", append([]string{program, "--host", "127.0.0.1", "--port", port,
		"--server", "stream", "--"}, command.Args...)...)
	gateway.Env = command.Env
	said, err := gateway.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	gateway.Stderr = gateway.Stdout // of the pipe
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	serves, ended := make(chan bool, 1), make(chan bool)
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(said); lines.Scan(); {
			t.Log(lines.Text())
			if strings.HasPrefix(lines.Text(), "starting server on port") {
				serves <- true
			}
		}
	}()
	kill = sync.OnceFunc(func() {
		_ = gateway.Process.Kill() // it may have ended
		<-ended
		_ = gateway.Wait()
	})
	t.Cleanup(kill)
	select {
	case <-serves:
	case <-ended:
		t.Fatal("the other gateway has ended")
	}
	for deadline := time.After(testenv.Patience); ; { // it says so before it listens
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			break
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			t.Fatal("the other gateway does not listen")
		}
	}
	return kill
}

// What an agent does through the gateway of someone else is undone, on whichever side of that this
// one is, by the agent itself and when all gateways are gone.
func TestWhatIsDoneThroughAnotherGatewayIsUndone(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"it starts ours", "ours goes to it"} {
		t.Run(side, func(t *testing.T) {
			t.Parallel()
			s := cmdtest.ServeFor(t, t.TempDir())
			dir, state := t.TempDir(), t.TempDir()
			start, files := treeOf(t, dir), filesServer(t, dir)
			address := cmdtest.FreeAddress(t)
			url := "http://" + address + "/mcp"
			args := []string{"--server", s.URL, "--state", state, "--url", url, "--root", dir}
			direct := exec.Command(files[0], files[1:]...)
			var through sdk.Transport
			var kill func()
			if side == "it starts ours" {
				args = append(append(args[:4], "--"), files...)
				kill = proxied(t, address, cmdtest.Sagenbaum(t, append([]string{"mcp"}, args...)...))
				through = &sdk.StreamableClientTransport{Endpoint: url}
			} else {
				kill = proxied(t, address, direct)
				gateway := cmdtest.Sagenbaum(t, append([]string{"mcp"}, args...)...)
				gateway.Stderr = t.Output()
				through = &sdk.CommandTransport{Command: gateway}
			}
			who := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
			client, err := who.Connect(t.Context(), through, nil)
			if err != nil {
				t.Fatal(err)
			}
			write := func(name string) (plan string) {
				t.Helper()
				result := mcpCall(t, client, "write_file",
					map[string]any{"path": filepath.Join(dir, name), "content": "x"})
				plan, _ = result.Meta["sagenbaum/plan"].(string)
				return plan
			}
			write("a")
			mcpCall(t, client, "plan_fail", map[string]any{})
			if now := treeOf(t, dir); now != start {
				t.Errorf("the folder is\n%s\nwant\n%s", now, start)
			}
			plan := write("b")
			kill() // with the connections through it
			_ = client.Close()
			if side == "ours goes to it" {
				proxied(t, address, direct)
			}
			works(t, append([]string{"mcp", "worker"}, args...)...)
			s.Ask(t, "default", "plan", "cancel", plan, "--reason", "all is gone", "--wait").Wants(t, "plan cancel",
				cli.ExitGood)
			if now := treeOf(t, dir); now != start {
				t.Errorf("the folder is\n%s\nwant\n%s", now, start)
			}
			s.End(t).Wants(t, "serve", cli.ExitGood)
		})
	}
}
