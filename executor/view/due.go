package view

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
	// lease, retry, settle, window, unserved (no one takes it: its owner's then)
	Kind   string `json:"kind"`
	Plan   string `json:"plan"`
	Action string `json:"action,omitempty"` // empty: the plan's own lease
	Lease  string `json:"lease,omitempty"`
	Shared uint64 `json:"shared,omitempty"` // other leases that are asked as one with it
	Label  string `json:"label,omitempty"`
}

// UpcomingAnswer answers due.ls.
type UpcomingAnswer struct {
	Upcoming Upcoming `json:"upcoming"`
	Error    string   `json:"error,omitempty"`
}

// Capability is a capability that actions of a tenant have named, and who has
// undone them lately.
type Capability struct {
	Capability string     `json:"capability"`
	Latest     string     `json:"latest"` // the plan that named it last, by opening
	LatestNs   int64      `json:"latest_ns"`
	Workers    []Seen     `json:"workers"` // lately, by name
	InFlight   []InFlight `json:"in_flight"`
	Omitted    bool       `json:"omitted,omitempty"` // more are in flight
}

// Seen is a worker that has answered attempts to undo what a capability did.
type Seen struct {
	Worker   string `json:"worker"`
	LastNs   int64  `json:"last_ns"` // of its last answer
	Attempts int    `json:"attempts"`
	Failed   int    `json:"failed"`  // of these, not done
	WorkNs   int64  `json:"work_ns"` // of all
}

// InFlight is a command that waits for its answer.
type InFlight struct {
	Plan         string `json:"plan"`
	Action       string `json:"action"`
	Number       int    `json:"number"`
	Compensation string `json:"compensation"` // the capability that is asked
	SinceNs      int64  `json:"since_ns"`
	Attempt      int    `json:"attempt"`
}

// CapabilitiesAnswer answers capability.ls.
type CapabilitiesAnswer struct {
	Capabilities []Capability `json:"capabilities"`
	Omitted      bool         `json:"omitted,omitempty"` // there are more
	Error        string       `json:"error,omitempty"`
}
