package mcp_test

//lint:file-ignore SA1019 the protocol has deprecated logs and sampling; who has them keeps them

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
)

// hearing is a client over HTTP that wants logs; alone: it has no stream beside its calls.
func hearing(t *testing.T, alone bool, options *sdk.ClientOptions) *client {
	t.Helper()
	w := newWorld(t)
	config, _ := w.notes(t)
	g := w.gateway(mcp.Config{ServeUndos: true, TrustHints: true}, nil, config).gateway
	session := connectsBy(t, options, &sdk.StreamableClientTransport{Endpoint: serves(t, g.Handler("")).URL,
		DisableStandaloneSSE: alone}, nil)
	if err := session.SetLoggingLevel(t.Context(), &sdk.SetLoggingLevelParams{Level: "info"}); err != nil {
		t.Fatal(err)
	}
	return &client{t: t, gateway: g, session: session}
}

// What a server says in a call, and asks, goes where its answer goes: a client over HTTP need not
// have a stream beside its calls. That holds too once a call has started the server again.
func TestAClientWithoutAStreamOfItsOwnHearsWhatIsSaidInItsCalls(t *testing.T) {
	t.Parallel()
	heard := make(chan string, 10)
	over := hearing(t, true, &sdk.ClientOptions{
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
	})
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

// What a server logs right before it answers comes before the answer.
func TestAllThatAServerSaysInACallIsHeard(t *testing.T) {
	t.Parallel()
	heard := make(chan string, 100)
	over := hearing(t, true, &sdk.ClientOptions{
		LoggingMessageHandler: func(_ context.Context, req *sdk.LoggingMessageRequest) {
			heard <- fmt.Sprint(req.Params.Data)
		}})
	for n := range 50 {
		over.does("mutter", map[string]any{"text": fmt.Sprint(n)})
	}
	for n := range 50 {
		if got := receive(t, heard); got != fmt.Sprint(n) {
			t.Fatalf("there came %s as %d", got, n)
		}
	}
}

// A client that answers a question with an error is asked once, and its server gets the error.
func TestAnErrorOfAClientIsItsAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.notes(t)
	asked := make(chan string, 10)
	c := w.gateway(mcp.Config{ServeUndos: true, TrustHints: true}, &sdk.ClientOptions{
		ElicitationHandler: func(_ context.Context, req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			asked <- req.Params.Message
			return nil, &jsonrpc.Error{Code: -32005, Message: "not now"}
		}}, config)
	_, err := c.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "interrupt", Arguments: note{Text: "x"}})
	if err == nil || !strings.Contains(err.Error(), "not now") || len(asked) != 1 {
		t.Errorf("asked %d times: %v", len(asked), err)
	}
}

// What a server says later, that a call had started again, is of no call.
func TestWhatAServerSaysLaterIsHeardBesideTheCalls(t *testing.T) {
	t.Parallel()
	heard := make(chan any, 10)
	over := hearing(t, false, &sdk.ClientOptions{
		LoggingMessageHandler: func(_ context.Context, req *sdk.LoggingMessageRequest) { heard <- req.Params.Data },
	})
	for _, text := range []string{"at first", "started again"} {
		over.does("linger", map[string]any{"text": text})
		if got := receive(t, heard); got != text {
			t.Errorf("there came %v", got)
		}
		over.call("die", map[string]any{"text": "d"})
	}
}

// A client without a session says in each call which logs it wants, and hears those of its call,
// whether or not its server has sessions.
func TestAClientWithoutASessionHearsTheLogsOfItsCalls(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{sessionlessSuffix, sessionsSuffix} {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			config, file := w.notes(t)
			if err := os.WriteFile(file+suffix, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			g, address := w.listens(mcp.Config{ServeUndos: true, TrustHints: true, Stateless: true}, config)
			heard := make(chan any, 10)
			over := g.statelesslyWith(address, "2026-07-28", &sdk.ClientOptions{
				LoggingMessageHandler: func(_ context.Context, req *sdk.LoggingMessageRequest) {
					heard <- req.Params.Data
				}})
			for _, level := range []string{"", "emergency", "loud", "error", "warning", "emergency", "debug"} {
				over.call("mutter", map[string]any{"text": level}, sdk.MetaKeyLogLevel, level)
			}
			for _, want := range []string{"error", "warning", "debug"} {
				if got := receive(t, heard); got != want {
					t.Errorf("there came %v, want %s", got, want)
				}
			}
			if len(heard) > 0 {
				t.Errorf("there came %v, too", receive(t, heard))
			}
			older := g.statelesslyWith(address, "2025-11-25", &sdk.ClientOptions{
				LoggingMessageHandler: func(_ context.Context, req *sdk.LoggingMessageRequest) {
					heard <- req.Params.Data
				}})
			for _, level := range []sdk.LoggingLevel{"loud", "\x01", ""} {
				err := older.session.SetLoggingLevel(t.Context(), &sdk.SetLoggingLevelParams{Level: level})
				if err == nil || !strings.Contains(err.Error(), "want one of [debug info notice") {
					t.Errorf("level %q: %v", level, err)
				}
			}
			err := older.session.SetLoggingLevel(t.Context(), &sdk.SetLoggingLevelParams{Level: "error"})
			if err != nil {
				t.Error(err)
			}
			over.call("mutter", map[string]any{"text": "beside"}, sdk.MetaKeyLogLevel, "emergency") // others want more
			older.call("mutter", map[string]any{"text": "within"})
			for got := any(nil); got != "within"; { // what is beside its call comes in another stream
				if got = receive(t, heard); got != "within" && got != "beside" {
					t.Errorf("there came %v", got)
				}
			}
		})
	}
}

// listening are clients of a gateway, each with a session over HTTP, and what they hear of resources.
type listening struct {
	clients []*client
	heard   chan string // the number of the client
}

func newListening(t *testing.T, n int) *listening {
	t.Helper()
	w := newWorld(t)
	config, _ := w.notes(t)
	g := w.gateway(mcp.Config{ServeUndos: true, TrustHints: true}, nil, config).gateway
	address := serves(t, g.Handler("")).URL
	l := &listening{heard: make(chan string, 10)}
	for i := range n {
		session := connectsBy(t, &sdk.ClientOptions{
			ResourceUpdatedHandler: func(context.Context, *sdk.ResourceUpdatedNotificationRequest) {
				l.heard <- fmt.Sprint(i)
			}}, &sdk.StreamableClientTransport{Endpoint: address}, nil)
		l.clients = append(l.clients, &client{t: t, gateway: g, session: session})
	}
	return l
}

const allNotes = "note://all"

func (c *client) subscribes() {
	c.t.Helper()
	if err := c.session.Subscribe(c.t.Context(), &sdk.SubscribeParams{URI: allNotes}); err != nil {
		c.t.Error(err)
	}
}

func (c *client) unsubscribes() {
	c.t.Helper()
	if err := c.session.Unsubscribe(c.t.Context(), &sdk.UnsubscribeParams{URI: allNotes}); err != nil {
		c.t.Error(err)
	}
}

// wantHeard has the resource change, and says which clients must hear of it.
func (l *listening) wantHeard(t *testing.T, want ...string) {
	t.Helper()
	if said := l.clients[0].does("touch", nil); said != "touched" {
		t.Fatal(said)
	}
	var got []string
	for range want {
		got = append(got, receive(t, l.heard))
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("it was heard by %v, want %v", got, want)
	}
}

// A client that wants to hear of a resource does so until it says otherwise, whatever other clients
// do, and once its server was started again.
func TestAClientHearsOfResourcesAsLongAsItWants(t *testing.T) {
	t.Parallel()
	l := newListening(t, 3)
	for _, c := range l.clients {
		c.subscribes()
	}
	l.wantHeard(t, "0", "1", "2")
	l.clients[1].unsubscribes()
	l.wantHeard(t, "0", "2")
	if err := l.clients[2].session.Close(); err != nil {
		t.Fatal(err)
	}
	l.wantHeard(t, "0")
	l.clients[0].call("die", map[string]any{"text": "d"})
	for l.clients[0].does("touch", nil) != "touched" { // until the server that starts knows
		<-time.After(time.Millisecond)
	}
	if got := receive(t, l.heard); got != "0" {
		t.Errorf("it was heard by %s", got)
	}
	l.clients[0].unsubscribes()
	if said := l.clients[0].does("touch", nil); said != "no one wants to know" || len(l.heard) > 0 {
		t.Errorf("%s, and it was heard by %d", said, len(l.heard))
	}
}

// What a server is told last is what is so, while clients come and go.
func TestAClientHearsOfResourcesThatAnotherOneLeaves(t *testing.T) {
	t.Parallel()
	l := newListening(t, 2)
	l.clients[0].subscribes()
	for round := range 40 {
		goes, comes := l.clients[round%2], l.clients[1-round%2]
		var at sync.WaitGroup
		at.Go(comes.subscribes)
		goes.unsubscribes()
		at.Wait()
		l.wantHeard(t, fmt.Sprint(1-round%2))
	}
}
