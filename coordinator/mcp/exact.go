package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// exact is the transport to a server. What goes through it stays as it is written (see raw.go). It
// says which progress is before a result: the SDK gives a result at once to its caller, while
// its handler of progress may still be at an earlier one. And it can cancel a call whose answer is
// still waited for, which the SDK would give up.
type exact struct {
	sdk.Transport
	progress func(*sdk.ProgressNotificationParams) // one has come; nil: no one wants to know
	calls    *calls
}

// calls are the calls of a server that are under way, by the name that this process gives each.
type calls struct {
	mu   sync.Mutex
	conn sdk.Connection
	ids  map[string]jsonrpc.ID
}

// Connect connects as the transport below does.
func (t exact) Connect(ctx context.Context) (sdk.Connection, error) {
	conn, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	t.calls.mu.Lock()
	defer t.calls.mu.Unlock()
	t.calls.conn, t.calls.ids = conn, map[string]jsonrpc.ID{}
	return exactConnection{conn, t.progress, t.calls}, nil
}

type exactConnection struct {
	sdk.Connection
	progress func(*sdk.ProgressNotificationParams)
	calls    *calls
}

const (
	callMethod      = "tools/call"
	progressMethod  = "notifications/progress"
	cancelledMethod = "notifications/cancelled"
)

// callKey is where a call has the name that this process gives it; it does not leave it.
const callKey = "sagenbaum/call"

// ownMeta begins the names of what a side of a connection says about itself in metadata.
const ownMeta = "io.modelcontextprotocol/"

// texts are members that a result has of which the text matters.
var texts = []string{`"content"`, `"contents"`, `"messages"`, `"completion"`, `"tools"`}

// Read returns the next message; a result has its text in its metadata as well.
func (c exactConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	message, err := c.Connection.Read(ctx)
	if r, ok := message.(*jsonrpc.Request); ok && c.progress != nil && r.Method == progressMethod {
		params := new(sdk.ProgressNotificationParams)
		if json.Unmarshal(r.Params, params) == nil {
			c.progress(params)
		}
	}
	response, ok := message.(*jsonrpc.Response)
	if err == nil && ok && slices.ContainsFunc(texts, func(name string) bool {
		return bytes.Contains(response.Result, []byte(name))
	}) {
		response.Result = withRaw(response.Result)
	}
	return message, err
}

// Write sends a message; of one with a text in its metadata, the text.
func (c exactConnection) Write(ctx context.Context, message jsonrpc.Message) error {
	r, ok := message.(*jsonrpc.Request)
	if !ok || !bytes.Contains(r.Params, []byte(rawKey)) {
		return c.Connection.Write(ctx, message)
	}
	params, call, err := outgoing(r.Params)
	if err != nil {
		return err
	}
	if call != "" {
		c.calls.mu.Lock()
		c.calls.ids[call] = r.ID
		c.calls.mu.Unlock()
	}
	sent := *r
	sent.Params = params
	return c.Connection.Write(ctx, &sent)
}

// outgoing is the text of the parameters of a request, with what the SDK has added to them: what it
// says about this client, and the answers to what a server has asked. call is the name of the call.
func outgoing(params json.RawMessage) (text json.RawMessage, call string, err error) {
	var said string
	added := memberOf(params, "_meta")
	err = errors.Join(json.Unmarshal(memberOf(added, rawKey), &said))
	if name := memberOf(added, callKey); err == nil && len(name) > 0 {
		err = json.Unmarshal(name, &call)
	}
	if err != nil {
		return nil, "", err
	}
	text = json.RawMessage(said)
	meta := memberOf(text, "_meta")
	list, err := members(added)
	for _, m := range list {
		if err == nil && strings.HasPrefix(m.name, ownMeta) {
			meta, err = withValue(meta, m.name, m.value)
		}
	}
	if err == nil && len(meta) > 0 {
		text, err = withValue(text, "_meta", meta)
	}
	all, failed := members(params)
	err = errors.Join(err, failed)
	for _, m := range all {
		if err == nil && (m.name == "inputResponses" || m.name == "requestState") {
			text, err = withValue(text, m.name, m.value)
		}
	}
	return text, call, err
}

// cancel tells the server that no one waits for a call any more; what it answers is still read.
func (c *calls) cancel(ctx context.Context, call, reason string) error {
	c.mu.Lock()
	conn, id := c.conn, c.ids[call]
	c.mu.Unlock()
	if !id.IsValid() {
		return nil // it has not been sent, or is answered
	}
	params, err := encode(map[string]any{"requestId": id.Raw(), "reason": reason})
	if err != nil {
		return err
	}
	return conn.Write(ctx, &jsonrpc.Request{Method: cancelledMethod, Params: params})
}

// done forgets a call.
func (c *calls) done(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ids, call)
}
