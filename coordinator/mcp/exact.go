package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp/large"
)

// exact is the transport to a server. What goes through it stays as it is written (see raw.go). It
// says which progress is before a result: the SDK gives a result at once to its caller, while
// its handler of progress may still be at an earlier one. And it can cancel a call whose answer is
// still waited for, which the SDK would give up.
type exact struct {
	sdk.Transport
	said  func()     // something of tellMethods has come; nil: no one wants to know
	level func() any // the [sdk.LoggingLevel] of the logs that clients want; nil: they have said none
	calls *calls
}

// calls are the calls of a server that are under way, by the name that this process gives each.
type calls struct {
	mu   sync.Mutex
	conn sdk.Connection
	all  map[string]*sending
}

// sending is a call that is under way.
type sending struct {
	id      jsonrpc.ID // none: it has not been sent
	givenUp bool
}

// Connect connects as the transport below does.
func (t exact) Connect(ctx context.Context) (sdk.Connection, error) {
	conn, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	t.calls.connected(conn)
	return exactConnection{conn, t}, nil
}

type exactConnection struct {
	sdk.Connection
	exact exact
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

// Read returns the next message; a result, and what is passed on, has its text in its metadata.
func (c exactConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	message, err := readable(ctx, c.Connection)
	if r, ok := message.(*jsonrpc.Request); ok {
		c.exact.counts(r.Method)
	}
	if err == nil {
		giveText(message, saidMethods)
	}
	return message, err
}

// tellMethods are those of what a server says to clients, which is counted until it is passed on.
var tellMethods = []string{progressMethod, logMethod, completeMethod}

func (t exact) counts(method string) {
	if t.said != nil && slices.Contains(tellMethods, method) {
		t.said()
	}
}

// incoming is a message that has come, as Read returns it.
func (t exact) incoming(message json.RawMessage) json.RawMessage {
	t.counts(methodOf(message))
	return withText(message, saidMethods)
}

// errRejected is what the SDK takes for an error of one message; it ends the connection at others.
var errRejected = &jsonrpc.Error{Code: -32005, Message: "rejected by transport"}

// isRejected reports whether a transport has not sent something. A client that answers with an
// error of the same code has got it.
func isRejected(err error) bool {
	var wire *jsonrpc.Error
	return errors.As(err, &wire) && wire.Code == errRejected.Code &&
		wire.Message == errRejected.Message
}

// errGivenUp is the error of a call that was given up before it was sent.
var errGivenUp = errors.New("the call was given up before it was sent")

// Write sends a message; of one with a text in its metadata, the text.
func (c exactConnection) Write(ctx context.Context, message jsonrpc.Message) error {
	switch m := message.(type) {
	case *jsonrpc.Request:
		sent, err := c.exact.outgoing(m)
		if err != nil {
			return fmt.Errorf("%w: %w", errRejected, err)
		}
		message = sent
	case *jsonrpc.Response:
		message = answeredAs(m)
	}
	return c.Connection.Write(ctx, message)
}

// outgoing is a request as it is sent.
func (t exact) outgoing(r *jsonrpc.Request) (*jsonrpc.Request, error) {
	if len(memberOf(memberOf(r.Params, "_meta"), rawKey)) == 0 {
		return r, nil
	}
	params, call, err := outgoing(r.Params)
	if err == nil {
		params, err = t.leveled(params)
	}
	if err == nil && call != "" {
		err = t.calls.sent(call, r.ID)
	}
	if err != nil {
		return nil, err
	}
	sent := *r
	sent.Params = params
	return &sent, nil
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
	if text = json.RawMessage(said); !json.Valid(text) {
		return nil, "", errors.New("the text of a message is no JSON")
	}
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

// connected notes that there is another connection, on which none of the calls was sent.
func (c *calls) connected(conn sdk.Connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
	for _, s := range c.all {
		s.id = jsonrpc.ID{}
	}
}

// begin notes a call that is about to be sent.
func (c *calls) begin(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[string]*sending{}
	}
	c.all[call] = &sending{}
}

// sent notes that a call is sent now. Errors: errGivenUp; it must not be sent.
func (c *calls) sent(call string, id jsonrpc.ID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.all[call]
	if !ok || s.givenUp {
		return errGivenUp
	}
	s.id = id
	return nil
}

// giveUp notes that no one waits for a call any more, and reports whether it was sent: if not, it
// never is.
func (c *calls) giveUp(call string) (sent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.all[call]
	if !ok {
		return true // and answered
	}
	s.givenUp = true
	return s.id.IsValid()
}

// cancel tells the server that no one waits for a call any more; what it answers is still read.
func (c *calls) cancel(ctx context.Context, call, reason string) error {
	c.mu.Lock()
	conn, s := c.conn, c.all[call]
	var id jsonrpc.ID
	if s != nil {
		id = s.id
	}
	c.mu.Unlock()
	if !id.IsValid() {
		return nil // it is answered, or its server has ended
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
	delete(c.all, call)
}

// Lines is the transport to the other end of two pipes, each message a line. One with more than
// bodyMax bytes does not end the connection: an answer is an error that says so, and a request is
// refused.
func Lines(in io.ReadCloser, out io.WriteCloser) sdk.Transport { return lines(in, out, nil) }

// lines is Lines without the lines that skip says are no messages.
func lines(in io.ReadCloser, out io.WriteCloser, skip func(line []byte) bool) sdk.Transport {
	return &sdk.IOTransport{Reader: large.Lines(in, bodyMax, skip), Writer: out,
		MaxLineLength: 2 * bodyMax}
}

// readable is the next message that is not too large.
func readable(ctx context.Context, conn sdk.Connection) (jsonrpc.Message, error) {
	for {
		message, err := conn.Read(ctx)
		r, ok := message.(*jsonrpc.Request)
		if err != nil || !ok || r.Method != large.Method || !r.ID.IsValid() {
			return message, err
		}
		var was struct {
			Method string
			Bytes  int64
		}
		if err := json.Unmarshal(r.Params, &was); err != nil {
			return nil, err
		}
		if err := conn.Write(ctx, &jsonrpc.Response{ID: r.ID, Error: &jsonrpc.Error{
			Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf("the request has %d bytes, and at most "+
				"%d are passed on: nothing was done", was.Bytes, bodyMax)}}); err != nil {
			return nil, err
		}
	}
}

// largeMeta says in a result that the answer of the server was too large to be passed on.
const largeMeta = "sagenbaum/answer"

// answered is an answer that was too large.
type answered struct{ large.Answer }

func largeAnswer(err error) (a answered, ok bool) {
	var wire *jsonrpc.Error
	if errors.As(err, &wire) {
		a.Answer, ok = large.AnswerIn(wire.Data)
	}
	return a, ok
}

// result is what is passed on in the place of an answer of a tool.
func (a answered) result(tool string) *sdk.CallToolResult {
	what := "has happened, but its answer"
	if a.Failed {
		what = "has failed, and its answer"
	}
	result := problem("%s %s has %d bytes, of which at most %d are passed on: it is left out "+
		"(SHA-256 %s). A call that asks for less has a smaller one.", tool, what, a.Bytes, bodyMax,
		a.SHA256)
	result.Meta = sdk.Meta{largeMeta: map[string]any{"bytes": a.Bytes, "sha256": a.SHA256}}
	if a.Failed {
		delete(result.Meta, largeMeta)
	}
	return result
}

// isLarge reports whether a result is in the place of one that was too large, of a call that has
// happened.
func isLarge(result *sdk.CallToolResult) bool { return result.Meta[largeMeta] != nil }

// failed reports whether a result says that its call failed.
func failed(result *sdk.CallToolResult) bool { return result.IsError && !isLarge(result) }
