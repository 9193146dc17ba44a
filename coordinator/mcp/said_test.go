package mcp_test

//lint:file-ignore SA1019 the protocol has deprecated logs and sampling; who has them keeps them

import (
	"context"
	"fmt"
	"slices"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
)

// What a server says in a call, and asks, goes where its answer goes: a client over HTTP need not
// have a stream beside its calls. That holds too once a call has started the server again.
func TestAClientWithoutAStreamOfItsOwnHearsWhatIsSaidInItsCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.notes(t)
	c := w.gateway(mcp.Config{ServeUndos: true, TrustHints: true}, nil, config)
	server := serves(t, c.gateway.Handler(""))
	heard := make(chan string, 10)
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
			heard <- fmt.Sprint("progress ", req.Params.Progress)
		},
		LoggingMessageHandler: func(_ context.Context, req *sdk.LoggingMessageRequest) {
			heard <- fmt.Sprint("log ", req.Params.Data)
		},
		ElicitationHandler: func(_ context.Context, req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			heard <- req.Params.Message
			return &sdk.ElicitResult{Action: "accept"}, nil
		},
		CreateMessageHandler: func(context.Context, *sdk.CreateMessageRequest) (*sdk.CreateMessageResult, error) {
			return &sdk.CreateMessageResult{Model: "m", Role: "assistant", Content: &sdk.TextContent{}}, nil
		},
	}).Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: server.URL, DisableStandaloneSSE: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	if err := session.SetLoggingLevel(t.Context(), &sdk.SetLoggingLevelParams{Level: "info"}); err != nil {
		t.Fatal(err)
	}
	over := &client{t: t, gateway: c.gateway, session: session}
	for _, way := range []string{"at first", "started again"} {
		if r := over.call("slow", map[string]any{"text": "p"}, "progressToken", "mine"); r.IsError {
			t.Error(way, said(r))
		}
		for i := range 3 {
			if got := receive(t, heard); got != fmt.Sprint("progress ", i) {
				t.Errorf("%s: %s", way, got)
			}
		}
		if got := over.does("interrupt", map[string]any{"text": "x"}); got != "accept" {
			t.Errorf("%s: the answer is %s", way, got)
		}
		if got := []string{receive(t, heard), receive(t, heard)}; !slices.Equal(got, []string{"log x", "sure about x?"}) {
			t.Errorf("%s: there came %v", way, got)
		}
		if got := over.does("think", nil); got != "m" {
			t.Errorf("%s: the model is %s", way, got)
		}
		over.call("die", map[string]any{"text": "d"})
	}
}
