//go:build exercise

package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// The reference clients that the gateway is tested with, in these versions.
const (
	clientPackage    = "@modelcontextprotocol/sdk"
	clientVersion    = "1.32.2"
	inspectorPackage = "@modelcontextprotocol/inspector"
	inspectorVersion = "2.12.0"
)

// asProgram has a configuration call the command by the name sagenbaum. It returns that
// name, and the environment that goes with it and a server.
func asProgram(t *testing.T, url string) (name, env string) {
	t.Helper()
	self := cmdtest.Sagenbaum(t, "mcp", "--server", url)
	name = filepath.Join(t.TempDir(), "sagenbaum")
	if err := os.Symlink(self.Path, name); err != nil {
		t.Fatal(err)
	}
	own := map[string]string{}
	for _, variable := range self.Env {
		if !slices.Contains(os.Environ(), variable) {
			key, value, _ := strings.Cut(variable, "=")
			own[key] = value
		}
	}
	raw, err := json.Marshal(own)
	if err != nil {
		t.Fatal(err)
	}
	return name, string(raw)
}

// listening starts a gateway over HTTP and returns its address.
func listening(t *testing.T, args ...string) string {
	t.Helper()
	gateway := cmdtest.Sagenbaum(t, append([]string{"mcp", "--listen", "127.0.0.1:0"}, args...)...)
	gateway.Env = append(gateway.Environ(), "SAGENBAUM_MCP_TOKEN=secret")
	said, err := gateway.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(said); lines.Scan(); {
			if url, ok := strings.CutPrefix(lines.Text(), "serving MCP on "); ok {
				address <- url
			}
		}
	}()
	t.Cleanup(func() {
		_ = gateway.Process.Signal(os.Interrupt)
		<-ended
		_ = gateway.Wait()
	})
	select {
	case url := <-address:
		return url
	case <-ended:
		t.Fatal("the gateway has ended")
		return ""
	}
}

// The reference client works through the gateway with no change but that of its configuration,
// over both transports.
func TestTheReferenceClientWorksThroughTheGateway(t *testing.T) {
	t.Parallel()
	dir, state := t.TempDir(), t.TempDir()
	files := filesServer(t, dir)
	sdk := filepath.Join(testenv.NPM(t, clientPackage+"@"+clientVersion), "node_modules", clientPackage)
	s := cmdtest.ServeFor(t, t.TempDir())
	program, env := asProgram(t, s.URL)
	file := configuration(t, `{"mcpServers": {
		"stdio": {"type": "stdio", "command": %q, "env": %s,
			"args": ["mcp", "--server", %q, "--state", %q, "--", %q, %q, %q]},
		"http": {"type": "http", "url": %q, "headers": {"Authorization": "Bearer secret"}}}}`,
		program, env, s.URL, state, files[0], files[1], dir,
		listening(t, append([]string{"--server", s.URL, "--state", state, "--"}, files...)...))
	for _, transport := range []string{"stdio", "http"} {
		path := filepath.Join(dir, transport)
		client := exec.CommandContext(t.Context(), "node", "testdata/client.mjs", sdk, file, transport, path)
		client.Stderr = t.Output()
		out, err := client.Output()
		if err != nil {
			t.Errorf("%s: %v", transport, err)
			continue
		}
		var said struct {
			Server, Plan, There string
			Tools, Undone       []string
		}
		if err := json.Unmarshal(out, &said); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if said.Server != "secure-filesystem-server" || said.Plan == "" ||
			said.There != "by the reference client" || !slices.Equal(said.Undone, []string{"write_file"}) ||
			!slices.Contains(said.Tools, "write_file") || !slices.Contains(said.Tools, "plan_fail") {
			t.Errorf("%s: %s", transport, out)
		}
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s: the file is still there: %v", transport, err)
		}
	}
}

func TestTheReferenceInspectorWorksThroughTheGateway(t *testing.T) {
	t.Parallel()
	dir, state := t.TempDir(), t.TempDir()
	files := filesServer(t, dir)
	inspector := filepath.Join(testenv.NPM(t, inspectorPackage+"@"+inspectorVersion), "node_modules", ".bin",
		"mcp-inspector")
	s := cmdtest.ServeFor(t, t.TempDir())
	program, env := asProgram(t, s.URL)
	file := configuration(t, `{"mcpServers": {"files": {"command": %q, "env": %s,
		"args": ["mcp", "--server", %q, "--state", %q, "--", %q, %q, %q]}}}`,
		program, env, s.URL, state, files[0], files[1], dir)
	inspect := func(args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), inspector, append([]string{"--cli", "--config", file, "--server",
			"files"}, args...)...)
		var errors bytes.Buffer
		cmd.Stderr = &errors
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s%s", args, err, out, errors.Bytes())
		}
		return out
	}
	if out := inspect("--method", "tools/list"); !bytes.Contains(out, []byte(`"undo_last"`)) {
		t.Errorf("tools/list: %s", out)
	}
	path := filepath.Join(dir, "new")
	var result struct {
		Meta map[string]string `json:"_meta"`
	}
	out := inspect("--method", "tools/call", "--tool-name", "write_file", "--tool-arg", "path="+path,
		"--tool-arg", "content=text")
	if err := json.Unmarshal(out, &result); err != nil || result.Meta["sagenbaum/plan"] == "" {
		t.Fatalf("tools/call: %v: %s", err, out)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "text" {
		t.Errorf("%q, %v", content, err)
	}
	s.Ask(t, "default", "plan", "show", result.Meta["sagenbaum/plan"]).Wants(t, "plan show", cli.ExitGood)
}
