package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
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

// An answer may be large, up to what one message of the protocol's SDK holds; what is larger is an
// error of its call, and the server is there for the next one.
func TestALargeAnswerPassesWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	c := w.gateway(mcp.Config{}, nil, config)
	for _, test := range []struct {
		size   int // of what the answer has twice
		passes bool
	}{{1 << 20, true}, {9 << 20, false}, {1, true}} {
		line := strings.Repeat("x", test.size)
		if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := c.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "peek"})
		want := `{"locked":["locked"],"notes":["` + line + `"]}`
		switch {
		case (err == nil) != test.passes:
			t.Errorf("%d bytes: %v, want that it passes: %v", test.size, err, test.passes)
		case err == nil && said(r) != want:
			t.Errorf("%d bytes: the answer has %d, want %d as they are", test.size, len(said(r)), len(want))
		}
	}
}
