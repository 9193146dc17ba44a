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

// TestDataOfIsTheFolderOfTheServerAtItsAddress, as long as it is there.
func TestDataOfIsTheFolderOfTheServerAtItsAddress(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	data := t.TempDir()
	creds := filepath.Join(data, "auth", "local.creds")
	if err := os.Mkdir(filepath.Dir(creds), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(creds, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]connect.Saved{
		"local":      {Server: connect.ServerDefault, Creds: creds, Serve: true},
		"local-4223": {Server: "nats://127.0.0.1:4223", Creds: filepath.Join(data, "other.creds"), Serve: true},
		"local-own":  {Server: "nats://127.0.0.1:4224", Creds: creds},
	} {
		if err := connect.Save(name, c); err != nil {
			t.Fatal(err)
		}
	}
	for server, there := range map[string]bool{connect.ServerDefault: true, "nats://127.0.0.1:4223": false,
		"nats://127.0.0.1:4224": false, "nats://127.0.0.1:4225": false} {
		if dir, ok := connect.DataOf(server); ok != there || there && dir != data {
			t.Errorf("%s: %q, %t", server, dir, ok)
		}
	}
	if err := os.Remove(creds); err != nil {
		t.Fatal(err)
	}
	if dir, ok := connect.DataOf(connect.ServerDefault); ok {
		t.Errorf("of what was removed: %q", dir)
	}
}
