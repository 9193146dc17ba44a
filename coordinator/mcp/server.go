package mcp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp/files"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/rawjson"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// ServerConfig says how a server is started and what is done about its tools.
type ServerConfig struct {
	Name    string            // required: the first word of its capabilities
	Command string            // required, or URL
	Args    []string          //
	Env     map[string]string // beside that of this process without its SAGENBAUM_ variables
	Errors  io.Writer         // what it writes to stderr; default none

	// URL is where a server is reached that is not started: streamable HTTP over https, or over
	// http on this machine. What undoes its effects goes by all of it.
	URL string

	// Headers go with each request to URL. They are in no record, log or error.
	Headers map[string]string

	// Inherited is beside Env, and no part of the default of Instance: a gateway has it from its
	// own client, and does not know of it.
	Inherited map[string]string

	// Instance names what undoes its effects, the same in every process that reaches the same
	// data; default from the name, the folder State, the command line, Roots, and the variables
	// that packs name.
	Instance string

	// Roots are the folders in which the undos of a pack with files work; default those among
	// the arguments.
	Roots []string

	// State is the folder of images, trash and locks. Required.
	State string

	// Settle is how long a call that was given up may take to land, as after a time-out: in
	// doubt, it is undone then. Where it has not answered after a quarter of it, the server is
	// told; after half of it, it is ended, but for one at a URL.
	// Up to ledger.SettleMax; default SettleDefault, at a URL SettleRemote.
	Settle time.Duration

	Packs  []Pack // beside the built-in ones, and before them
	Logger *slog.Logger
}

// Server is an MCP server that runs as a child of this process, or is at a URL. It is safe for
// concurrent use. Close it.
type Server struct {
	config   ServerConfig
	instance string

	packs  []Pack
	x      *expressions
	logger *slog.Logger
	guard  *lock
	front  *Gateway // gets what the server says by itself; nil for a worker
	said   passing
	calls  *calls
	named  atomic.Int64 // calls that were given a name
	rest   rest         // of a server that runs while it is needed
	last   *lastLine    // that such a one has said; nil: it is not kept

	mu      sync.Mutex
	session *sdk.ClientSession // nil before Start, and after it has ended
	now     atomic.Pointer[connected]
	client  *sdk.Client // of session
	child   program
	ended   chan struct{} // of session
	closed  bool

	instead func() program // of tests, in place of the command; nil: the command

	pack    Pack // set by Start
	version string

	roots atomic.Pointer[roots] // of its client, changed with guard
	files *files.Files          // changed with guard, after Start; nil: see lost
	lost  error                 // why there are no files

	first  map[string]bool // the tools that were there when the gateway began
	hidden string          // what the agent is told of those that are left out; empty: none is
	listed map[string]bool // and at the last look; guarded by mu
	hints  map[string]bool // those of them that say that they have no effect

	schemas map[string]json.RawMessage // what those of them take that undos call
}

// NewServer checks the configuration; Start starts the server. Errors: *ledger.Refused.
func NewServer(config ServerConfig) (*Server, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	settle := SettleDefault
	if config.URL != "" {
		settle = SettleRemote
	}
	config.Settle = cmp.Or(config.Settle, settle)
	packs, err := BuiltIn()
	if err != nil {
		return nil, err
	}
	s := &Server{config: config, packs: append(packs, config.Packs...), x: newExpressions(),
		calls:  &calls{},
		logger: cmp.Or(config.Logger, slog.New(slog.DiscardHandler))}
	lock := config.Instance
	if s.instance = lock; lock == "" {
		here, err := place(config.State)
		if err != nil {
			return nil, err
		}
		s.instance, lock = config.instance(here, s.packs)
	}
	s.guard, err = newLock(filepath.Join(config.State, lock+".lock"))
	return s, err
}

// Check refuses what no server can be made of, without a trace. Errors: *ledger.Refused.
func (c ServerConfig) Check() error {
	switch {
	case !ledger.ValidToken(c.Name):
		return ledger.Refuse("servers", fmt.Sprintf("%q is not a name", c.Name),
			"1 to 64 letters, digits, '-' or '_'")
	case c.Command == "" && c.URL == "":
		return ledger.Refuse("servers."+c.Name+".command", "missing", "a program, or a url")
	case c.State == "":
		return ledger.Refuse("servers."+c.Name+".state", "missing", "a folder")
	case c.Instance != "" && (!ledger.ValidToken(c.Instance) ||
		len(c.Instance) > ledger.TokenLenMax-len(undoPrefix)):
		return ledger.Refuse("servers."+c.Name+".instance",
			fmt.Sprintf("%q is not a name", c.Instance), "1 to 60 letters, digits, '-' or '_'")
	}
	err := ledger.CheckSpan("servers."+c.Name+".settle", c.Settle, ledger.SettleMax)
	if err == nil && c.URL != "" {
		err = c.checkURL()
	}
	return err
}

// undoPrefix begins the capabilities of what undoes the effects of servers.
const undoPrefix = "mcp."

// Name is what the configuration calls the server.
func (s *Server) Name() string { return s.config.Name }

// State is the folder of its images, trash and locks.
func (s *Server) State() string { return s.config.State }

// Introduced is what a server that was started calls itself.
func (s *Server) Introduced() string { return s.pack.Server }

// Version is that of a server that was started, as it says; it need not be that of its package.
func (s *Server) Version() string { return s.version }

// Pack is that of a server that was started; without tools, where none matches it.
func (s *Server) Pack() Pack { return s.pack }

// Undo is the capability that undoes the effects of the server's tools.
func (s *Server) Undo() string { return undoPrefix + s.instance }

// Capability is that of one of its tools.
func (s *Server) Capability(
	tool string,
) string {
	return bounded(s.config.Name + "." + token(tool))
}

// Delivery is the capability under which calls of one of its tools are staged, and made once their
// plan is committed.
func (s *Server) Delivery(tool string) string { return s.question(tool) }

// Deliveries are the capabilities under which calls are staged, as far as is known: of the pack of
// a server that was started, of any pack that may be that of another one.
func (s *Server) Deliveries() (list []string) {
	packs := s.packs
	if s.pack.Server != "" {
		packs = []Pack{s.pack}
	}
	for _, name := range deliveries(packs) {
		list = append(list, s.Delivery(name))
	}
	return list
}

// question is the capability of what is asked before a call of a tool.
func (s *Server) question(tool string) string {
	return bounded(s.Undo() + "." + token(tool))
}

// token makes the name of a tool one that may be a part of a capability.
func token(name string) string {
	safe := strings.Map(func(r rune) rune {
		if r < 0x80 && ledger.ValidToken(string(r)) {
			return r
		}
		return '_'
	}, name)
	if safe == name {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return safe[:min(len(safe), 32)] + "_" + hex.EncodeToString(sum[:3])
}

// bounded keeps a capability as short as it must be.
func bounded(name string) string {
	if len(name) <= ledger.TokenLenMax {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	short := strings.TrimRight(name[:ledger.TokenLenMax-9], ".")
	return short + "_" + hex.EncodeToString(sum[:4])
}

// Start starts the server and finds its pack. Errors: *ledger.Refused, or those of the child.
func (s *Server) Start(ctx context.Context) error {
	session, err := s.live(ctx)
	if err != nil {
		return err
	}
	info := session.InitializeResult()
	name := s.config.Name
	if info.ServerInfo != nil {
		name, s.version = info.ServerInfo.Name, info.ServerInfo.Version
	}
	if s.pack, err = matching(s.packs, name); err != nil {
		return err
	}
	s.files, s.lost = s.filesIn(s.roots.Load())
	if s.pinned() {
		return s.lost
	}
	return nil // its client may have roots that are there
}

// live returns the session, and starts the server where it is not running.
func (s *Server) live(ctx context.Context) (*sdk.ClientSession, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != nil {
		select {
		case <-s.ended:
			s.logger.Warn("the server has ended, and is started again", "server", s.config.Name)
			s.child.End()
			go func(ended *sdk.ClientSession) { _ = ended.Close() }(s.session) // what it has under way
		default:
			return s.session, nil
		}
	}
	if s.closed {
		return nil, fmt.Errorf("server %s: %w", s.config.Name, sdk.ErrConnectionClosed)
	}
	session, client, process, err := s.connect(ctx)
	switch {
	case err != nil && s.remote():
		return nil, fmt.Errorf("cannot reach server %s: %w", s.config.Name, err)
	case err != nil:
		return nil, fmt.Errorf("cannot start server %s (%s): %w", s.config.Name, s.config.Command, err)
	}
	ended := make(chan struct{})
	go func() { // ends with the session
		if err := session.Wait(); err != nil {
			s.logger.Warn("the connection to the server has ended", "server", s.config.Name, "error", err)
		}
		close(ended)
	}()
	again := s.session != nil
	s.session, s.client, s.child, s.ended = session, client, process, ended
	s.now.Store(&connected{session, ended})
	if again && s.front != nil {
		go s.front.resubscribe(s, session) // ends with the gateway, or the session
	}
	return session, nil
}

// ownVariables begin the names of the gateway's variables: some are tokens, credentials and keys.
const ownVariables = "SAGENBAUM_"

// environment is that of the child, on a machine with the variables given: without those of this
// gateway, of which a server gets what Env names.
func (c ServerConfig) environment(given []string) []string {
	for _, name := range sortedKeys(c.Inherited) {
		given = append(given, name+"="+c.Inherited[name])
	}
	env := slices.DeleteFunc(given, func(entry string) bool {
		return strings.HasPrefix(entry, ownVariables)
	})
	for _, name := range sortedKeys(c.Env) {
		env = append(env, name+"="+c.Env[name])
	}
	return env
}

// version is what this gateway says of itself.
const version = "1"

// Close ends the server: its input ends first, then all its processes are killed.
func (s *Server) Close() {
	s.mu.Lock()
	session, process := s.session, s.child
	s.closed = true
	s.mu.Unlock()
	s.stop(session, process)
	s.guard.close()
}

// stop ends a session and the child that it is with; nil: there is none.
func (s *Server) stop(session *sdk.ClientSession, process program) {
	if session == nil {
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- session.Close() }() // ends with the child at the latest
	late := time.NewTimer(2 * closeTime)
	defer late.Stop()
	var err error
	select {
	case err = <-ended:
		process.End()
	case <-late.C: // it waits for a call that the server does not answer
		process.End()
		if !s.remote() { // else the call ends by itself
			err = <-ended
		}
	}
	if err != nil {
		s.logger.Debug("the server did not end well", "server", s.config.Name, "error", err)
	}
}

// Tools lists the tools of the server, which may take as long as it may take to start.
func (s *Server) Tools(ctx context.Context) ([]*sdk.Tool, error) {
	session, err := s.live(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTime,
		fmt.Errorf("no answer within %s", startTime))
	defer cancel()
	if capable := session.InitializeResult().Capabilities; capable == nil || capable.Tools == nil {
		return nil, nil
	}
	var tools []*sdk.Tool
	params := &sdk.ListToolsParams{}
	for range pageMax {
		page, err := session.ListTools(ctx, params)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return nil, fmt.Errorf("cannot list the tools of %s: %w", s.config.Name, err)
		}
		if err := rawTools(page); err != nil {
			return nil, fmt.Errorf("cannot list the tools of %s: %w", s.config.Name, err)
		}
		tools = append(tools, page.Tools...)
		if page.NextCursor == "" {
			return tools, nil
		}
		params.Cursor = page.NextCursor
	}
	return nil, fmt.Errorf("cannot list the tools of %s: more than %d pages", s.config.Name, pageMax)
}

// rawTools gives each tool of a list its text.
func rawTools(page *sdk.ListToolsResult) error {
	if len(page.Tools) == 0 {
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(memberOf(rawOf(page.Meta), "tools"), &list); err != nil {
		return err
	}
	at := 0 // the SDK leaves tools out that it takes for bad ones, and keeps the order of the others
	for _, t := range page.Tools {
		for ; at < len(list); at++ {
			var name string
			if json.Unmarshal(memberOf(list[at], "name"), &name) == nil && name == t.Name {
				break
			}
		}
		if at == len(list) {
			return fmt.Errorf("tool %s has no text", t.Name)
		}
		t.Meta = asMeta(list[at])
		at++
	}
	return nil
}

// errNotReached says that the server does not run, so that a call has not reached it.
var errNotReached = errors.New("the call has not reached its server")

// toolCall is what a server gets of a call: the text of its parameters.
type toolCall struct {
	tool   string
	params json.RawMessage
	name   string // that this process gives it, to cancel it; empty: it is not cancelled

	late func(*sdk.CallToolResult) // is given what is answered after it was given up; nil: nothing
}

// calling is a call of the gateway itself.
func calling(tool string, arguments json.RawMessage) (toolCall, error) {
	params, err := encode(map[string]any{"name": tool, "arguments": object(arguments)})
	return toolCall{tool: tool, params: params}, err
}

// call calls a tool with parameters as they are written. Errors: errNotReached, *jsonrpc.Error
// where the server answered with one, or those of the connection.
func (s *Server) call(ctx context.Context, c toolCall) (*sdk.CallToolResult, error) {
	session, result, err := s.send(ctx, c)
	if lost := (*unanswered)(nil); errors.As(err, &lost) && lost.expired {
		s.renew(ctx, session) // which the server has forgotten, so that it has done nothing
		session, result, err = s.send(ctx, c)
	}
	if lost := (*unanswered)(nil); errors.As(err, &lost) {
		return nil, lost.as()
	}
	if errors.Is(err, errGivenUp) {
		return nil, fmt.Errorf("%w: %w", errNotReached, errGivenUp)
	}
	if a, ok := largeAnswer(err); ok {
		return a.result(c.tool), nil
	}
	if err != nil {
		if session != nil && (errors.Is(err, sdk.ErrConnectionClosed) || errors.Is(err, io.EOF)) {
			s.await(ctx, session) // or the next call would find the same session
		}
		return nil, err
	}
	if said := memberOf(rawOf(result.Meta), "structuredContent"); len(said) > 0 {
		result.StructuredContent = said
	}
	return result, nil
}

// send calls a tool in the session that there is, or a new one; without a session the error says
// why it is missing.
func (s *Server) send(ctx context.Context, c toolCall) (*sdk.ClientSession, *sdk.CallToolResult,
	error) {
	session, err := s.live(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errNotReached, err)
	}
	meta := asMeta(c.params)
	if c.name != "" {
		meta[callKey] = c.name
	}
	result, err := session.CallTool(ctx, &sdk.CallToolParams{Name: c.tool, Meta: meta})
	return session, result, err
}

// renew ends a session, so that the next call begins another one.
func (s *Server) renew(ctx context.Context, session *sdk.ClientSession) {
	go func() { _ = session.Close() }() // ends soon: its server has forgotten it
	s.await(ctx, session)
}

// await waits until the end of a session is noted.
func (s *Server) await(ctx context.Context, session *sdk.ClientSession) {
	s.mu.Lock()
	ended := s.ended
	if s.session != session {
		ended = nil
	}
	s.mu.Unlock()
	if ended == nil {
		return
	}
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// readTries is how often a call without an effect is made where its server ends under it.
const readTries = 3

// read calls a tool that has no effect. Errors: as call.
func (s *Server) read(ctx context.Context, c toolCall) (*sdk.CallToolResult, error) {
	for try := 1; ; try++ {
		result, err := s.call(ctx, c)
		var wire *jsonrpc.Error
		if err == nil || try == readTries || ctx.Err() != nil || errors.As(err, &wire) {
			return result, err
		}
		s.logger.Info("a call without an effect is made again", "server", s.config.Name, "tool",
			c.tool, "error", err)
	}
}

// ask answers a question of a pack.
func (s *Server) ask(
	ctx context.Context,
	a Ask,
	vars triggers.BindingVars,
) (json.RawMessage, error) {
	with, err := s.x.object(a.With, vars)
	if err != nil {
		return nil, err
	}
	var answer json.RawMessage
	if a.Call != "" {
		if answer, err = s.builtIn(ctx, a.Call, with, ""); err != nil {
			return nil, err
		}
	} else {
		c, err := calling(a.Tool, with)
		if err != nil {
			return nil, err
		}
		result, err := s.read(ctx, c)
		if err != nil {
			return nil, err
		}
		if result.IsError {
			return nil, errors.New(value(text(result)))
		}
		answer = structured(result)
	}
	if len(a.Keep) > 0 {
		return s.x.keep(a.Keep, answer, vars)
	}
	return answer, nil
}

// structured is what expressions read of a result: its structured content, else its text, as JSON
// where it is that. One with a name twice is a text, in which nothing has a name: its tool may mean
// the one, and what undoes it read the other.
func structured(result *sdk.CallToolResult) json.RawMessage {
	said := answerOf(result)
	if _, twice := rawjson.Twice(said); !twice {
		return said
	}
	return jsonText(string(said))
}

// answerOf is what a result says, with names that are there twice as well.
func answerOf(result *sdk.CallToolResult) json.RawMessage {
	switch said := result.StructuredContent.(type) {
	case nil:
	case json.RawMessage:
		if len(said) > 0 {
			return said
		}
	default:
		if raw, err := encode(said); err == nil {
			return raw
		}
	}
	said := text(result)
	if trimmed := strings.TrimSpace(said); trimmed != "" && json.Valid([]byte(trimmed)) {
		return json.RawMessage(trimmed)
	}
	return jsonText(said)
}

// jsonText is a text in JSON.
func jsonText(text string) json.RawMessage {
	raw, err := encode(text)
	if err != nil {
		return json.RawMessage("null")
	}
	return raw
}

// text joins the texts of a result.
func text(result *sdk.CallToolResult) string {
	var texts []string
	for _, content := range result.Content {
		if t, ok := content.(*sdk.TextContent); ok {
			texts = append(texts, t.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// value clips what a server said to what is recorded.
func value(said string) string { return said[:min(len(said), errorMax)] }

// keep leaves the items of lists that are meant.
func (x *expressions) keep(rules map[string]Keep, answer json.RawMessage,
	vars triggers.BindingVars) (json.RawMessage, error) {
	var lists map[string]json.RawMessage
	if err := json.Unmarshal(answer, &lists); err != nil {
		return nil, fmt.Errorf("cannot keep a part of an answer that is no object: %w", err)
	}
	kept := map[string]any{}
	for _, name := range sortedKeys(rules) {
		like, err := x.value("="+strings.TrimPrefix(rules[name].Like, "="), vars)
		if err != nil {
			return nil, err
		}
		var items, wanted []json.RawMessage
		err = errors.Join(json.Unmarshal(like, &wanted), json.Unmarshal(lists[name], &items))
		if err != nil {
			return nil, fmt.Errorf("cannot keep a part of %s: %w", name, err)
		}
		meant := setOf(wanted, rules[name].By)
		left := slices.DeleteFunc(items, func(item json.RawMessage) bool {
			return !meant.has(item, rules[name].By, rules[name].Any)
		})
		kept[name] = append([]json.RawMessage{}, left...)
	}
	return encode(kept)
}
