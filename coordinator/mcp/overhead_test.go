package mcp_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
)

// BenchmarkACall compares a call of the filesystem server with the same through the gateway, in
// turns, so that what else the machine does is the same for both: one call that has no effect, and
// one that is recorded. It reports the medians in milliseconds, and what the gateway adds:
//
//	go test ./coordinator/mcp -run NONE -bench ACall -benchtime 500x
func BenchmarkACall(b *testing.B) {
	w, dir := newWorld(b), b.TempDir()
	furnish(b, dir)
	config := w.files(dir)
	direct, err := sdk.NewClient(&sdk.Implementation{Name: "bench", Version: "1"}, nil).Connect(b.Context(),
		&sdk.CommandTransport{Command: exec.Command(config.Command, config.Args...)}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = direct.Close() })
	through := w.gateway(mcp.Config{ServeUndos: true}, nil, config).session
	call := func(session *sdk.ClientSession, tool string, with map[string]any) time.Duration {
		start := time.Now()
		result, err := session.CallTool(b.Context(), &sdk.CallToolParams{Name: tool, Arguments: with})
		if err != nil || result.IsError {
			b.Fatal(err, result)
		}
		return time.Since(start)
	}
	median := func(took []time.Duration) float64 {
		slices.Sort(took)
		return float64(took[len(took)/2].Nanoseconds()) / 1e6
	}
	for _, c := range []struct {
		name, tool string
		with       map[string]any
	}{
		{"without an effect", "read_text_file", map[string]any{"path": filepath.Join(dir, "a.txt")}},
		{"with an effect", "write_file", map[string]any{"path": filepath.Join(dir, "w"), "content": "x"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var past, passed []time.Duration
			for b.Loop() {
				past = append(past, call(direct, c.tool, c.with))
				passed = append(passed, call(through, c.tool, c.with))
			}
			b.ReportMetric(0, "ns/op") // of both together, which says nothing
			b.ReportMetric(median(past), "direct-p50-ms")
			b.ReportMetric(median(passed), "gateway-p50-ms")
			b.ReportMetric(median(passed)-median(past), "added-p50-ms")
		})
	}
}
