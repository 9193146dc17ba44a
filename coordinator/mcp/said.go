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
	g.leveled.Store(true)
	for _, s := range g.sessions(ctx, isLogging) {
		err := s.SetLoggingLevel(ctx, &sdk.SetLoggingLevelParams{Level: level.Level})
		if err != nil {
			return wired(err)
		}
	}
	return nil
}

// listenLogs has what a server logs go to the clients. One that has said no level gets what the
// server sends of itself, if it is the only client; of several, those that have said one.
func (g *Gateway) listenLogs(options *sdk.ClientOptions) {
	options.LoggingMessageHandler = func(ctx context.Context, req *sdk.LoggingMessageRequest) {
		for _, session := range g.clients() {
			if g.remote.Load() || g.leveled.Load() {
				g.told(session.Log(ctx, req.Params))
			} else if session.InitializeParams() != nil {
				g.say(ctx, session, logMethod, rawOf(req.Params.Meta))
			}
		}
	}
}

// listenQuestions has what a server asks in a call go to the client that has made it: its user, or
// its model.
func (g *Gateway) listenQuestions(s *Server, options *sdk.ClientOptions) {
	options.ElicitationCompleteHandler = func(ctx context.Context,
		req *sdk.ElicitationCompleteNotificationRequest) {
		for _, session := range g.clients() {
			g.say(ctx, session, completeMethod, rawOf(req.Params.Meta))
		}
	}
	options.ElicitationHandler = func(ctx context.Context,
		req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		client, err := g.caller(s)
		if err != nil {
			return nil, err
		}
		return client.Elicit(ctx, req.Params)
	}
	options.Capabilities.Sampling = &sdk.SamplingCapabilities{}
	options.CreateMessageWithToolsHandler = func(ctx context.Context,
		req *sdk.CreateMessageWithToolsRequest) (*sdk.CreateMessageWithToolsResult, error) {
		client, err := g.caller(s)
		if err != nil {
			return nil, err
		}
		if capabilities(client).Sampling == nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound,
				Message: "the client has no model that a server may ask"}
		}
		return client.CreateMessageWithTools(ctx, req.Params)
	}
}

// capabilities are what a client has said that it can.
func capabilities(session *sdk.ServerSession) *sdk.ClientCapabilities {
	if init := session.InitializeParams(); init != nil && init.Capabilities != nil {
		return init.Capabilities
	}
	return &sdk.ClientCapabilities{} // it has no session
}

// caller is the client whose call of a server is under way. With calls of several clients no one
// knows who is meant, and one must not answer for another.
func (g *Gateway) caller(s *Server) (*sdk.ServerSession, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := g.calling[s]
	if len(list) == 0 {
		return nil, errors.New("no call of a client is under way")
	}
	for _, other := range list {
		if other != list[0] {
			return nil, errors.New("calls of several clients are under way: no one knows which is asked")
		}
	}
	return list[0], nil
}
