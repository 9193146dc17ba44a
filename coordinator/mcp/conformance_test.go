//go:build exercise

package mcp_test

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// MCP's own conformance suite runs against the gateway before the SDK's own server for it. What is
// expected to fail is in testdata/conformance.yaml, with the reason.
func TestTheConformanceSuiteRunsAgainstTheGateway(t *testing.T) {
	t.Parallel()
	suite := testenv.NPM(t, "@modelcontextprotocol/conformance@0.1.16")
	program := filepath.Join(t.TempDir(), "everything-server")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program,
		"github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, file := range []string{"node20.mjs", "conformance.yaml"} { // go test asks again when they change
		if _, err := os.Stat(filepath.Join("testdata", file)); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	c := w.gateway(mcp.Config{Unknown: mcp.RecordUnknown}, nil,
		mcp.ServerConfig{Name: "everything", Command: program, State: t.TempDir()})
	server := httptest.NewServer(c.gateway.Handler(""))
	t.Cleanup(func() {
		server.CloseClientConnections() // a client that is still there listens
		server.Close()
	})
	out, err := exec.CommandContext(t.Context(), "node", "--import", "./testdata/node20.mjs",
		filepath.Join(suite, "node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js"),
		"server", "--url", server.URL, "--output-dir", t.TempDir(),
		"--expected-failures", filepath.Join("testdata", "conformance.yaml")).CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}
