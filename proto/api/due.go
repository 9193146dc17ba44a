package api

// UpcomingAnswer answers due.ls.
type UpcomingAnswer struct {
	Upcoming Upcoming `json:"upcoming"`
}

// Upcoming is what falls due next in a tenant, and what has waited longest.
type Upcoming struct {
	TimeNs int64 `json:"time_ns"` // of the answer
	Due    []Due `json:"due"`     // the earliest first
	// of the open, unwinding and quarantined plans the one that was opened first, each
	Oldest []Plan `json:"oldest"`
}

// Due is an instant at which time calls for a look at a plan.
type Due struct {
	Ns int64 `json:"ns"`
	// lease, retry, settle, window, ask (about a doubt of an open plan), unserved (no one takes
	// it: its owner's then)
	Kind   string `json:"kind"`
	Plan   string `json:"plan"`
	Action string `json:"action,omitempty"` // empty: the plan's own lease
	Lease  string `json:"lease,omitempty"`
	Shared uint64 `json:"shared,omitempty"` // other leases that are asked as one with it
	Label  string `json:"label,omitempty"`
}
