package ledger

import "encoding/json"

// Command asks a worker for one compensation. It is the JSON body of a NATS
// request on UndoSubject; docs/workers.md describes it for other languages.
type Command struct {
	Tenant     string          `json:"tenant"`
	Plan       string          `json:"plan"`
	Action     string          `json:"action"`
	Address    string          `json:"address"` // of the forward it undoes, as FormatAddress with the whole leaf
	Capability string          `json:"capability"`
	Arguments  json.RawMessage `json:"arguments"` // object; missing bindings are null (S20)
	// Key is the idempotency key: 32 lower-case hex digits, the same for every
	// attempt (S22).
	Key string `json:"key"`
	// Attempt counts from 1.
	Attempt uint32 `json:"attempt"`
	// Term is the holder's; a worker refuses a command of a lower term than it
	// has seen.
	Term             uint64 `json:"term"`
	BlindCleanup     bool   `json:"blind_cleanup"`      // the forward left no usable output
	DirtyFailure     bool   `json:"dirty_failure"`      // the forward timed out or its agent vanished
	HasForwardOutput bool   `json:"has_forward_output"` // arguments could bind to its output
	TimeoutMs        int64  `json:"timeout_ms"`         // answer within this, or say working
	WorkerVersion    string `json:"worker_version,omitempty"`
}

// Statuses of a Reply.
const (
	StatusDone    = "done"    // undone, or was undone already under this key
	StatusFailed  = "failed"  // not undone; may be tried again
	StatusStop    = "stop"    // never will be undone by trying again
	StatusWorking = "working" // a CompensationReported record will follow
)

// Reply is a worker's answer to a Command.
type Reply struct {
	Status      string          `json:"status"`
	Output      json.RawMessage `json:"output,omitempty"`
	ExternalRef string          `json:"external_ref,omitempty"`
	Code        string          `json:"code,omitempty"`
	Message     string          `json:"message,omitempty"`
	UntilMs     int64           `json:"until_ms,omitempty"` // working: unix ms by which to ask again
	Worker      string          `json:"worker,omitempty"`
	WorkNs      int64           `json:"work_ns,omitempty"`
}

// UndoSubject is where commands for a capability of a tenant are sent.
func UndoSubject(tenant, capability string) string { return "undo." + tenant + "." + capability }

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
	State  string `json:"state"` // as PlanState: unwinding, compensated, ...
	Reason string `json:"reason,omitempty"`
}

// OutcomeQuery asks, on QuerySubject(tenant, "plan.outcome"), what became of a
// plan once the record at Sequence has been folded.
type OutcomeQuery struct {
	Plan     string `json:"plan"`
	Sequence uint64 `json:"sequence"`
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
	// Refused says why records of the commit at Sequence were refused or void.
	Refused []string `json:"refused,omitempty"`
	Applied uint64   `json:"applied"`
	Error   string   `json:"error,omitempty"`
}

// States of a plan as people and triggers read them.
const (
	StateOpen        = "open"
	StateCommitted   = "committed"
	StateUnwinding   = "unwinding"
	StateCompensated = "compensated"
	StateQuarantined = "quarantined"
	StateFailed      = "failed"
	StateResolved    = "resolved"
)
