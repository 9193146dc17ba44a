package executor

// The bodies of the query API: NATS requests on api.QuerySubject, answered
// in JSON by the host that holds the tenant. docs/cli.md lists the verbs. Every
// answer may carry an error instead.

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
	Plan  PlanView `json:"plan"`
	Error string   `json:"error,omitempty"`
}

// PlansAnswer answers plan.ls (to a Filter) and quarantine.ls.
type PlansAnswer struct {
	Plans []PlanView `json:"plans"`
	Next  string     `json:"next,omitempty"` // plan id to continue after; empty: no more
	Error string     `json:"error,omitempty"`
}

// RefusedAnswer answers refused.ls.
type RefusedAnswer struct {
	Refused []RefusedView `json:"refused"`
	Error   string        `json:"error,omitempty"`
}

// PreviewQuery asks what an unwind would do (plan.preview).
type PreviewQuery struct {
	Plan string `json:"plan"`
	To   string `json:"to,omitempty"` // savepoint; empty: all of it
}

// ExplainQuery asks what the leases of a plan or an action answer, and why.
type ExplainQuery struct {
	Plan string `json:"plan"`
	// Action: number or id; empty: the plan's own, and those of all its actions.
	Action string `json:"action,omitempty"`
	Lease  string `json:"lease,omitempty"` // empty: all
}

// ExplainAnswer answers trigger.explain.
type ExplainAnswer struct {
	Explain ExplainView `json:"explain"`
	Error   string      `json:"error,omitempty"`
}

// PreviewAnswer answers plan.preview.
type PreviewAnswer struct {
	Preview PreviewView `json:"preview"`
	Error   string      `json:"error,omitempty"`
}

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
	Undos []UndoView `json:"undos"`
	Next  string     `json:"next,omitempty"`
	Error string     `json:"error,omitempty"`
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
	Contracts []ContractView `json:"contracts"`
	Next      string         `json:"next,omitempty"`
	Error     string         `json:"error,omitempty"`
}

// StatusAnswer answers status.
type StatusAnswer struct {
	Status StatusView `json:"status"`
	Error  string     `json:"error,omitempty"`
}

// HostAnswer answers host, which is asked of all hosts of a tenant.
type HostAnswer struct {
	Host  HostView `json:"host"`
	Error string   `json:"error,omitempty"`
}

// ErrorAnswer is what every answer can be read as first.
type ErrorAnswer struct {
	Error string `json:"error,omitempty"`
	Field string `json:"field,omitempty"` // of the request that is wrong, as in "request.plan"
	Want  string `json:"want,omitempty"`  // what would be right there
}

// Modes of a tenant on a host, as in StatusView.
const (
	ModeStarting = "starting"    // its ledger is not open yet, or was interrupted
	ModeStandby  = "standby"     // folds; another host holds the tenant, or none yet
	ModeHolding  = "holding"     // decides and dispatches
	ModeGuard    = "clock-guard" // holds, but no clock lease fires
	ModeHalted   = "halted"      // a guard has failed: nothing is dispatched
	// a disk cannot be written: nothing is folded or dispatched until it can
	ModeDegraded = "degraded"
)
