package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// run is one call of Run. mu guards what the function's calls change; the fields
// above it are set before the function starts.
type run struct {
	c *Coordinator
	// a committer that appends for this plan alone, fenced; nil: nothing is appended
	own     *Coordinator
	config  RunConfig
	opening *pb.Record
	ctx     context.Context // of Run
	plan    *Plan           // nil: the plan is being undone, and the function only gives its handlers
	claimed time.Time       // no later than the append that claimed the plan
	fenced  time.Time       // from then on no other process starts a forward
	linger  bool            // the handlers may be needed when Run has returned
	state   string          // of the plan, when it was read
	serves  string          // the plan whose handlers are offered: this one, or the one that undoes it
	present *nats.Subscription

	past     map[string]*api.PastAction // the function's calls as recorded, by action
	order    []string                   // of them, as registered
	forwards map[string]*pb.ForwardRegistered
	owed     map[string]bool // their undo may still be asked for
	handlers *handlers
	vault    *vault

	mu     sync.Mutex
	called map[string]bool
	next   int   // all of order before it are called
	broken error // after which the function cannot go on

	life     context.Context // ends with Close, and when another Run takes the handlers over
	halt     context.CancelCauseFunc
	lingers  bool          // its handlers are offered after Run; guarded by c.mu
	finished chan struct{} // closed when nothing of it is left
}

// all is Run between its start and its release.
func (r *run) all(ctx context.Context, function func(context.Context, *ReplayPlan) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.life, func() { cancel(context.Cause(r.life)) })()
	r.ctx = ctx
	if err := r.open(ctx); err != nil || r.serves == "" {
		return err
	}
	err := function(ctx, &ReplayPlan{r})
	r.mu.Lock()
	broken := r.broken
	if broken == nil {
		r.broken = closed("function " + r.config.Function)
	}
	r.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("nothing is said of its end: %w", context.Cause(ctx))
	case broken != nil:
		return broken
	}
	if missing := r.missing(err); missing != nil {
		return missing
	}
	if r.plan == nil && r.state == ledger.StateCommitting {
		return r.awaitCommit(ctx)
	}
	if r.plan == nil {
		return r.await(ctx, err)
	}
	return r.end(ctx, err)
}

// open reads what is recorded, and claims the plan when it is open or new. serves
// stays empty when the plan has ended and there is nothing to do.
func (r *run) open(ctx context.Context) error {
	history, err := r.c.history(ctx, api.HistoryQuery{Plan: r.config.Plan.ID, Limit: 1}, false)
	if err != nil {
		return err
	}
	if err := r.compareOpening(history); err != nil {
		return err
	}
	if history.State == "" || history.State == ledger.StateOpen {
		history, err = r.claim(ctx, history)
		r.fenced = time.Now()
	} else {
		history, err = r.c.history(ctx, api.HistoryQuery{Plan: r.config.Plan.ID}, true)
	}
	if err != nil {
		return err
	}
	if err := r.compareOpening(history); err != nil {
		return err
	}
	if history.Agent == "" {
		return ledger.Refuse("run.plan", "the ledger has not taken its opening",
			"a plan that the ledger takes")
	}
	r.state, r.serves = history.State, r.config.Plan.ID
	switch history.State {
	case ledger.StateOpen:
		if err := r.load(ctx, history, history); err != nil {
			return err
		}
		r.adopt()
		return nil
	case ledger.StateCommitting, ledger.StateUnwinding, ledger.StateQuarantined:
		r.offerOnly()
		return r.load(ctx, history, history)
	case ledger.StateCommitted:
		return r.openUndone(ctx, history)
	}
	r.serves = ""
	return &Unwound{Plan: r.config.Plan.ID,
		End: End{State: history.State, Reason: history.Reason, Outstanding: history.Outstanding}}
}

// openUndone finds what is left to do under a committed plan: nothing, or to offer
// the handlers to the plan that undoes it.
func (r *run) openUndone(ctx context.Context, history api.HistoryAnswer) error {
	r.offerOnly()
	r.serves = ""
	if history.UndoneAs == "" {
		return nil
	}
	undoing, err := r.c.history(ctx, api.HistoryQuery{Plan: history.UndoneAs}, true)
	if err != nil {
		return err
	}
	r.state = undoing.State
	switch undoing.State {
	case ledger.StateOpen, ledger.StateUnwinding, ledger.StateQuarantined:
		r.serves = history.UndoneAs
		return r.load(ctx, history, undoing)
	}
	return &Unwound{Plan: history.UndoneAs,
		End: End{State: undoing.State, Reason: undoing.Reason, Outstanding: undoing.Outstanding}}
}

// compareOpening refuses a plan that was begun as another one.
func (r *run) compareOpening(history api.HistoryAnswer) error {
	id := r.config.Plan.ID
	switch {
	case history.Agent == "":
		return notPassed(r.config.Plan, time.Now())
	case history.Agent != r.c.agent:
		return ledger.Refuse("run.plan.id", "a plan of agent "+history.Agent,
			"an id of its own for each plan")
	}
	recorded := new(pb.PlanOpened)
	if err := recorded.UnmarshalVT(history.Opened); err != nil {
		return fmt.Errorf("cannot read how plan %q was opened: %v", id, err)
	}
	now := r.opening.GetPlanOpened()
	if recorded.Function == "" {
		return ledger.Refuse("run.plan.id", "begun without Run", "an id of its own for each plan")
	}
	for _, field := range []struct{ name, recorded, now string }{
		{"function", recorded.Function, now.Function},
		{"plan.label", recorded.Label, now.Label},
		{"plan.owner", recorded.Owner, now.Owner},
		{"plan.triggers", fmt.Sprint(recorded.Triggers), fmt.Sprint(now.Triggers)},
		{"plan.labels", fmt.Sprint(recorded.Labels), fmt.Sprint(now.Labels)},
		{"plan.concurrency", fmt.Sprint(recorded.Concurrency), fmt.Sprint(now.Concurrency)},
		{"plan.on_undo_failure", recorded.OnUndoFailure.String(), now.OnUndoFailure.String()},
		{"plan.doubt_at_commit", recorded.DoubtAtCommit.String(), now.DoubtAtCommit.String()},
		{"plan.second_approver", fmt.Sprint(recorded.SecondApprover), fmt.Sprint(now.SecondApprover)},
	} {
		if field.recorded != field.now {
			return &Diverged{Plan: id, Field: field.name, Recorded: fmt.Sprintf("%q", field.recorded),
				Now: fmt.Sprintf("%q", field.now)}
		}
	}
	r.opening = &pb.Record{Plan: id, Kind: &pb.Record_PlanOpened{PlanOpened: recorded}}
	return nil
}

// claim makes this process the only one whose records of the plan are stored, by
// an append after which its further ones are fenced, and reads what is before it.
func (r *run) claim(ctx context.Context, history api.HistoryAnswer) (api.HistoryAnswer, error) {
	if err := r.announce(ctx); err != nil {
		return history, err
	}
	own := r.c.fencedCopy()
	r.plan = newPlan(own, r.opening)
	r.plan.vault, r.plan.replays, r.plan.resumed = r.vault, true, true
	r.own, r.claimed = own, time.Now()
	r.c.mu.Lock()
	r.c.plans[r.plan.id] = r.plan // for notices
	r.c.mu.Unlock()
	resumed := &pb.Record{Plan: r.plan.id,
		Kind: &pb.Record_PlanResumed{PlanResumed: &pb.PlanResumed{}}}
	if history.Agent != "" {
		r.plan.opening = resumed
	}
	for {
		if err := r.plan.flush(ctx, true); err != nil {
			return history, err
		}
		history, err := r.c.history(ctx, api.HistoryQuery{Plan: r.plan.id, Sequence: r.plan.stored()},
			true)
		if err != nil || history.State != ledger.StateOpen || history.Writer == own.writer ||
			r.plan.opening == resumed {
			return history, err
		}
		r.plan.opening = resumed // another process has opened it just before
	}
}

// announce says that this process runs the plan, unless another one does.
func (r *run) announce(ctx context.Context) error {
	subject := api.RunSubject(r.c.tenant, r.c.agent, r.config.Plan.ID)
	if !r.config.TakeOver {
		if err := r.alone(ctx, subject); err != nil {
			return err
		}
	}
	// a hint: without it the fence decides
	sub, err := r.c.conn.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond(nil) })
	if err != nil {
		return fmt.Errorf("cannot say who runs the plan: %v", err)
	}
	r.present = sub
	bounded, cancel := context.WithTimeout(ctx, r.c.appendTimeout)
	defer cancel()
	if err := r.c.conn.FlushWithContext(bounded); err != nil {
		return fmt.Errorf("cannot say who runs the plan: %v", err)
	}
	return nil
}

// alone asks whether another process runs the plan. One that has just gone may not
// have been missed by the server yet: a question that is not answered is asked again.
func (r *run) alone(ctx context.Context, subject string) error {
	for range presenceTries {
		bounded, cancel := context.WithTimeout(ctx, presenceMax)
		_, err := r.c.bus.question(bounded, question{subject: subject, replies: subject + "."})
		cancel()
		switch {
		case errors.Is(err, errNobody):
			return nil
		case err == nil:
			return ErrRunning
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("cannot ask who runs the plan: %v", err)
		}
	}
	return fmt.Errorf("%w, and does not answer (or this user may not publish %s)", ErrRunning, subject)
}

// load takes what is recorded of the function's calls. The handlers are owed to
// the plan that is undone.
func (r *run) load(ctx context.Context, history, undone api.HistoryAnswer) error {
	if err := r.vault.openPast(ctx, history.Actions); err != nil {
		return err
	}
	r.forwards, r.owed = map[string]*pb.ForwardRegistered{}, map[string]bool{}
	for _, past := range undone.Actions {
		if past.Owed {
			name := past.Action
			if past.DutyOf != "" {
				name = past.DutyOf
			}
			r.owed[name] = true
		}
	}
	for i := range history.Actions {
		past := &history.Actions[i]
		if past.DutyOf != "" || past.Child != "" {
			continue // the function did not call it
		}
		f := new(pb.ForwardRegistered)
		if err := f.UnmarshalVT(past.Forward); err != nil {
			return fmt.Errorf("cannot read what is recorded of action %q: %v", past.Action, err)
		}
		r.forwards[past.Action], r.past[past.Action] = f, past
		r.order = append(r.order, past.Action)
	}
	r.handlers.owe(r.past, r.owed)
	return nil
}

// adopt has the plan know what is recorded, as if this process had registered it.
func (r *run) adopt() {
	p := r.plan
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range r.order {
		p.count++
		a := &action{
			plan:   p,
			number: p.count, queued: r.claimed, pair: &bundle{plan: p.id, done: make(chan struct{}),
				seq: r.past[id].Sequence}, state: actionEnded, finished: make(chan struct{}),
			call: Call{Plan: p.id, Action: id, Capability: r.forwards[id].Capability,
				Key: ledger.Key(p.c.tenant, p.id, id, ledger.PurposeDo)},
		}
		close(a.pair.done)
		p.actions[id] = a
		p.order = append(p.order, a)
	}
}

// adopted makes an action of another process, whose outcome is open, ready to run.
func (p *Plan) adopted(declared Action, past *api.PastAction) (*action, error) {
	input, err := encode("action.input", declared.Input)
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
	case a.reviewTimeout == 0 || past.Verdict != "": // without its verdict it was not called
		a.doubt = &pb.ForwardInDoubt{Code: codeInterrupted,
			Message: "its process ended, and it was not called again"}
	}
	return a, nil
}

// end commits the plan, or fails it and waits.
func (r *run) end(ctx context.Context, cause error) error {
	r.plan.mu.Lock()
	unwinding := r.plan.unwinding() != nil
	r.plan.mu.Unlock()
	for {
		var err error
		switch {
		case unwinding:
		case cause == nil:
			err = r.plan.Commit(ctx)
		default:
			err = r.plan.Fail(ctx, clip(cause.Error()))
		}
		switch {
		case err == nil && cause == nil && !unwinding:
			return nil
		case err == nil, errors.Is(err, ErrUnwound), errors.Is(err, ErrUnwinding):
			return r.await(ctx, cause)
		case errors.Is(err, ErrCommitWaits):
			return r.awaitCommit(ctx)
		case errors.Is(err, ErrSuperseded):
			return ErrSuperseded
		case ctx.Err() == nil && (errors.Is(err, ErrUnconfirmed) || errors.Is(err, ErrInDoubt) ||
			errors.Is(err, ErrBusy)):
			pause(ctx, askDelay)
		default:
			return err
		}
	}
}

// awaitCommit waits until a commit that waits is made, or the plan is undone instead. The
// handlers are offered meanwhile.
func (r *run) awaitCommit(ctx context.Context) error {
	r.linger = true
	for {
		err := (&Plan{c: r.c, id: r.serves, changed: make(chan struct{})}).confirm(ctx, 0)
		var waits *CommitWaits
		switch mayWait := r.config.Until != UntilFailed; {
		case err == nil:
			r.linger = false
			return nil
		case errors.Is(err, ErrUnwound):
			return r.await(ctx, nil)
		case ctx.Err() != nil:
			return err
		case errors.As(err, &waits) && (!mayWait || waits.Owner() && r.config.Until != UntilResolved):
			return err
		case waits == nil && !errors.Is(err, ErrUnconfirmed):
			return err
		}
		pause(ctx, askDelayMax)
	}
}

// await waits for the end of a plan that is being undone, as Until says.
func (r *run) await(ctx context.Context, cause error) error {
	unwound := &Unwound{Plan: r.serves, End: End{State: ledger.StateUnwinding}, Cause: cause}
	if r.config.Until == UntilFailed {
		r.linger = true
		return unwound
	}
	for {
		end, err := r.c.Wait(ctx, r.serves)
		if err != nil {
			return err
		}
		unwound.End, r.linger = end, !final(end.State)
		if end.State != ledger.StateQuarantined || r.config.Until == UntilUnwound {
			return unwound
		}
		pause(ctx, askDelayMax)
	}
}

// final reports whether no handler will ever be asked for again.
func final(state string) bool {
	return state == ledger.StateCommitted || state == ledger.StateCompensated ||
		state == ledger.StateFailed || state == ledger.StateResolved
}

// fencedCopy is this coordinator with a committer for one plan alone.
func (c *Coordinator) fencedCopy() *Coordinator {
	own := &Coordinator{ // without a connection: it runs nothing
		tenant: c.tenant, agent: c.agent, writer: ulid.Make().String(), language: c.language,
		registry: c.registry, answers: c.answers,
		appendTimeout: c.appendTimeout, confirmTimeout: c.confirmTimeout, reviewTimeout: c.reviewTimeout,
		logger: c.logger,
		bus:    c.bus, plans: map[string]*Plan{}, runs: map[string]*run{},
	}
	own.committer = newCommitter(c.committer.store, c.tenant, c.agent, own.writer, c.logger)
	own.committer.fenced = true
	own.silence = own.bus.reconnected(own.committer.again)
	ctx, halt := context.WithCancelCause(context.Background())
	own.halt = halt
	go own.committer.run(ctx) // ended by disown, through Close
	return own
}

// offerOnly has the function give its handlers, and nothing else.
func (r *run) offerOnly() {
	r.disown()
	r.plan = nil
}

// disown ends what appends for this run: what is queued is stored first, or given up
// after a moment.
func (r *run) disown() {
	ctx, cancel := context.WithTimeout(context.Background(), ForwardGrace)
	defer cancel()
	if r.present != nil {
		// A connection that is closed has ended it too, and needs no flush.
		_ = r.present.Unsubscribe()
		_ = r.c.conn.FlushWithContext(ctx)
		r.present = nil
	}
	if r.own == nil {
		return
	}
	err := r.plan.flushOutcomes(ctx)
	if err := errors.Join(err, r.own.Close(ctx)); err != nil && !errors.Is(err, ErrClosed) &&
		!errors.Is(err, ErrSuperseded) {
		r.c.logger.Warn("what a run has queued may not be stored", "tenant", r.c.tenant, "plan",
			r.plan.id, "error", err)
	}
	r.c.forget(r.plan)
	r.own = nil
}

// release ends a run, when Run returns, however it does. Handlers that may still be
// needed are offered on, when the unwind has not ended for good.
func (r *run) release() {
	r.disown()
	r.c.mu.Lock()
	r.lingers = r.linger && !r.c.closing
	lingers := r.lingers
	r.c.mu.Unlock()
	if lingers {
		go r.offer() // ends with the plan, or by Close
		return
	}
	r.dismiss()
}

// offer keeps the handlers until their plan has ended for good.
func (r *run) offer() {
	for r.life.Err() == nil {
		if end, err := r.c.Wait(r.life, r.serves); err == nil && final(end.State) {
			break
		}
		pause(r.life, askDelayMax)
	}
	r.dismiss()
}

// dismiss ends the handlers and forgets the run.
func (r *run) dismiss() {
	r.handlers.close()
	r.c.mu.Lock()
	if r.c.runs[r.config.Plan.ID] == r {
		delete(r.c.runs, r.config.Plan.ID)
	}
	r.c.mu.Unlock()
	r.halt(nil)
	close(r.finished)
}

// closeRuns ends all runs, and waits for them until ctx ends.
func (c *Coordinator) closeRuns(ctx context.Context) (errs []error) {
	c.mu.Lock()
	c.closing = true
	runs := slices.Collect(maps.Values(c.runs))
	c.mu.Unlock()
	for _, r := range runs {
		r.halt(closed("coordinator"))
	}
	for _, r := range runs {
		select {
		case <-r.finished:
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("%s under plan %q still runs: %w", r.config.Function,
				r.config.Plan.ID, ctx.Err()))
		}
	}
	return errs
}

// history reads what is recorded of a plan: all of it, page by page, or one page. It
// waits for an executor until ctx ends. Agent is empty when there is no such plan.
func (c *Coordinator) history(ctx context.Context, q api.HistoryQuery,
	all bool) (whole api.HistoryAnswer, err error) {
	if q.Limit == 0 {
		q.Limit = historyPage
	}
	for delay := askDelay; ; {
		page, err := c.historyPage(ctx, q)
		switch {
		case err == nil && q.After == 0:
			whole = page
		case err == nil:
			whole.Actions = append(whole.Actions, page.Actions...)
		case ctx.Err() != nil:
			return whole, fmt.Errorf("%w (%v)", ctx.Err(), err)
		default:
			c.logger.Warn("what is recorded is not known yet", "tenant", c.tenant, "plan", q.Plan, "error",
				err)
			pause(ctx, delay)
			delay = min(2*delay, askDelayMax)
			continue
		}
		if !all || page.Next <= q.After {
			return whole, nil
		}
		q.After, delay = page.Next, askDelay
	}
}

func (c *Coordinator) historyPage(ctx context.Context,
	q api.HistoryQuery) (answer api.HistoryAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, historyWait)
	defer cancel()
	reply, err := c.bus.ask(ctx, api.HistorySubject(c.tenant, c.agent), mustJSON(q))
	if err != nil {
		return answer, fmt.Errorf("cannot ask what is recorded: %w", err)
	}
	if err := json.Unmarshal(reply, &answer); err != nil {
		return answer, fmt.Errorf("cannot read answer of executor: %v", err)
	}
	if answer.Error != "" {
		return answer, fmt.Errorf("executor: %s", answer.Error)
	}
	return answer, nil
}
