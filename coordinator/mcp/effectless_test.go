package mcp_test

//lint:file-ignore SA1019 the protocol has deprecated sampling; who has it keeps it

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
)

// The other official servers that run here have no effect beyond their process: their tools are there
// with no flag, no plan comes of them, and what they ask and say in a call comes to its client.
func TestServersWithoutAnEffectAreThereAsTheyAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	progress := make(chan string, 100)
	c := w.gateway(mcp.Config{ServeUndos: true}, &sdk.ClientOptions{
		ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada", "check": true}}, nil
		},
		CreateMessageHandler: func(context.Context, *sdk.CreateMessageRequest) (*sdk.CreateMessageResult, error) {
			return &sdk.CreateMessageResult{Model: "m", Role: "assistant", Content: &sdk.TextContent{Text: "said"}}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
			progress <- fmt.Sprintf("%v of %v", req.Params.Progress, req.Params.Total)
		},
	}, w.node("thinking", thinkingPackage), w.node("everything", everythingPackage))
	for _, call := range []struct {
		tool string
		with map[string]any
		says string
	}{
		{"thinking__sequentialthinking", map[string]any{"thought": "first", "thoughtNumber": 1, "totalThoughts": 2,
			"nextThoughtNeeded": true}, `"thoughtHistoryLength": 1`},
		{"thinking__sequentialthinking", map[string]any{"thought": "second", "thoughtNumber": 2, "totalThoughts": 2,
			"nextThoughtNeeded": false}, `"thoughtHistoryLength": 2`},
		{"everything__echo", map[string]any{"message": "<b>"}, "Echo: <b>"},
		{"everything__get-sum", map[string]any{"a": 1.5, "b": 2}, "3.5"},
		{"everything__toggle-simulated-logging", map[string]any{}, "Started simulated"},
		{"everything__toggle-simulated-logging", map[string]any{}, "Stopped simulated"},
		{"everything__trigger-elicitation-request", map[string]any{}, "Name: Ada"},
		{"everything__trigger-sampling-request", map[string]any{"prompt": "say", "maxTokens": 10}, `"text": "said"`},
	} {
		if got := c.does(call.tool, call.with); !strings.Contains(got, call.says) {
			t.Errorf("%s says %s", call.tool, got)
		}
	}
	if r := c.call("everything__trigger-long-running-operation", map[string]any{"duration": 0.2, "steps": 2},
		"progressToken", "p"); r.IsError {
		t.Error(said(r))
	}
	if got := []string{receive(t, progress), receive(t, progress)}; !slices.Equal(got, []string{"1 of 2", "2 of 2"}) {
		t.Errorf("progress %v", got)
	}
	if names := tools(c); slices.Contains(names, "everything__gzip-file-as-resource") {
		t.Errorf("a tool without a contract is there: %v", names)
	}
	if got := said(c.call("what_can_be_undone", nil)); !strings.Contains(got, "no plan is open") {
		t.Errorf("there is something to undo: %s", got)
	}
}

// node is a server from npm without arguments.
func (w *world) node(name, of string) mcp.ServerConfig {
	return mcp.ServerConfig{Name: name, Command: "node", Args: []string{script(w.t, of)}, State: w.t.TempDir()}
}
