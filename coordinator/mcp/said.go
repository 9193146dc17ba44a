package mcp

//lint:file-ignore SA1019 the protocol has deprecated logs and sampling; who has them keeps them

import (
	"context"
	"errors"

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
	if ok && isLogging(s.InitializeResult().Capabilities) {
		if err := s.SetLoggingLevel(ctx, &sdk.SetLoggingLevelParams{Level: level}); err != nil {
			g.logger.Warn("a server that has started does not know which logs are wanted", "error", err)
		}
	}
}

// listenLogs has what a server logs go to the clients. One that has said no level gets what the
// server sends of itself, if it is the only client; of several, those that have said one.
func (g *Gateway) listenLogs(s *Server, options *sdk.ClientOptions) {
	options.LoggingMessageHandler = func(ctx context.Context, req *sdk.LoggingMessageRequest) {
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
		g.tellAll(ctx, s, func(ctx context.Context, client *sdk.ServerSession) error {
			return say(ctx, client, completeMethod, rawOf(req.Params.Meta))
		})
	}
	options.ElicitationHandler = func(ctx context.Context,
		req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		call, err := g.caller(s)
		if err != nil {
			return nil, err
		}
		return asks(ctx, call, req.Params, call.session.Elicit)
	}
	options.Capabilities.Sampling = &sdk.SamplingCapabilities{}
	options.CreateMessageWithToolsHandler = func(ctx context.Context,
		req *sdk.CreateMessageWithToolsRequest) (*sdk.CreateMessageWithToolsResult, error) {
		call, err := g.caller(s)
		if err != nil {
			return nil, err
		}
		if capabilities(call.session).Sampling == nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound,
				Message: "the client has no model that a server may ask"}
		}
		return asks(ctx, call, req.Params, call.session.CreateMessageWithTools)
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
}

// within is a context that ends as one does, and has what is said in the stream of a call.
type within struct {
	context.Context
	stream context.Context
}

// Value is that of the call.
func (w within) Value(key any) any { return w.stream.Value(key) }

// tell says something that belongs to a call; nil: to none. Over HTTP it goes where the answer
// goes, for a client need not have another stream, and may not have it yet; and beside it once the
// answer has gone.
func (c *underWay) tell(ctx context.Context, say func(context.Context) error) error {
	if c != nil {
		if err := say(within{ctx, c.stream}); !errors.Is(err, errRejected) {
			return err
		}
	}
	return say(ctx)
}

// asks is tell for what is answered.
func asks[P, R any](ctx context.Context, c *underWay, params P,
	ask func(context.Context, P) (R, error)) (answer R, err error) {
	err = c.tell(ctx, func(ctx context.Context) error {
		answer, err = ask(ctx, params)
		return err
	})
	return answer, err
}

// tellAll tells each client what a server says; in its call of that server, if there is one.
func (g *Gateway) tellAll(ctx context.Context, s *Server,
	say func(context.Context, *sdk.ServerSession) error) {
	g.mu.Lock()
	calling := map[*sdk.ServerSession]*underWay{}
	for _, c := range g.calling[s] {
		calling[c.session] = c
	}
	g.mu.Unlock()
	for _, client := range g.clients() {
		g.told(calling[client].tell(ctx, func(ctx context.Context) error {
			return say(ctx, client)
		}))
	}
}

// caller is the latest call of a server that is under way. With calls of several clients no one
// knows who is meant, and one must not answer for another.
func (g *Gateway) caller(s *Server) (*underWay, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := g.calling[s]
	if len(list) == 0 {
		return nil, errors.New("no call of a client is under way")
	}
	for _, other := range list {
		if other.session != list[0].session {
			return nil, errors.New("calls of several clients are under way: no one knows which " +
				"is asked")
		}
	}
	return list[len(list)-1], nil
}
