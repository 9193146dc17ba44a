package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// RunConfig says what Run runs, and how.
type RunConfig struct {
	// Plan declares the plan. Its ID is required, and the same each time. Its deadline
	// counts from the first time. It has no parent.
	Plan PlanSpec

	// Function is required: the name of the function, which is recorded. It must be
	// the same each time.
	Function string

	// OnChange says what becomes of an action whose contract or handler version is
	// another one than recorded.
	OnChange OnChange

	// Until says how long Run waits when the plan is undone.
	Until Until

	// TakeOver claims the plan also from a process that still runs it, or does not
	// answer: that one gets ErrSuperseded with the next thing that it does.
	TakeOver bool
}

// OnChange says what a Run does about an action whose contract or handler version
// is another one than recorded.
type OnChange uint8

// What to do. A version that the action has in Undo.Earlier is no change.
const (
	RefuseChange OnChange = iota // refuse to go on: *Diverged
	// KeepRecorded goes on. What was registered stays as it was; its undo waits for a
	// process with the recorded version of the handler, which this one does not offer.
	KeepRecorded
)

// Until says how long Run waits when the plan is undone.
type Until uint8

// How long to wait. Handlers are offered meanwhile, and after that by the
// Coordinator, until the plan has ended for good or Close.
const (
	UntilUnwound  Until = iota // until all is undone, or waits for the plan's owner
	UntilResolved              // also for the owner
	UntilFailed                // not at all: until the failure is durable
)

// Handler undoes one action, in the agent's code. It runs in the process that
// runs the plan, when the executor asks for it: perhaps in another process than the
// forward, and again under the same key. What it returns means what it means in
// package worker; worker.Stop(err) says that trying again will not help.
type Handler func(ctx context.Context, u UndoCall) error

// UndoCall is what a handler is given.
type UndoCall struct {
	Plan, Action, Capability string // the capability of the forward

	Key        string // the same for each attempt
	ForwardKey string // of the forward: what to look for when Blind, and what to refuse from now on
	Attempt    int    // from 1

	Input, Output, Before json.RawMessage // as recorded; empty when there is none
	ExternalRef           string          // as the forward or a probe said it

	Blind bool // no one knows whether the forward happened
}

// Undo says in code what undoes an action, where a contract would name a worker.
type Undo struct {
	Handler Handler // required

	// Version of the handler: 1 to 12 letters, digits, '-' or '_'; default "1". It is
	// recorded with the action. Change it when the handler changes.
	Version string

	// Earlier has the handlers of other versions, for what they are recorded for.
	Earlier map[string]Handler

	// Contract has the rest: attempts and timeout of the inverse, a probe, a window,
	// triggers, ... Its capability, class and Inverse.Call are filled in.
	Contract contract.Contract
}

// Find looks whether the effect of a forward that the process died in is there:
// found says so, and outcome is what the forward would have returned. An error: it is not
// known. Not found: the forward runs, under the same key. What is not there yet may still
// land, so Do waits until it can land no longer, calls Find once more, and believes that
// answer: for the timeout (0 without one) and the settle of the contract, from when this
// process has claimed the plan. With late: refused or never there is nothing to wait for.
type Find func(ctx context.Context, call Call) (outcome Outcome, found bool, err error)

// plain refuses what only a Run can do.
func (a Action) plain() error {
	if a.Undo != nil || a.Repeat || a.Find != nil {
		return ledger.Refuse("action.undo", "undo, repeat or find is given outside of a Run",
			"a contract, or Coordinator.Run")
	}
	return nil
}

// Diverged says that a function does not do what is recorded of it: the
// first action that differs, and in what. Nothing was done about it.
type Diverged struct {
	Plan   string
	Action string // as recorded; where there is none, the function's
	// Field is what differs: function, plan.<field>, action, order, capability, class,
	// input, contract, after, branch, pivot, review or version.
	Field         string
	Recorded, Now string
	Cause         error // what the function returned before it had come so far
}

// Error reads `plan "p1" is not replayed: action "b": input is ..., recorded is ...`.
func (d *Diverged) Error() string {
	text := fmt.Sprintf("plan %q is not replayed: ", d.Plan)
	if d.Action != "" {
		text += fmt.Sprintf("action %q: ", d.Action)
	}
	text += fmt.Sprintf("%s is now %s, recorded is %s", d.Field, d.Now, d.Recorded)
	if d.Cause != nil {
		text += ": " + d.Cause.Error()
	}
	return text
}

// Unwrap returns what the function returned.
func (d *Diverged) Unwrap() error { return d.Cause }

// Unwound says that the plan of a Run did not end well, and how. errors.Is(err,
// ErrUnwound) holds.
type Unwound struct {
	Plan  string
	End         // its State is unwinding after UntilFailed
	Cause error // what the function returned
}

// Error reads `plan "p1" is compensated (reason): cause`.
func (u *Unwound) Error() string {
	text := fmt.Sprintf("plan %q is %s%s", u.Plan, u.State, because(u.Reason))
	if u.Cause != nil {
		text += ": " + u.Cause.Error()
	}
	return text
}

// Unwrap returns what the function returned.
func (u *Unwound) Unwrap() error { return u.Cause }

// Is makes it an ErrUnwound.
func (u *Unwound) Is(target error) bool { return target == ErrUnwound }

// Recorded is what is recorded of an action of an earlier process. Do returns it for one
// that had failed, or whose outcome is not known: the same for errors.Is as the first
// time, as far as the coordinator's own errors and ctx's go.
type Recorded struct {
	Action     string
	Capability string
	// completed, failed, in_doubt, or unknown: its process ended before it could say
	Outcome       string
	Code, Message string // of one that failed or is in doubt
	Output        json.RawMessage
	ExternalRef   string
}

// Error reads "action a: not_taken: no room (as recorded)".
func (r *Recorded) Error() string {
	if r.Outcome == api.OutcomeUnknown {
		return "action " + r.Action + ": its process ended, and nothing says whether it happened"
	}
	return fmt.Sprintf("action %s: %s: %s (as recorded)", r.Action, r.Code, r.Message)
}

// Is reports whether the error that was recorded was target.
func (r *Recorded) Is(target error) bool {
	switch r.Code {
	case codeNotTaken:
		return target == ErrNotTaken
	case codeBlocked, codeRedirected:
		return target == ErrBlocked
	case codeNoVerdict:
		return target == ErrNoVerdict
	case codeNotStarted:
		return target == ErrUnwinding
	case codeInterrupted, codePanic:
		return target == ErrInterrupted
	case codeDeadline:
		return target == context.DeadlineExceeded
	case codeCancelled:
		return target == context.Canceled
	}
	return false
}

// Run runs a function under a plan that survives its process. Run again
// with the same plan ID, after a crash, it calls the function again; actions that
// are recorded return what is recorded, and their forwards do not run. The function
// must therefore call the same actions with the same inputs in the same order: what
// else it does is done again. When it returns nil the plan is committed, when it
// returns an error the plan fails, and handlers in code undo it as well as workers;
// when ctx ends, or the process, nothing is said to the ledger: run it again.
//
// An action whose forward was under way when the process ended is in doubt. Repeat
// has it run again, under the same key; Find looks for its effect; without them Do
// records the doubt and returns ErrInterrupted, and the function decides.
//
// Errors: *Unwound (the plan is undone; it may be undone already), *Diverged (the
// function does something else than recorded), *Refused, ErrRunning,
// ErrSuperseded, ErrClosed, ErrInDoubt, ctx's. After all but the first two
// it may be run again as it is. A plan that was committed before: nil, and nothing runs.
func (c *Coordinator) Run(ctx context.Context, config RunConfig,
	function func(ctx context.Context, p *ReplayPlan) error) error {
	r, err := c.newRun(config)
	if err == nil {
		r.opening.GetPlanOpened().Trace = traceparent(ctx)
		defer r.release()
		err = r.all(ctx, function)
	}
	var unwound *Unwound
	if err == nil || errors.As(err, &unwound) {
		return err
	}
	return fmt.Errorf("cannot run %s under plan %q: %w", config.Function, config.Plan.ID, err)
}

func (c *Coordinator) newRun(config RunConfig) (*run, error) {
	switch {
	case c.conn == nil:
		return nil, ledger.Refuse("config.conn", "missing",
			"a connection to NATS: what is recorded is asked for")
	case !ledger.ValidToken(config.Function):
		return nil, ledger.Refuse("run.function", fmt.Sprintf("%q is not a name", config.Function),
			"1 to 64 letters, digits, '-' or '_'")
	case !ledger.ValidToken(config.Plan.ID):
		return nil, ledger.Refuse("run.plan.id", fmt.Sprintf("%q is not a name", config.Plan.ID),
			"1 to 64 letters, digits, '-' or '_', the same each time")
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
	opening.GetPlanOpened().Function = config.Function
	r := &run{
		c: c, config: config, opening: opening, past: map[string]*api.PastAction{},
		called:   map[string]bool{},
		finished: make(chan struct{}),
	}
	r.life, r.halt = context.WithCancelCause(context.Background())
	r.handlers, r.vault = newHandlers(c, config), newVault(c, config.Plan.ID)
	return r, c.enlist(r)
}

// enlist takes a run under the coordinator's care, which ends with release and at
// the latest with Close. One of the same plan that only offers its handlers is over.
func (c *Coordinator) enlist(r *run) error {
	c.mu.Lock()
	id := r.config.Plan.ID
	old := c.runs[id]
	var err error
	switch {
	case c.closing:
		err = closed("coordinator")
	case old != nil && !old.lingers, c.plans[id] != nil:
		err = ledger.Refuse("run.plan.id", "open already", "an id of its own for each plan")
	default:
		c.runs[id] = r
	}
	c.mu.Unlock()
	if err == nil && old != nil {
		old.halt(nil)
		<-old.finished
	}
	return err
}

// errLeftOpen has the outcome of a forward not recorded: its Run has ended, and the
// next one does with it as after a crash.
var errLeftOpen = errors.New("the run has ended")

// leaveOpen ends an action of this process and says nothing to the ledger.
func (a *action) leaveOpen() {
	p := a.plan
	p.mu.Lock()
	defer p.mu.Unlock()
	a.state = actionEnded
	p.running--
	a.cancel(nil)
	close(a.finished)
}
