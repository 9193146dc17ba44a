package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
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
}

// Call is what a forward is told.
type Call struct {
	Plan, Action, Capability string

	// Key is the forward's own idempotency key for the tool it calls: 32 lower-case
	// hex digits, known from plan and action alone. The undo has another one.
	Key   string
	Input json.RawMessage // as registered; empty when there is none
}

// Outcome is what a forward returns when its effect happened.
type Outcome struct {
	Output      any    // JSON: bindings of the undo read it as output
	ExternalRef string // what the provider calls the effect, for people and probes
}

// Forward makes an action's effect. Its context ends with that of Do, or when
// the plan is ended or undone while it runs.
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

// action is one action of an open plan; its plan's mu guards it. pair, call and
// contract do not change once it is registered.
type action struct {
	call     Call
	contract *compiled
	pair     *bundle
	reported bool
	state    actionState
	cancel   context.CancelCauseFunc // of the forward that runs
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
)

// Do registers an action, runs its forward once the pair is durable, and returns
// the forward's output in JSON. The outcome is queued and shares the next commit.
// A forward's error is returned as it is and undoes nothing (S70).
//
// Errors before the forward has run: *ledger.Refused (nothing was queued, or the
// ledger took nothing), ledger.ErrInDoubt (the pair may be stored; call again
// with the same Action), ledger.ErrBusy, ErrClosed, ErrUnwinding, ctx's. A refusal
// of an output that cannot be recorded comes after it: the action is completed
// without an output then, and its undo must do without.
func (p *OpenPlan) Do(ctx context.Context, declared Action, forward Forward) (json.RawMessage, error) {
	if forward == nil {
		return nil, fmt.Errorf("cannot register action %q: %w", declared.ID, ledger.Refuse("forward", "missing", "a function, or Report for what has happened"))
	}
	a, err := p.register(ctx, declared, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot register action %q: %w", declared.ID, err)
	}
	if _, err := p.c.wait(ctx, a.pair); err != nil {
		return nil, fmt.Errorf("cannot register action %q: %w", a.call.Action, err)
	}
	ctx, err = p.start(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("cannot start action %q: %w", a.call.Action, err)
	}
	outcome, err := p.run(ctx, a, forward)
	if err != nil {
		return nil, p.finishFailed(a, err)
	}
	return p.finishCompleted(a, outcome)
}

// Report registers an action that has already happened: its pair and its
// completion are one commit, durable when Report returns. Errors as of Do.
func (p *OpenPlan) Report(ctx context.Context, declared Action, outcome Outcome) error {
	a, err := p.register(ctx, declared, &outcome)
	if err != nil {
		return fmt.Errorf("cannot report action %q: %w", declared.ID, err)
	}
	if _, err := p.c.wait(ctx, a.pair); err != nil {
		return fmt.Errorf("cannot report action %q: %w", a.call.Action, err)
	}
	return nil
}

// register queues the pair of an action, or joins the one that an earlier call
// with the same ID has queued. happened is what Report reports.
func (p *OpenPlan) register(ctx context.Context, declared Action, happened *Outcome) (*action, error) {
	contract := p.c.contracts[declared.Capability]
	if contract == nil {
		return nil, ledger.Refuse("action.capability", fmt.Sprintf("%q is not declared", declared.Capability), "a capability with a contract")
	}
	input, err := encode("action.input", declared.Input)
	if err != nil {
		return nil, err
	}
	if err := p.c.committer.enter(ctx, p.c.appendTimeout); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a, err := p.admit(declared, input, happened != nil)
	if err == nil && a == nil {
		a, err = p.add(declared, contract, input, happened)
		if err == nil {
			return a, nil
		}
	}
	p.c.committer.leave() // nothing was queued with the place
	return a, err
}

// admit says whether an action may be registered: the action itself when an
// earlier call has, nil when it is new. Called with mu held.
func (p *OpenPlan) admit(declared Action, input json.RawMessage, report bool) (*action, error) {
	if err := p.ended(); err != nil {
		return nil, err
	}
	if p.unwound != nil && !report {
		return nil, p.unwound // what has happened is told even then: it must be undone too
	}
	a := p.actions[declared.ID]
	if a != nil && !a.pair.failed() {
		switch {
		case a.call.Capability != declared.Capability || !bytes.Equal(a.call.Input, input) || a.reported != report:
			return nil, ledger.Refuse("action.id", fmt.Sprintf("%q is another action already", declared.ID), "an id of its own for each action")
		case a.state != actionRegistered && !report:
			return nil, ledger.Refuse("action.id", fmt.Sprintf("%q has run already", declared.ID), "an id of its own for each action")
		}
		return a, nil
	}
	for i, id := range declared.After {
		if before := p.actions[id]; before == nil || id == declared.ID || before.pair.failed() {
			return nil, ledger.Refuse(fmt.Sprintf("action.after[%d]", i), fmt.Sprintf("%q is no action of this plan", id), "the id of an action registered before")
		}
	}
	return nil, nil
}

// add makes the pair of a new action and queues it. Called with mu held.
func (p *OpenPlan) add(declared Action, contract *compiled, input json.RawMessage, happened *Outcome) (*action, error) {
	id := declared.ID
	for n := len(p.order) + 1; id == ""; n++ {
		if number := strconv.Itoa(n); p.actions[number] == nil {
			id = number
		}
	}
	lifted, err := contract.lifted(input)
	if err != nil {
		return nil, ledger.Refuse("action.input", err.Error(), "fields that can be lifted")
	}
	forward, inverse := contract.pair(p.id, id, ledger.Key(p.c.tenant, p.id, id, ledger.PurposeUndo), &pb.ForwardRegistered{
		Capability: declared.Capability, After: slices.Clone(declared.After), Branch: declared.Branch,
		Lifted: lifted, EffectCrossed: happened != nil,
	})
	if len(input) > 0 {
		forward.Payload = &pb.Payload{Input: input}
	}
	a := &action{
		call:     Call{Plan: p.id, Action: id, Capability: declared.Capability, Key: ledger.Key(p.c.tenant, p.id, id, ledger.PurposeDo), Input: input},
		contract: contract, finished: make(chan struct{}),
	}
	records := []*pb.Record{forward, inverse}
	if happened != nil {
		completed, _, err := p.completed(a, *happened)
		if err != nil {
			return nil, err
		}
		records = append(records, completed)
		a.reported, a.state = true, actionEnded
	}
	if err := p.c.check(p.id, records...); err != nil {
		return nil, err
	}
	if a.pair, err = p.queueCall(records...); err != nil {
		return nil, err
	}
	if refused := p.actions[id]; refused != nil { // a call whose pair was refused: this one takes its place
		p.order = slices.DeleteFunc(p.order, func(b *action) bool { return b == refused })
	}
	p.actions[id] = a
	p.order = append(p.order, a)
	return a, nil
}

// start claims a registered action for its forward: of several calls with one ID
// one runs it. The plan may have ended, and ctx too, while the pair was stored.
func (p *OpenPlan) start(ctx context.Context, a *action) (context.Context, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ended() != nil:
		return nil, p.ended()
	case a.state != actionRegistered:
		return nil, ledger.Refuse("action.id", fmt.Sprintf("%q has run already", a.call.Action), "an id of its own for each action")
	case p.unwound != nil:
		return nil, errors.Join(p.unwound, p.giveUp(a))
	case ctx.Err() != nil:
		return nil, ctx.Err() // may be called again
	}
	ctx, a.cancel = context.WithCancelCause(ctx)
	a.state = actionRunning
	p.running++
	return ctx, nil
}

// giveUp queues that a registered action was never called, so that no one has to
// doubt it. Called with mu held.
func (p *OpenPlan) giveUp(a *action) error {
	a.state = actionEnded
	record := p.outcome(a)
	record.Kind = &pb.Record_ForwardFailed{ForwardFailed: &pb.ForwardFailed{
		Code: codeNotStarted, Message: "the agent registered the action and did not call it",
	}}
	return p.queueOutcome(record)
}

// run calls the forward. A panic goes on after it is recorded, with its stack.
func (p *OpenPlan) run(ctx context.Context, a *action, forward Forward) (outcome Outcome, err error) {
	returned := false
	defer func() {
		if !returned {
			p.vanished(a)
		}
	}()
	outcome, err = forward(ctx, a.call)
	returned = true
	return outcome, err
}

// vanished records a forward that did not return. The process may be about to
// end, so it waits a moment for the record; without it the action is in doubt
// just the same.
func (p *OpenPlan) vanished(a *action) {
	record := p.outcome(a)
	record.Kind = &pb.Record_ForwardInDoubt{ForwardInDoubt: &pb.ForwardInDoubt{
		Code: codePanic, Message: "the forward panicked or ended its goroutine",
	}}
	if _, err := p.finish(a, record); err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), ForwardGrace)
	defer cancel()
	if err := p.flushOutcomes(ctx); err != nil {
		p.c.logger.Warn("outcome not known to be stored", "tenant", p.c.tenant, "plan", p.id, "action", a.call.Action, "error", err)
	}
}

// finishFailed records what a forward's error means and returns it for Do.
func (p *OpenPlan) finishFailed(a *action, cause error) error {
	record, message := p.outcome(a), clip(cause.Error())
	if errors.Is(cause, ErrNotTaken) {
		record.Kind = &pb.Record_ForwardFailed{ForwardFailed: &pb.ForwardFailed{Code: codeNotTaken, Message: message}}
	} else {
		code := codeError
		switch {
		case errors.Is(cause, context.DeadlineExceeded):
			code = codeDeadline
		case errors.Is(cause, context.Canceled):
			code = codeCancelled
		}
		record.Kind = &pb.Record_ForwardInDoubt{ForwardInDoubt: &pb.ForwardInDoubt{Code: code, Message: message}}
	}
	unwound, err := p.finish(a, record)
	switch {
	case err != nil:
		return fmt.Errorf("cannot record outcome of action %q: %w: %w", a.call.Action, err, cause)
	case unwound != nil:
		return fmt.Errorf("%w: %w", unwound, cause)
	}
	return cause
}

func (p *OpenPlan) finishCompleted(a *action, outcome Outcome) (json.RawMessage, error) {
	record, output, problem := p.completed(a, outcome)
	if _, err := p.finish(a, record); err != nil {
		return output, fmt.Errorf("cannot record outcome of action %q: %w", a.call.Action, err)
	}
	if problem != nil {
		return output, fmt.Errorf("cannot record output of action %q: %w", a.call.Action, problem)
	}
	return output, nil
}

// finish ends an action and queues its outcome. It says whether the plan is
// being undone.
func (p *OpenPlan) finish(a *action, record *pb.Record) (unwound, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a.state = actionEnded
	p.running--
	err = p.queueOutcome(record)
	a.cancel(nil)
	close(a.finished)
	return p.unwound, err
}

// completed makes the record of an effect that happened. What cannot be recorded
// of it is left out, with the reason as detail and as problem: the effect is
// there and must be known, whatever it returned.
func (p *OpenPlan) completed(a *action, outcome Outcome) (record *pb.Record, output json.RawMessage, problem error) {
	done := &pb.ForwardCompleted{ExternalRef: outcome.ExternalRef}
	record = p.outcome(a)
	record.Kind = &pb.Record_ForwardCompleted{ForwardCompleted: done}
	output, problem = encode("outcome.output", outcome.Output)
	if problem == nil {
		done.Lifted, problem = a.contract.lifted(output)
	}
	if problem == nil {
		if len(output) > 0 {
			record.Payload = &pb.Payload{Output: output}
		}
		if problem = p.c.check(p.id, record); problem == nil {
			return record, output, nil
		}
	}
	detail, err := json.Marshal(clip(problem.Error()))
	if err != nil {
		panic("coordinator: a string that is no JSON: " + err.Error())
	}
	record.Payload, done.Lifted = &pb.Payload{Detail: detail}, nil
	done.ExternalRef = clip(done.ExternalRef)
	return record, output, problem
}

func (p *OpenPlan) outcome(a *action) *pb.Record {
	return &pb.Record{Plan: p.id, Action: a.call.Action}
}

// encode returns the JSON of an input or output: nil for none.
func encode(field string, value any) (json.RawMessage, error) {
	if value == nil {
		return nil, nil
	}
	if raw, ok := value.(json.RawMessage); ok {
		if len(raw) > 0 && !json.Valid(raw) {
			return nil, ledger.Refuse(field, "not JSON", "one JSON value")
		}
		return bytes.Clone(raw), nil // it is read after the call has returned
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil, ledger.Refuse(field, err.Error(), "a value that encoding/json takes")
	}
	return data, nil
}

// clip shortens a text to what a record takes.
func clip(text string) string {
	if len(text) > ledger.TextMax {
		text = text[:ledger.TextMax]
	}
	return strings.ToValidUTF8(text, "")
}
