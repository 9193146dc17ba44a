package ledger

import "encoding/json"

// Purposes of a Command.
const (
	PurposeProbe  = "probe"  // did the effect happen, does it still stand?
	PurposeVerify = "verify" // is it gone after the undo?
	PurposeBefore = "before" // what is there before the forward crosses? Asked by the coordinator
)

// Command asks a worker for one compensation (purpose "undo"), on UndoSubject, or
// for an answer that changes nothing (any other purpose), on AskSubject. It is the
// JSON body of a NATS request; docs/workers.md describes it for other languages.
type Command struct {
	Purpose    string          `json:"purpose"`
	Tenant     string          `json:"tenant"`
	Plan       string          `json:"plan"`
	Action     string          `json:"action"`
	Address    string          `json:"address"` // of the forward it undoes, as FormatAddress with the whole leaf
	Capability string          `json:"capability"`
	Arguments  json.RawMessage `json:"arguments"` // object; missing bindings are null (S20)
	// Opened are places in Arguments (RFC 6901) whose values were sealed in the ledger: not
	// for logs, and not for what is said of the call.
	Opened []string `json:"opened,omitempty"`
	// Key is the idempotency key: 32 lower-case hex digits, the same for every
	// attempt (S22).
	Key string `json:"key"`
	// Attempt counts from 1, for each purpose.
	Attempt uint32 `json:"attempt"`
	// Term is the holder's; a worker refuses a command of a lower term than it
	// has seen.
	Term             uint64 `json:"term"`
	BlindCleanup     bool   `json:"blind_cleanup"`      // the forward left no usable output
	DirtyFailure     bool   `json:"dirty_failure"`      // the forward timed out or its agent vanished
	HasForwardOutput bool   `json:"has_forward_output"` // arguments could bind to its output
	TimeoutMs        int64  `json:"timeout_ms"`         // answer within this, or say working
	WorkerVersion    string `json:"worker_version,omitempty"`
	// Forward is the capability that is undone, ExternalRef what its provider calls
	// the effect, where the forward or a probe said so (S109).
	Forward     string `json:"forward"`
	ExternalRef string `json:"external_ref,omitempty"`
	// Traceparent is the W3C trace context of this attempt, where the executor traces;
	// it is linked to that of the forward.
	Traceparent string `json:"traceparent,omitempty"`
	// Agent is set for an actuator of kind "agent" (S9).
	Agent *AgentTask `json:"agent,omitempty"`
}

// AgentTask is what a worker with a model is given beside the arguments: all the
// tools that it may call, what it is to do, and how long.
type AgentTask struct {
	Tools    []string `json:"tools"`
	Prompt   string   `json:"prompt,omitempty"`
	MaxTurns uint32   `json:"max_turns,omitempty"` // 0: the worker's own bound
	Model    string   `json:"model,omitempty"`
}

// Statuses of a Reply.
const (
	StatusDone    = "done"    // undone, or was undone already under this key
	StatusFailed  = "failed"  // not undone; may be tried again
	StatusStop    = "stop"    // never will be undone by trying again
	StatusWorking = "working" // a CompensationReported record will follow
)

// Reply is a worker's answer to a Command. It counts only when it repeats the key and
// the attempt of the command (Command.CheckReply).
type Reply struct {
	Key         string          `json:"key"`
	Attempt     uint32          `json:"attempt"`
	Status      string          `json:"status"`
	Output      json.RawMessage `json:"output,omitempty"`
	ExternalRef string          `json:"external_ref,omitempty"`
	Code        string          `json:"code,omitempty"`
	Message     string          `json:"message,omitempty"`
	UntilMs     int64           `json:"until_ms,omitempty"` // working: unix ms by which to ask again
	Worker      string          `json:"worker,omitempty"`
	WorkNs      int64           `json:"work_ns,omitempty"`  // all of the worker's time, and of that:
	SetupNs     int64           `json:"setup_ns,omitempty"` // before the first tool
	ToolNs      int64           `json:"tool_ns,omitempty"`  // in tools
	LLMNs       int64           `json:"llm_ns,omitempty"`   // in a model; 0 for a single tool
}

// UndoSubject is where commands for a capability of a tenant are sent.
func UndoSubject(tenant, capability string) string { return "undo." + tenant + "." + capability }

// AskSubject is where questions that change nothing are sent.
func AskSubject(tenant, capability string) string { return "ask." + tenant + "." + capability }

// PageSubject is where every page to an owner is published, beside the webhook
// that the host may have for the hook.
func PageSubject(tenant, hook string) string { return "page." + tenant + "." + hook }

// PageDefault is the hook of a contract that names none, PageOperators that of what
// concerns those who run the executor; without a webhook of its own it has the default's.
const (
	PageDefault   = "default"
	PageOperators = "operators"
)

// Kinds of a Page.
const (
	PageQuarantined   = "quarantined"
	PageCommitWaits   = "commit_waits" // an action in doubt keeps its plan from being committed
	PageActClaimed    = "act_claimed"  // a record that was refused claims an act; about a plan
	PageWindowClosing = "undo_window_closing"
	PageCascadeCut    = "cascade_cut"
	PageStuckWorker   = "stuck_worker" // nobody serves a command, or a worker says working for long
	PageClockGuard    = "clock_guard"  // no deadline fires until the clocks agree
)

// Page calls an owner to an action. It is sent until its hook has taken it; ID is
// the same each time, and its own for each quarantine.
type Page struct {
	ID         string `json:"id"`   // address of the record that it is about; of stuck_worker and clock_guard a name of its own
	Kind       string `json:"kind"` // quarantined, commit_waits, act_claimed, undo_window_closing, cascade_cut, stuck_worker, clock_guard
	Hook       string `json:"hook"`
	Tenant     string `json:"tenant"`
	Plan       string `json:"plan"` // empty: clock_guard
	Action     string `json:"action,omitempty"`
	Capability string `json:"capability,omitempty"`
	Label      string `json:"label,omitempty"`
	Owner      string `json:"owner,omitempty"`
	Agent      string `json:"agent"`
	Reason     string `json:"reason"`
	AtNs       int64  `json:"at_ns"`
	ClosesNs   int64  `json:"closes_ns,omitempty"` // undo_window_closing
	Escalated  bool   `json:"escalated,omitempty"` // nobody has taken it on its own hook: operators get it, too
}

// QuerySubject is where the holder of a tenant answers questions about its
// state, for example "plan.show". It carries no records.
func QuerySubject(tenant, verb string) string { return "query." + tenant + "." + verb }

// NoticeSubject is where the holder tells an agent what became of its plan:
// best effort, a hint and never truth.
func NoticeSubject(tenant, agent, plan string) string {
	return "notice." + tenant + "." + agent + "." + plan
}

// Notice is the body of a message on NoticeSubject.
type Notice struct {
	Plan   string `json:"plan"`
	State  string `json:"state"` // of the plan: open, unwinding, compensated, ...
	Reason string `json:"reason,omitempty"`
	// Action, Verdict and By are set when a supervisor has given a verdict.
	Action  string `json:"action,omitempty"`
	Verdict string `json:"verdict,omitempty"` // allow, block, redirect
	By      string `json:"by,omitempty"`
	// Savepoint is set when the plan was rewound to it and is open again.
	Savepoint string `json:"savepoint,omitempty"`
	// Writer is set when the plan was resumed: the process that its records are taken
	// from now on.
	Writer string `json:"writer,omitempty"`
}

// OutcomeQuery asks, on QuerySubject(tenant, "plan.outcome"), what became of a
// plan once the record at Sequence has been folded.
type OutcomeQuery struct {
	Plan     string `json:"plan"`
	Sequence uint64 `json:"sequence"`
	// Action asks for the verdict on this action too.
	Action string `json:"action,omitempty"`
	// Ended waits for the plan's end instead; the answer comes when it is there
	// or after WaitMs.
	Ended  bool  `json:"ended,omitempty"`
	WaitMs int64 `json:"wait_ms,omitempty"`
}

// OutcomeAnswer is the answer to an OutcomeQuery. Error is set instead when the
// plan is unknown or the sequence was not folded in time.
type OutcomeAnswer struct {
	State       string   `json:"state,omitempty"`
	Reason      string   `json:"reason,omitempty"`
	Outstanding []string `json:"outstanding,omitempty"`
	// Doubts are the actions of the tree that its commit waits for, while it is committing.
	Doubts []Doubt `json:"doubts,omitempty"`
	// Refused says why records of the commit at Sequence were refused or void.
	Refused []string `json:"refused,omitempty"`
	Applied uint64   `json:"applied"`
	// Writer is the process whose records the plan takes.
	Writer string `json:"writer,omitempty"`
	// Verdict, VerdictReason and VerdictBy are those of the action that was asked for.
	Verdict       string `json:"verdict,omitempty"`
	VerdictReason string `json:"verdict_reason,omitempty"`
	VerdictBy     string `json:"verdict_by,omitempty"`
	Error         string `json:"error,omitempty"`
}

// Doubt is what a commit waits for: an action of which it is not known whether it happened,
// or an act that a refused record claims.
type Doubt struct {
	Action string `json:"action"`          // of a child plan: plan/action
	Owner  bool   `json:"owner,omitempty"` // it waits for its owner's word; false: for an answer of the world
	Waits  string `json:"waits"`           // for what, for people
}

// States of a plan as people and triggers read them.
const (
	StateOpen        = "open"
	StateCommitting  = "committing" // its commit waits for actions in doubt
	StateCommitted   = "committed"
	StateUnwinding   = "unwinding"
	StateCompensated = "compensated"
	StateQuarantined = "quarantined"
	StateFailed      = "failed"
	StateResolved    = "resolved"
)
