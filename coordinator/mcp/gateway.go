package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Unknown says what becomes of tools without a contract.
type Unknown string

// What becomes of them. The default is RefuseUnknown.
const (
	RefuseUnknown Unknown = "refuse" // they are hidden, and a call is refused
	AskUnknown    Unknown = "ask"    // each call is irreversible and needs a person's yes
	RecordUnknown Unknown = "record" // each call is irreversible, and recorded as such
)

// Disconnect says what becomes of a connection's plan when its client goes.
type Disconnect string

// What becomes of it. The default is LeavePlan.
const (
	LeavePlan  Disconnect = "leave"  // it stays open until its deadline, and is undone then
	CommitPlan Disconnect = "commit" // it is committed
	FailPlan   Disconnect = "fail"   // it is undone at once
)

// Config is what New needs.
type Config struct {
	Conn   *nats.Conn // required; the caller keeps it and closes it after Close
	Tenant string     // required
	Agent  string     // required

	Servers []*Server // required: each with a name of its own; New starts them, Close ends them

	Unknown      Unknown
	TrustHints   bool          // tools without a contract that say readOnlyHint have no effect
	Deadline     time.Duration // of plans that name none; default DeadlineDefault
	OnDisconnect Disconnect

	// Stateless has Handler serve clients of the protocol without sessions as well, 2026-07-28. Their
	// calls name their plan, since no connection does.
	Stateless bool

	// ServeUndos has the gateway carry out the undos of its servers while it runs, beside the
	// workers that do so when it is gone.
	ServeUndos bool

	// Worker is the command line of what makes the undos that ServeUndos leaves, which is named where
	// an undo waits for it; empty: none is known.
	Worker string

	Logger *slog.Logger // default none
}

// Gateway is between MCP clients and servers. It is safe for concurrent use. Close it.
type Gateway struct {
	config  Config
	logger  *slog.Logger
	rooting *rooting
	agent   *coordinator.Coordinator
	work    *worker.Worker             // nil: undos are not served
	front   atomic.Pointer[sdk.Server] // nil until the servers have started
	plain   *sdk.Server                // of clients without sessions; nil: they are not served
	plans   *plans
	prefix  string // of the gateway's own tools, where a server has one of the same name

	remote     atomic.Bool  // clients come over HTTP
	level      atomic.Value // an sdk.LoggingLevel: of the logs that a client wants; nil: none has said
	subscribed *subscribed

	patience time.Duration // of the tools that undo

	life context.Context // of calls; ended by Close
	halt context.CancelFunc

	closing sync.Once
	closed  error // of Close

	mu       sync.Mutex
	befores  map[string]json.RawMessage // by plan and action, while the call runs
	progress map[string]*progress       // by the token that a server was given
	tokens   int                        //
	calling  map[*Server][]*underWay    // in the order in which they have begun
}

// progress is whose call a token of progress is.
type progress struct {
	call  *underWay
	token json.RawMessage
}

// New starts the servers, finds their packs and connects to the ledger. Errors: *ledger.Refused,
// those of a server that does not start, and as of coordinator.New.
func New(ctx context.Context, config Config) (*Gateway, error) {
	if err := checkConfig(&config); err != nil {
		return nil, fmt.Errorf("cannot start gateway: %w", err)
	}
	g := &Gateway{config: config, logger: cmp.Or(config.Logger, slog.New(slog.DiscardHandler)),
		rooting: newRooting(), befores: map[string]json.RawMessage{}, progress: map[string]*progress{},
		calling: map[*Server][]*underWay{}, subscribed: newSubscribed(), patience: undoWait}
	if !config.ServeUndos {
		g.patience = undoElsewhere
	}
	g.life, g.halt = context.WithCancel(context.Background())
	g.plans = newPlans(g)
	if err := g.start(ctx); err != nil {
		return nil, fmt.Errorf("cannot start gateway: %w", errors.Join(err, g.Close()))
	}
	return g, nil
}

func checkConfig(config *Config) error {
	config.Unknown = cmp.Or(config.Unknown, RefuseUnknown)
	config.OnDisconnect = cmp.Or(config.OnDisconnect, LeavePlan)
	config.Deadline = cmp.Or(config.Deadline, DeadlineDefault)
	switch {
	case config.Conn == nil:
		return ledger.Refuse("config.conn", "missing", "a connection to NATS")
	case len(config.Servers) == 0 || len(config.Servers) > ServersMax:
		return ledger.Refuse("config.servers", fmt.Sprint(len(config.Servers)),
			fmt.Sprintf("1 to %d servers", ServersMax))
	case config.Unknown != RefuseUnknown && config.Unknown != AskUnknown &&
		config.Unknown != RecordUnknown:
		return ledger.Refuse("config.unknown", fmt.Sprintf("%q", config.Unknown),
			"refuse, ask or record")
	case config.OnDisconnect != LeavePlan && config.OnDisconnect != CommitPlan &&
		config.OnDisconnect != FailPlan:
		return ledger.Refuse("config.on_disconnect", fmt.Sprintf("%q", config.OnDisconnect),
			"leave, commit or fail")
	}
	if err := ledger.CheckSpan("config.deadline", config.Deadline, ledger.DurationMax); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, s := range config.Servers {
		if names[s.Name()] {
			return ledger.Refuse("config.servers", s.Name()+" is given twice", "a name for each")
		}
		names[s.Name()] = true
	}
	return nil
}

func (g *Gateway) start(ctx context.Context) error {
	var contracts []contract.Contract
	answers := map[string]coordinator.Answer{}
	for _, s := range g.config.Servers {
		s.front = g
		if err := s.Start(ctx); err != nil {
			return err
		}
		tools, err := s.Tools(ctx)
		if err != nil {
			return err
		}
		for _, t := range tools {
			if g.isOwn(g.shown(s, t.Name)) {
				g.prefix = ownPrefix
			}
		}
		s.remember(tools)
		s.first, s.hidden = s.listed, g.sayHidden(s, tools)
		if err := s.pack.Has(tools); err != nil {
			return err
		}
		own, err := g.contracts(s, tools)
		if err != nil {
			return err
		}
		contracts = append(contracts, own...)
		for name, t := range s.pack.Tools {
			if t.Before != nil {
				answers[s.question(name)] = g.answer(s, name, t)
			}
		}
	}
	if unused := Unused(g.config.Servers); unused != "" {
		g.logger.Warn(unused)
	}
	var err error
	if g.agent, err = coordinator.New(coordinator.Config{Conn: g.config.Conn, Tenant: g.config.Tenant,
		Agent: g.config.Agent, Contracts: contracts, Answers: answers, Logger: g.logger}); err != nil {
		return err
	}
	g.serve()
	if !g.config.ServeUndos {
		return nil
	}
	if g.work, err = worker.New(worker.Config{Conn: g.config.Conn, Tenant: g.config.Tenant,
		Name: g.config.Agent, Logger: g.logger}); err != nil {
		return err
	}
	for _, s := range g.config.Servers {
		if err := s.Serve(g.work); err != nil {
			return err
		}
	}
	return nil
}

// unlisted is the tool in the place of those that a server did not have when it was started.
const unlisted = "unlisted"

// contracts are those of the tools of a server: of its pack, and irreversible for the others.
func (g *Gateway) contracts(s *Server, tools []*sdk.Tool) (list []contract.Contract, err error) {
	names := map[string]bool{unlisted: true}
	for _, t := range tools {
		names[t.Name] = true
	}
	for name := range s.pack.Tools {
		names[name] = true
	}
	for _, name := range sortedKeys(names) {
		t, ok := s.pack.Tools[name]
		if !ok {
			t = Tool{Class: contract.Irreversible}
		}
		if t.Class == contract.Effectless {
			continue // such calls are not registered
		}
		c, err := t.contract(s, name)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// answer answers what is asked before a call, in this process.
func (g *Gateway) answer(s *Server, name string, t Tool) coordinator.Answer {
	return func(ctx context.Context, question api.Command) (any, error) {
		var with struct {
			Input json.RawMessage `json:"input"`
		}
		if err := json.Unmarshal(question.Arguments, &with); err != nil {
			return nil, err
		}
		input, _, err := withoutRoots(with.Input)
		if err != nil {
			return nil, err
		}
		before, err := s.askFor(ctx, t, input)
		if err == nil {
			err = t.fits(name, with.Input, before)
		}
		if err != nil {
			return nil, err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.befores[question.Plan+" "+question.Action] = before
		return before, nil
	}
}

// forgetBefore lets go of what was asked before the calls of a plan that were not made. One that
// its client has given up while it waited for a verdict may be made still, until then.
func (g *Gateway) forgetBefore(plan string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key := range g.befores {
		if strings.HasPrefix(key, plan+" ") {
			delete(g.befores, key)
		}
	}
}

// before takes what was there before a call.
func (g *Gateway) before(call coordinator.Call) json.RawMessage {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := call.Plan + " " + call.Action
	before := g.befores[key]
	delete(g.befores, key)
	return before
}

// errUnreached says that no call with an effect can be recorded.
var errUnreached = errors.New("the ledger, in which the call is recorded first, cannot be " +
	"reached: is sagenbaum serve still running?")

// reached waits a while for the connection to the ledger where it is lost. Errors: errUnreached.
func (g *Gateway) reached(ctx context.Context) error {
	conn := g.config.Conn
	if conn.IsConnected() {
		return nil
	}
	back := conn.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer conn.RemoveStatusListener(back)
	late := time.NewTimer(reachWait)
	defer late.Stop()
	for !conn.IsConnected() {
		select {
		case <-back:
			if conn.IsClosed() {
				return errUnreached
			}
		case <-late.C:
			return errUnreached
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Serve serves one client until it goes, or ctx ends, which counts as if it went then; and a call
// with an effect that waits is not made any more. With FailPlan it then waits until its plans are
// undone, for at most leaveWait. Errors: those of the connection, and which calls stand.
func (g *Gateway) Serve(ctx context.Context, transport sdk.Transport) error {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	gone := func() { time.AfterFunc(endTime, cancel) }
	session, err := g.front.Load().Connect(context.WithValue(ctx, servingKey{}, ctx),
		watched{transport, g.logger, gone}, nil)
	if err != nil {
		return fmt.Errorf("cannot serve the client: %w", err)
	}
	g.plans.comes()
	defer g.plans.goes()
	stop := context.AfterFunc(late, func() { _ = session.Close() }) // it may be closed already
	defer stop()
	err = session.Wait()
	_, stand := g.plans.left(session)
	if err != nil && cmp.Or(ctx.Err(), late.Err()) == nil {
		return errors.Join(fmt.Errorf("the connection to the client has ended: %w", err), stand)
	}
	return stand
}

// servingKey is where the context of a request has that of Serve, which does not end requests.
type servingKey struct{}

// serving ends where Serve is to end; over HTTP it does not.
func serving(ctx context.Context) context.Context {
	if whole, ok := ctx.Value(servingKey{}).(context.Context); ok {
		return whole
	}
	return context.Background()
}

// errEnds is why a call is not made that has waited until now.
var errEnds = errors.New("the gateway is being ended")

// watched is a transport that says when its client has gone.
type watched struct {
	sdk.Transport
	logger *slog.Logger
	gone   func()
}

// Connect connects as the transport below does.
func (t watched) Connect(ctx context.Context) (sdk.Connection, error) {
	conn, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &watchedConnection{Connection: conn, logger: t.logger, gone: t.gone, serving: ctx,
		open: map[jsonrpc.ID]string{}, asked: map[jsonrpc.ID]bool{}, moved: make(chan struct{}, 1)}, nil
}

type watchedConnection struct {
	sdk.Connection
	logger  *slog.Logger
	gone    func()
	serving context.Context // once it ends, nothing more is read
	late    *time.Timer     // runs once the client has gone

	mu    sync.Mutex
	open  map[jsonrpc.ID]string // the methods of requests of the client that are not answered
	asked map[jsonrpc.ID]bool   // requests to the client that it has not answered
	ended error                 // why nothing more comes from the client; nil: it may
	moved chan struct{}         // buffered 1: one of these has changed
}

// Read returns the next message. The end comes when all that was asked before is answered, or after
// a while: the SDK drops what is still to be answered then, and a client that has said all that it
// has to say may wait for it.
func (c *watchedConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	if c.ended != nil { // written here alone
		return c.finish(ctx)
	}
	message, err := readable(c.serving, c.Connection)
	if err != nil {
		c.gone()
		c.late = time.NewTimer(endTime)
		c.mu.Lock()
		c.ended = err
		c.mu.Unlock()
		return c.finish(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	giveText(message, rawMethods)
	switch m := message.(type) {
	case *jsonrpc.Request:
		if m.ID.IsValid() {
			c.open[m.ID] = m.Method
		}
	case *jsonrpc.Response:
		delete(c.asked, m.ID)
	}
	return message, nil
}

// finish waits until nothing is left to answer, for at most endTime since the client has gone, and
// says for the client that it answers nothing any more.
func (c *watchedConnection) finish(ctx context.Context) (jsonrpc.Message, error) {
	for {
		c.mu.Lock()
		open := slices.Sorted(maps.Values(c.open))
		for id := range c.asked {
			delete(c.asked, id)
			c.mu.Unlock()
			return &jsonrpc.Response{ID: id, Error: &jsonrpc.Error{Code: jsonrpc.CodeInternalError,
				Message: "the client has gone"}}, nil
		}
		c.mu.Unlock()
		if len(open) == 0 {
			return nil, c.ended
		}
		select {
		case <-c.moved:
			continue
		case <-c.late.C:
		case <-ctx.Done():
		}
		c.logger.Warn("the client has gone, and what it has asked is given up", "requests", open)
		return nil, c.ended
	}
}

// Write sends a message. A request to a client that has gone is not sent: Read says that there is
// no answer.
func (c *watchedConnection) Write(ctx context.Context, message jsonrpc.Message) error {
	if r, ok := message.(*jsonrpc.Request); ok && r.ID.IsValid() {
		c.mu.Lock()
		c.asked[r.ID] = true
		ended := c.ended != nil
		c.mu.Unlock()
		if ended {
			c.move()
			return nil
		}
	}
	err := c.Connection.Write(ctx, message)
	if r, ok := message.(*jsonrpc.Response); ok {
		c.mu.Lock()
		delete(c.open, r.ID)
		c.mu.Unlock()
		c.move()
	}
	return err
}

// move has finish look again.
func (c *watchedConnection) move() {
	select {
	case c.moved <- struct{}{}:
	default:
	}
}

// Close has the clients go, and then ends the servers and the connection to the ledger. Errors:
// what of the plans of clients that came over HTTP is not undone, or is not known to be, and what
// has not ended well. Called again, it returns the same.
func (g *Gateway) Close() error {
	g.closing.Do(func() { g.closed = g.close() })
	return g.closed
}

func (g *Gateway) close() error {
	g.halt()
	errs := []error{g.dismiss(), g.plans.stand()}
	g.plans.forgetAll()
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	if g.work != nil {
		errs = append(errs, g.work.Close(ctx))
	}
	if g.agent != nil {
		errs = append(errs, g.agent.Close(ctx))
	}
	for _, s := range g.config.Servers {
		s.Close()
	}
	return errors.Join(errs...)
}

// clients are the sessions of those that are there.
func (g *Gateway) clients() []*sdk.ServerSession {
	front := g.front.Load()
	if front == nil {
		return nil
	}
	return slices.Collect(front.Sessions())
}

// dismiss ends the connections of all clients, and waits until their plans are seen to.
func (g *Gateway) dismiss() error {
	for _, session := range g.clients() {
		_ = session.Close() // it may be closed already
	}
	late := time.NewTimer(2*endTime + leaveWait)
	defer late.Stop()
	select {
	case <-g.plans.empty():
		return nil
	case <-late.C:
		return errors.New("not all clients have gone: what their plans have done may stand")
	}
}
