package contract

import (
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Class says what can be done about an effect once it has happened. An empty
// class is undeclared and refused.
type Class string

// The classes of docs/glossary.md.
const (
	Compensable  Class = "compensable"  // its inverse undoes it
	Irreversible Class = "irreversible" // nothing undoes it: an unwind leaves it to the plan's owner
	Effectless   Class = "effectless"   // there is nothing to undo: an unwind skips it
)

// OnInDoubt says what an unwind does with an action that may have happened.
type OnInDoubt string

// What to do in doubt. The default is InDoubtProbe with a probe, whatever
// late says; else InDoubtCompensate.
const (
	InDoubtProbe OnInDoubt = "probe" // ask the world
	// undo it blindly: the inverse must tolerate that nothing happened
	InDoubtCompensate OnInDoubt = "compensate"
	InDoubtQuarantine OnInDoubt = "quarantine" // leave it to the plan's owner
)

// OnLate says what becomes of a forward that reports its effect after its action
// was undone or skipped.
type OnLate string

// What to do with a late effect. The default is LateCompensate.
const (
	LateCompensate OnLate = "compensate" // a duty of its own: undone under a key of its own
	LateQuarantine OnLate = "quarantine" // leave it to the plan's owner
)

// Late says what keeps a forward that its caller has given up from landing.
type Late string

// What keeps it from landing. The default is that nothing does but time: see
// Contract.Settle.
const (
	LateRefused Late = "refused" // the provider refuses a forward whose undo came first
	LateNever   Late = "never"   // it happens in the agent's own process, and ends with the call
)

// Scope says what a condition that turns true undoes.
type Scope string

// What is undone. The default is ScopeAction.
const (
	ScopeAction Scope = "action" // the action and what came after it; then the plan goes on
	ScopePlan   Scope = "plan"   // the whole plan
)

// Fidelity says how true to the state before an undo is.
type Fidelity string

// The fidelities; an empty one is not said.
const (
	Exact    Fidelity = "exact"    // as if it had never been
	Semantic Fidelity = "semantic" // the same for the business: a refund
	Lossy    Fidelity = "lossy"    // only made up for: a correction
)

// ActuatorNATS, ActuatorAgent and ActuatorMemory carry out an inverse: a worker that
// calls one tool, one that runs a model with several, or the executor's own
// working memory. ApproveOwner has the plan's owner say yes to each undo.
const (
	ActuatorNATS   = ledger.ActuatorNATS
	ActuatorAgent  = ledger.ActuatorAgent
	ActuatorMemory = ledger.ActuatorMemory
	ApproveOwner   = "owner"
)

// Contract declares a capability: what undoes it and how. It is data, frozen
// into every registration, so that a later change of it touches no held
// compensation. docs/guide/contracts.md describes each field.
//
// A map of arguments holds CEL where a text begins with '=', and literals
// elsewhere: {"path": "=input.path", "force": true}. A path that leads nowhere is
// null. Expressions that are no arguments are CEL with or without the '='.
type Contract struct {
	Capability string   `json:"capability" jsonschema:"The forward: dotted names, as in git.branch.create."`
	Class      Class    `json:"class" jsonschema:"What can be done about the effect once it has happened."`
	Fidelity   Fidelity `json:"fidelity,omitempty" jsonschema:"How true to the state before the undo is."`
	Stage      Stage    `json:"stage,omitempty" jsonschema:"commit: each act is staged, and made once its plan has been committed; it needs deliver."`

	Before  *Before  `json:"before,omitempty" jsonschema:"What to ask before the forward crosses; the answer is kept as the before-image."`
	Inverse *Inverse `json:"inverse,omitempty" jsonschema:"What undoes the effect; required for class compensable, refused for the others."`
	Deliver *Deliver `json:"deliver,omitempty" jsonschema:"How an act that is staged is made once its plan has been committed; for class irreversible."`
	Probe   *Probe   `json:"probe,omitempty" jsonschema:"How the world is asked whether the effect is there."`

	Timeout       time.Duration `json:"timeout,omitempty" jsonschema:"After which the agent gives the forward up, counted from its registration. Default: it runs as long as the agent lets it."`
	Grace         time.Duration `json:"grace,omitempty" jsonschema:"How long the agent lets the forward run on once its plan unwinds. Default: 2s."`
	Late          Late          `json:"late,omitempty" jsonschema:"What keeps a forward that was given up from landing. refused: the provider refuses it once its undo is there; never: it happens in the agent and ends with the call. Default: nothing but time, as settle says."`
	Settle        time.Duration `json:"settle,omitempty" jsonschema:"The longest a forward may take to land, from its start or from when it was given up; larger than what the clocks of server and executor may differ by. Default: the timeout, else 30s."`
	AskAfter      time.Duration `json:"ask_after,omitempty" jsonschema:"How long a doubt lasts before the probe is asked about it while the plan is open. Default: 1m."`
	UnservedAfter time.Duration `json:"unserved_after,omitempty" jsonschema:"How long no worker may take a call of the inverse, the probe or the check before the action is its owner's. Default: 1h."`

	OnInDoubt OnInDoubt `json:"on_in_doubt,omitempty" jsonschema:"What an unwind does with an action that may have happened. Default: probe with a probe; else compensate."`
	OnLate    OnLate    `json:"on_late,omitempty" jsonschema:"What becomes of an effect that is reported after its undo or skip. Default: compensate."`

	ValidFor   time.Duration `json:"valid_for,omitempty" jsonschema:"Undo window after completion, as in 180d. Default: no limit."`
	ValidUntil string        `json:"valid_until,omitempty" jsonschema:"CEL over input that gives the end of the undo window as a timestamp; null is no limit."`
	Warn       time.Duration `json:"warn,omitempty" jsonschema:"How long before its window closes a held action is announced. Default: a tenth of the window, at most a day."`

	Lift      []string `json:"lift,omitempty" jsonschema:"Top-level fields of input and output that triggers may read; the others are payload."`
	Sensitive []string `json:"sensitive,omitempty" jsonschema:"Fields of input, output and before that are sealed in the ledger and can be erased, as in input.card or output.items.*.token."`

	Triggers    map[string]string `json:"triggers,omitempty" jsonschema:"Standing conditions, name to CEL; one that turns true undoes the action and what came after it, or the plan."`
	Scopes      map[string]Scope  `json:"scopes,omitempty" jsonschema:"What a condition undoes, by its name: action, which is the default, or plan."`
	AfterCommit []string          `json:"after_commit,omitempty" jsonschema:"Conditions, by name, that are held after the commit, too, until the undo window closes; it needs valid_for or valid_until."`
	Page        string            `json:"page,omitempty" jsonschema:"Name of the hook that pages the owner. Default: default."`

	Review        bool          `json:"review,omitempty" jsonschema:"The forward waits for a supervisor's verdict before it crosses."`
	ReviewTimeout time.Duration `json:"review_timeout,omitempty" jsonschema:"How long it waits before it is refused. Default: 10m."`
}

// Before is asked before the forward crosses; its output is kept with the
// registration and read as before. Arguments read input, plan and meta.
type Before struct {
	Call     string         `json:"call" jsonschema:"Capability that is asked; it changes nothing."`
	With     map[string]any `json:"with,omitempty" jsonschema:"Its arguments."`
	Timeout  time.Duration  `json:"timeout,omitempty" jsonschema:"Of one attempt. Default: 30s."`
	Attempts int            `json:"attempts,omitempty" jsonschema:"Default: 3."`
	Backoff  time.Duration  `json:"backoff,omitempty" jsonschema:"Before attempt 2, doubling. Default: 1s."`
}

// Inverse undoes the forward. Arguments read input, output, before, plan and meta, and beside
// Unchanged also probe, what the probe has found right before. They are resolved when the undo is
// dispatched.
type Inverse struct {
	Call          string         `json:"call" jsonschema:"Capability that undoes the forward."`
	With          map[string]any `json:"with,omitempty" jsonschema:"Its arguments."`
	Actuator      string         `json:"actuator,omitempty" jsonschema:"nats: a worker that calls one tool; agent: a worker that runs a model with several; memory: fact.assert or fact.retract in working memory. Default: agent if there is an agent task, else nats."`
	Agent         *Agent         `json:"agent,omitempty" jsonschema:"What an actuator of kind agent is given beside the arguments."`
	WorkerVersion string         `json:"worker_version,omitempty" jsonschema:"Version of the worker that must carry out the undo. Default: any."`
	Attempts      int            `json:"attempts,omitempty" jsonschema:"Before the action is quarantined. Default: 5."`
	Backoff       time.Duration  `json:"backoff,omitempty" jsonschema:"Before attempt 2, doubling. Default: 1s."`
	BackoffMax    time.Duration  `json:"backoff_max,omitempty" jsonschema:"Where doubling ends. Default: 1m."`
	Jitter        *int           `json:"jitter,omitempty" jsonschema:"Percent by which each backoff may grow. Default: 20."`
	Timeout       time.Duration  `json:"timeout,omitempty" jsonschema:"Of one attempt. Default: 30s."`
	Dedupe        time.Duration  `json:"dedupe,omitempty" jsonschema:"How long the provider remembers an idempotency key; after that the probe is asked before it is sent again. Default: for ever."`
	Done          string         `json:"done,omitempty" jsonschema:"CEL over error and result: true for an error that means undone already."`
	Stop          string         `json:"stop,omitempty" jsonschema:"CEL over error and result: true for an error that will never go away."`
	Unchanged     string         `json:"unchanged,omitempty" jsonschema:"CEL over probe: true where what the forward left is as it left it. The probe is asked before each attempt; what someone else has changed goes to its owner. Needs a probe."`
	Verify        *Verify        `json:"verify,omitempty" jsonschema:"What is asked after the undo, to see that the effect is gone."`
	Approve       string         `json:"approve,omitempty" jsonschema:"owner: each undo waits for the word of the plan's owner."`
}

// Agent is the task of a worker that runs a model.
type Agent struct {
	Tools    []string `json:"tools" jsonschema:"All capabilities that it may call: two or more."`
	Prompt   string   `json:"prompt,omitempty" jsonschema:"What it is to do."`
	MaxTurns int      `json:"max_turns,omitempty" jsonschema:"Turns of the model before it gives up. Default: the worker's own bound."`
	Model    string   `json:"model,omitempty" jsonschema:"Default: the worker's own."`
}

// Probe asks the world about the effect. Arguments read input, output, before,
// plan and meta; Answer and ExternalRef read probe, its output, as well.
type Probe struct {
	Call        string         `json:"call" jsonschema:"Capability that is asked; it changes nothing."`
	With        map[string]any `json:"with,omitempty" jsonschema:"Its arguments."`
	Answer      string         `json:"answer,omitempty" jsonschema:"CEL that gives present, absent, duplicate or inconclusive. Default: probe.presence."`
	ExternalRef string         `json:"external_ref,omitempty" jsonschema:"CEL that gives the provider's name of the effect; of a duplicate: of the extra effect, or a list of all, the effect first. Default: probe.external_ref."`
	Timeout     time.Duration  `json:"timeout,omitempty" jsonschema:"Of one attempt. Default: 30s."`
	Attempts    int            `json:"attempts,omitempty" jsonschema:"Before the answer is inconclusive. Default: 3."`
	Backoff     time.Duration  `json:"backoff,omitempty" jsonschema:"Before attempt 2, doubling. Default: 1s."`
}

// Verify asks after an undo whether the effect is gone. Ok reads verify, its
// output, and result, that of the undo, as well.
type Verify struct {
	Call     string         `json:"call" jsonschema:"Capability that is asked; it changes nothing."`
	With     map[string]any `json:"with,omitempty" jsonschema:"Its arguments."`
	Ok       string         `json:"ok" jsonschema:"CEL that is true when the effect is gone."`
	Timeout  time.Duration  `json:"timeout,omitempty" jsonschema:"Of one attempt. Default: 30s."`
	Attempts int            `json:"attempts,omitempty" jsonschema:"Default: 3."`
	Backoff  time.Duration  `json:"backoff,omitempty" jsonschema:"Before attempt 2, doubling. Default: 1s."`
}
