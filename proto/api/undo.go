package api

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
}

// Undo is one attempt of an undo.
type Undo struct {
	Plan             string `json:"plan"`
	Number           int    `json:"number"` // of the action in its plan
	Action           string `json:"action"`
	Capability       string `json:"capability"`   // of the forward
	Compensation     string `json:"compensation"` // that undoes it
	About            string `json:"about"`        // address of the forward's record
	Key              string `json:"key"`
	Attempt          int    `json:"attempt"`
	State            string `json:"state"` // ahead, dispatched, verifying, done, failed, in_doubt, recalled
	BlindCleanup     bool   `json:"blind_cleanup"`
	DirtyFailure     bool   `json:"dirty_failure"`
	HasForwardOutput bool   `json:"has_forward_output"`
	Dispatched       string `json:"dispatched"` // addresses
	Ended            string `json:"ended,omitempty"`
	DispatchedNs     int64  `json:"dispatched_ns"`
	EndedNs          int64  `json:"ended_ns,omitempty"`
	WaitedNs         int64  `json:"waited_ns"` // since it could have been dispatched
	QueuedNs         int64  `json:"queued_ns"` // dispatch until the worker had it, and back
	WorkNs           int64  `json:"work_ns"`   // the worker's own time, and of that:
	SetupNs          int64  `json:"setup_ns"`
	ToolNs           int64  `json:"tool_ns"`
	LLMNs            int64  `json:"llm_ns"`
	Worker           string `json:"worker,omitempty"`
	Code             string `json:"code,omitempty"`
	Message          string `json:"message,omitempty"`
}
