package mcp_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
)

// TestAServerGetsNoSecretOfItsGateway unless its configuration names it.
func TestAServerGetsNoSecretOfItsGateway(t *testing.T) {
	config := mcp.ServerConfig{Inherited: map[string]string{"SAGENBAUM_CREDS": "c", "TOKEN": "t"},
		Env: map[string]string{"SAGENBAUM_TENANT": "mine"}}
	got := config.Environment([]string{"PATH=p", "SAGENBAUM_MCP_TOKEN=secret", "SAGENBAUM_TENANT=other"})
	if want := []string{"PATH=p", "TOKEN=t", "SAGENBAUM_TENANT=mine"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestAFolderBelowHomeIsOne: the server reads ~ itself, so its roots are found there.
func TestAFolderBelowHomeIsOne(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err == nil {
		err = os.Mkdir(filepath.Join(home, "notes"), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	for argument, want := range map[string]string{"~": home, "~/notes": filepath.Join(home, "notes")} {
		if got, ok := mcp.Folder(argument); !ok || got != want {
			t.Errorf("%s is %q, want %q", argument, got, want)
		}
	}
	if got, ok := mcp.Folder("~/none"); ok {
		t.Errorf("there is %q", got)
	}
}

// Only what goes by paths of files is undone by a server that is started elsewhere.
func TestWhatUndoesByPathsAsksNoServer(t *testing.T) {
	t.Parallel()
	packs, err := mcp.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, pack := range packs {
		got[pack.Server] = pack.GoesByPaths()
	}
	want := map[string]bool{"secure-filesystem-server": true, "@cyanheads/git-mcp-server": true, "memory-server": false,
		"sequential-thinking-server": false, "mcp-servers/everything": false}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	const head = "apiVersion: sagenbaum/v1\nkind: MCPPack\nserver: x\nfiles: true\ntools:\n  a: {class: compensable, "
	for text, want := range map[string]bool{
		"undo: [{call: fs.restore, with: {before: =before}}]}\n": true,
		"undo: [{tool: b}]}\n": false,
		"undo: [{call: fs.restore, with: {before: =before}}], probe: {tool: b}, done: 'true'}\n": false,
	} {
		pack, err := mcp.ParsePack("x.yaml", []byte(head+text))
		if err != nil || pack.GoesByPaths() != want {
			t.Errorf("%s: %v, %v", text, pack.GoesByPaths(), err)
		}
	}
}

// Two servers of one command that work on other data are undone under other names.
func TestAVariableThatSaysWhereTheDataIsIsPartOfTheName(t *testing.T) {
	state := t.TempDir()
	undo := func(config mcp.ServerConfig) string {
		t.Helper()
		config.Name, config.State = "memory", state
		if config.URL == "" {
			config.Command = "server"
		}
		s, err := mcp.NewServer(config)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return s.Undo()
	}
	const variable = "MEMORY_FILE_PATH"
	if value, ok := os.LookupEnv(variable); ok {
		t.Skipf("this machine has %s=%s", variable, value)
	}
	far := mcp.ServerConfig{URL: "http://127.0.0.1:1/mcp"}
	plain, remote := undo(mcp.ServerConfig{}), undo(far)
	of := func(value string) mcp.ServerConfig {
		return mcp.ServerConfig{Inherited: map[string]string{variable: value, "TOKEN": value}}
	}
	a, b := undo(of("/a")), undo(of("/b"))
	given := undo(mcp.ServerConfig{Env: map[string]string{variable: "/a"}})
	if a == plain || a == b || b == plain {
		t.Errorf("%s, %s and %s", plain, a, b)
	}
	t.Setenv("TOKEN", "another")
	if now := undo(mcp.ServerConfig{}); now != plain {
		t.Errorf("%s by a variable that no pack names", now)
	}
	t.Setenv(variable, "/a")
	if now := undo(mcp.ServerConfig{}); now != a {
		t.Errorf("%s by its own variable, %s by one that it is given", now, a)
	}
	if now := undo(mcp.ServerConfig{Env: map[string]string{variable: "/a"}}); now != given {
		t.Errorf("%s, where its configuration says it, was %s", now, given)
	}
	if now := undo(of("/b")); now != b {
		t.Errorf("%s by the variable that it is given, was %s", now, b)
	}
	if now := undo(far); now != remote {
		t.Errorf("%s by a variable that a server at a URL does not have", now)
	}
}

// Two servers of one command whose files are in other folders are undone under other names, however
// the folders are written.
func TestTheFoldersOfAServerArePartOfItsName(t *testing.T) {
	t.Parallel()
	state, folder, other := t.TempDir(), t.TempDir(), t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(folder, link); err != nil {
		t.Fatal(err)
	}
	undo := func(roots ...string) string {
		t.Helper()
		s, err := mcp.NewServer(mcp.ServerConfig{Name: "git", Command: "server", State: state, Roots: roots})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return s.Undo()
	}
	a, both := undo(folder), undo(folder, other)
	if none, b := undo(), undo(other); a == none || a == b || b == none || both == a || both == b {
		t.Errorf("%s, %s, %s and %s", none, a, b, both)
	}
	if got := undo(link); got != a {
		t.Errorf("%s by a link, was %s", got, a)
	}
	if got := undo(other, folder, folder); got != both {
		t.Errorf("%s in another order, was %s", got, both)
	}
}
