package connect_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// A context that is another program's is refused by its field, and no other server is tried.
func TestAContextOfTheNATSCLIIsRefusedByItsField(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	t.Setenv("SAGENBAUM_CONTEXT", "far")
	for _, name := range []string{"SAGENBAUM_CREDS", "SAGENBAUM_SERVER"} {
		t.Setenv(name, "")
	}
	dir := filepath.Join(home, "sagenbaum", "context")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "far.json"), []byte(`{"nats":"prod"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var refused *ledger.Refused
	conn, err := connect.Default()
	if !errors.As(err, &refused) || refused.Field != "context.nats" {
		t.Errorf("%v", err)
	}
	if conn != nil {
		conn.Close()
	}
}
