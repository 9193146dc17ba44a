package mcp

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// A call that is given up before it is sent never is, and the connection serves the next one.
func TestACallThatWasGivenUpIsNotSent(t *testing.T) {
	t.Parallel()
	var called []string
	server := sdk.NewServer(&sdk.Implementation{Name: "s", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "act"}, func(_ context.Context, _ *sdk.CallToolRequest,
		in struct {
			By string `json:"by"`
		}) (*sdk.CallToolResult, any, error) {
		called = append(called, in.By)
		return &sdk.CallToolResult{}, nil, nil
	})
	here, there := sdk.NewInMemoryTransports()
	if _, err := server.Connect(t.Context(), there, nil); err != nil {
		t.Fatal(err)
	}
	calls := &calls{}
	client := sdk.NewClient(&sdk.Implementation{Name: "c", Version: "1"}, nil)
	calls.begin("1") // before its server is started
	if calls.giveUp("1") {
		t.Error("a call that was not sent was")
	}
	session, err := client.Connect(t.Context(), exact{Transport: here, calls: calls}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	calls.begin("2")
	for _, name := range []string{"1", "2"} {
		meta := asMeta([]byte(`{"name":"act","arguments":{"by":"` + name + `"}}`))
		meta[callKey] = name
		_, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "act", Meta: meta})
		if errors.Is(err, errGivenUp) != (name == "1") || (err != nil) != (name == "1") {
			t.Errorf("call %s: %v", name, err)
		}
	}
	if !calls.giveUp("2") {
		t.Error("a call that was sent was not")
	}
	if len(called) != 1 || called[0] != "2" {
		t.Errorf("called were %v", called)
	}
}

// What is given up already is not begun.
func TestACallOfAContextThatHasEndedIsNotBegun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &Server{calls: &calls{}, logger: slog.New(slog.DiscardHandler)}
	_, settled, err := s.act(ctx, toolCall{tool: "act"})
	<-settled
	if !errors.Is(err, errNotReached) || !errors.Is(err, context.Canceled) {
		t.Errorf("it says %v", err)
	}
}

// answering is a connection at which a call is answered as soon as it is cancelled.
type answering struct {
	sdk.Connection
	cancelled func()
}

func (a answering) Write(context.Context, jsonrpc.Message) error {
	a.cancelled()
	return nil
}

// An answer that comes by itself settles a call at once, and the server is not told that it was
// given up; the error with which one that was told answers settles nothing for a while.
func TestWhatSettlesACallThatWasGivenUp(t *testing.T) {
	t.Parallel()
	why := errors.New("no more")
	answered := make(chan answer, 1)
	id, err := jsonrpc.MakeID("7")
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	cancelled := func() {
		told++
		answered <- answer{err: &jsonrpc.Error{Code: 1, Message: "cancelled"}}
	}
	s := &Server{config: ServerConfig{Settle: time.Hour}, logger: slog.New(slog.DiscardHandler),
		calls: &calls{conn: answering{cancelled: cancelled}, all: map[string]*sending{"1": {id: id}}}}
	answered <- answer{result: &sdk.CallToolResult{}}
	s.finish(t.Context(), func() {}, toolCall{name: "1"}, why, answered)
	if told != 0 {
		t.Error("a server whose answer came by itself was told")
	}
	s.config.Settle = 2 * time.Second
	begun := time.Now()
	s.finish(t.Context(), func() {}, toolCall{name: "1"}, why, answered)
	if took := time.Since(begun); told != 1 || took < s.config.Settle/2 {
		t.Errorf("told %d times, it settled after %s", told, took)
	}
}
