package api

import "encoding/json"

// ReviewQuery asks for the actions that wait for a verdict, the one that has waited longest first
// (review.ls).
type ReviewQuery struct {
	Agent      string `json:"agent,omitempty"` // of the plan
	Capability string `json:"capability,omitempty"`
	Label      string `json:"label,omitempty"` // of the plan
	After      string `json:"after,omitempty"` // Next of the batch before
	Limit      int    `json:"limit,omitempty"` // 1..1000, default 100
	// Plan and Action ask for one action, with its whole input and Review.Block. Action is as
	// WhyQuery has it.
	Plan   string `json:"plan,omitempty"`
	Action string `json:"action,omitempty"`
}

// ReviewAnswer answers review.ls.
type ReviewAnswer struct {
	Reviews []Review `json:"reviews"`
	Next    string   `json:"next,omitempty"` // goes into After; empty: no more
	// Action is the id of the one that was asked for, if its plan has it, also where it does not wait.
	Action string `json:"action,omitempty"`
	// Paused is set where the batch ends because it has looked at enough actions, not
	// because it is full.
	Paused bool `json:"paused,omitempty"`
}

// Review is an action that waits for a supervisor's verdict before its forward runs.
type Review struct {
	Plan       string          `json:"plan"`
	Action     string          `json:"action"`
	Number     int             `json:"number"` // of the action in its plan
	Capability string          `json:"capability"`
	Class      string          `json:"class"` // compensable, irreversible, effectless
	Agent      string          `json:"agent"`
	Label      string          `json:"label,omitempty"` // of the plan
	Owner      string          `json:"owner,omitempty"`
	SinceNs    int64           `json:"since_ns"`              // when it was registered, unix ns
	DeadlineNs int64           `json:"deadline_ns,omitempty"` // of the plan
	Input      json.RawMessage `json:"input,omitempty"`       // sealed values stay sealed
	// Omitted is set where Input is left out of a list: it is over 8 KiB. The answer about one
	// action has it. Whoever allows has not seen it: an agent decides how large an input is.
	Omitted bool `json:"omitted,omitempty"`
	// Block is what a block would undo, should the action be found to have happened: it and what
	// came after it. Set where one action was asked for. Only the step of the action itself has
	// arguments: those of the others are made of inputs and outputs of other actions.
	Block *Preview `json:"block,omitempty"`
}
