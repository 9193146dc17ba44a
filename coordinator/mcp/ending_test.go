package mcp_test

import (
	"context"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// connection is another client of a gateway, whose connection ends with a context.
func (c *client) connection(ctx context.Context) (other *client, served <-chan error) {
	c.t.Helper()
	here, there := sdk.NewInMemoryTransports()
	ended := make(chan error, 1)
	go func() { ended <- c.gateway.Serve(ctx, there) }()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(c.t.Context(),
		here, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = session.Close() })
	return &client{t: c.t, gateway: c.gateway, session: session}, ended
}

// TestAGatewayThatEndsMakesNoCallThatWaits for its verdict.
func TestAGatewayThatEndsMakesNoCallThatWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	config.Packs[0] = needsVerdict(config.Packs[0], "add")
	c := w.gateway(mcp.Config{ServeUndos: true, OnDisconnect: mcp.FailPlan}, nil, config)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	other, served := c.connection(ctx)
	other.does("slow", map[string]any{"text": "first"})
	added := other.calling(t.Context(), "add", map[string]any{"text": "a"}, nil)
	waits := w.waits()
	end()
	if r := <-added; r == nil || !r.IsError || !strings.HasSuffix(said(r), "Nothing was done.") {
		t.Errorf("the call says %+v", r)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	w.rules(waits, pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW)
	if state := w.state(waits.Plan, "compensated"); state != "compensated" || len(lines(file)) != 0 {
		t.Errorf("the plan is %s, there is %v", state, lines(file))
	}
}
