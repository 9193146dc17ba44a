package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
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

	// Version is what registrations name as worker_version. A command that asks
	// for another version is answered as failed, and nothing is done.
	Version string

	// Concurrency is how many handlers run at once; default 16, at most 4096.
	// Further commands wait.
	Concurrency int

	Logger *slog.Logger // default none
}

// Worker serves the compensations of one tenant. It is safe for concurrent use.
// Close it.
type Worker struct {
	conn     *nats.Conn
	appender Appender
	tenant   string
	name     string
	version  string
	logger   *slog.Logger
	places   chan struct{}  // one element per handler that runs
	handlers sync.WaitGroup // goroutines of flights; each ends with its handler
	drained  sync.WaitGroup // subscriptions

	mu      sync.Mutex
	closed  bool
	term    uint64 // highest seen
	subs    map[string]*nats.Subscription
	flights map[string]*flight // by key
}

// flight is one run of a handler and those who wait for its answer. The worker's
// mu guards waiting.
type flight struct {
	command ledger.Command
	cancel  context.CancelFunc
	waiting []*nats.Msg
}

// New checks the configuration. It subscribes nothing: Handle does.
// Errors: *ledger.Refused.
func New(config Config) (*Worker, error) {
	const name = "1 to 64 letters, digits, '-' or '_'"
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
		err = ledger.Refuse("config.concurrency", fmt.Sprint(config.Concurrency), fmt.Sprintf("1 to %d", ConcurrencyMax))
	case config.Appender == nil:
		config.Appender, err = jetstream.Attach(config.Conn, config.Tenant)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot start worker: %w", err)
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &Worker{
		conn: config.Conn, appender: config.Appender, tenant: config.Tenant, name: config.Name, version: config.Version,
		logger: config.Logger, places: make(chan struct{}, config.Concurrency),
		subs: map[string]*nats.Subscription{}, flights: map[string]*flight{},
	}, nil
}

// Handle serves a capability from now on. When it returns, the server knows of
// the worker. Errors: *ledger.Refused (no capability, served already, closed), or
// the connection's.
func (w *Worker) Handle(capability string, handler Handler) error {
	if !ledger.ValidCapability(capability) {
		return fmt.Errorf("cannot serve %q: %w", capability, ledger.Refuse("capability", "not a name", "dotted names, as in git.branch.delete"))
	}
	if handler == nil {
		return fmt.Errorf("cannot serve %q: %w", capability, ledger.Refuse("handler", "missing", "a function"))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.subs[capability] != nil {
		return fmt.Errorf("cannot serve %q: %w", capability, ledger.Refuse("capability", "served already, or the worker is closed", "one handler each"))
	}
	sub, err := w.conn.QueueSubscribe(ledger.UndoSubject(w.tenant, capability), QueueGroup, func(m *nats.Msg) {
		w.receive(m, capability, handler)
	})
	if err != nil {
		return fmt.Errorf("cannot serve %q: %v", capability, err)
	}
	w.drained.Add(1)
	sub.SetClosedHandler(func(string) { w.drained.Done() })
	if err := w.conn.Flush(); err != nil {
		_ = sub.Unsubscribe() // it fails where the connection has ended it
		return fmt.Errorf("cannot serve %q: %v", capability, err)
	}
	w.subs[capability] = sub
	return nil
}

// Close takes no further command, finishes those it has, and returns. When ctx
// ends first, the contexts of running handlers are cancelled and the error wraps
// ctx's; what they undo is not lost: the executor asks again. Close twice is
// harmless.
func (w *Worker) Close(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	for _, sub := range w.subs {
		// A connection that is closed has ended the subscription too.
		_ = sub.Drain()
	}
	w.mu.Unlock()
	idle := make(chan struct{})
	go func() { // ends with the last handler
		w.drained.Wait()
		w.handlers.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, f := range w.flights {
			f.cancel()
		}
		return fmt.Errorf("cannot close worker: handlers still run: %w", ctx.Err())
	}
	// Answers were published; they must leave before the caller closes Conn.
	ctx, cancel := context.WithTimeout(ctx, flushMax)
	defer cancel()
	if err := w.conn.FlushWithContext(ctx); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("cannot close worker: answers may not have left: %w", err)
	}
	return nil
}

// receive is called for one message of a capability after the other.
func (w *Worker) receive(m *nats.Msg, capability string, handler Handler) {
	var c ledger.Command
	if err := json.Unmarshal(m.Data, &c); err != nil {
		w.respond(m, problem(ledger.StatusFailed, CodeBadCommand, "cannot read command: "+err.Error()))
		return
	}
	if refusal, ok := w.admit(c, capability); !ok {
		w.respond(m, refusal)
		return
	}
	w.mu.Lock()
	if f := w.flights[c.Key]; f != nil {
		f.waiting = append(f.waiting, m)
		w.mu.Unlock()
		return
	}
	ctx, cancel := deadline(c)
	w.flights[c.Key] = &flight{command: c, cancel: cancel, waiting: []*nats.Msg{m}}
	w.mu.Unlock()
	w.places <- struct{}{} // given back by fly; the attempt's time runs meanwhile
	w.handlers.Add(1)
	go w.fly(ctx, c, handler) // ends with the handler
}

// deadline bounds an attempt by the time that its command allows.
func deadline(c ledger.Command) (context.Context, context.CancelFunc) {
	if c.TimeoutMs <= 0 {
		return context.WithCancel(context.Background())
	}
	allowed := min(c.TimeoutMs, ledger.TimeoutMax.Milliseconds())
	return context.WithTimeout(context.Background(), time.Duration(allowed)*time.Millisecond)
}

// admit refuses what must not be undone here and now.
func (w *Worker) admit(c ledger.Command, capability string) (refusal ledger.Reply, ok bool) {
	switch {
	case c.Tenant != w.tenant || c.Capability != capability || c.Key == "" || c.Attempt == 0:
		return problem(ledger.StatusFailed, CodeBadCommand, "the command is not for this subject, or has no key or attempt"), false
	case c.WorkerVersion != "" && c.WorkerVersion != w.version:
		return problem(ledger.StatusFailed, CodeWorkerVersion, fmt.Sprintf("the registration asks for version %q, this worker is %q", c.WorkerVersion, w.version)), false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.Term < w.term {
		return problem(ledger.StatusFailed, CodeStaleTerm, fmt.Sprintf("term %d, and term %d has spoken", c.Term, w.term)), false
	}
	w.term = c.Term
	return ledger.Reply{}, true
}

// fly runs a handler and answers everyone who asked under its key meanwhile,
// also when the handler ends its goroutine.
func (w *Worker) fly(ctx context.Context, c ledger.Command, handler Handler) {
	defer w.handlers.Done()
	answer := problem(ledger.StatusFailed, CodePanic, "the handler ended its goroutine")
	defer func() {
		w.mu.Lock()
		f := w.flights[c.Key]
		delete(w.flights, c.Key)
		w.mu.Unlock()
		f.cancel()
		<-w.places
		for _, m := range f.waiting {
			w.respond(m, answer)
		}
	}()
	answer = w.run(ctx, c, handler)
}

func (w *Worker) run(ctx context.Context, c ledger.Command, handler Handler) (answer ledger.Reply) {
	started := time.Now()
	defer func() {
		if p := recover(); p != nil {
			w.logger.Error("handler panicked", "tenant", w.tenant, "plan", c.Plan, "action", c.Action, "panic", p, "stack", string(debug.Stack()))
			answer = problem(ledger.StatusFailed, CodePanic, fmt.Sprint(p))
		}
		answer.Worker, answer.WorkNs = w.name, time.Since(started).Nanoseconds()
	}()
	return reply(handler(ctx, c))
}

func (w *Worker) respond(m *nats.Msg, answer ledger.Reply) {
	answer.Worker = w.name
	body, err := json.Marshal(answer)
	if err != nil {
		panic("worker: a reply that is no JSON: " + err.Error())
	}
	if err := m.Respond(body); err != nil {
		w.logger.Warn("answer not sent", "tenant", w.tenant, "subject", m.Subject, "error", err)
	}
}
