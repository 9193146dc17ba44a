package api

// Whether a worker serves a capability now, as far as the server says it.
const (
	ServedYes     = "yes"
	ServedNo      = "no"
	ServedUnknown = "unknown"
	// ServedListener: only such subscribe as are no members of a queue group, which workers are,
	// and have not just answered: a terminal that listens, a stream that stores.
	ServedListener = "listener"
)

// WorkersAnswer answers worker.ls.
type WorkersAnswer struct {
	Workers []Worker `json:"workers"`           // by capability
	Partial bool     `json:"partial,omitempty"` // there are more plans than one answer reads
}

// Worker is a capability that undoes what is held, and who serves it.
type Worker struct {
	Capability string `json:"capability"` // of the undo
	Held       uint64 `json:"held"`       // actions that it would undo, or is to undo now
	Due        uint64 `json:"due"`        // of these, owed or under way
	Plan       string `json:"plan"`       // one that holds them
	Served     string `json:"served"`     // as ServedYes and its like
	HeardNs    int64  `json:"heard_ns,omitempty"`
}

// ServedQuery asks worker.served about calls.
type ServedQuery struct {
	Calls []ServedCall `json:"calls"` // at most 1000
}

// ServedCall is a call that a worker has to take.
type ServedCall struct {
	Capability string `json:"capability"`
	Undo       bool   `json:"undo"`              // else a question
	Version    string `json:"version,omitempty"` // of the worker, that a registration asks for
}

// ServedAnswer answers worker.served, in the order of the question.
type ServedAnswer struct {
	Calls []Served `json:"calls"`
}

// Served says who takes a call.
type Served struct {
	ServedCall
	Served  string `json:"served"`             // as Worker.Served
	HeardNs int64  `json:"heard_ns,omitempty"` // when a worker last answered this host
	// OtherVersion is what a worker has answered that refuses the version, if none of that
	// version has answered since.
	OtherVersion string `json:"other_version,omitempty"`
}

// CapabilitiesAnswer answers capability.ls.
type CapabilitiesAnswer struct {
	Capabilities []Capability `json:"capabilities"`
	Omitted      bool         `json:"omitted,omitempty"` // there are more
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
