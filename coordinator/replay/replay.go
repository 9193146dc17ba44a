package replay

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
)

// Config says what Run runs, and how.
type Config struct {
	// Plan declares the plan. Its ID is required, and the same each time. Its deadline
	// counts from the first time. It has no parent.
	Plan coordinator.PlanSpec

	// Function is required: the name of the function, which is recorded. It must be
	// the same each time.
	Function string

	// OnChange says what becomes of an action whose contract or handler version is
	// another one than recorded.
	OnChange OnChange

	// Until says how long Run waits when the plan is undone.
	Until Until

	// TakeOver claims the plan also from a process that still runs it, or does not
	// answer: that one gets coordinator.ErrSuperseded with the next thing that it does.
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
// coordinator, until the plan has ended for good or Close.
const (
	UntilUnwound  Until = iota // until all is undone, or waits for the plan's owner
	UntilResolved              // also for the owner
	UntilFailed                // not at all: until the failure is durable
)

// Action declares one action of a function for Do. Its fields are those of coordinator.Action, and
// what only a function that is run again can do.
type Action struct {
	ID         string // unique in the plan; default the number of the call
	Capability string // required: one that a contract declares, or Undo
	Input      any    // JSON: what the forward is called with; json.RawMessage goes as it is

	After  []string // actions of this plan that this one depends on
	Branch bool     // After is complete: it does not come after the action before it
	Pivot  bool     // going back past it needs the owner's word
	Review bool     // a supervisor's verdict is waited for before the forward runs

	Undo *Undo // the handler that undoes it, in this code; nil: a worker does

	// Repeat and Find say what becomes of a forward that the process has died in: it runs again,
	// under the same key, or its effect is looked for.
	Repeat bool
	Find   Find

	staged bool
}

// plain is the declaration without what only a replay can do.
func (a Action) plain() coordinator.Action {
	plain := coordinator.Action{ID: a.ID, Capability: a.Capability, Input: a.Input, After: a.After,
		Branch: a.Branch, Pivot: a.Pivot, Review: a.Review}
	if a.staged {
		return coordinator.Staged(plain)
	}
	return plain
}

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

	// Version of the handler: 1 to 12 letters, digits, '-' or '_'; default [BuildVersion], so
	// that a change is never overlooked and each build is another version. It is recorded with
	// the action. A version that is given outlives a build: change it when the handler changes.
	Version string

	// Earlier has the handlers of other versions, for what they are recorded for.
	Earlier map[string]Handler

	// Contract has the rest: attempts and timeout of the inverse, a probe, a window,
	// triggers, ... Its capability, class and Inverse.Call are filled in. Its UnservedAfter is how
	// long a process with the handler is waited for before the action is its owner's: 30 days, the
	// longest that there is, if nothing is given.
	Contract contract.Contract
}

// Find looks whether the effect of a forward that the process died in is there:
// found says so, and outcome is what the forward would have returned. An error: it is not
// known. Not found: the forward runs, under the same key. What is not there yet may still
// land, so Do waits until it can land no longer, calls Find once more, and believes that
// answer: for the timeout (0 without one) and the settle of the contract, from when this
// process has claimed the plan. With late: refused or never there is nothing to wait for.
type Find func(ctx context.Context, call coordinator.Call) (
	outcome coordinator.Outcome, found bool, err error)

// Diverged says that a function does not do what is recorded of it: the
// first action that differs, and in what. Nothing was done about it.
type Diverged struct {
	Plan   string
	Action string // as recorded; where there is none, the function's
	// Field is what differs: function, plan.<field>, action, order, capability, class,
	// input, contract, after, branch, pivot, review, stage or version.
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
	Plan            string
	coordinator.End       //  its State is unwinding after UntilFailed
	Cause           error // what the function returned
}

// Error reads `plan "p1" is compensated (reason): cause`.
func (u *Unwound) Error() string {
	text := fmt.Sprintf("plan %q is %s", u.Plan, u.State)
	if u.Reason != "" {
		text += " (" + u.Reason + ")"
	}
	if u.Cause != nil {
		text += ": " + u.Cause.Error()
	}
	return text
}

// Unwrap returns what the function returned.
func (u *Unwound) Unwrap() error { return u.Cause }

// Is makes it an ErrUnwound.
func (u *Unwound) Is(target error) bool { return target == coordinator.ErrUnwound }
