package executor

// The bodies of the query API: NATS requests on ledger.QuerySubject, answered
// in JSON by the host that holds the tenant. docs/cli.md lists the verbs. Every
// answer may carry an error instead.

// PlanQuery asks for one plan (plan.show).
type PlanQuery struct {
	Plan     string `json:"plan"`
	Sequence uint64 `json:"sequence,omitempty"` // answer once this has been folded
}

// ListQuery asks for a list: quarantine.ls, refused.ls.
type ListQuery struct {
	After         string `json:"after,omitempty"`          // quarantine.ls: plan id; the page starts behind it
	AfterSequence uint64 `json:"after_sequence,omitempty"` // refused.ls: behind this one
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

// StatusAnswer answers status.
type StatusAnswer struct {
	Status StatusView `json:"status"`
	Error  string     `json:"error,omitempty"`
}

// ErrorAnswer is what every answer can be read as first.
type ErrorAnswer struct {
	Error string `json:"error,omitempty"`
}

// Modes of a tenant on a host, as in StatusView.
const (
	ModeStarting = "starting"    // its ledger is not open yet, or was interrupted
	ModeStandby  = "standby"     // folds; another host holds the tenant, or none yet
	ModeHolding  = "holding"     // decides and dispatches
	ModeGuard    = "clock-guard" // holds, but no clock lease fires
	ModeHalted   = "halted"      // a guard has failed: nothing is dispatched
)
