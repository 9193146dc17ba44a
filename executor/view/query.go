package view

import "github.com/sagenbaum/sagenbaum/proto/api"

// PlanQuery asks for one plan (plan.show).
type PlanQuery struct {
	Plan     string `json:"plan"`
	Sequence uint64 `json:"sequence,omitempty"` // answer once this has been folded
}

// ListQuery asks for a list: quarantine.ls, refused.ls.
type ListQuery struct {
	// After: quarantine.ls: plan id; the batch starts after it.
	After         string `json:"after,omitempty"`
	AfterSequence uint64 `json:"after_sequence,omitempty"` // refused.ls: after this one
	Limit         int    `json:"limit,omitempty"`          // 1..1000, default 100
}

// PlanAnswer answers plan.show.
type PlanAnswer struct {
	Plan  Plan   `json:"plan"`
	Error string `json:"error,omitempty"`
}

// PlansAnswer answers plan.ls (to a Filter) and quarantine.ls.
type PlansAnswer struct {
	Plans []Plan `json:"plans"`
	Next  string `json:"next,omitempty"` // goes into After; empty: no more
	// AsOf of plan.ls is the sequence at which the list began, as in Next.
	AsOf uint64 `json:"as_of,omitempty"`
	// Moving of plan.ls is how many of the plans come first because they are being undone.
	Moving int    `json:"moving,omitempty"`
	Error  string `json:"error,omitempty"`
}

// RefusedAnswer answers refused.ls.
type RefusedAnswer struct {
	Refused []Refused `json:"refused"`
	Error   string    `json:"error,omitempty"`
}

// PreviewQuery asks what an unwind would do (plan.preview).
type PreviewQuery = api.PreviewQuery

// ExplainQuery asks what the leases of a plan or an action answer, and why.
type ExplainQuery struct {
	Plan string `json:"plan"`
	// Action: number or id; empty: the plan's own, and those of all its actions.
	Action string `json:"action,omitempty"`
	Lease  string `json:"lease,omitempty"` // empty: all
}

// ExplainAnswer answers trigger.explain.
type ExplainAnswer struct {
	Explain Explain `json:"explain"`
	Error   string  `json:"error,omitempty"`
}

// PreviewAnswer answers plan.preview.
type PreviewAnswer = api.PreviewAnswer

// UndoQuery asks for attempts of undos (undo.ls): of a plan, of one action of it, or
// of a capability (of the forward); one of plan and capability is required.
type UndoQuery struct {
	Plan       string `json:"plan,omitempty"`
	Action     string `json:"action,omitempty"`
	Capability string `json:"capability,omitempty"`
	After      string `json:"after,omitempty"` // as Next of the batch before
	Limit      int    `json:"limit,omitempty"` // 1..1000, default 100
}

// UndosAnswer answers undo.ls.
type UndosAnswer struct {
	Undos []Undo `json:"undos"`
	Next  string `json:"next,omitempty"`
	Error string `json:"error,omitempty"`
}

// ContractQuery asks for published contracts (contract.ls): the current revision of
// each capability, or of one capability, or all revisions.
type ContractQuery struct {
	Capability string `json:"capability,omitempty"`
	Revisions  bool   `json:"revisions,omitempty"` // all, not the current one only
	After      string `json:"after,omitempty"`     // capability; the batch starts after it
	Limit      int    `json:"limit,omitempty"`     // 1..1000, default 100
}

// ContractsAnswer answers contract.ls.
type ContractsAnswer struct {
	Contracts []Contract `json:"contracts"`
	Next      string     `json:"next,omitempty"`
	Error     string     `json:"error,omitempty"`
}

// StatusAnswer answers status.
type StatusAnswer struct {
	Status Status `json:"status"`
	Error  string `json:"error,omitempty"`
}

// HostAnswer answers host, which is asked of all hosts of a tenant.
type HostAnswer struct {
	Host  Host   `json:"host"`
	Error string `json:"error,omitempty"`
}

// ErrorAnswer is what every answer can be read as first.
type ErrorAnswer struct {
	Error string `json:"error,omitempty"`
	Field string `json:"field,omitempty"` // of the request that is wrong, as in "request.plan"
	Want  string `json:"want,omitempty"`  // what would be right there
}

// Modes of a tenant on a host, as in Status.
const (
	ModeStarting = "starting"    // its ledger is not open yet, or was interrupted
	ModeStandby  = "standby"     // folds; another host holds the tenant, or none yet
	ModeHolding  = "holding"     // decides and dispatches
	ModeGuard    = "clock-guard" // holds, but no clock lease fires
	ModeHalted   = "halted"      // a guard has failed: nothing is dispatched
	// a disk cannot be written: nothing is folded or dispatched until it can
	ModeDegraded = "degraded"
	ModeErased   = "erased" // for good, or about to be: nothing is read or written any more
)

// FindQuery asks for plans in order of opening, the latest first (plan.find). Empty
// fields select all.
type FindQuery struct {
	State      string `json:"state,omitempty"` // as Plan.State
	Agent      string `json:"agent,omitempty"`
	Capability string `json:"capability,omitempty"` // of one of its actions
	Label      string `json:"label,omitempty"`      // the label, or key=value of one of the labels
	Text       string `json:"text,omitempty"`       // what its id or its label begins with
	FromNs     int64  `json:"from_ns,omitempty"`    // opened at or after this
	UntilNs    int64  `json:"until_ns,omitempty"`   // opened before this
	After      string `json:"after,omitempty"`      // Next of the batch before
	Limit      int    `json:"limit,omitempty"`      // 1..1000, default 100
}

// FindAnswer answers plan.find.
type FindAnswer struct {
	Plans []Plan `json:"plans"`
	Next  string `json:"next,omitempty"` // goes into After; empty: no more
	// Paused is set where the batch ends because it has looked at enough plans, not
	// because it is full.
	Paused bool   `json:"paused,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Filter selects plans; empty fields select all.
type Filter struct {
	State string `json:"state,omitempty"`
	Agent string `json:"agent,omitempty"`
	Label string `json:"label,omitempty"`
	// After is the Next of the batch before, or a plan id; the batch starts after it.
	After string `json:"after,omitempty"`
	Limit int    `json:"limit,omitempty"` // 1..1000, default 100
}
