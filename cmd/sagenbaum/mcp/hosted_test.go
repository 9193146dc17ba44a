package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// hostedFile is the configuration of a client.
func hostedFile(t *testing.T, servers string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(file, []byte(`{"mcpServers": {`+servers+`}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A server is tried again and does not keep the others from being served, each in the tenant that
// its gateway records in.
func TestAHostServesEachServerInTheTenantOfItsGateway(t *testing.T) {
	file := hostedFile(t, `
		"flag": {"command": "sagenbaum", "args": ["mcp", "--tenant", "a", "--", "x"],
			"env": {"SAGENBAUM_TENANT": "b"}},
		"env": {"command": "sagenbaum", "args": ["mcp", "--", "x"], "env": {"SAGENBAUM_TENANT": "b"}},
		"none": {"command": "sagenbaum", "args": ["mcp", "--", "x"]},
		"past": {"command": "x", "env": {"SAGENBAUM_TENANT": "b"}},
		"far": {"type": "http", "url": "https://example.com/mcp"}`)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	run, err := Host([]string{file}, "own")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := make(chan string)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run(ctx, func(tenant string) (*nats.Conn, error) {
			select {
			case asked <- tenant:
			case <-ctx.Done():
			}
			return nil, errors.New("not yet")
		}, slog.New(slog.DiscardHandler))
	}()
	var tenants []string
	for range 8 { // each twice
		tenants = append(tenants, <-asked)
	}
	cancel()
	<-ended
	slices.Sort(tenants)
	if got := strings.Join(tenants, " "); got != "a a b b own own own own" {
		t.Errorf("it asks for %s", got)
	}
}

func TestAHostRefusesAConfigurationThatItCannotServe(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	many := make([]string, 33)
	for i := range many {
		many[i] = fmt.Sprintf(`"s%d": {"command": "x"}`, i)
	}
	for says, servers := range map[string]string{
		"has no command":           `"x": {}`,
		"without a command":        `"x": {"command": "sagenbaum", "args": ["mcp", "--verbose"]}`,
		`"a.b" is no tenant`:       `"x": {"command": "sagenbaum", "args": ["mcp", "--tenant", "a.b", "--", "y"]}`,
		"no such file":             `"x": {"command": "sagenbaum", "args": ["mcp", "--pack", "/none", "--", "y"]}`,
		"at most 32 are served":    strings.Join(many, ","),
		"cannot read servers from": "",
	} {
		if _, err := Host([]string{hostedFile(t, servers)}, "own"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", servers, err, says)
		}
	}
	if _, err := Host([]string{filepath.Join(t.TempDir(), "none")}, "own"); err == nil {
		t.Error("a file that is not there is read")
	}
}

func TestWhatAServerSaysIsLoggedByLines(t *testing.T) {
	var log strings.Builder
	s := &said{log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, part := range []string{"a", "b\nc", strings.Repeat("d", 2*saidMax), "\n", "e"} {
		if _, err := io.WriteString(s, part); err != nil {
			t.Fatal(err)
		}
	}
	if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "text=ab\n") ||
		!strings.Contains(got, "text=c"+strings.Repeat("d", saidMax-1)+"\n") {
		t.Errorf("it logs %.300s", got)
	}
}
