package mcp

//lint:file-ignore SA1019 the protocol has deprecated logs; who has them keeps them

import (
	"context"

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
