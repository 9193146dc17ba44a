package mcp_test

import (
	"context"
	"slices"
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

// notStarted counts the actions of a plan that are recorded as never called.
func (w *world) notStarted(plan string) (n int) {
	w.t.Helper()
	for _, r := range w.records(plan) {
		if r.GetForwardFailed().GetCode() == "not_started" {
			n++
		}
	}
	return n
}

// TestACallThatIsGivenUpUnderReviewIsRecordedAsNotStarted: at once where no call can come back to it, and
// with its key at the end of the gateway, after which another one makes it. An undo waits for neither.
func TestACallThatIsGivenUpUnderReviewIsRecordedAsNotStarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	config.Packs[0] = needsVerdict(config.Packs[0], "add")
	c := w.gateway(mcp.Config{}, nil, config)
	plan := planOf(c.call("slow", map[string]any{"text": "first"}))
	arguments, key := map[string]any{"text": "a"}, sdk.Meta{"sagenbaum/key": "k"}
	for n, meta := range []sdk.Meta{nil, key} {
		ctx, giveUp := context.WithCancel(t.Context())
		done := c.calling(ctx, "add", arguments, meta)
		waits := w.waits()
		giveUp()
		<-done
		if n == 0 {
			w.until("it is recorded", func() bool { return w.notStarted(plan) == 1 })
		} else if waits.Plan != plan || w.notStarted(plan) != 1 {
			t.Errorf("with its key, which may come again: %d not started", w.notStarted(plan))
		}
	}
	c.leave()
	c.gateway.Close()
	if n := w.notStarted(plan); n != 2 {
		t.Errorf("at the end %d are not started", n)
	}
	later := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	added := later.calling(t.Context(), "add", arguments, key)
	w.allows()
	if r := <-added; r == nil || r.IsError || planOf(r) == plan || !slices.Equal(lines(file), []string{"first", "a"}) {
		t.Errorf("made again it says %+v, there is %v", r, lines(file))
	}
	if w.undoes(plan, ""); w.attempts(plan) != 1 || !slices.Equal(lines(file), []string{"a"}) {
		t.Errorf("undone with %d attempts, there is %v", w.attempts(plan), lines(file))
	}
}
