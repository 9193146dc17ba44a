package worker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/sagenbaum/sagenbaum/coordinator/blob"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Appender appends commits to the tenant's ledger, as ledger.Store does.
type Appender interface {
	Append(ctx context.Context, a ledger.Append) (uint64, error)
}

// Config is what New needs.
type Config struct {
	Conn   *nats.Conn // required; the caller keeps it and closes it after Close
	Tenant string     // required
	Name   string     // required: the name in the subject of its reports

	// Appender, when set, takes the reports instead of Conn.
	Appender Appender

	// Version is what registrations name as worker_version. A command that asks for another version
	// is refused: nothing is done, and it goes on looking for a worker.
	Version string

	// Concurrency is how many handlers run at once; default 16, at most 4096.
	// Further commands wait.
	Concurrency int

	Logger *slog.Logger // default none
}

// Worker serves compensations and questions of one tenant. It is safe for concurrent use.
// Close it.
type Worker struct {
	conn     *nats.Conn
	appender Appender
	tenant   string
	name     string
	version  string
	logger   *slog.Logger
	unwatch  func()         // ends the watch over the connection
	unsent   atomic.Bool    // the last answer was given while there was no server
	lost     chan struct{}  // closed when the connection is closed for good
	lostErr  error          // set before lost is closed
	places   chan struct{}  // one element per handler that runs
	handlers sync.WaitGroup // goroutines of flights; each ends with its handler
	drained  sync.WaitGroup // subscriptions

	mu      sync.Mutex
	closed  bool
	term    uint64                        // highest seen with an undo
	subs    map[string]*nats.Subscription // by subject
	flights map[string]*flight            // by key
	said    map[string]time.Time          // when undos have told how far they are, by key
}

// flight is one run of a handler and those who wait for its answer. Of one key
// one flight runs; those with another purpose, as a question about an undo that is
// still at work, wait after it. The worker's mu guards both lists.
type flight struct {
	command api.Command
	ctx     context.Context
	cancel  context.CancelFunc
	serve   func(context.Context, api.Command) api.Reply
	waiting []asked
	behind  []*flight
}

// asked is one request for the answer of a flight. Attempts that overlap share the
// handler's run, and each is answered as itself.
type asked struct {
	msg     *nats.Msg
	attempt uint32
}

// same reports whether one answer serves both commands. Keys are no secret, and agents may
// ask: a question is the same only where it asks the same.
func (f *flight) same(c api.Command) bool {
	own := f.command
	if own.Purpose != c.Purpose || own.Capability != c.Capability {
		return false
	}
	asksSame := own.Plan == c.Plan && own.Action == c.Action && own.Forward == c.Forward &&
		own.ExternalRef == c.ExternalRef && bytes.Equal(own.Arguments, c.Arguments)
	return c.Purpose == ledger.PurposeUndo || asksSame
}

// ErrConnectionClosed means that the connection is closed for good: the program has closed it, or
// its client has given up. The worker gets no command any more; make another one over another
// connection.
var ErrConnectionClosed = jetstream.ErrConnectionClosed

// New checks the configuration. It subscribes nothing: Handle and Answer
// do.
// Errors: *ledger.Refused, ErrConnectionClosed.
func New(config Config) (*Worker, error) {
	const name = ledger.TokenWanted
	if config.Concurrency == 0 {
		config.Concurrency = ConcurrencyDefault
	}
	var err error
	switch {
	case config.Conn == nil:
		err = ledger.Refuse("config.conn", "missing", "a connection to NATS")
	case !ledger.ValidToken(config.Tenant):
		err = ledger.Refuse("config.tenant", fmt.Sprintf("%q is not a name", config.Tenant), name)
	case !ledger.ValidToken(config.Name):
		err = ledger.Refuse("config.name", fmt.Sprintf("%q is not a name", config.Name), name)
	case config.Concurrency < 0 || config.Concurrency > ConcurrencyMax:
		err = ledger.Refuse("config.concurrency", fmt.Sprint(config.Concurrency),
			fmt.Sprintf("1 to %d", ConcurrencyMax))
	case config.Conn.IsClosed():
		err = jetstream.Closed(config.Conn)
	case config.Appender == nil:
		config.Appender, err = jetstream.Attach(config.Conn, config.Tenant)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot start worker: %w", err)
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Worker{
		conn: config.Conn, lost: make(chan struct{}), appender: config.Appender,
		tenant: config.Tenant, name: config.Name, version: config.Version,
		logger: config.Logger, places: make(chan struct{}, config.Concurrency),
		subs: map[string]*nats.Subscription{}, flights: map[string]*flight{},
		said: map[string]time.Time{},
	}
	w.unwatch = jetstream.OnClosed(w.conn, w.gone)
	return w, nil
}

// Blobs stores and reads values that are too large for a record: a before-image is stored under the
// plan of the question, and an undo is given a reference as an argument. A handler that returns
// blob.ErrGone gives its action to the owner.
func (w *Worker) Blobs() *blob.Client {
	return &blob.Client{Config: blob.Config{Conn: w.conn, Tenant: w.tenant, Role: blob.Worker,
		Name: w.name}}
}

// gone is called once, when the connection is closed for good.
func (w *Worker) gone(err error) {
	w.logger.Error("no command comes to this worker any more", "tenant", w.tenant, "worker", w.name,
		"error", err)
	w.lostErr = err
	close(w.lost)
}

// Lost returns a channel that is closed when the connection is closed for good before Close is
// called: no command comes any more. Err says why.
func (w *Worker) Lost() <-chan struct{} { return w.lost }

// Err is the ErrConnectionClosed of Lost, and nil as long as that is open.
func (w *Worker) Err() error {
	select {
	case <-w.lost:
		return w.lostErr
	default:
		return nil
	}
}

// Handle carries out the undos of a capability from now on. When it returns nil on a
// connection that is connected, the server knows of the worker. On one that is not, or that
// is lost meanwhile, the worker serves by itself as soon as the connection is there again: make
// it with nats.MaxReconnects(-1), or it is closed for good after some tries, which Lost tells.
// Errors: *ledger.Refused (no capability, served already, closed), ErrConnectionClosed, or why the
// connection takes no subscription now: it is draining, or its server does not answer. Nothing is
// served then.
func (w *Worker) Handle(capability string, handler Handler) error {
	if handler == nil {
		return fmt.Errorf("cannot serve %q: %w", capability,
			ledger.Refuse("handler", "missing", "a function"))
	}
	return w.serve(api.UndoSubject(w.tenant, capability), capability, []string{ledger.PurposeUndo},
		func(ctx context.Context, c api.Command) api.Reply {
			result, err := handler(ctx, c)
			return handled(c, result, err)
		})
}

// Answer answers questions of a capability from now on: probes, checks after an
// undo and before-images. Errors as of Handle.
func (w *Worker) Answer(capability string, answerer Answerer) error {
	if answerer == nil {
		return fmt.Errorf("cannot serve %q: %w", capability,
			ledger.Refuse("answerer", "missing", "a function"))
	}
	return w.serve(api.AskSubject(w.tenant, capability), capability,
		[]string{api.PurposeProbe, api.PurposeVerify, api.PurposeBefore},
		func(ctx context.Context, c api.Command) api.Reply { return answer(answerer(ctx, c)) })
}

// serve subscribes one subject, which takes commands of these purposes.
func (w *Worker) serve(subject, capability string, purposes []string,
	serve func(context.Context, api.Command) api.Reply) error {
	if !ledger.ValidCapability(capability) {
		return fmt.Errorf("cannot serve %q: %w", capability,
			ledger.Refuse("capability", "not a name", "dotted names, as in git.branch.delete"))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.subs[subject] != nil {
		return fmt.Errorf("cannot serve %q: %w", capability,
			ledger.Refuse("capability", "served already, or the worker is closed",
				"one handler and one answerer each"))
	}
	sub, err := w.conn.QueueSubscribe(subject, QueueGroup,
		func(m *nats.Msg) { w.receive(m, capability, purposes, serve) })
	if err != nil {
		return fmt.Errorf("cannot serve %q: cannot subscribe to %s: %w", capability, subject,
			cmp.Or(jetstream.Closed(w.conn), err))
	}
	w.drained.Add(1)
	sub.SetClosedHandler(func(string) { w.drained.Done() })
	// The client subscribes again by itself whenever it connects, so that only a connection
	// that is closed for good has nothing to come.
	for tries := 0; tries < 2 && w.conn.IsConnected(); tries++ {
		if err = w.conn.Flush(); err == nil {
			break
		} // the connection was lost, perhaps, and is there again
	}
	switch connected := w.conn.IsConnected(); {
	case w.conn.IsClosed(), connected && err != nil:
		_ = sub.Unsubscribe() // it fails where the connection has ended it
		return fmt.Errorf("cannot serve %q: cannot subscribe to %s: %w", capability, subject,
			cmp.Or(jetstream.Closed(w.conn), err))
	case !connected:
		w.logger.Warn("not connected: serves as soon as the connection is there", "tenant", w.tenant,
			"capability", capability, "error", cmp.Or(err, w.conn.LastError()))
	}
	w.subs[subject] = sub
	return nil
}

// Close takes no further command, finishes those it has, and returns. When ctx
// ends first, the contexts of running handlers are cancelled and the error wraps
// ctx's; what they undo is not lost: the executor asks again. Without a server nothing more comes,
// and it waits for handlers alone. Close twice is harmless.
func (w *Worker) Close(ctx context.Context) error {
	w.unwatch()
	lost := w.conn.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING)
	defer w.conn.RemoveStatusListener(lost)
	if w.conn.IsConnected() {
		w.unsubscribe((*nats.Subscription).Drain)
	} else {
		w.unsubscribe((*nats.Subscription).Unsubscribe)
	}
	idle := make(chan struct{})
	go func() { // ends with the last handler
		w.drained.Wait()
		w.handlers.Wait()
		close(idle)
	}()
	for waits := true; waits; {
		select {
		case <-idle:
			waits = false
		case <-lost: // a drain would wait for its server
			w.unsubscribe((*nats.Subscription).Unsubscribe)
		case <-ctx.Done():
			w.giveUp()
			return fmt.Errorf("cannot close worker: handlers still run: %w", ctx.Err())
		}
	}
	// Answers were published; they must leave before the caller closes Conn.
	if !w.conn.IsConnected() && !w.unsent.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, flushMax)
	defer cancel()
	if err := w.conn.FlushWithContext(ctx); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("cannot close worker: answers may not have left: %w", err)
	}
	return nil
}

// unsubscribe ends the subscriptions, and takes no further ones.
func (w *Worker) unsubscribe(end func(*nats.Subscription) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, sub := range w.subs {
		_ = end(sub) // a connection that is closed has ended the subscription too
	}
}

// giveUp cancels the contexts of handlers.
func (w *Worker) giveUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.flights {
		f.cancel()
		for _, next := range f.behind {
			next.cancel()
		}
	}
}

// receive is called for one message of a subject after the other. What can not be answered, or not
// there, is no command: a client may have the answer to a request of its own sent here.
func (w *Worker) receive(m *nats.Msg, capability string, purposes []string,
	serve func(context.Context, api.Command) api.Reply) {
	if err := api.CheckReplyTo(m.Reply); err != nil {
		w.logger.Warn("a message that is no command", "tenant", w.tenant, "subject", m.Subject,
			"error", err)
		return
	}
	c, err := api.DecodeCommand(m.Data)
	if err != nil {
		text := "cannot read command: " + err.Error()
		w.respond(m, c, problem(api.StatusFailed, CodeBadCommand, text))
		return
	}
	if c.Purpose == "" {
		c.Purpose = ledger.PurposeUndo // as sent before there were questions
	}
	if refusal, ok := w.admit(c, capability, purposes); !ok {
		w.respond(m, c, refusal)
		return
	}
	f := w.board(m, c, serve)
	if f == nil {
		return
	}
	w.places <- struct{}{} // given back by fly; the attempt's time runs meanwhile
	w.handlers.Add(1)
	go w.fly(f) // ends with the handler
}

// board returns the flight to start for a command, or nil when the command waits
// for the one of its key that is under way.
func (w *Worker) board(m *nats.Msg, c api.Command,
	serve func(context.Context, api.Command) api.Reply) *flight {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := w.flights[c.Key]
	if first != nil {
		for _, f := range append([]*flight{first}, first.behind...) {
			if f.same(c) {
				f.waiting = append(f.waiting, asked{m, c.Attempt})
				return nil
			}
		}
	}
	f := &flight{command: c, serve: serve, waiting: []asked{{m, c.Attempt}}}
	f.ctx, f.cancel = deadline(c)
	f.ctx = traced(f.ctx, c)
	if first != nil {
		first.behind = append(first.behind, f)
		return nil
	}
	w.flights[c.Key] = f
	return f
}

// traced has a handler's context be part of the executor's trace of the attempt,
// which is linked to that of the forward.
func traced(ctx context.Context, c api.Command) context.Context {
	traceID, spanID, flags, ok := ledger.ParseTraceparent(c.Traceparent)
	if !ok {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags), Remote: true,
	}))
}

// deadline bounds an attempt by the time that its command allows.
func deadline(c api.Command) (context.Context, context.CancelFunc) {
	if c.TimeoutMs <= 0 {
		return context.WithCancel(context.Background())
	}
	allowed := min(c.TimeoutMs, ledger.TimeoutMax.Milliseconds())
	return context.WithTimeout(context.Background(), time.Duration(allowed)*time.Millisecond)
}

// admit refuses what must not be done here and now. Only undos raise the term: a
// question may come from an agent, which must not be able to fence the executor.
func (w *Worker) admit(c api.Command, capability string, purposes []string) (refusal api.Reply,
	ok bool) {
	switch {
	case c.Tenant != w.tenant || c.Capability != capability || !slices.Contains(purposes, c.Purpose) ||
		c.Key == "" || c.Attempt == 0:
		return problem(api.StatusFailed, CodeBadCommand,
			"tenant, capability or purpose is not of this subject, or key or attempt is missing"), false
	case c.WorkerVersion != "" && c.WorkerVersion != w.version:
		return problem(api.StatusFailed, CodeWorkerVersion,
			fmt.Sprintf("the registration asks for version %q, this worker is %q", c.WorkerVersion,
				w.version)), false
	case c.Purpose == api.PurposeBefore:
		return api.Reply{}, true // asked by the coordinator, which has no term
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.Term < w.term {
		return problem(api.StatusFailed, CodeStaleTerm,
			fmt.Sprintf("term %d, and term %d has spoken", c.Term, w.term)), false
	}
	if c.Purpose == ledger.PurposeUndo {
		w.term = c.Term
	}
	return api.Reply{}, true
}

// fly runs a handler and answers everyone who asked the same under its key
// meanwhile, also when the handler ends its goroutine. The next flight of the key
// takes over its place.
func (w *Worker) fly(f *flight) {
	defer w.handlers.Done()
	answer := panicked(f.command, "the handler ended its goroutine")
	defer func() {
		if next := w.land(f); next != nil {
			w.handlers.Add(1)
			go w.fly(next) // ends with the handler
		} else {
			<-w.places
		}
		for _, q := range f.waiting {
			c := f.command
			c.Attempt = q.attempt
			w.respond(q.msg, c, answer)
		}
	}()
	answer = w.run(f)
}

// land ends a flight and returns the next one of its key.
func (w *Worker) land(f *flight) (next *flight) {
	f.cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(f.behind) == 0 {
		delete(w.flights, f.command.Key)
		return nil
	}
	next = f.behind[0]
	next.behind = f.behind[1:]
	w.flights[f.command.Key] = next
	return next
}

func (w *Worker) run(f *flight) (answer api.Reply) {
	c, started := f.command, time.Now()
	defer func() {
		if p := recover(); p != nil {
			w.logger.Error("handler panicked", "tenant", w.tenant, "plan", c.Plan, "action", c.Action,
				"panic", p, "stack", string(debug.Stack()))
			answer = panicked(c, p)
		}
		answer = spoken(answer, c)
		answer.Worker, answer.WorkNs = w.name, time.Since(started).Nanoseconds()
	}()
	return f.serve(f.ctx, c)
}

// respond answers a command, whose key and attempt the answer repeats: else it counts
// for nothing. It publishes nothing where a message has an effect of its own, whatever
// reply subject a question names: receive has looked.
func (w *Worker) respond(m *nats.Msg, c api.Command, answer api.Reply) {
	answer = c.Answer(answer)
	answer.Worker = w.name
	body, err := json.Marshal(answer)
	if err != nil {
		panic("worker: a reply that is no JSON: " + err.Error())
	}
	w.unsent.Store(!w.conn.IsConnected()) // those before it leave with it
	if err := m.Respond(body); err != nil {
		w.logger.Warn("answer not sent", "tenant", w.tenant, "subject", m.Subject, "error", err)
	}
}
