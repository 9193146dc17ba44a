package coordinator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
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
	// Conn is the agent's connection, which it keeps and closes after Close. It
	// carries the appends, the questions to the executor and its notices.
	Conn *nats.Conn

	// Appender, when set, takes the appends instead of Conn. Without Conn there are
	// no notices, Commit cannot be confirmed and Wait is refused.
	Appender Appender

	Tenant string // required
	Agent  string // required: the name in the agent's subjects

	// Writer names this process in its records; default a new ULID, which no other process
	// has. Who acts for an agent that lives elsewhere, and goes on for it after a crash, gives
	// the name that it had.
	Writer string

	// Accepted has every forward wait until an executor says that the ledger has taken its
	// pair. Without it that is asked once for a plan with an ID that was given: its further
	// pairs are stored, and nothing refuses them but a limit of the tenant, and that another
	// process has resumed the plan. That one asks this one first to let the plan go: set it where
	// this one may be alive, and out of reach.
	Accepted bool

	// Contracts declares the capabilities that Do and Report may use, each once; at
	// most ContractsMax. For an effect that Do makes here, they come before published
	// ones; for one that Report tells of, after them.
	Contracts []contract.Contract

	// Published takes the contracts that operators have published too. They are read
	// by New, by ReadContracts, and when a capability comes that nothing declares.
	// It needs Conn.
	Published bool

	// PublishedFor is how long a published contract is used that was read, and it is read again
	// for the first action of each plan that names it, while an executor answers. 0: until
	// ReadContracts.
	PublishedFor time.Duration

	// Answers gives before-images in this process, by the capability that a
	// contract's before calls; the others are asked of workers.
	Answers map[string]Answer

	// AppendTimeout is how long a call waits for its commit before it is in doubt;
	// default 10 s.
	AppendTimeout time.Duration

	// ConfirmTimeout is how long Commit waits for an executor once it is stored;
	// default 5 s.
	ConfirmTimeout time.Duration

	// ReviewTimeout is how long Do waits for a verdict on an action whose contract
	// names no time of its own; default 10 min.
	ReviewTimeout time.Duration

	// Logger gets what no caller can be told: default none.
	Logger *slog.Logger
}

// Coordinator registers and runs the actions of one agent. It is safe for
// concurrent use. Close it.
type Coordinator struct {
	tenant, agent  string
	writer         string // this process, in its records
	accepted       bool   // every forward waits for its pair to be taken
	language       *expressions
	registry       *registry
	answers        map[string]Answer
	appendTimeout  time.Duration
	confirmTimeout time.Duration
	reviewTimeout  time.Duration
	lookup         time.Duration // for which Begin waits to hear whether an id is used
	logger         *slog.Logger
	committer      *committer
	halt           context.CancelCauseFunc // ends the committer by force
	bus            bus                     // nil without a connection
	silence        func()                  // ends the notices
	deaf           func()                  // ends the requests for plans
	conn           *nats.Conn              // for Run; nil without one
	lost           *loss                   // of the connection
	ends           *ends                   // that notices tell

	mu      sync.Mutex
	plans   map[string]*Plan  // those that this process has not ended
	runs    map[string]*Claim // by plan: those under way, and those whose handlers are offered still
	closing bool
}

// New checks the configuration, every contract with its expressions, and starts
// the committer. Errors: *Refused, or a connection that does not work.
func New(config Config) (*Coordinator, error) {
	var b bus
	if config.Conn != nil {
		b = natsBus{config.Conn}
		if config.Appender == nil {
			appender, err := jetstream.Attach(config.Conn, config.Tenant)
			if err != nil {
				return nil, fmt.Errorf("cannot start coordinator: %w", err)
			}
			config.Appender = appender
		}
	}
	c, err := newCoordinator(config, b)
	if err != nil {
		return nil, fmt.Errorf("cannot start coordinator: %w", err)
	}
	return c, nil
}

func newCoordinator(config Config, b bus) (*Coordinator, error) {
	if err := checkConfig(config, b); err != nil {
		return nil, err
	}
	c := &Coordinator{
		tenant: config.Tenant, agent: config.Agent, accepted: config.Accepted,
		writer:   cmp.Or(config.Writer, ulid.Make().String()),
		language: newExpressions(), answers: maps.Clone(config.Answers),
		appendTimeout:  cmp.Or(config.AppendTimeout, appendTimeoutDefault),
		confirmTimeout: cmp.Or(config.ConfirmTimeout, confirmTimeoutDefault),
		reviewTimeout:  cmp.Or(config.ReviewTimeout, reviewTimeoutDefault),
		lookup:         startSlack,
		logger:         cmp.Or(config.Logger, slog.New(slog.DiscardHandler)),
		bus:            b, silence: func() {}, deaf: func() {}, conn: config.Conn,
		plans: map[string]*Plan{}, runs: map[string]*Claim{},
		lost: newLoss(), ends: &ends{of: map[string]*told{}},
	}
	c.registry = &registry{
		tenant: c.tenant, language: c.language, code: map[string]*compile.Compiled{},
		timeout: c.confirmTimeout, lasts: config.PublishedFor, logger: c.logger,
		published: map[string]published{},
	}
	if err := c.registry.add(config.Contracts); err != nil {
		return nil, err
	}
	if config.Published {
		c.registry.bus = b
		if err := c.registry.readAll(context.Background()); err != nil { // asked again for what is needed
			c.logger.Warn("published contracts not read", "tenant", c.tenant, "error", err)
		}
	}
	if b != nil {
		b = lostBus{b, c.lost}
		c.bus = b
		stop, err := b.listen(api.NoticeSubject(c.tenant, c.agent, "*"), c.notice)
		if err != nil {
			return nil, fmt.Errorf("cannot subscribe notices: %w", err)
		}
		c.silence = stop
		if c.deaf, err = b.answer(api.YieldSubject(c.tenant, c.agent, c.writer), c.yield); err != nil {
			stop()
			return nil, fmt.Errorf("cannot subscribe requests for plans: %w", err)
		}
	}
	c.committer = newCommitter(config.Appender, c.tenant, c.agent, c.writer, c.logger)
	c.committer.lost, c.committer.replaced = c.lost.done, c.gone
	if b != nil {
		stop, unwatch, silence := b.reconnected(c.back), b.closed(c.gone), c.silence
		c.silence = func() { stop(); unwatch(); silence() }
	}
	ctx, halt := context.WithCancelCause(context.Background())
	c.halt = halt
	go c.committer.run(ctx) // ended by Close
	return c, nil
}

func checkConfig(config Config, b bus) error {
	const name = ledger.TokenWanted
	switch {
	case config.Appender == nil:
		return ledger.Refuse("config.conn", "missing", "a connection to NATS, or an appender")
	case !ledger.ValidToken(config.Tenant):
		return ledger.Refuse("config.tenant", fmt.Sprintf("%q is not a name", config.Tenant), name)
	case !ledger.ValidToken(config.Agent):
		return ledger.Refuse("config.agent", fmt.Sprintf("%q is not a name", config.Agent), name)
	case config.Writer != "" && !ledger.ValidToken(config.Writer):
		return ledger.Refuse("config.writer", fmt.Sprintf("%q is not a name", config.Writer), name)
	case config.AppendTimeout < 0:
		return ledger.Refuse("config.append_timeout", "negative", "a duration, or 0 for 10 s")
	case config.ConfirmTimeout < 0:
		return ledger.Refuse("config.confirm_timeout", "negative", "a duration, or 0 for 5 s")
	case config.ReviewTimeout < 0:
		return ledger.Refuse("config.review_timeout", "negative", "a duration, or 0 for 10 min")
	case config.PublishedFor < 0 || config.PublishedFor > 0 && !config.Published:
		return ledger.Refuse("config.published_for", config.PublishedFor.String(),
			"a duration beside published, or 0")
	case config.Published && b == nil:
		return ledger.Refuse("config.published", "given without a connection", "a connection to NATS")
	case len(config.Contracts) > ContractsMax:
		return ledger.Refuse("config.contracts", fmt.Sprint(len(config.Contracts)),
			fmt.Sprintf("at most %d", ContractsMax))
	}
	return nil
}

// Close appends what is queued and ends the coordinator; open plans stay open in
// the ledger and their deadlines and triggers still hold. When ctx ends first,
// what is still queued is given up and the error, which then wraps ctx's, says so.
// What would write returns ErrClosed from now on. Close twice is harmless.
func (c *Coordinator) Close(ctx context.Context) error {
	c.silence()
	defer c.deaf() // what is queued is stored before another process has a plan
	errs := c.closeRuns(ctx)
	for _, p := range c.openPlans() {
		errs = append(errs, p.flush(ctx, false))
	}
	c.committer.stop()
	select {
	case <-c.committer.ended:
	case <-ctx.Done():
		err := fmt.Errorf("cannot close coordinator: not everything is known to be stored: %w",
			context.Cause(ctx))
		c.halt(err)
		<-c.committer.ended
		return err
	}
	c.halt(ErrClosed)
	if err := errors.Join(errs...); err != nil && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("cannot close coordinator: %w", err)
	}
	return nil
}

func (c *Coordinator) openPlans() []*Plan {
	c.mu.Lock()
	defer c.mu.Unlock()
	var plans []*Plan
	for _, id := range slices.Sorted(maps.Keys(c.plans)) {
		plans = append(plans, c.plans[id])
	}
	return plans
}

// back goes on after the connection was lost: what was sent is sent again, and the
// notices that did not come are asked for.
func (c *Coordinator) back() {
	if had := c.committer.newest(); had.sequence > 0 {
		go c.compare(had) // ends with the coordinator, or when an executor has answered
	}
	c.committer.again()
	for _, p := range c.openPlans() {
		go p.missed() // ends within confirmTimeout
	}
}

// compare asks whether the ledger still has what it acknowledged last, and gives up where it does
// not: another connection may lead to a restored backup. It asks until an executor has got there;
// where none ever does, the next append tells.
func (c *Coordinator) compare(had acked) {
	sum := sha256.Sum256(had.data)
	query := api.OutcomeQuery{Plan: had.plan, Sequence: had.sequence,
		Digest: hex.EncodeToString(sum[:])}
	for delay := askDelay; ; delay = min(2*delay, compareDelayMax) {
		ctx, cancel := context.WithTimeout(context.Background(), c.confirmTimeout)
		answer, err := ask(ctx, c.bus, c.tenant, api.PlanOutcome, query)
		cancel()
		var problem *api.Problem
		switch {
		case err == nil && answer.Other:
			c.gone(&replaced{tenant: c.tenant, had: had.sequence})
			return
		case err == nil, errors.Is(err, ErrConnectionClosed),
			errors.As(err, &problem) && !problem.Behind && !problem.Again: // of an earlier version
			return
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-c.committer.ended:
			timer.Stop()
			return
		}
	}
}

// compareDelayMax is how often compare asks at least.
const compareDelayMax = 30 * time.Second

// loss is that no call works any more. err is set before done is closed.
type loss struct {
	once sync.Once
	done chan struct{}
	err  error
}

func newLoss() *loss { return &loss{done: make(chan struct{})} }

// why is the error of a loss, or nil as long as there is none.
func (l *loss) why() error {
	select {
	case <-l.done:
		return l.err
	default:
		return nil
	}
}

// gone is called when the connection is closed for good, or the ledger was replaced.
func (c *Coordinator) gone(err error) {
	c.lost.once.Do(func() {
		c.logger.Error("no call of this agent works any more", "tenant", c.tenant, "agent", c.agent,
			"error", err)
		c.lost.err = err
		close(c.lost.done)
	})
}

// Lost returns a channel that is closed when the connection is closed for good before Close is
// called, or the ledger was replaced: no call works any more. Err says why. Without Conn it is
// closed for ErrLedgerReplaced alone.
func (c *Coordinator) Lost() <-chan struct{} { return c.lost.done }

// Err is the ErrConnectionClosed of Lost, and nil as long as that is open.
func (c *Coordinator) Err() error { return c.lost.why() }

func (c *Coordinator) plan(id string) *Plan {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plans[id]
}

func (c *Coordinator) forget(p *Plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plans[p.id] == p {
		delete(c.plans, p.id)
	}
}

// notice handles what the holder says became of a plan. A notice of a plan that
// is not ours, or that makes no sense, is ignored. It is a hint, but where it says that a plan is
// compensated: see Plan.Wait.
func (c *Coordinator) notice(body []byte) {
	var n api.Notice
	if json.Unmarshal(body, &n) != nil {
		return
	}
	c.ends.tell(n)
	p := c.plan(n.Plan)
	switch {
	case n.UndoneAs != "":
		c.logger.Warn("a committed plan is undone", "tenant", c.tenant, "plan", n.Plan, "undone_as",
			n.UndoneAs, "reason", n.Reason)
		return
	case n.HandedTo == c.agent:
		c.logger.Info("a plan was handed to this agent: it goes on where a process resumes it", "tenant",
			c.tenant, "plan", n.Plan, "by", n.By, "reason", n.Reason)
	}
	if p == nil {
		return
	}
	if n.HandedTo != "" {
		handedOver(p, n)
	}
	if n.Action != "" && n.Verdict != "" {
		p.rule(Verdict{Action: n.Action, Outcome: n.Verdict, Reason: n.Reason, By: n.By})
	}
	if n.Presence != "" {
		wake(p)
	}
	switch n.State {
	case ledger.StateOpen:
		if n.Savepoint != "" {
			p.reopened(n)
		}
		if n.FromAction != "" {
			p.wentOn(n)
		}
		if n.Writer != "" {
			p.resumedBy(n.Writer)
		}
		if n.DueNs != 0 {
			setDeadline(p, n.DueNs, n.At)
		}
	case ledger.StateCommitting, ledger.StateCommitted:
		if n.Action == "" {
			p.committedElsewhere()
		}
	case ledger.StateUnwinding, ledger.StateCompensated, ledger.StateQuarantined, ledger.StateFailed,
		ledger.StateResolved:
		p.unwind(n)
	}
}

// wait returns when a bundle's fate is known, with its sequence. The error wraps
// ErrInDoubt when ctx or the append timeout ends first.
func (c *Coordinator) wait(ctx context.Context, b *bundle) (uint64, error) {
	timer := time.NewTimer(c.appendTimeout)
	defer timer.Stop()
	select {
	case <-b.done:
	case <-ctx.Done():
		if !b.settled() {
			return 0, c.committer.doubt(ctx.Err())
		}
	case <-timer.C:
		if !b.settled() {
			return 0, c.committer.doubt(fmt.Errorf("no answer in %v", c.appendTimeout))
		}
	}
	return b.seq, b.err
}
