package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sagenbaum/sagenbaum/coordinator/internal/opening"
	"github.com/sagenbaum/sagenbaum/coordinator/internal/pause"
	"github.com/sagenbaum/sagenbaum/coordinator/internal/value"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Claim is a plan as its records say, of which this process is the only one to write: what
// package replay runs a function over. Open reads and claims it; Release ends it.
//
// The fields are set by Open and do not change afterwards.
type Claim struct {
	// Plan takes the calls of the function. It is nil when the plan is not open any more: then
	// nothing but its undo is left.
	Plan *Plan

	// State is the state of the plan Serves.
	State string

	// Serves is the plan that undoes what the function did: the plan itself, or the one that
	// undoes it after its commit. It is empty when nothing is left to do; Ended then says how the
	// plan EndedPlan has ended.
	Serves    string
	Ended     End
	EndedPlan string

	// Past has what is recorded of the function's calls, as they were registered.
	Past []PastAction

	// Owed names the actions whose undo may still be asked for.
	Owed map[string]bool

	// Fenced is when the plan was claimed: no other process starts a forward after it.
	Fenced time.Time

	c *Coordinator
	// a committer that appends for this plan alone, fenced; nil: nothing is appended
	own     *Coordinator
	config  ClaimConfig
	opening *pb.Record
	claimed time.Time // no later than the append that claimed the plan
	present func()    // ends saying that this process runs the plan; nil: it does not
	vault   *vault
	parts   uint32 // of the plan that were undone before: Past says of what

	deadlineNs int64 // of the plan; 0: none

	life     context.Context // ends with Close, and when another Claim of the plan is begun
	halt     context.CancelCauseFunc
	lingers  bool          // its handlers are offered after Release; guarded by c.mu
	finished chan struct{} // closed when nothing of it is left
}

// ClaimConfig says which plan a Claim is of.
type ClaimConfig struct {
	Plan     PlanSpec // ID is required; no parent
	Function string   // required; recorded
	TakeOver bool     // claims the plan from a process that still runs it

	// Same says in an error how a plan was begun otherwise than it is declared now. It is
	// called before anything is claimed.
	Same func(recorded, declared *pb.Record) error
}

// PastAction is what is recorded of an action.
type PastAction struct {
	api.PastAction
	Registered *pb.ForwardRegistered
}

// Doubtful reports whether the process that ran the forward has ended without a word on it.
func (p *PastAction) Doubtful() bool {
	if p.Registered.GetDeliver() != nil {
		return false // no process calls it
	}
	return p.Outcome == api.OutcomeUnknown ||
		p.Outcome == api.OutcomeInDoubt && p.Code == codePanic
}

// Claim begins the claim of a plan, which the caller has to release. A coordinator has one claim
// of a plan; one that only offers its handlers ends with the next. Errors: *Refused, ErrRunning,
// ErrClosed.
func (c *Coordinator) Claim(ctx context.Context, config ClaimConfig) (*Claim, error) {
	switch {
	case c.conn == nil:
		return nil, ledger.Refuse("config.conn", "missing",
			"a connection to NATS: what is recorded is asked for")
	case !ledger.ValidToken(config.Function):
		return nil, ledger.Refuse("run.function", fmt.Sprintf("%q is not a name", config.Function),
			ledger.TokenWanted)
	case !ledger.ValidToken(config.Plan.ID):
		return nil, ledger.Refuse("run.plan.id", fmt.Sprintf("%q is not a name", config.Plan.ID),
			ledger.TokenWanted+", the same each time")
	case config.Plan.Parent != "":
		return nil, ledger.Refuse("run.plan.parent", fmt.Sprintf("%q", config.Plan.Parent),
			"a plan without a parent")
	case len(c.agent) > handlerAgentMax:
		return nil, ledger.Refuse("config.agent", fmt.Sprintf("%q has %d bytes", c.agent, len(c.agent)),
			fmt.Sprintf("at most %d, for the names of handlers", handlerAgentMax))
	}
	opening, err := c.planOpened(config.Plan, time.Now())
	if err != nil {
		return nil, err
	}
	opened := opening.GetPlanOpened()
	opened.Function, opened.Trace = config.Function, traceparent(ctx)
	cl := &Claim{c: c, config: config, opening: opening, vault: newVault(c, config.Plan.ID),
		finished: make(chan struct{})}
	cl.life, cl.halt = context.WithCancelCause(context.Background())
	return cl, c.enlist(cl)
}

// enlist takes a claim under the coordinator's care, which ends with Release and at
// the latest with Close. One of the same plan that only offers its handlers is over.
func (c *Coordinator) enlist(cl *Claim) error {
	c.mu.Lock()
	id := cl.config.Plan.ID
	old := c.runs[id]
	var err error
	switch {
	case c.closing:
		err = closed("coordinator")
	case old != nil && !old.lingers:
		err = fmt.Errorf("%w, in this process", ErrRunning)
	case c.plans[id] != nil:
		err = ledger.Refuse("run.plan.id", "open already", "an id of its own for each plan")
	default:
		c.runs[id] = cl
	}
	c.mu.Unlock()
	if err == nil && old != nil {
		old.halt(nil)
		<-old.finished
	}
	return err
}

// Context is ctx with an end when the coordinator is closed.
func (cl *Claim) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(cl.life, func() { cancel(context.Cause(cl.life)) })
	return ctx, func() { stop(); cancel(nil) }
}

// Config returns what a worker of this agent needs: Conn, Tenant, Agent and Logger.
func (cl *Claim) Config() Config {
	return Config{Conn: cl.c.conn, Tenant: cl.c.tenant, Agent: cl.c.agent, Logger: cl.c.logger}
}

// Open reads what is recorded, and claims the plan when it is open or new. It waits for an
// executor until ctx ends. Errors: what Same returns, *Refused, ErrRunning, ErrSuperseded,
// ErrErased, and as of Flush.
func (cl *Claim) Open(ctx context.Context) error {
	history, err := cl.c.history(ctx, api.HistoryQuery{Plan: cl.config.Plan.ID, Limit: 1}, false)
	if err != nil {
		return err
	}
	if err := cl.compareOpening(history); err != nil {
		return err
	}
	if history.State == "" || history.State == ledger.StateOpen {
		history, err = cl.claim(ctx, history)
		cl.Fenced = time.Now()
	} else {
		history, err = cl.c.history(ctx, api.HistoryQuery{Plan: cl.config.Plan.ID}, true)
	}
	if err != nil {
		return err
	}
	if err := cl.compareOpening(history); err != nil {
		return err
	}
	if history.Agent == "" {
		return ledger.Refuse("run.plan", "the ledger has not taken its opening",
			"a plan that the ledger takes")
	}
	cl.State, cl.Serves = history.State, cl.config.Plan.ID
	switch history.State {
	case ledger.StateOpen:
		if err := cl.load(ctx, history, history); err != nil {
			return err
		}
		cl.adopt()
		return nil
	case ledger.StateCommitting, ledger.StateUnwinding, ledger.StateQuarantined:
		cl.offerOnly()
		return cl.load(ctx, history, history)
	case ledger.StateCommitted:
		return cl.openUndone(ctx, history)
	}
	cl.Serves = ""
	cl.EndedPlan, cl.Ended = cl.config.Plan.ID, endOf(history)
	return nil
}

// openUndone finds what is left to do under a committed plan: nothing, or to offer
// the handlers to the plan that undoes it.
func (cl *Claim) openUndone(ctx context.Context, history api.HistoryAnswer) error {
	cl.offerOnly()
	cl.Serves = ""
	if history.UndoneAs == "" {
		cl.EndedPlan, cl.Ended = cl.config.Plan.ID, endOf(history)
		return nil
	}
	undoing, err := cl.c.history(ctx, api.HistoryQuery{Plan: history.UndoneAs}, true)
	if err != nil {
		return err
	}
	cl.State = undoing.State
	switch undoing.State {
	case ledger.StateOpen, ledger.StateUnwinding, ledger.StateQuarantined:
		cl.Serves = history.UndoneAs
		return cl.load(ctx, history, undoing)
	}
	cl.EndedPlan, cl.Ended = history.UndoneAs, endOf(undoing)
	return nil
}

func endOf(history api.HistoryAnswer) End {
	return End{State: history.State, Reason: history.Reason, Outstanding: history.Outstanding}
}

// compareOpening refuses a plan that was begun as another one.
func (cl *Claim) compareOpening(history api.HistoryAnswer) error {
	id := cl.config.Plan.ID
	switch {
	case history.Agent == "":
		return notPassed(cl.config.Plan, time.Now())
	case history.Agent != cl.c.agent:
		return ledger.Refuse("run.plan.id", "a plan of agent "+history.Agent,
			"an id of its own for each plan")
	}
	recorded := new(pb.PlanOpened)
	if err := recorded.UnmarshalVT(history.Opened); err != nil {
		return fmt.Errorf("cannot read how plan %q was opened: %v", id, err)
	}
	if recorded.Function == "" {
		return ledger.Refuse("run.plan.id", "begun without Run", "an id of its own for each plan")
	}
	was := opening.Recorded(id, recorded, history.Input)
	if err := cl.config.Same(was, cl.opening); err != nil {
		return err
	}
	cl.opening = was
	return nil
}

// claim makes this process the only one whose records of the plan are stored, by
// an append after which its further ones are fenced, and reads what is before it.
func (cl *Claim) claim(ctx context.Context, history api.HistoryAnswer) (api.HistoryAnswer, error) {
	if err := cl.announce(ctx); err != nil {
		return history, err
	}
	own := cl.c.fencedCopy()
	cl.Plan = newPlan(own, cl.opening)
	cl.Plan.vault, cl.Plan.replays, cl.Plan.resumed = cl.vault, true, true
	cl.own, cl.claimed = own, time.Now()
	cl.c.mu.Lock()
	cl.c.plans[cl.Plan.id] = cl.Plan // for notices
	cl.c.mu.Unlock()
	if history.Agent != "" {
		cl.Plan.opening = resumes(cl.Plan.id, history)
	}
	for {
		if err := cl.Plan.flush(ctx, true); err != nil {
			return history, err
		}
		history, err := cl.c.history(ctx, api.HistoryQuery{Plan: cl.Plan.id, Sequence: cl.Plan.Stored()},
			true)
		if err != nil || history.State != ledger.StateOpen || history.Writer == own.writer {
			return history, err
		}
		cl.Plan.opening = resumes(cl.Plan.id, history) // another process was faster
	}
}

// resumes is the record by which this process follows the present writer of a plan.
func resumes(plan string, history api.HistoryAnswer) *pb.Record {
	return &pb.Record{Plan: plan, Kind: &pb.Record_PlanResumed{
		PlanResumed: &pb.PlanResumed{Follows: history.WriterAt}}}
}

// announce says that this process runs the plan, unless another one does.
func (cl *Claim) announce(ctx context.Context) error {
	subject := api.RunSubject(cl.c.tenant, cl.c.agent, cl.config.Plan.ID)
	if !cl.config.TakeOver {
		if err := cl.alone(ctx, subject); err != nil {
			return err
		}
	}
	// a hint: without it the fence decides
	silence, err := cl.c.bus.answer(subject, func([]byte) []byte { return nil })
	if err != nil {
		return cl.unsaid(err)
	}
	cl.present = silence
	bounded, cancel := context.WithTimeout(ctx, cl.c.appendTimeout)
	defer cancel()
	if err := cl.c.conn.FlushWithContext(bounded); err != nil {
		return cl.unsaid(err)
	}
	return nil
}

func (cl *Claim) unsaid(err error) error {
	if gone := jetstream.Closed(cl.c.conn); gone != nil {
		return fmt.Errorf("cannot say who runs the plan: %w", gone)
	}
	return fmt.Errorf("cannot say who runs the plan: %v", err)
}

// alone asks whether another process runs the plan. One that has just gone may not
// have been missed by the server yet: a question that is not answered is asked again.
func (cl *Claim) alone(ctx context.Context, subject string) error {
	ask := question{subject: subject, replies: subject + ".", within: presenceMax}
	ctx, cancel := context.WithTimeout(ctx, cl.c.appendTimeout+presenceTries*presenceMax)
	defer cancel()
	for range presenceTries {
		_, err := cl.c.bus.question(ctx, ask)
		switch {
		case errors.Is(err, errNobody):
			return nil
		case err == nil:
			return fmt.Errorf("%w, in another process", ErrRunning)
		case errors.Is(err, ErrConnectionClosed):
			return err
		case ctx.Err() != nil, !errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("cannot ask who runs the plan: %w", err)
		}
	}
	return fmt.Errorf("%w, in a process that does not answer (or this user may not publish %s)",
		ErrRunning, subject)
}

// load takes what is recorded of the function's calls. The handlers are owed to
// the plan that is undone.
func (cl *Claim) load(ctx context.Context, history, undone api.HistoryAnswer) error {
	if err := cl.vault.openPast(ctx, history.Actions); err != nil {
		return err
	}
	cl.parts, cl.deadlineNs, cl.Owed = history.Parts, history.DueNs, map[string]bool{}
	for _, past := range undone.Actions {
		if past.Owed {
			cl.Owed[cmp.Or(past.DutyOf, past.Action)] = true
		}
	}
	for _, past := range history.Actions {
		if past.DutyOf != "" || past.Child != "" {
			continue // the function did not call it
		}
		f := new(pb.ForwardRegistered)
		if err := f.UnmarshalVT(past.Forward); err != nil {
			return fmt.Errorf("cannot read what is recorded of action %q: %v", past.Action, err)
		}
		cl.Past = append(cl.Past, PastAction{past, f})
	}
	return nil
}

// adopt has the plan know what is recorded, as if this process had registered it.
func (cl *Claim) adopt() {
	p := cl.Plan
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parts.known = cl.parts
	if cl.deadlineNs != 0 {
		p.deadline = time.Unix(0, cl.deadlineNs)
	}
	for i := range cl.Past {
		past := &cl.Past[i]
		p.count++
		a := &action{
			plan:   p,
			number: p.count, queued: cl.claimed, pair: storedAt(p.id, past.Sequence),
			state: actionEnded, finished: make(chan struct{}),
			call: Call{Plan: p.id, Action: past.Action, Capability: past.Registered.Capability,
				Key: ledger.Key(p.c.tenant, p.id, past.Action, ledger.PurposeDo)},
			registered: past.Registered,
		}
		p.actions[past.Action] = a
		p.order = append(p.order, a)
	}
}

// adopted makes an action of another process, whose outcome is open, ready to run.
func (p *Plan) adopted(declared Action, past *PastAction) (*action, error) {
	input, err := value.Encode("action.input", declared.Input)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.actions[declared.ID]
	if a.contract != nil {
		return a, nil // by an earlier call of this function
	}
	a.call.Input, a.contract, a.state = input, declared.compiled, actionRegistered
	if declared.Review || a.contract.Review {
		a.reviewTimeout = p.c.reviewTimeout
		if a.contract.ReviewTimeout > 0 {
			a.reviewTimeout = a.contract.ReviewTimeout
		}
	}
	switch {
	case past.Outcome == api.OutcomeInDoubt:
		a.doubt = &pb.ForwardInDoubt{Code: past.Code, Message: past.Message} // as recorded
	case a.reviewTimeout == 0 || past.MayBeAllowed(): // without its verdict it was not called
		a.doubt = &pb.ForwardInDoubt{Code: codeInterrupted,
			Message: "its process ended, and it was not called again"}
	}
	return a, nil
}

// fencedCopy is this coordinator with a committer for one plan alone.
func (c *Coordinator) fencedCopy() *Coordinator {
	own := &Coordinator{ // without a connection: it runs nothing
		tenant: c.tenant, agent: c.agent, accepted: c.accepted, writer: ulid.Make().String(),
		language: c.language,
		registry: c.registry, answers: c.answers,
		appendTimeout: c.appendTimeout, confirmTimeout: c.confirmTimeout, reviewTimeout: c.reviewTimeout,
		logger: c.logger,
		bus:    c.bus, lost: c.lost, ends: c.ends, plans: map[string]*Plan{}, runs: map[string]*Claim{},
	}
	own.committer = newCommitter(c.committer.store, c.tenant, c.agent, own.writer, c.logger)
	own.committer.fenced, own.committer.lost = true, c.lost.done
	own.silence, own.deaf = own.bus.reconnected(own.committer.again), func() {}
	ctx, halt := context.WithCancelCause(context.Background())
	own.halt = halt
	go own.committer.run(ctx) // ended by disown, through Close
	return own
}

// offerOnly has the function give its handlers, and nothing else.
func (cl *Claim) offerOnly() {
	cl.disown()
	cl.Plan = nil
}

// disown ends what appends for this run: what is queued is stored first, or given up
// after a moment.
func (cl *Claim) disown() {
	ctx, cancel := context.WithTimeout(context.Background(), ForwardGrace)
	defer cancel()
	if cl.present != nil {
		cl.present()
		// A connection that is closed needs no flush.
		_ = cl.c.conn.FlushWithContext(ctx)
		cl.present = nil
	}
	if cl.own == nil {
		return
	}
	err := cl.Plan.flush(ctx, false)
	if err := errors.Join(err, cl.own.Close(ctx)); err != nil && !errors.Is(err, ErrClosed) &&
		!errors.Is(err, ErrSuperseded) {
		cl.c.logger.Warn("what a run has queued may not be stored", "tenant", cl.c.tenant, "plan",
			cl.Plan.id, "error", err)
	}
	cl.c.forget(cl.Plan)
	cl.own = nil
}

// Release ends a claim. With linger, handlers may still be needed: they are offered until the
// plan Serves has ended for good, or Close. dismiss is called when no handler is needed any
// more, and may be nil.
func (cl *Claim) Release(linger bool, dismiss func()) {
	cl.disown()
	cl.c.mu.Lock()
	cl.lingers = linger && !cl.c.closing
	lingers := cl.lingers
	cl.c.mu.Unlock()
	if lingers {
		go cl.offer(dismiss) // ends with the plan, or by Close
		return
	}
	cl.forget(dismiss)
}

// offer keeps the handlers until their plan has ended for good.
func (cl *Claim) offer(dismiss func()) {
	for cl.life.Err() == nil {
		if end, err := cl.c.Wait(cl.life, cl.Serves); err == nil && end.Final() {
			break
		}
		pause.For(cl.life, askDelayMax)
	}
	cl.forget(dismiss)
}

func (cl *Claim) forget(dismiss func()) {
	if dismiss != nil {
		dismiss()
	}
	cl.c.mu.Lock()
	if cl.c.runs[cl.config.Plan.ID] == cl {
		delete(cl.c.runs, cl.config.Plan.ID)
	}
	cl.c.mu.Unlock()
	cl.halt(nil)
	close(cl.finished)
}

// closeRuns ends all runs, and waits for them until ctx ends.
func (c *Coordinator) closeRuns(ctx context.Context) (errs []error) {
	c.mu.Lock()
	c.closing = true
	runs := slices.Collect(maps.Values(c.runs))
	c.mu.Unlock()
	for _, cl := range runs {
		cl.halt(closed("coordinator"))
	}
	for _, cl := range runs {
		select {
		case <-cl.finished:
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("%s under plan %q still runs: %w", cl.config.Function,
				cl.config.Plan.ID, ctx.Err()))
		}
	}
	return errs
}
