package view

// Worker is a capability that undoes what is held, and who serves it.
type Worker struct {
	Capability string `json:"capability"` // of the undo
	Held       uint64 `json:"held"`       // actions that it would undo, or is to undo now
	Due        uint64 `json:"due"`        // of these, owed or under way
	Plan       string `json:"plan"`       // one that holds them
	// yes, no, unknown: whether a worker subscribes it now, where the server says so
	Served  string `json:"served"`
	HeardNs int64  `json:"heard_ns,omitempty"`
}

// WorkersAnswer answers worker.ls.
type WorkersAnswer struct {
	Workers []Worker `json:"workers"`           // by capability
	Partial bool     `json:"partial,omitempty"` // there are more plans than one answer reads
	Error   string   `json:"error,omitempty"`
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

// Served says who takes a call.
type Served struct {
	ServedCall
	Served  string `json:"served"`             // as Worker.Served
	HeardNs int64  `json:"heard_ns,omitempty"` // when a worker last answered this host
	// OtherVersion is what a worker has answered that refuses the version, if none of that
	// version has answered since.
	OtherVersion string `json:"other_version,omitempty"`
}

// ServedAnswer answers worker.served, in the order of the question.
type ServedAnswer struct {
	Calls []Served `json:"calls"`
	Error string   `json:"error,omitempty"`
}
