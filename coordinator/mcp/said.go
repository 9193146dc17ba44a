package mcp

//lint:file-ignore SA1019 the protocol has deprecated logs and sampling; who has them keeps them

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// levels are those of logs (RFC 5424), those that say most first.
var levels = []sdk.LoggingLevel{"debug", "info", "notice", "warning", "error", "critical", "alert",
	"emergency"}

// logsIn reports whether a server that logs is told the level once: one without a session is told
// it in each request.
func logsIn(s *sdk.ClientSession) bool {
	in := s.InitializeResult()
	return in.ProtocolVersion < stateless && in.Capabilities != nil && isLogging(in.Capabilities)
}

// setLevel passes on the level that a client wants of logs; other parameters are none of it.
func (g *Gateway) setLevel(ctx context.Context, params sdk.Params) error {
	level, ok := params.(*sdk.SetLoggingLevelParams)
	if !ok {
		return nil
	}
	if !slices.Contains(levels, level.Level) {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams,
			Message: fmt.Sprintf("level: %.80q is no level of logs; want one of %v", level.Level, levels)}
	}
	g.level.Store(level.Level)
	for _, s := range g.sessions(ctx, isLogging) {
		if !logsIn(s) {
			continue
		}
		err := s.SetLoggingLevel(ctx, &sdk.SetLoggingLevelParams{Level: level.Level})
		if err != nil {
			return wired(err)
		}
	}
	return nil
}

// heed has servers that run log what a client without a session wants, which says so in each call.
// It never has them log less, for others may want that.
func (g *Gateway) heed(ctx context.Context, meta sdk.Meta) {
	text, _ := meta[sdk.MetaKeyLogLevel].(string)
	level := sdk.LoggingLevel(text)
	wants := slices.Index(levels, level)
	for swapped := false; !swapped; {
		before := g.level.Load()
		now, _ := before.(sdk.LoggingLevel)
		if has := slices.Index(levels, now); wants < 0 || has >= 0 && has <= wants {
			return
		}
		swapped = g.level.CompareAndSwap(before, level)
	}
	for _, s := range g.config.Servers {
		if session := s.running(); session != nil {
			g.relevel(ctx, session)
		}
	}
}

// relevel tells a server the level that a client wants.
func (g *Gateway) relevel(ctx context.Context, s *sdk.ClientSession) {
	if level, ok := g.level.Load().(sdk.LoggingLevel); ok && logsIn(s) {
		ctx, cancel := context.WithTimeout(ctx, levelWait)
		defer cancel()
		if err := s.SetLoggingLevel(ctx, &sdk.SetLoggingLevelParams{Level: level}); err != nil {
			g.logger.Warn("a server does not know which logs are wanted", "error", err)
		}
	}
}

// leveled are parameters that say which logs clients want, as each request does in a version
// without sessions.
func (t exact) leveled(params json.RawMessage) (json.RawMessage, error) {
	meta := memberOf(params, "_meta")
	if t.level == nil || len(memberOf(meta, sdk.MetaKeyProtocolVersion)) == 0 {
		return params, nil
	}
	level, ok := t.level().(sdk.LoggingLevel)
	if !ok {
		return params, nil
	}
	quoted, err := encode(level)
	if err != nil {
		return nil, err
	}
	meta, err = withValue(meta, sdk.MetaKeyLogLevel, quoted)
	if err != nil {
		return nil, err
	}
	return withValue(params, "_meta", meta)
}

// subscribed are the resources of which clients want to hear when they change.
type subscribed struct {
	turn chan struct{} // one element while a server is asked: what it is told last is what is so

	mu      sync.Mutex
	all     map[string]*subscription    // by URI
	clients map[*sdk.ServerSession]bool // that are waited for until they have gone
}

// subscription is a resource that clients want to hear of.
type subscription struct {
	server  *Server // that says when it changes
	clients []*sdk.ServerSession
}

func newSubscribed() *subscribed {
	return &subscribed{turn: make(chan struct{}, 1), all: map[string]*subscription{},
		clients: map[*sdk.ServerSession]bool{}}
}

// ask has a server do something in turn, for a while: what it does not answer by then goes on by
// itself.
func (s *subscribed) ask(ctx context.Context, what func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, subscribeWait)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("a server is asked about another resource: %w", ctx.Err())
	}
	defer func() { <-s.turn }()
	asked := make(chan error, 1)
	go func() { asked <- what(ctx) }() // ends with the connection to the server at the latest
	select {
	case err := <-asked:
		return err
	case <-ctx.Done():
		return fmt.Errorf("its server does not answer: %w", ctx.Err())
	}
}

// room reports whether a client may want to hear of a further resource.
func (s *subscribed) room(uri string, client *sdk.ServerSession) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := 0
	for at, of := range s.all {
		if slices.Contains(of.clients, client) && at != uri {
			count++
		}
	}
	return count < subscriptionsMax
}

// add notes that a client wants to hear of a resource of a server, until it has gone.
func (s *subscribed) add(uri string, server *Server, client *sdk.ServerSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.all[uri]
	if of == nil {
		of = &subscription{}
		s.all[uri] = of
	}
	if of.server = server; !slices.Contains(of.clients, client) {
		of.clients = append(of.clients, client)
	}
	if s.clients[client] {
		return
	}
	s.clients[client] = true
	go func() {
		_ = client.Wait() // however it has ended
		s.leave(client)
	}()
}

// leave notes that a client has gone.
func (s *subscribed) leave(client *sdk.ServerSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.clients, client)
	for uri := range s.all {
		s.drop(uri, client)
	}
}

// remove notes that a client does not want to hear of a resource any more, and reports whether no
// other one does.
func (s *subscribed) remove(uri string, client *sdk.ServerSession) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(uri, client)
	return s.all[uri] == nil
}

// drop is remove with mu held.
func (s *subscribed) drop(uri string, client *sdk.ServerSession) {
	of := s.all[uri]
	if of == nil {
		return
	}
	of.clients = slices.DeleteFunc(of.clients,
		func(other *sdk.ServerSession) bool { return other == client })
	if len(of.clients) == 0 {
		delete(s.all, uri)
	}
}

// of are the URIs of a server's resources that clients want to hear of.
func (s *subscribed) of(server *Server) (uris []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uri, of := range s.all {
		if of.server == server {
			uris = append(uris, uri)
		}
	}
	slices.Sort(uris)
	return uris
}

// subscribe has a client hear when a resource changes, also once its server was started again.
func (g *Gateway) subscribe(ctx context.Context, req *sdk.SubscribeRequest) error {
	uri := req.Params.URI
	if !g.subscribed.room(uri, req.Session) {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams,
			Message: fmt.Sprintf("a client hears of at most %d resources", subscriptionsMax)}
	}
	return g.subscribed.ask(ctx, func(ctx context.Context) error {
		return g.firstDoes(ctx, isResource, func(s *sdk.ClientSession) error {
			err := s.Subscribe(ctx, &sdk.SubscribeParams{URI: uri})
			if err == nil {
				g.subscribed.add(uri, serverOf(g, s), req.Session)
			}
			return err
		})
	})
}

// unsubscribe has a server say no longer when a resource changes, if no other client wants to hear
// of it.
func (g *Gateway) unsubscribe(ctx context.Context, req *sdk.UnsubscribeRequest) error {
	return g.subscribed.ask(ctx, func(ctx context.Context) error {
		if !g.subscribed.remove(req.Params.URI, req.Session) {
			return nil
		}
		return g.firstDoes(ctx, isResource, func(s *sdk.ClientSession) error {
			return s.Unsubscribe(ctx, &sdk.UnsubscribeParams{URI: req.Params.URI})
		})
	})
}

// resubscribe has a server that was started again say when the resources change of which clients
// want to hear.
func (g *Gateway) resubscribe(server *Server, session *sdk.ClientSession) {
	for _, uri := range g.subscribed.of(server) {
		err := g.subscribed.ask(g.life, func(ctx context.Context) error {
			if !slices.Contains(g.subscribed.of(server), uri) {
				return nil
			}
			return session.Subscribe(ctx, &sdk.SubscribeParams{URI: uri})
		})
		if err != nil {
			g.logger.Warn("a server that was started again does not say when a resource changes",
				"server", server.Name(), "resource", uri, "error", err)
		}
		if g.life.Err() != nil || server.running() != session {
			return
		}
	}
}

// serverOf is the server of a session.
func serverOf(g *Gateway, session *sdk.ClientSession) *Server {
	for _, s := range g.config.Servers {
		if s.running() == session {
			return s
		}
	}
	return nil
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

// tellAll tells each client what a server says, of its call of that server if there is one. A
// client without a session hears of its calls alone.
func (g *Gateway) tellAll(ctx context.Context, s *Server,
	say func(context.Context, *sdk.ServerSession) error) {
	g.mu.Lock()
	calling := map[*sdk.ServerSession][]*underWay{}
	for _, c := range g.calling[s] {
		calling[c.session] = append(calling[c.session], c)
	}
	g.mu.Unlock()
	clients := g.clients()
	for client := range calling {
		if !slices.Contains(clients, client) {
			clients = append(clients, client)
		}
	}
	for _, client := range clients {
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
