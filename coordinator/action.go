package coordinator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
	"github.com/sagenbaum/sagenbaum/coordinator/internal/value"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Action declares one action of a plan for Do or Report.
type Action struct {
	// ID is unique in the plan; default the action's number. Give one to be able
	// to call again after a doubt: the same ID never becomes a second action.
	ID         string
	Capability string // required: one that a contract declares
	Input      any    // JSON: what the forward is called with; json.RawMessage goes as it is

	// After names actions of this plan that this one depends on. It also comes
	// after the action registered before it, unless Branch says that After is
	// complete; then it may be undone in parallel with what it does not depend on.
	After  []string
	Branch bool

	// Pivot says that once this action has happened, going back past it needs the
	// owner's word.
	Pivot bool

	// Review has Do wait for a supervisor's verdict before the forward runs, as a
	// contract with review does for each action.
	Review bool

	staged   bool
	version  string // of the handler that is recorded
	compiled *compile.Compiled
}

// Call is what a forward is given.
type Call struct {
	Plan, Action, Capability string

	// Key is the forward's own idempotency key for the tool it calls: 32 lower-case
	// hex digits, known from plan and action alone. The undo has another one.
	Key   string
	Input json.RawMessage // as registered; empty when there is none

	Number   int    // of the action in its plan, in the order of registration, from 1
	Sequence uint64 // of the commit with its pair
}

// Outcome is what a forward returns when its effect happened.
type Outcome struct {
	Output      any    // JSON: bindings of the undo read it as output
	ExternalRef string // what the provider calls the effect, for people and probes

	// Before is for Report: what was there before, as JSON, where the contract wants
	// to know it; json.RawMessage("null") says that there was nothing. What Do runs is
	// asked for instead.
	Before any
}

// Forward makes an action's effect. Its context ends with that of Do, with the timeout
// of the contract, or when the plan is ended or undone while it runs, after the grace of
// the contract: what it reports until then is better than any question about it later.
// Without a timeout, and without late: refused, it also ends when no executor answers for
// half of settle, and at least for the grace: the cause is ErrUnheard.
//
// What its error means for the undo: nil, it happened. NotTaken(err), it did not.
// Any other error, a panic, or a goroutine that ends, it may have happened.
type Forward func(ctx context.Context, call Call) (Outcome, error)

// actionState is how far an action of this process has come.
type actionState uint8

const (
	actionRegistered actionState = iota // its pair is queued or stored, its forward has not started
	actionRunning
	actionEnded
)

// action is one action of an open plan; its plan's mu guards it. number, pair, call,
// contract, before and reviewTimeout do not change once it is registered.
type action struct {
	plan          *Plan
	number        int // in the order of registration, from 1
	call          Call
	contract      *compile.Compiled
	before        json.RawMessage // nil: the contract wants to know nothing
	pair          *bundle
	reported      bool
	after         []string           // the actions that it came after
	reviewTimeout time.Duration      // 0: no verdict is needed
	reviewBy      time.Time          // set by the first call that waits for one
	verdict       *Verdict           // the last one that is known
	barred        error              // why the forward must not run, once that is recorded
	givenUp       error              // why it was not called, with its plan or by itself
	doubt         *pb.ForwardInDoubt // not nil: an earlier process may have called its forward
	state         actionState
	past          *Recorded // not nil: an earlier process has registered it
	pastInput     []byte    // SHA-256 of its input, as recorded
	pastBefore    []byte    // its before-image, as recorded
	registered    *pb.ForwardRegistered
	reviewed      bool       // registered with a review, in the past
	ruled         bool       // and it may have been allowed
	again         bool       // its outcome is older than this process's claim to the plan
	said          *pb.Record // the outcome that this process has queued last
	queued        time.Time  // when its pair was queued, or its plan taken over
	// when an executor was asked last and said that the plan is open
	open     time.Time
	cancel   context.CancelCauseFunc // of the forward that runs
	due      *time.Timer             // that ends it after the plan's deadline; nil: it has none
	expire   func()                  // what it does
	overdue  bool                    // and has
	finished chan struct{}           // closed when the forward's outcome is queued
}

// Codes of outcomes that the coordinator gives itself.
const (
	codeNotTaken   = "not_taken"   // the forward said so
	codeNotStarted = "not_started" // registered, and never called
	codeDeadline   = "deadline"    // the forward ran out of time
	codeCancelled  = "cancelled"   // the forward was interrupted
	codeError      = "error"       // any other error
	codePanic      = "panic"       // the forward did not return
	codeBlocked    = "blocked"     // a supervisor blocked it before it ran
	codeRedirected = "redirected"  // a supervisor redirected it before it ran
	codeNoVerdict  = "no_verdict"  // no supervisor said a word in time
	codeUndone     = "undone"      // undone with a part of its plan before it ran

	codeInterrupted = "interrupted" // the process ended while the forward may have been under way
)

// Do registers an action, runs its forward once the pair is durable, and returns
// the forward's output in JSON. The outcome is queued and shares the next commit.
// A forward's error undoes nothing and is returned as it is; where the plan is being undone
// meanwhile, by the executor or by a Fail, a Cancel or an UnwindTo here, beside ErrUnwinding.
// What the contract wants to know before the effect is asked for first and kept with the pair;
// a verdict is waited for after the pair, which a supervisor must be able to read.
//
// Errors before the forward has run: *Refused (nothing was queued, or the
// ledger took nothing), ErrNotCaptured, ErrInDoubt (the pair may be stored;
// call again with the same Action), ErrBusy, *Verdict (which is ErrBlocked),
// ErrNoVerdict, ErrClosed, ErrUnwinding (also once the plan's deadline has passed),
// ErrNotStarted (it was registered too long ago to be called), ctx's. A refusal
// of an output that cannot be recorded comes after it: the action is completed then, and
// what its undo reads of the output is missing, so that an undo is its owner's. An output
// that is only too large is none, as long as what the contract reads of it fits: that is
// recorded.
func (p *Plan) Do(ctx context.Context, declared Action, forward Forward) (json.RawMessage, error) {
	return p.do(ctx, declared, nil, forward)
}

// Doer runs actions: a *Plan, or the plan that a function is run under.
type Doer interface {
	Do(ctx context.Context, declared Action, forward Forward) (json.RawMessage, error)
}

// Do is Plan.Do for a forward that returns a value. The value is recorded as JSON, and what
// is recorded is what Do returns, read into a T: so an action that is not run, because an
// earlier process has, returns the same. A number in an any is a json.Number, with the digits that
// are recorded. A forward that has more to say of its effect than its output, such as an
// ExternalRef, is one for Plan.Do.
//
// Errors beside those of Plan.Do: one for an output that is recorded and is no T. Beside a refusal
// of an output that cannot be recorded it is the value that the forward has returned.
func Do[T any](
	ctx context.Context, p Doer, declared Action, forward func(context.Context, Call) (T, error),
) (value T, err error) {
	var run Forward
	returned := false
	if forward != nil {
		run = func(ctx context.Context, call Call) (Outcome, error) {
			made, err := forward(ctx, call)
			if returned = err == nil; returned {
				value = made
			}
			return Outcome{Output: made}, err
		}
	}
	output, err := p.Do(ctx, declared, run)
	if len(output) == 0 || returned && err != nil {
		return value, err
	}
	value = *new(T)
	d := json.NewDecoder(bytes.NewReader(output))
	d.UseNumber() // a float64 may be another number, such as another order's
	if unread := d.Decode(&value); unread != nil && err == nil {
		err = fmt.Errorf("cannot read output of action %q as %T: %w", named(declared), value, unread)
	}
	return value, err
}

func (p *Plan) do(ctx context.Context, declared Action, caller <-chan struct{},
	forward Forward) (json.RawMessage, error) {
	p.lookAgain(ctx)
	if forward == nil {
		return nil, fmt.Errorf("cannot register action %q: %w", named(declared),
			ledger.Refuse("forward", "missing", "a function, or Report for what has happened"))
	}
	a, err := p.register(ctx, declared, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot register action %q: %w", named(declared), err)
	}
	if declared.ID == "" {
		defer leave(p, func(b *action) bool { return b == a }) // no call can come back to it
	}
	if _, err := p.c.wait(ctx, a.pair); err != nil {
		return nil, fmt.Errorf("cannot register action %q: %w", a.call.Action, err)
	}
	if a.past != nil {
		return a.recorded()
	}
	return a.execute(ctx, caller, forward)
}

// named is what an error calls an action: its id, or what it does where it has none yet.
func named(declared Action) string { return cmp.Or(declared.ID, declared.Capability) }

// Report registers an action that has already happened: its pair and its
// completion are one commit, durable when Report returns. Of an action that an earlier
// process has registered, the completion counts, also after a failure, a verdict or a
// doubt; of one that this process has run, Settle says so. Errors as of Do.
func (p *Plan) Report(ctx context.Context, declared Action, outcome Outcome) error {
	a, err := p.register(ctx, declared, &outcome)
	if err != nil {
		return fmt.Errorf("cannot report action %q: %w", named(declared), err)
	}
	if a.past != nil {
		return a.reportPast(ctx, declared, outcome)
	}
	if _, err := p.c.wait(ctx, a.pair); err != nil {
		return fmt.Errorf("cannot report action %q: %w", a.call.Action, err)
	}
	return nil
}

// draft is what is registered: a declaration with what was found out about it.
type draft struct {
	Action
	contract     *compile.Compiled
	input        json.RawMessage
	before       json.RawMessage // nil: the contract wants to know nothing
	validUntilNs int64
	happened     *Outcome // what Report reports
	reserved     bool     // the ID is a number that was taken for it
	trace        []byte   // W3C traceparent of the call
}

// register queues the pair of an action, or joins the one that an earlier call
// with the same ID has queued. happened is what Report reports.
func (p *Plan) register(ctx context.Context, declared Action, happened *Outcome) (*action, error) {
	d, err := p.draft(ctx, declared, happened)
	if err != nil {
		return nil, err
	}
	if d.contract.Before != nil && happened == nil {
		release, err := p.captureFor(ctx, d)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	if err := p.c.committer.enter(ctx, p.c.appendTimeout); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a, err := p.admit(d)
	switch {
	case err != nil || a != nil:
	case d.contract.Before != nil && d.before == nil:
		err = fmt.Errorf("%w: the call that had was refused meanwhile", ErrNotCaptured)
	default:
		if a, err = p.add(d); err == nil {
			return a, nil
		}
	}
	p.c.committer.leave() // nothing was queued with the place
	return a, err
}

// draft checks a declaration by itself.
func (p *Plan) draft(ctx context.Context, declared Action, happened *Outcome) (*draft, error) {
	t, err := declared.compiled, error(nil)
	if t == nil {
		t, err = p.c.registry.find(ctx, declared.Capability, p.since, happened != nil)
	}
	if err != nil {
		return nil, err
	}
	if len(t.Sensitive) > 0 {
		if err := p.unlock(ctx); err != nil {
			return nil, err
		}
	}
	d := &draft{Action: declared, contract: t, happened: happened, trace: traceparent(ctx)}
	if d.input, err = value.Encode("action.input", declared.Input); err != nil {
		return nil, err
	}
	if err := checkBlobs("action.input", p.id, d.input); err != nil {
		return nil, err
	}
	if d.validUntilNs, err = t.ValidUntil(d.input); err == nil {
		err = d.maySay()
	}
	if err != nil {
		return nil, err
	}
	switch {
	case happened == nil && (declared.Review || t.Review) && p.c.bus == nil:
		return nil, ledger.Refuse("config.conn", "missing",
			"a connection to NATS: the action waits for a verdict")
	case happened == nil && t.Before != nil && p.c.bus == nil &&
		p.c.answers[t.Before.Capability] == nil:
		return nil, ledger.Refuse("config.answers["+t.Before.Capability+"]", "missing",
			"an answer in this process, or a connection to NATS")
	case happened == nil:
		return d, nil
	case declared.Review:
		return nil, ledger.Refuse("action.review", "given for what has happened",
			"Do, for an action that waits for a verdict")
	}
	if d.before, err = value.Encode("outcome.before", happened.Before); err != nil {
		return nil, err
	}
	switch {
	case t.Before != nil && d.before == nil:
		return nil, ledger.Refuse("outcome.before", "missing",
			"what was there before, which the contract of "+t.Capability+" keeps for the undo")
	case len(d.before) > BeforeMax:
		return nil, ledger.Refuse("outcome.before", fmt.Sprintf("%d bytes", len(d.before)),
			fmt.Sprintf("at most %d bytes, or a blob (Plan.PutBlob)", BeforeMax))
	}
	// One that is no JSON is refused when the outcome is made.
	if output, err := value.Encode("outcome.output", happened.Output); err == nil {
		if err := checkBlobs("outcome.output", p.id, output); err != nil {
			return nil, err
		}
	}
	return d, checkBlobs("outcome.before", p.id, d.before)
}

// captureFor asks for the before-image of a new action, under the ID that it will
// have. release gives that ID back if it was not registered.
func (p *Plan) captureFor(ctx context.Context, d *draft) (release func(), err error) {
	p.mu.Lock()
	known, err := p.admit(d)
	if err != nil || known != nil {
		p.mu.Unlock()
		return func() {}, err
	}
	release = func() {}
	if d.ID == "" {
		d.ID, d.reserved = p.number(), true
		p.reserved[d.ID] = true
		release = func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.reserved, d.ID)
		}
	}
	p.mu.Unlock()
	if d.before, err = d.capture(ctx, p); err != nil {
		release()
	}
	return release, err
}

// admit says whether an action may be registered: the action itself when an
// earlier call has, nil when it is new. Called with mu held.
func (p *Plan) admit(d *draft) (*action, error) {
	if err := p.ended(); err != nil {
		return nil, err
	}
	report := d.happened != nil
	if err := p.unwinding(); err == nil && !report {
		if err := p.astray(); err != nil {
			return nil, err
		}
	} else if err != nil && !report {
		return nil, err // what has happened is recorded even then: it must be undone too
	}
	if p.reserved[d.ID] && !d.reserved {
		return nil, ledger.Refuse("action.id", fmt.Sprintf("%q is the number of another action", d.ID),
			"an id of its own for each action")
	}
	a := p.actions[d.ID]
	if a != nil && a.past != nil {
		return a, a.admitPast(d)
	}
	if a != nil && !a.pair.failed() {
		if other := a.differs(d); other != "" {
			return nil, another(d.ID, other)
		}
		switch {
		case a.barred != nil:
			return nil, a.barred
		case a.givenUp != nil:
			return nil, ledger.Refuse("action.id",
				fmt.Sprintf("%q was given up, and not called", d.ID),
				"an id of its own for each action")
		case a.state != actionRegistered && !report && !d.staged:
			return nil, ledger.Refuse("action.id", fmt.Sprintf("%q has run already", d.ID),
				"an id of its own for each action")
		}
		return a, nil
	}
	for i, id := range d.After {
		if before := p.actions[id]; before == nil || id == d.ID || before.pair.failed() {
			return nil, ledger.Refuse(fmt.Sprintf("action.after[%d]", i),
				fmt.Sprintf("%q is no action of this plan", id), "the id of an action registered before")
		} else if err := isLast(fmt.Sprintf("action.after[%d]", i), before); err != nil && !d.staged {
			return nil, err
		}
	}
	if d.staged {
		return nil, passed(p)
	}
	return nil, nil
}

// add makes the pair of a new action and queues it. Called with mu held.
func (p *Plan) add(d *draft) (*action, error) {
	id := d.ID
	if id == "" {
		id = p.number()
	}
	a := &action{
		plan: p,
		call: Call{Plan: p.id, Action: id, Capability: d.Capability,
			Key: ledger.Key(p.c.tenant, p.id, id, ledger.PurposeDo), Input: d.input},
		contract: d.contract, before: d.before, queued: time.Now(), finished: make(chan struct{}),
	}
	records, err := a.pairWith(d)
	if err != nil {
		return nil, err
	}
	if d.happened != nil {
		done := a.completed(*d.happened)
		if done.problem != nil && !done.kept &&
			!done.record.GetForwardCompleted().ReferenceIncomplete {
			return nil, done.problem
		}
		records = append(records, done.record)
		a.reported, a.state, a.said = true, actionEnded, done.record
	}
	if err := p.c.check(p.id, records...); err != nil {
		return nil, err
	}
	if a.pair, err = p.queueCall(records...); err != nil {
		return nil, err
	}
	// a call whose pair was refused: this one takes its place
	if refused := p.actions[id]; refused != nil {
		p.order = slices.DeleteFunc(p.order, func(b *action) bool { return b == refused })
	}
	a.after = slices.Clone(d.After)
	if !d.Branch {
		a.after = append(a.after, p.lastOf(d.staged)...)
	}
	if d.staged {
		a.state = actionEnded // there is nothing for this process to call
	}
	p.count++
	a.number = p.count
	p.actions[id] = a
	p.order = append(p.order, a)
	return a, nil
}

// pair makes the two records of a registration, and says how long its verdict is
// waited for. Called with mu held.
func (a *action) pairWith(d *draft) ([]*pb.Record, error) {
	p := a.plan
	lifted, err := d.contract.Lifted(d.input)
	if err != nil {
		return nil, ledger.Refuse("action.input", err.Error(), "fields that can be lifted")
	}
	id := a.call.Action
	if d.happened == nil {
		if err := d.contract.CheckTriggers(func() triggers.Scope {
			return triggers.Scope{Plan: p.readable(), Action: &triggers.Action{ID: id,
				Capability: d.Capability, Input: lifted}}
		}); err != nil {
			return nil, err
		}
	}
	pair := d.contract.Pair
	if d.staged {
		if pair, err = d.contract.StagedPair, d.contract.CheckDelivery(d.input); err != nil {
			return nil, err
		}
	}
	forward, inverse := pair(p.id, id, ledger.Key(p.c.tenant, p.id, id, ledger.PurposeUndo),
		&pb.ForwardRegistered{
			Capability: d.Capability, After: slices.Clone(d.After), Branch: d.Branch, Lifted: lifted,
			EffectCrossed: d.happened != nil, Pivot: d.Pivot, Review: d.Review, Trace: d.trace,
		})
	compensation := inverse.GetCompensationRegistered()
	compile.Until(compensation, d.validUntilNs)
	compensation.HandlerVersion = d.version
	// the handler reads all of it
	compensation.Sealed = compensation.Sealed || d.version != "" && len(d.contract.Sensitive) > 0
	if len(d.input) > 0 {
		forward.Payload = &pb.Payload{Input: p.vault.seal(d.contract, id, "input", d.input)}
	}
	if len(d.before) > 0 {
		inverse.Payload = &pb.Payload{Before: p.vault.seal(d.contract, id, "before", d.before)}
	}
	registered := forward.GetForwardRegistered()
	a.registered = registered
	if d.happened != nil {
		registered.Review = false // it has crossed: a verdict on it is like any other
	} else if registered.Review {
		a.reviewTimeout = cmp.Or(d.contract.ReviewTimeout, p.c.reviewTimeout)
	}
	return []*pb.Record{forward, inverse}, nil
}

// readable is what conditions read of a plan and does not change.
func (p *Plan) readable() triggers.Plan {
	read := triggers.Plan{ID: p.id, Status: ledger.StateOpen, Label: p.opened.Label,
		Owner: p.opened.Owner, Agent: p.c.agent, DeadlineNs: p.opened.DeadlineNs,
		Labels: map[string]string{}}
	for _, l := range p.opened.Labels {
		read.Labels[l.Key] = l.Value
	}
	return read
}

// finishFailed records what a forward's error means and returns it for Do.
func (a *action) finishFailed(cause error) error {
	if errors.Is(cause, ErrLeftOpen) || errors.As(cause, new(*happened)) {
		a.leaveOpen(cause)
		return cause
	}
	record, message := a.outcome(), ledger.Text(a.scrubbed(cause.Error()))
	if errors.Is(cause, ErrNotTaken) {
		record.Kind = &pb.Record_ForwardFailed{ForwardFailed: &pb.ForwardFailed{Code: codeNotTaken,
			Message: message}}
	} else {
		code := codeError
		switch {
		case errors.Is(cause, ErrInterrupted):
			code = codeInterrupted
		case errors.Is(cause, context.DeadlineExceeded), a.isOverdue():
			code = codeDeadline
		case errors.Is(cause, context.Canceled), errors.Is(cause, ErrUnheard):
			code = codeCancelled
		}
		record.Kind = &pb.Record_ForwardInDoubt{ForwardInDoubt: &pb.ForwardInDoubt{Code: code,
			Message: message}}
	}
	unwound, err := a.finish(record)
	switch {
	case err != nil:
		return fmt.Errorf("cannot record outcome of action %q: %w: %w", a.call.Action, err, cause)
	case unwound != nil:
		return fmt.Errorf("%w: %w", unwound, cause)
	}
	return cause
}

func (a *action) isOverdue() bool {
	a.plan.mu.Lock()
	defer a.plan.mu.Unlock()
	return a.overdue
}

func (a *action) finishCompleted(outcome Outcome) (json.RawMessage, error) {
	p := a.plan
	done := a.completed(outcome)
	if _, err := a.finish(done.record); err != nil {
		return done.output, fmt.Errorf("cannot record outcome of action %q: %w", a.call.Action, err)
	}
	if done.problem != nil && (!done.kept || p.replays) {
		return done.output, fmt.Errorf("cannot record output of action %q: %w", a.call.Action,
			done.problem)
	}
	return done.output, nil
}

// finish ends an action and queues its outcome. It says whether the plan is
// being undone.
func (a *action) finish(record *pb.Record) (unwound, err error) {
	p := a.plan
	p.mu.Lock()
	defer p.mu.Unlock()
	a.state, a.said = actionEnded, record
	p.running--
	err = p.queueOutcome(record)
	a.cancel(nil)
	close(a.finished)
	if p.unwound == nil && p.end != nil && p.ended() != nil {
		return p.end.cause, err
	}
	return p.unwound, err
}

// completion is the record of an effect that happened.
type completion struct {
	record  *pb.Record
	output  json.RawMessage // as returned
	problem error           // why not all of it is recorded
	kept    bool            // but all that the undo reads
}

// completed makes the record of an effect that happened. The effect is there and must be
// known, whatever it returned: of an output that cannot be recorded as it is, what the
// undo reads is; or nothing, and then the record says so, and the undo is its owner's.
func (a *action) completed(outcome Outcome) (c completion) {
	p := a.plan
	done := &pb.ForwardCompleted{}
	c.record = a.outcome()
	c.record.Kind = &pb.Record_ForwardCompleted{ForwardCompleted: done}
	nameless := nameEffect(done, outcome.ExternalRef)
	suffices := nameless == nil || !a.contract.ReadsReference()
	c.output, c.problem = value.Encode("outcome.output", outcome.Output)
	exact := c.problem == nil
	if exact {
		c.problem = checkBlobs("outcome.output", p.id, c.output)
	}
	if lifted, err := a.contract.Lifted(c.output); exact ||
		value.Whole(c.output, lifted) {
		done.Lifted, c.problem = lifted, cmp.Or(c.problem, err)
	}
	if c.problem == nil {
		if c.problem = a.record(c.record, c.output, nameless); c.problem == nil {
			if opened, _, err := p.vault.open(c.record.Payload.GetOutput()); err == nil &&
				len(a.contract.Sensitive) > 0 {
				c.output = opened // the bytes that a replay will return
			}
			c.problem, c.kept = nameless, suffices
			return c
		}
	}
	done.OutputIncomplete = true
	part := a.contract.Project(c.output)
	if !exact && !value.Whole(c.output, part) || checkBlobs("outcome.output", p.id, part) != nil {
		part = nil
	}
	c.kept = len(c.output) > 0 && (part != nil || !a.contract.ReadsOutput())
	if c.kept && a.record(c.record, part, c.problem) == nil {
		c.kept = suffices
		return c
	}
	if c.kept = false; a.record(c.record, nil, c.problem) != nil {
		done.Lifted = nil
	}
	return c
}

// nameEffect records what the provider calls the effect, whole or not at all: a part of a name is
// the name of something else.
func nameEffect(done *pb.ForwardCompleted, reference string) error {
	if ledger.ExactText(reference) {
		done.ExternalRef = reference
		return nil
	}
	done.ReferenceIncomplete = true
	return ledger.Refuse("outcome.external_ref",
		fmt.Sprintf("%d bytes, or no UTF-8", len(reference)),
		fmt.Sprintf("at most %d bytes of UTF-8", ledger.TextMax))
}

// record gives the record of an outcome its payload, and says whether it can be stored.
func (a *action) record(record *pb.Record, output json.RawMessage, problem error) error {
	p := a.plan
	record.Payload = nil
	if len(output) > 0 || problem != nil {
		record.Payload = &pb.Payload{Output: p.vault.seal(a.contract, a.call.Action, "output", output)}
	}
	if problem != nil {
		record.Payload.Detail = mustJSON(a.textOf(problem))
	}
	return p.c.check(p.id, record)
}

func (a *action) outcome() *pb.Record {
	p := a.plan
	return &pb.Record{Plan: p.id, Action: a.call.Action}
}
