package mcp

//lint:file-ignore SA1019 the protocol has deprecated logs and sampling; who has them keeps them

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func isLogging(c *sdk.ServerCapabilities) bool { return c.Logging != nil }

// passLogging has clients see that a server logs.
func passLogging(capable, server *sdk.ServerCapabilities) {
	if server.Logging != nil {
		capable.Logging = server.Logging
	}
}

// setLevel passes on the level that a client wants of logs; other parameters are none of it.
func (g *Gateway) setLevel(ctx context.Context, params sdk.Params) error {
	level, ok := params.(*sdk.SetLoggingLevelParams)
	if !ok {
		return nil
	}
	g.level.Store(level.Level)
	for _, s := range g.sessions(ctx, isLogging) {
		err := s.SetLoggingLevel(ctx, &sdk.SetLoggingLevelParams{Level: level.Level})
		if err != nil {
			return wired(err)
		}
	}
	return nil
}

// relevel tells a server that has started the level that a client wants.
func (g *Gateway) relevel(ctx context.Context, s *sdk.ClientSession) {
	level, ok := g.level.Load().(sdk.LoggingLevel)
	if can := s.InitializeResult().Capabilities; ok && can != nil && isLogging(can) {
		ctx, cancel := context.WithTimeout(ctx, levelWait)
		defer cancel()
		if err := s.SetLoggingLevel(ctx, &sdk.SetLoggingLevelParams{Level: level}); err != nil {
			g.logger.Warn("a server that has started does not know which logs are wanted", "error", err)
		}
	}
}

// listenLogs has what a server logs go to the clients. One that has said no level gets what the
// server sends of itself, if it is the only client; of several, those that have said one.
func (g *Gateway) listenLogs(s *Server, options *sdk.ClientOptions) {
	options.LoggingMessageHandler = func(ctx context.Context, req *sdk.LoggingMessageRequest) {
		defer s.said.goes()
		g.tellAll(ctx, s, func(ctx context.Context, client *sdk.ServerSession) error {
			if g.remote.Load() || g.level.Load() != nil {
				return client.Log(ctx, req.Params)
			}
			if client.InitializeParams() == nil {
				return nil
			}
			return say(ctx, client, logMethod, rawOf(req.Params.Meta))
		})
	}
}

// listenQuestions has what a server asks in a call go to the client that has made it: its user, or
// its model.
func (g *Gateway) listenQuestions(s *Server, options *sdk.ClientOptions) {
	options.ElicitationCompleteHandler = func(ctx context.Context,
		req *sdk.ElicitationCompleteNotificationRequest) {
		defer s.said.goes()
		g.tellAll(ctx, s, func(ctx context.Context, client *sdk.ServerSession) error {
			return say(ctx, client, completeMethod, rawOf(req.Params.Meta))
		})
	}
	options.ElicitationHandler = func(ctx context.Context,
		req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		client, calls, err := g.callers(s)
		if err != nil {
			return nil, err
		}
		return asks(ctx, calls, req.Params, client.Elicit)
	}
	options.Capabilities.Sampling = &sdk.SamplingCapabilities{}
	options.CreateMessageWithToolsHandler = func(ctx context.Context,
		req *sdk.CreateMessageWithToolsRequest) (*sdk.CreateMessageWithToolsResult, error) {
		client, calls, err := g.callers(s)
		if err != nil {
			return nil, err
		}
		if capabilities(client).Sampling == nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound,
				Message: "the client has no model that a server may ask"}
		}
		return asks(ctx, calls, req.Params, client.CreateMessageWithTools)
	}
}

// capabilities are what a client has said that it can.
func capabilities(session *sdk.ServerSession) *sdk.ClientCapabilities {
	if init := session.InitializeParams(); init != nil && init.Capabilities != nil {
		return init.Capabilities
	}
	return &sdk.ClientCapabilities{} // it has no session
}

// underWay is a call of a client that is under way.
type underWay struct {
	session *sdk.ServerSession
	stream  context.Context // of its answer; it does not end
	ended   atomic.Bool
}

// within is a context that ends as one does, and has what is said in the stream of a call until
// that has ended.
type within struct {
	context.Context
	call *underWay
}

// Value is that of the call.
func (w within) Value(key any) any {
	if w.call.ended.Load() {
		return w.Context.Value(key)
	}
	return w.call.stream.Value(key)
}

// ofNoCall is a context that ends as one does, and has nothing of the call that it may be of.
type ofNoCall struct{ context.Context }

// Value is nil.
func (ofNoCall) Value(any) any { return nil }

// tell says something to a client, in a call of it if there is one, in the latest that takes it.
// Over HTTP it goes where the answer goes then, for a client need not have another stream, and may
// not have it yet; and beside that once the answer has gone.
func tell(ctx context.Context, calls []*underWay, say func(context.Context) error) error {
	for _, c := range slices.Backward(calls) {
		if err := say(within{ctx, c}); !isRejected(err) {
			return err
		}
	}
	return say(ctx)
}

// asks is tell for what is answered.
func asks[P, R any](ctx context.Context, calls []*underWay, params P,
	ask func(context.Context, P) (R, error)) (answer R, err error) {
	err = tell(ctx, calls, func(ctx context.Context) error {
		answer, err = ask(ctx, params)
		return err
	})
	return answer, err
}

// tellAll tells each client what a server says, of its call of that server if there is one.
func (g *Gateway) tellAll(ctx context.Context, s *Server,
	say func(context.Context, *sdk.ServerSession) error) {
	g.mu.Lock()
	calling := map[*sdk.ServerSession][]*underWay{}
	for _, c := range g.calling[s] {
		calling[c.session] = append(calling[c.session], c)
	}
	g.mu.Unlock()
	for _, client := range g.clients() {
		g.told(tell(ctx, calling[client], func(ctx context.Context) error {
			return say(ctx, client)
		}))
	}
}

// callers are the calls of a server that are under way, and their client. With calls of several
// clients no one knows who is meant, and one must not answer for another.
func (g *Gateway) callers(s *Server) (*sdk.ServerSession, []*underWay, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := g.calling[s]
	if len(list) == 0 {
		return nil, nil, errors.New("no call of a client is under way")
	}
	for _, other := range list {
		if other.session != list[0].session {
			return nil, nil, errors.New("calls of several clients are under way: no one knows " +
				"which is asked")
		}
	}
	return list[0].session, slices.Clone(list), nil
}

// passing counts what a server says, and what of it was passed on. The SDK gives an answer at once
// to its caller, while its handlers may still be at what was said before it.
type passing struct {
	mu           sync.Mutex
	come, passed uint64
	waits        map[chan struct{}]uint64 // closed when so much was passed on
}

// comes notes that something was said.
func (p *passing) comes() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.come++
}

// goes notes that something was passed on.
func (p *passing) goes() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reach(min(p.passed+1, p.come))
}

// reach notes that so much was passed on. Called with mu held.
func (p *passing) reach(count uint64) {
	p.passed = max(p.passed, count)
	for done, wants := range p.waits {
		if p.passed >= wants {
			close(done)
			delete(p.waits, done)
		}
	}
}

// await waits until what was said by now is passed on, and gives up what is not soon: a client does
// not take it, or the SDK has not understood it.
func (p *passing) await() {
	p.mu.Lock()
	wants, done := p.come, make(chan struct{})
	if p.passed >= wants {
		p.mu.Unlock()
		return
	}
	if p.waits == nil {
		p.waits = map[chan struct{}]uint64{}
	}
	p.waits[done] = wants
	p.mu.Unlock()
	late := time.NewTimer(saidWait)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.reach(wants)
	}
}
