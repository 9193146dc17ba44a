package mcp_test

import (
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
