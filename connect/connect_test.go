package connect_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
)

// TestDefaultDoesNotGiveUp on its server, unless it is told when.
func TestDefaultDoesNotGiveUp(t *testing.T) {
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, name := range []string{"SAGENBAUM_CREDS", "SAGENBAUM_CONTEXT"} {
		t.Setenv(name, "")
	}
	t.Setenv("SAGENBAUM_SERVER", server.URL())
	for want, options := range map[int][]nats.Option{-1: nil, 3: {nats.MaxReconnects(3)}} {
		conn, err := connect.Default(options...)
		if err != nil {
			t.Fatal(err)
		}
		if conn.Opts.MaxReconnect != want {
			t.Errorf("it tries %d times, want %d", conn.Opts.MaxReconnect, want)
		}
		conn.Close()
	}
}

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
