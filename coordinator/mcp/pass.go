package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
)

// several separates the name of a server from that of its tool, where there are several servers.
const several = "__"

// stateless is the first version of the protocol in which a server cannot ask its client anything
// while a call is under way. Clients of it speak an earlier one with the gateway, which passes on
// what servers ask, unless the configuration serves those without sessions as well.
const stateless = "2026-07-28"

// serve makes the server that clients see: it is called what its only server is called, and can
// what its servers can.
func (g *Gateway) serve() {
	capable := &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{ListChanged: true}}
	implementation := &sdk.Implementation{Name: "sagenbaum", Version: version}
	var instructions []string
	for _, s := range g.config.Servers {
		info := s.session.InitializeResult()
		if len(g.config.Servers) == 1 && info.ServerInfo != nil {
			implementation = info.ServerInfo
		}
		if info.Instructions != "" {
			instructions = append(instructions, info.Instructions)
		}
		if s.hidden != "" {
			instructions = append(instructions, s.hidden)
		}
		if c := info.Capabilities; c != nil {
			if c.Resources != nil {
				capable.Resources = &sdk.ResourceCapabilities{ListChanged: true,
					Subscribe: c.Resources.Subscribe || capable.Resources != nil && capable.Resources.Subscribe}
			}
			if c.Prompts != nil {
				capable.Prompts = &sdk.PromptCapabilities{ListChanged: true}
			}
			if c.Completions != nil {
				capable.Completions = c.Completions
			}
			passLogging(capable, c)
		}
	}
	options := &sdk.ServerOptions{
		Capabilities: capable,
		Instructions: strings.Join(instructions, "\n\n"),

		//lint:ignore SA1019 the protocol has deprecated roots; who has them keeps them
		RootsListChangedHandler: g.rootsChanged,
		SupportedProtocolVersions: slices.DeleteFunc(sdk.SupportedProtocolVersions(),
			func(v string) bool { return v >= stateless }),
	}
	if capable.Resources != nil && capable.Resources.Subscribe {
		options.SubscribeHandler = g.subscribe
		options.UnsubscribeHandler = g.unsubscribe
	}
	if g.config.Stateless {
		g.servePlain(implementation, *options)
	}
	front := sdk.NewServer(implementation, options)
	front.AddReceivingMiddleware(g.pass)
	front.AddSendingMiddleware(saying)
	g.front.Store(front)
}

// pass answers what the servers answer; the rest is the SDK's.
func (g *Gateway) pass(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if err := g.followFor(ctx, req); err != nil {
			return nil, err
		}
		switch params := req.GetParams().(type) {
		case *sdk.ListToolsParams:
			return g.listTools(ctx)
		case *sdk.CallToolParamsRaw:
			call, ok := req.(*sdk.CallToolRequest)
			if !ok {
				break
			}
			result, err := g.call(ctx, call)
			if err != nil {
				return nil, err
			}
			return written(result)
		case *sdk.ListResourcesParams:
			return g.listResources(ctx)
		case *sdk.ListResourceTemplatesParams:
			return g.listTemplates(ctx)
		case *sdk.ReadResourceParams:
			text, err := passedOn(rawOf(params.Meta), params, nil)
			if err != nil {
				return nil, err
			}
			return first(ctx, g, isResource, func(s *sdk.ClientSession) (*sdk.ReadResourceResult, error) {
				return s.ReadResource(ctx, &sdk.ReadResourceParams{URI: params.URI, Meta: asMeta(text)})
			})
		case *sdk.ListPromptsParams:
			return g.listPrompts(ctx)
		case *sdk.GetPromptParams:
			return g.getPrompt(ctx, params)
		case *sdk.CompleteParams:
			text, err := passedOn(rawOf(params.Meta), params, nil)
			if err != nil {
				return nil, err
			}
			return first(ctx, g, isCompletion, func(s *sdk.ClientSession) (*sdk.CompleteResult, error) {
				passed := *params
				passed.Meta = asMeta(text)
				return s.Complete(ctx, &passed)
			})
		default:
			if err := g.setLevel(ctx, params); err != nil {
				return nil, err
			}
		}
		return next(ctx, method, req)
	}
}

// followFor has the servers work in the roots of a client that asks for their resources.
func (g *Gateway) followFor(ctx context.Context, req sdk.Request) error {
	switch req.GetParams().(type) {
	case *sdk.ListResourcesParams, *sdk.ListResourceTemplatesParams, *sdk.ReadResourceParams:
		if session, ok := req.GetSession().(*sdk.ServerSession); ok {
			return g.follow(ctx, session, g.config.Servers...)
		}
	}
	return nil
}

// wired is the error that a server answered with, as it is.
func wired(err error) error {
	var wire *jsonrpc.Error
	if errors.As(err, &wire) {
		return wire
	}
	return err
}

func isResource(c *sdk.ServerCapabilities) bool   { return c.Resources != nil }
func isCompletion(c *sdk.ServerCapabilities) bool { return c.Completions != nil }

// sessions are those of the servers that are able to do something.
func (g *Gateway) sessions(ctx context.Context, able func(*sdk.ServerCapabilities) bool) (
	list []*sdk.ClientSession) {
	for _, s := range g.config.Servers {
		session, err := s.live(ctx)
		if err != nil {
			g.logger.Warn("a server does not start", "server", s.Name(), "error", err)
			continue
		}
		if c := session.InitializeResult().Capabilities; c != nil && able(c) {
			list = append(list, session)
		}
	}
	return list
}

// first asks one server after the other until one answers.
func first[R sdk.Result](ctx context.Context, g *Gateway, able func(*sdk.ServerCapabilities) bool,
	ask func(*sdk.ClientSession) (R, error)) (result sdk.Result, err error) {
	err = g.firstDoes(ctx, able, func(s *sdk.ClientSession) error {
		said, err := ask(s)
		if err == nil {
			result, err = written(said)
		}
		return err
	})
	return result, err
}

// firstDoes asks one server after the other until one does it.
func (g *Gateway) firstDoes(ctx context.Context, able func(*sdk.ServerCapabilities) bool,
	ask func(*sdk.ClientSession) error) error {
	var last error = &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound,
		Message: "no server answers this"}
	for _, session := range g.sessions(ctx, able) {
		err := ask(session)
		if err == nil {
			return nil
		}
		last = wired(err)
	}
	return last
}

// shown is what clients call a tool or a prompt of a server.
func (g *Gateway) shown(s *Server, name string) string {
	if len(g.config.Servers) == 1 {
		return name
	}
	return s.Name() + several + name
}

// route finds the server of a tool or a prompt.
func (g *Gateway) route(shown string) (*Server, string) {
	if len(g.config.Servers) == 1 {
		return g.config.Servers[0], shown
	}
	server, name, _ := strings.Cut(shown, several)
	for _, s := range g.config.Servers {
		if s.Name() == server {
			return s, name
		}
	}
	return nil, ""
}

// listTools lists what may be called: the tools of the servers, but for those that would be
// refused, and the gateway's own.
func (g *Gateway) listTools(ctx context.Context) (sdk.Result, error) {
	list := []any{}
	for _, s := range g.config.Servers {
		tools, err := s.Tools(ctx)
		if err != nil {
			return nil, wired(err)
		}
		s.remember(tools)
		for _, t := range tools {
			if g.hides(s, t) {
				continue
			}
			name, err := encode(g.shown(s, t.Name))
			if err != nil {
				return nil, err
			}
			text, err := withValue(rawOf(t.Meta), "name", name)
			if err == nil && isPlain(ctx) && s.pack.Tools[t.Name].Class != contract.Effectless {
				text, err = planned(text)
			}
			if err == nil && s.pack.Tools[t.Name].staged() {
				text, err = asStaged(text)
			}
			if err != nil {
				return nil, err
			}
			list = append(list, text)
		}
	}
	for _, t := range g.ownList() {
		list = append(list, t)
	}
	text, err := encode(map[string]any{"tools": list})
	return asWritten{&sdk.ListToolsResult{}, text}, err
}

// hides reports whether a tool is left out, and refused: nothing says how its calls are undone.
func (g *Gateway) hides(s *Server, t *sdk.Tool) bool {
	_, known := s.pack.Tools[t.Name]
	return !known && g.config.Unknown == RefuseUnknown && !(g.config.TrustHints && hinted(t))
}

// sayHidden says to people, and returns for the agent, which tools of a server are left out; empty:
// none is.
func (g *Gateway) sayHidden(s *Server, tools []*sdk.Tool) string {
	var names []string
	for _, t := range tools {
		if g.hides(s, t) {
			names = append(names, t.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	g.logger.Warn("tools are hidden: no contract says how their calls are undone. Give one with "+
		"--pack, or let calls of them through with --unknown ask or record; sagenbaum mcp doctor says "+
		"more", "server", s.Name(), "tools", names)
	const shown = 20
	more := ""
	if len(names) > shown {
		names, more = names[:shown], ", ..."
	}
	return "Tools of the server " + s.Name() + " that cannot be called here, because nothing says " +
		"how their calls are undone: " + strings.Join(names, ", ") + more +
		". A person can change that where this gateway is configured."
}

// Unused says of packs that were given for other servers than those that have started; empty: there
// are none.
func Unused(servers []*Server) string {
	given, there := map[string]bool{}, map[string]bool{}
	for _, s := range servers {
		for _, pack := range s.config.Packs {
			given[pack.Server] = true
		}
		there[fmt.Sprintf("%q", s.Introduced())] = true
	}
	var unused []string
	for _, name := range sortedKeys(given) {
		if quoted := fmt.Sprintf("%q", name); !there[quoted] {
			unused = append(unused, quoted)
		}
	}
	if len(unused) == 0 {
		return ""
	}
	return "there is a pack for server " + strings.Join(unused, ", ") + ", which is not used: what " +
		"is here calls itself " + strings.Join(sortedKeys(there), ", ")
}

func hinted(t *sdk.Tool) bool { return t.Annotations != nil && t.Annotations.ReadOnlyHint }

// remember keeps what a server has said of its tools.
func (s *Server) remember(tools []*sdk.Tool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed, s.hints = map[string]bool{}, map[string]bool{}
	s.schemas = map[string]json.RawMessage{}
	called := s.pack.tools()
	for _, t := range tools {
		s.listed[t.Name], s.hints[t.Name] = true, hinted(t)
		if called[t.Name] {
			s.schemas[t.Name] = memberOf(rawOf(t.Meta), "inputSchema")
		}
	}
}

// has reports whether the server has a tool; one that was not there is looked for again.
func (s *Server) has(ctx context.Context, tool string) (bool, error) {
	s.mu.Lock()
	there := s.listed[tool]
	s.mu.Unlock()
	if there {
		return true, nil
	}
	tools, err := s.Tools(ctx)
	if err != nil {
		return false, wired(err)
	}
	s.remember(tools)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listed[tool], nil
}

// readOnly reports whether a tool says that it has no effect.
func (g *Gateway) readOnly(s *Server, tool string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hints[tool]
}

// listed reports whether the tool was there when the gateway began.
func (g *Gateway) listed(s *Server, tool string) bool { return s.first[tool] }

func (g *Gateway) listResources(ctx context.Context) (sdk.Result, error) {
	list := []json.RawMessage{}
	for _, session := range g.sessions(ctx, isResource) {
		texts, err := itemsOf("resources", func(cursor string) (sdk.Result, string, error) {
			page, err := session.ListResources(ctx, &sdk.ListResourcesParams{Cursor: cursor})
			if err != nil {
				return nil, "", err
			}
			return page, page.NextCursor, nil
		})
		if err != nil {
			return nil, err
		}
		list = append(list, texts...)
	}
	text, err := encode(map[string]any{"resources": list})
	return asWritten{&sdk.ListResourcesResult{}, text}, err
}

func (g *Gateway) listTemplates(ctx context.Context) (sdk.Result, error) {
	const member = "resourceTemplates"
	list := []json.RawMessage{}
	for _, session := range g.sessions(ctx, isResource) {
		texts, err := itemsOf(member, func(cursor string) (sdk.Result, string, error) {
			page, err := session.ListResourceTemplates(ctx,
				&sdk.ListResourceTemplatesParams{Cursor: cursor})
			if err != nil {
				return nil, "", err
			}
			return page, page.NextCursor, nil
		})
		var wire *jsonrpc.Error
		if errors.As(err, &wire) && wire.Code == jsonrpc.CodeMethodNotFound {
			continue // it has resources, and no templates
		}
		if err != nil {
			return nil, err
		}
		list = append(list, texts...)
	}
	text, err := encode(map[string]any{member: list})
	return asWritten{&sdk.ListResourceTemplatesResult{}, text}, err
}

func (g *Gateway) listPrompts(ctx context.Context) (sdk.Result, error) {
	list := []json.RawMessage{}
	for _, s := range g.config.Servers {
		session, err := s.live(ctx)
		if err != nil {
			return nil, err
		}
		if c := session.InitializeResult().Capabilities; c == nil || c.Prompts == nil {
			continue
		}
		texts, err := itemsOf("prompts", func(cursor string) (sdk.Result, string, error) {
			page, err := session.ListPrompts(ctx, &sdk.ListPromptsParams{Cursor: cursor})
			if err != nil {
				return nil, "", err
			}
			return page, page.NextCursor, nil
		})
		if err != nil {
			return nil, err
		}
		for _, text := range texts {
			if text, err = g.renamed(s, text); err != nil {
				return nil, err
			}
			list = append(list, text)
		}
	}
	text, err := encode(map[string]any{"prompts": list})
	return asWritten{&sdk.ListPromptsResult{}, text}, err
}

// renamed is a prompt of a server under the name that clients call it by.
func (g *Gateway) renamed(s *Server, text json.RawMessage) (json.RawMessage, error) {
	var name string
	if err := json.Unmarshal(memberOf(text, "name"), &name); err != nil {
		return nil, fmt.Errorf("cannot read the name of a prompt of %s: %w", s.Name(), err)
	}
	shown := g.shown(s, name)
	if shown == name {
		return text, nil
	}
	value, err := encode(shown)
	if err != nil {
		return nil, err
	}
	return withValue(text, "name", value)
}

// itemsOf are the texts of what a server lists, on all pages. page asks for the one at a cursor,
// and returns the cursor of the next; empty: it is the last one.
func itemsOf(member string, page func(cursor string) (sdk.Result, string, error)) (
	list []json.RawMessage, err error) {
	for cursor := ""; ; {
		result, next, err := page(cursor)
		if err != nil {
			return nil, wired(err)
		}
		if said := memberOf(rawOf(result.GetMeta()), member); len(said) > 0 {
			var texts []json.RawMessage
			if err := json.Unmarshal(said, &texts); err != nil {
				return nil, fmt.Errorf("cannot read the %s that a server lists: %w", member, err)
			}
			list = append(list, texts...)
		}
		if next == "" {
			return list, nil
		}
		cursor = next
	}
}

func (g *Gateway) getPrompt(ctx context.Context, params *sdk.GetPromptParams) (sdk.Result, error) {
	s, name := g.route(params.Name)
	if s == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams,
			Message: fmt.Sprintf("unknown prompt %q", params.Name)}
	}
	session, err := s.live(ctx)
	if err != nil {
		return nil, err
	}
	text, err := passedOn(rawOf(params.Meta), params, map[string]any{"name": name})
	if err != nil {
		return nil, err
	}
	result, err := session.GetPrompt(ctx, &sdk.GetPromptParams{Name: name, Meta: asMeta(text)})
	if err != nil {
		return nil, wired(err)
	}
	return written(result)
}

// listen has what a server says by itself go to the clients, once there may be some: it may speak
// while another one is being started.
func (g *Gateway) listen(s *Server, options *sdk.ClientOptions) {
	tell := func(how func(*sdk.Server)) {
		if front := g.front.Load(); front != nil {
			how(front)
		}
	}
	options.ToolListChangedHandler = func(context.Context, *sdk.ToolListChangedRequest) {
		tell(func(front *sdk.Server) {
			front.AddTool(&sdk.Tool{Name: unlisted, InputSchema: map[string]any{"type": "object"}}, nil)
			front.RemoveTools(unlisted) // either has the SDK say so to all clients, once
		})
	}
	options.PromptListChangedHandler = func(context.Context, *sdk.PromptListChangedRequest) {
		tell(func(front *sdk.Server) {
			front.AddPrompt(&sdk.Prompt{Name: unlisted}, nil)
			front.RemovePrompts(unlisted)
		})
	}
	options.ResourceListChangedHandler = func(context.Context, *sdk.ResourceListChangedRequest) {
		tell(func(front *sdk.Server) {
			const uri = "sagenbaum://unlisted"
			front.AddResource(&sdk.Resource{URI: uri, Name: unlisted}, nil)
			front.RemoveResources(uri)
		})
	}
	options.ResourceUpdatedHandler = func(ctx context.Context,
		req *sdk.ResourceUpdatedNotificationRequest) {
		tell(func(front *sdk.Server) {
			g.told(front.ResourceUpdated(ctx, req.Params))
		})
	}
	g.listenLogs(s, options)
	options.ProgressNotificationHandler = func(ctx context.Context,
		req *sdk.ProgressNotificationClientRequest) {
		defer s.said.goes()
		g.passProgress(ctx, req)
	}
	g.listenQuestions(s, options)
}

func (g *Gateway) told(err error) {
	if err != nil {
		g.logger.Debug("a client did not take what its server said", "error", err)
	}
}

// during notes whose call is under way, and gives its progress a token of the gateway's own.
func (g *Gateway) during(ctx context.Context, r *request) (release func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	call := &underWay{session: r.session, stream: context.WithoutCancel(ctx)}
	own, meta := "", memberOf(r.params, "_meta")
	if token := memberOf(meta, "progressToken"); len(token) > 0 {
		g.tokens++
		own = fmt.Sprintf("call-%d", g.tokens)
		if meta, err = withValue(meta, "progressToken", json.RawMessage(strconv.Quote(own))); err == nil {
			r.params, err = withValue(r.params, "_meta", meta)
		}
		if err != nil {
			return nil, err
		}
		r.token = token
		g.progress[own] = &progress{call: call, token: token}
	}
	g.calling[r.server] = append(g.calling[r.server], call)
	server := r.server
	return func() {
		server.said.await()
		call.ended.Store(true)
		g.mu.Lock()
		defer g.mu.Unlock()
		list := g.calling[server]
		if i := slices.Index(list, call); i >= 0 {
			g.calling[server] = slices.Delete(list, i, i+1)
		}
		if own != "" {
			time.AfterFunc(progressLate, func() { g.forget(own) })
		}
	}, nil
}

func (g *Gateway) forget(token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.progress, token)
}

// passProgress passes progress on to the client whose call it is of.
func (g *Gateway) passProgress(ctx context.Context, req *sdk.ProgressNotificationClientRequest) {
	token, _ := req.Params.ProgressToken.(string)
	g.mu.Lock()
	p := g.progress[token]
	g.mu.Unlock()
	if p == nil {
		return
	}
	text, err := withValue(rawOf(req.Params.Meta), "progressToken", p.token)
	if err == nil {
		err = tell(ctx, []*underWay{p.call}, func(ctx context.Context) error {
			return say(ctx, p.call.session, progressMethod, text)
		})
	}
	g.told(err)
}

// Contracts says what the gateway would do about a tool: its class and fidelity; known is false
// for a tool without a contract.
func (s *Server) Contract(
	tool string,
) (class contract.Class, fidelity contract.Fidelity, known bool) {
	t, known := s.pack.Tools[tool]
	return t.Class, t.Fidelity, known
}
