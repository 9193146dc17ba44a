//go:build exercise

package mcp

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	mcpcmd "github.com/sagenbaum/sagenbaum/cmd/sagenbaum/mcp"
)

// diagnosis is what the doctor of MCP says, by server and check.
func diagnosis(t *testing.T, code int, args ...string) map[string]mcpcmd.Finding {
	t.Helper()
	r := cmdtest.Run(t, append([]string{"mcp", "doctor", "-o", "json"}, args...)...)
	r.Wants(t, "mcp doctor", code)
	var said struct{ Checks []mcpcmd.Finding }
	if err := json.Unmarshal([]byte(r.Stdout), &said); err != nil {
		t.Fatalf("%v: %s", err, r.Stdout)
	}
	found := map[string]mcpcmd.Finding{}
	for _, f := range said.Checks {
		found[f.Server+" "+f.Check] = f
		if f.State != "ok" && f.Next == "" {
			t.Errorf("nothing is said to do about %+v", f)
		}
	}
	return found
}

// configuration writes the file of a client; command is the gateway's in it.
func configuration(t *testing.T, text string, args ...any) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), ".mcp.json")
	if err := os.WriteFile(file, []byte(fmt.Sprintf(text, args...)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func states(found map[string]mcpcmd.Finding) (list []string) {
	for name, f := range found {
		list = append(list, name+" "+f.State)
	}
	slices.Sort(list)
	return list
}

func TestTheDoctorOfMCPFindsWhatIsWrongWithAConfiguration(t *testing.T) {
	t.Parallel()
	dir, state := t.TempDir(), t.TempDir()
	files := filesServer(t, dir)
	memory := strings.Replace(files[1], "server-filesystem", "server-memory", 1)
	s := cmdtest.ServeFor(t, t.TempDir())
	// The gateway of "files" is started by its client with X in its environment, and arguments
	// that its client reads from its own: a worker of the same file must undo the same effects.
	file := configuration(t, `{"mcpServers": {
		"files": {"command": "sagenbaum", "args": ["mcp", "--server", %q, "--state", %q, "--", %q, %q, "${NOT_SET:-%s}"],
			"env": {"X": "1"}},
		"memory": {"type": "stdio", "command": %q, "args": [%q]},
		"far": {"type": "http", "url": "https://127.0.0.1:1/mcp"},
		"broken": {"command": "/no/such/program", "args": []}}}`,
		s.URL, state, files[0], files[1], dir, files[0], memory)
	found := diagnosis(t, cli.ExitLook, "--server", s.URL, "--state", state, "--config", file)
	want := []string{
		"broken gateway warn", "broken host warn", "broken ledger ok", "broken start FAIL",
		"broken state ok", "broken worker warn",
		"far gateway warn", "far host ok", "far ledger ok", "far start FAIL", "far state ok", "far worker warn",
		"files gateway ok", "files host ok", "files ledger ok", "files pack ok",
		"files start ok",
		"files state ok", "files tools ok", "files worker warn", "memory gateway warn",
		"memory host ok", "memory ledger ok",
		"memory pack ok", "memory start ok", "memory state ok", "memory tools ok", "memory worker warn"}
	if got := states(found); !slices.Equal(got, want) {
		t.Errorf("the doctor says\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if next := found["memory gateway"].Next; !strings.Contains(next, `"args": ["mcp", "--", `) {
		t.Errorf("next: %s", next)
	}
	if next := found["files worker"].Next; next != "sagenbaum mcp worker --config "+file+" --state "+state {
		t.Errorf("next: %s", next)
	}
	// While the gateway runs as its client starts it, it serves what the file says that it does.
	gateway := cmdtest.Sagenbaum(t, "mcp", "--server", s.URL, "--state", state, "--", files[0], files[1], dir)
	gateway.Env = append(gateway.Environ(), "X=1")
	gateway.Stderr = t.Output()
	client, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		&sdk.CommandTransport{Command: gateway}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	// The doctor leaves nothing: the folder has what the gateway itself makes.
	if left, _ := filepath.Glob(filepath.Join(state, ".doctor*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	found = diagnosis(t, cli.ExitLook, "--server", s.URL, "--state", state, "--config", file)
	if f := found["files worker"]; f.State != "ok" {
		t.Errorf("while a gateway runs: %+v", f)
	}
}

func TestTheDoctorOfMCPLooksAtOneServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := filesServer(t, dir)
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	package1 := t.TempDir() // the same server, in another version
	if out, err := exec.Command("cp", "-r", filepath.Dir(filepath.Dir(files[1])), package1).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	other := filepath.Join(package1, filepath.Base(filepath.Dir(filepath.Dir(files[1]))))
	if err := os.Symlink(filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(files[1])))),
		filepath.Join(package1, "node_modules")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "package.json"),
		[]byte(`{"type": "module", "version": "1.2.3"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	found := diagnosis(t, cli.ExitLook, "--server", "nats://127.0.0.1:1", "--state", blocked, "--",
		files[0], filepath.Join(other, "dist", "index.js"), dir)
	want := []string{"filesystem gateway skip", "filesystem ledger FAIL", "filesystem pack warn",
		"filesystem start ok", "filesystem state FAIL", "filesystem tools ok"}
	if got := states(found); !slices.Equal(got, want) {
		t.Errorf("the doctor says %v: %+v", got, found)
	}
	if text := found["filesystem pack"].Text; !strings.Contains(text, "this is 1.2.3") {
		t.Errorf("of another version: %s", text)
	}
}
