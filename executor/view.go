package executor

import "encoding/json"

// The views are what people and programs are shown of the state; they are the
// answers of the query API and the -o json of the CLI. Times are unix ns, 0 for
// "not yet" or "none".

// PlanView is one plan. Actions, Leases and Refused are filled by Show only.
type PlanView struct {
	Plan        string            `json:"plan"`
	Agent       string            `json:"agent"`
	Label       string            `json:"label,omitempty"`
	Owner       string            `json:"owner,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	State       string            `json:"state"`
	Reason      string            `json:"reason,omitempty"`
	OpenedNs    int64             `json:"opened_ns"`
	DeadlineNs  int64             `json:"deadline_ns,omitempty"`
	EndedNs     int64             `json:"ended_ns,omitempty"`
	LastNs      int64             `json:"last_ns"`
	ActionCount int               `json:"action_count"`
	Held        int               `json:"held"`        // registrations that an unwind would owe or still owes
	Compensated int               `json:"compensated"` // undone
	Skipped     int               `json:"skipped"`
	Quarantined int               `json:"quarantined"` // waiting for the owner
	Opened      string            `json:"opened"`      // addresses
	Fired       string            `json:"fired,omitempty"`
	Ended       string            `json:"ended,omitempty"`
	Actions     []ActionView      `json:"actions,omitempty"`
	Leases      []LeaseView       `json:"leases,omitempty"`
	Refused     []RefusedView     `json:"refused,omitempty"`
	Orphans     []string          `json:"orphans,omitempty"` // forwards that came without their registration
	Omitted     []string          `json:"omitted,omitempty"` // what did not fit into one answer
}

// ActionView is one action of a plan, in the order of registration.
type ActionView struct {
	Number       int             `json:"number"` // 1..n
	Action       string          `json:"action"`
	Capability   string          `json:"capability"`
	Class        string          `json:"class"`   // compensable, irreversible, effectless
	Outcome      string          `json:"outcome"` // unknown, completed, failed, in_doubt
	Undo         string          `json:"undo"`    // held, retired, owed, ready, dispatched, waiting, compensated, skipped, quarantined, resolved
	Compensation string          `json:"compensation,omitempty"`
	Key          string          `json:"key,omitempty"`
	After        []int           `json:"after,omitempty"` // numbers of the actions it came after
	Attempt      int             `json:"attempt,omitempty"`
	Attempts     int             `json:"attempts,omitempty"`
	AtNs         int64           `json:"at_ns"`
	DueNs        int64           `json:"due_ns,omitempty"` // next attempt
	SettledNs    int64           `json:"settled_ns,omitempty"`
	Note         string          `json:"note,omitempty"` // why skipped, failed or quarantined
	Failure      string          `json:"failure,omitempty"`
	Verdict      string          `json:"verdict,omitempty"`
	Resolution   string          `json:"resolution,omitempty"` // done, lost, accepted
	ResolvedBy   string          `json:"resolved_by,omitempty"`
	Evidence     string          `json:"evidence,omitempty"`
	Input        json.RawMessage `json:"input,omitempty"`
	Output       json.RawMessage `json:"output,omitempty"`
	Registered   string          `json:"registered"` // addresses
	OutcomeAt    string          `json:"outcome_at,omitempty"`
	Dispatched   string          `json:"dispatched,omitempty"`
	Settled      string          `json:"settled,omitempty"`
	WaitsFor     string          `json:"waits_for,omitempty"` // worker or action it waits for now
	Leases       []LeaseView     `json:"leases,omitempty"`
}

// LeaseView is one standing condition.
type LeaseView struct {
	Name      string   `json:"name"`
	Condition string   `json:"condition"`
	Truth     string   `json:"truth"` // true, unknown, false
	Fired     bool     `json:"fired"`
	Moot      bool     `json:"moot,omitempty"`
	WakeNs    int64    `json:"wake_ns,omitempty"`
	Waits     []string `json:"waits,omitempty"`
	Error     string   `json:"error,omitempty"`
}

// RefusedView is a record that the fold refused (it broke a rule) or found void
// (it lost a race in the log).
type RefusedView struct {
	Sequence uint64 `json:"sequence"`
	Index    uint32 `json:"index"`
	Kind     string `json:"kind,omitempty"`
	Plan     string `json:"plan,omitempty"`
	Subject  string `json:"subject"`
	Reason   string `json:"reason"`
	Void     bool   `json:"void"`
	StampNs  int64  `json:"stamp_ns"`
}

// StatusView is the state of one tenant.
type StatusView struct {
	Tenant      string        `json:"tenant"`
	Mode        string        `json:"mode"` // holding, standby, halted, clock-guard
	Problem     string        `json:"problem,omitempty"`
	Holder      string        `json:"holder"`
	Term        uint64        `json:"term"`
	Applied     uint64        `json:"applied"` // last sequence folded
	Last        uint64        `json:"last"`    // last sequence of the stream
	Records     uint64        `json:"records"`
	TimeNs      int64         `json:"time_ns"` // logical time
	Held        uint64        `json:"held"`
	Open        uint64        `json:"open"`
	Unwinding   uint64        `json:"unwinding"`
	Quarantined uint64        `json:"quarantined"`
	Ended       uint64        `json:"ended"`
	Refused     uint64        `json:"refused"`
	Void        uint64        `json:"void"`
	NextDueNs   int64         `json:"next_due_ns,omitempty"`
	InFlight    int           `json:"in_flight"`
	Waiting     []WaitingView `json:"waiting,omitempty"` // commands without a worker
}

// WaitingView is a command in flight that wants to be looked at: no worker has
// taken it, or one says that it is still working.
type WaitingView struct {
	Working    bool   `json:"working,omitempty"`
	Capability string `json:"capability"`
	Plan       string `json:"plan"`
	Action     string `json:"action"`
	SinceNs    int64  `json:"since_ns"`
	Tries      int    `json:"tries"`
}
