package api

// ExplainQuery asks what the leases of a plan or an action answer, and why.
type ExplainQuery struct {
	Plan string `json:"plan"`
	// Action: as WhyQuery has it; empty: the plan's own, and those of all its actions.
	Action string `json:"action,omitempty"`
	Lease  string `json:"lease,omitempty"` // empty: all
}

// ExplainAnswer answers trigger.explain.
type ExplainAnswer struct {
	Explain Explain `json:"explain"`
}

// Explain is what leases answer now, and why.
type Explain struct {
	Plan  string `json:"plan"`
	State string `json:"state"`
	// TimeNs: of the answers: the clock of the host, or the logical time where that is ahead.
	TimeNs  int64       `json:"time_ns"`
	Leases  []HeldLease `json:"leases"`
	Omitted bool        `json:"omitted,omitempty"` // there are more: name an action
}

// HeldLease is a lease and what it is held for.
type HeldLease struct {
	Action string `json:"action,omitempty"` // empty: the plan
	Lease
}
