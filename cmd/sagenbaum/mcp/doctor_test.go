package mcp

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// The doctor names the worker that undoes what this gateway does, as the others do: without its pack or
// its state, another one would refuse the undo, or serve another name.
func TestTheWorkerThatTheDoctorNamesHasAllThatTheServerIsGiven(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	o := &options{packs: []string{"/p/pack.yaml"}, instance: "shop", state: state}
	args := []string{"cat", "x y"}
	server, err := mcp.NewServer(mcp.ServerConfig{Name: "cat", Command: "cat", Args: args[1:], State: state})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	p := &patient{o: o, args: args}
	p.remember(server)
	want := "sagenbaum mcp worker --instance shop --pack /p/pack.yaml --state " + state + " -- cat 'x y' # with the " +
		"env of its client's configuration"
	if p.worker != want {
		t.Errorf("next is %s, want %s", p.worker, want)
	}
	o.file, p.args = "/p/mcp.json", nil
	p.remember(server)
	want = "sagenbaum mcp worker --config /p/mcp.json --instance shop --pack /p/pack.yaml --state " + state
	if p.worker != want {
		t.Errorf("of a file, next is %s, want %s", p.worker, want)
	}
}

// What the doctor says of a host is what the host does.
func TestTheDoctorSaysOfAHostWhatItRefuses(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	file := hostedFile(t, `
		"ftp": {"url": "ftp://127.0.0.1:1"}, "far": {"url": "http://example.com/mcp"},
		"own": {"command": "cat", "args": ["own.py"]}, "fine": {"command": "cat", "args": ["run", "/dev/null"]}`)
	if err := os.WriteFile(filepath.Join(filepath.Dir(file), "own.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(filepath.Dir(file), "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	o := &options{file: file}
	entries, err := o.read(nil)
	if err != nil {
		t.Fatal(err)
	}
	says := map[string]string{"far": "warn http://example.com", "fine": "ok ", "ftp": "warn ftp://127.0.0.1:1",
		"own": "warn own.py is relative"}
	for _, e := range entries {
		p := &patient{entry: e, o: o}
		if p.examineHost(); len(p.findings) != 1 {
			t.Fatalf("%s: %+v", e.name, p.findings)
		}
		found := p.findings[0]
		state, text, _ := strings.Cut(says[e.name], " ")
		if found.State != state || !strings.Contains(found.Text, text) || state != "ok" && found.Next == "" {
			t.Errorf("%s: %+v, want %s", e.name, found, says[e.name])
		}
	}
}

// What the gateway refuses at its start the check refuses, too.
func TestTheCheckRefusesAPackThatTheGatewayRefuses(t *testing.T) {
	t.Parallel()
	pack := filepath.Join(t.TempDir(), "pack.yaml")
	if err := os.WriteFile(pack, []byte("apiVersion: sagenbaum/v1\nkind: MCPPack\nserver: x\ntools:\n"+
		"  t: {class: compensable, timeout: -5s, undo: [{tool: u}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := newCheck(new(cli.Settings))
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetOut(new(bytes.Buffer))
	cmd.SetArgs([]string{"--pack", pack, "--state", t.TempDir(), "--", "cat"})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "tools.t.timeout: -5s") {
		t.Errorf("the check says %v", err)
	}
}
