package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
)

// overheard is the transport of a client that notes what comes, in its order.
type overheard struct {
	sdk.Transport
	heard chan jsonrpc.Message
}

func (o overheard) Connect(ctx context.Context) (sdk.Connection, error) {
	conn, err := o.Transport.Connect(ctx)
	return overheardConnection{conn, o.heard}, err
}

type overheardConnection struct {
	sdk.Connection
	heard chan jsonrpc.Message
}

func (c overheardConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	message, err := c.Connection.Read(ctx)
	if err == nil {
		c.heard <- message
	}
	return message, err
}

// Progress of a call comes before its result, as its server has sent it; and the error of a call
// without an effect is that of its server, with its data.
func TestAnAnswerComesAsItsServerGaveIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.notes(t)
	g := w.gateway(mcp.Config{}, nil, config).gateway
	here, there := sdk.NewInMemoryTransports()
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(context.Background(), there) }()
	heard := make(chan jsonrpc.Message, 1000)
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		overheard{here, heard}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = session.Close()
		<-ended
	})
	for len(heard) > 0 {
		<-heard
	}
	params := &sdk.CallToolParams{Name: "slow", Arguments: note{Text: "many"}, Meta: sdk.Meta{"progressToken": "p"}}
	if result, err := session.CallTool(t.Context(), params); err != nil || result.IsError {
		t.Fatalf("%+v, %v", result, err)
	}
	var steps []float64
	for {
		request, is := (<-heard).(*jsonrpc.Request)
		if !is {
			break // the result
		}
		if request.Method != "notifications/progress" {
			continue // it is asked for its roots
		}
		var params sdk.ProgressNotificationParams
		if err := json.Unmarshal(request.Params, &params); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, params.Progress)
	}
	if len(steps) != 100 || !slices.IsSorted(steps) {
		t.Errorf("before its result there was the progress %v", steps)
	}
	_, err = session.CallTool(t.Context(), &sdk.CallToolParams{Name: "peek", Arguments: note{Text: "wrong"}})
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) || wire.Code != -32050 || wire.Message != "it is wrong" ||
		string(wire.Data) != `{"amount":10.10}` {
		t.Errorf("%v: %+v", err, wire)
	}
}

// An answer may be large, up to what one message may have.
func TestALargeAnswerPassesWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	c := w.gateway(mcp.Config{}, nil, config)
	line := strings.Repeat("x", 1<<20)
	if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := c.does("peek", nil), `{"locked":["locked"],"notes":["`+line+`"]}`; got != want {
		t.Errorf("the answer has %d bytes, want %d as they are", len(got), len(want))
	}
}

// An answer that is too large to be passed on ends no server, is said, and is no doubt: what was
// done is undone.
func TestAnAnswerThatIsTooLargeIsSaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	started, file := w.notes(t)
	away := newFar(t)
	for name, server := range map[string]struct {
		mcp.ServerConfig
		file string
	}{"started": {started, file}, "at a URL": {away.config(), away.file}} {
		c := w.gateway(mcp.Config{ServeUndos: true, Unknown: mcp.RecordUnknown, TrustHints: true}, nil,
			server.ServerConfig)
		c.call("grow", nil) // a server that is started again has forgotten it
		if r := c.call("peek", map[string]any{"text": "large"}); !r.IsError || !strings.Contains(said(r),
			"peek has happened, but its answer has 178") || !strings.Contains(said(r), "is left out (SHA-256 ") {
			t.Errorf("%s: a call without an effect: %s", name, said(r))
		}
		r := c.call("shout", map[string]any{"text": "large"})
		if !strings.Contains(said(r), "shout has happened, but its answer") || planOf(r) == "" {
			t.Errorf("%s: a call with an effect: %s %v", name, said(r), r.Meta)
		}
		if got := c.does("shy", map[string]any{"text": "after"}); got != "grown" {
			t.Errorf("%s: the server was started again: %s", name, got)
		}
		can := c.reports("what_can_be_undone", nil).Can
		if len(can) != 2 || strings.Contains(can[1].How, "no one knows") || len(lines(server.file)) != 2 {
			t.Errorf("%s: there is %v: %+v", name, lines(server.file), can)
		}
		if r := c.reports("undo_last", map[string]any{"count": 2}); len(r.Undone) != 2 || len(lines(server.file)) != 0 {
			t.Errorf("%s: left %v: %+v", name, lines(server.file), r)
		}
	}
}

// A request that is too large is refused, and its client and its plan stay.
func TestARequestThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	g := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	g.leave()
	in, toGateway := io.Pipe()
	out, toClient := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- g.gateway.Serve(t.Context(), mcp.Lines(in, toClient)) }()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		&sdk.IOTransport{Reader: out, Writer: toGateway}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, gateway: g.gateway, session: session}
	plan := planOf(c.call("add", map[string]any{"text": "before"}))
	_, err = session.CallTool(t.Context(), &sdk.CallToolParams{Name: "add",
		Arguments: map[string]any{"text": strings.Repeat("x", tooLarge)}})
	if err == nil || !strings.Contains(err.Error(), "at most 16777216 are passed on: nothing was done") {
		t.Errorf("it is not refused: %v", err)
	}
	if again := planOf(c.call("add", map[string]any{"text": "after"})); again != plan || plan == "" {
		t.Errorf("plan %q, then %q", plan, again)
	}
	if got := lines(file); len(got) != 2 {
		t.Errorf("there is %v", got)
	}
	if err := errors.Join(session.Close(), toGateway.Close()); err != nil {
		t.Error(err)
	}
	<-served
}

// What a server asks and says in a call comes to a client with a session: as it does in a session,
// where the server can have one, and else as an answer to the call, which is made once more then.
func TestWhatAServerAsksComesToItsClient(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"session", "sessionless", "stateless"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sessionless := name == "sessionless"
			w := newWorld(t)
			config, file := w.notes(t)
			if sessionless {
				if err := os.WriteFile(file+sessionlessSuffix, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			asked, logged := make(chan string, 10), make(chan any, 10)
			served := mcp.Config{ServeUndos: true, TrustHints: true, Stateless: name == "stateless"}
			c := w.gateway(served, &sdk.ClientOptions{
				ElicitationHandler: func(_ context.Context, req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
					asked <- req.Params.Message
					return &sdk.ElicitResult{Action: "accept"}, nil
				},
				//lint:ignore SA1019 the protocol has deprecated what a server logs; who does so still does
				LoggingMessageHandler: func(_ context.Context, req *sdk.LoggingMessageRequest) {
					logged <- req.Params.Data
				},
			}, config)
			told := c.does("ask", map[string]any{"text": "x"})
			if told != "accept" || receive(t, asked) != "sure about x?" {
				t.Errorf("asked by the result: %s", told)
			}
			if got := lines(file); !slices.Equal(got, []string{"x"}) {
				t.Errorf("there is %v", got)
			}
			if name == "stateless" { // which prefers the version without sessions
				_, err := c.session.CallTool(t.Context(),
					&sdk.CallToolParams{Name: "interrupt", Arguments: note{Text: "y"}})
				if err == nil || !strings.Contains(err.Error(), "2026-07-28") {
					t.Errorf("asked in the call: %v", err)
				}
			}
			if name != "session" {
				return
			}
			//lint:ignore SA1019 the same
			err := c.session.SetLoggingLevel(t.Context(), &sdk.SetLoggingLevelParams{Level: "info"})
			if err != nil {
				t.Error(err)
			}
			got := c.does("interrupt", map[string]any{"text": "y"})
			if got != "accept" || receive(t, asked) != "sure about y?" || receive(t, logged) != "y" {
				t.Errorf("asked in the call: %s", got)
			}
			if r := c.call("think", nil); !r.IsError || !strings.Contains(said(r), "method not found") {
				t.Errorf("a model that is not there: %s", said(r))
			}
		})
	}
}
