package api

import (
	"encoding/json"
	"strings"
)

// HandlerPrefix begins the capability of every handler in an agent's code:
// "handler.<agent>.<function and plan>.<version>". Only that agent should be let
// subscribe to it.
const HandlerPrefix = "handler."

// HandlerText names a handler for people, as in "the handler of charge, version 2,
// of agent writer".
func HandlerText(action, version, agent string) string {
	action, _, _ = strings.Cut(action, "~") // of a duty: that of the action
	return "the handler of " + action + ", version " + version + ", of agent " + agent
}

// HistoryQuery asks, on HistorySubject, what is recorded of a plan.
type HistoryQuery struct {
	Plan     string `json:"plan"`
	Sequence uint64 `json:"sequence,omitempty"` // answer once this has been folded
	After    uint32 `json:"after,omitempty"`    // number of an action: the page starts after it
	Limit    int    `json:"limit,omitempty"`    // actions, 1..1000, default 100
}

// HistoryAnswer answers a HistoryQuery. Agent is empty when there is no such plan. When the plan is
// another agent's no field is set but that and, for an agent that had it, Handed.
type HistoryAnswer struct {
	Agent       string    `json:"agent,omitempty"`
	Handed      *Adoption `json:"handed,omitempty"` // as in OutcomeAnswer
	State       string    `json:"state,omitempty"`  // as in OutcomeAnswer
	Reason      string    `json:"reason,omitempty"`
	Outstanding []string  `json:"outstanding,omitempty"`
	UndoneAs    string    `json:"undone_as,omitempty"` // the plan that undoes this committed one
	Opened      []byte    `json:"opened,omitempty"`    // PlanOpened, as recorded
	// Input is what the plan was opened with; none: with nothing.
	Input json.RawMessage `json:"input,omitempty"`

	Writer string `json:"writer,omitempty"` // the process whose records the plan takes
	// WriterAt is the sequence at which it became that; 0: the host has an earlier version.
	WriterAt uint64 `json:"writer_at,omitempty"`
	OpenedNs int64  `json:"opened_ns,omitempty"` // when the ledger took Opened
	// DueNs and DueSet are as in OutcomeAnswer.
	DueNs  int64  `json:"deadline_ns,omitempty"`
	DueSet uint64 `json:"deadline_set,omitempty"`

	// that an unwind can go back to, in order
	Savepoints    []PastSavepoint `json:"savepoints,omitempty"`
	SavepointsSet uint32          `json:"savepoints_set,omitempty"` // number of the last one
	// number of the agent's last request to go back to one
	Rewinds uint32 `json:"rewinds,omitempty"`
	// how often an action and what came after it were undone, and the plan went on
	Parts uint32 `json:"parts,omitempty"`

	Actions []PastAction `json:"actions"`
	Next    uint32       `json:"next,omitempty"` // goes into After; 0: no more
}

// PastSavepoint is a savepoint as it was recorded.
type PastSavepoint struct {
	Name    string `json:"name"`
	Actions uint32 `json:"actions"` // number of the last action before it
}

// PastAction is one action as it was recorded. Bytes are those of the records.
type PastAction struct {
	Number         uint32 `json:"number"` // in the order of registration
	Action         string `json:"action"`
	Forward        []byte `json:"forward"`          // ForwardRegistered
	Input          []byte `json:"input,omitempty"`  // SHA-256 of it; none: no input
	Before         []byte `json:"before,omitempty"` // the before-image
	Compensation   string `json:"compensation,omitempty"`
	HandlerVersion string `json:"handler_version,omitempty"`
	Sequence       uint64 `json:"sequence"` // of its registration
	// Writer is the process that registered it, as the plan calls it; none: the host has an earlier
	// version.
	Writer  string `json:"writer,omitempty"`
	Outcome string `json:"outcome"` // unknown, completed, failed, in_doubt
	// OutcomeAt is the sequence of the record that has said it; 0: none has, or the host has an
	// earlier version.
	OutcomeAt uint64 `json:"outcome_at,omitempty"`
	Code      string `json:"code,omitempty"`
	Message   string `json:"message,omitempty"`
	Output    []byte `json:"output,omitempty"`
	// Output is what the undo reads of it, or nothing
	Incomplete  bool   `json:"output_incomplete,omitempty"`
	ExternalRef string `json:"external_ref,omitempty"`
	Verdict     string `json:"verdict,omitempty"` // the last one
	VerdictBy   string `json:"verdict_by,omitempty"`
	// NeverAllowed: its forward had to be allowed, and no verdict has allowed it, so that it was not
	// called. False, too: its outcome is known, or the host has an earlier version.
	NeverAllowed bool `json:"never_allowed,omitempty"`

	Owed bool `json:"owed,omitempty"` // its undo may still be asked for
	// in a part of the plan after which it went on: what the action did is not there any more
	Undone bool `json:"undone,omitempty"`

	// What has become of its undo, as an Action of plan.show says it; no Undo: the host has an
	// earlier version.
	Undo           string `json:"undo,omitempty"`
	ToDrop         bool   `json:"to_drop,omitempty"`    // as an Action of plan.show says it
	Note           string `json:"note,omitempty"`       // why it is skipped, failed or quarantined
	Resolution     string `json:"resolution,omitempty"` // its owner's answer: done, lost, accepted
	ResolvedBy     string `json:"resolved_by,omitempty"`
	ResolvedReason string `json:"resolved_reason,omitempty"`

	// it is owed once more for this action: no call of the function
	DutyOf string `json:"duty_of,omitempty"`
	Child  string `json:"child,omitempty"` // it is the entry of this plan: likewise
}

// MayBeAllowed reports whether a verdict may have let its forward run, where that waited for one.
func (a *PastAction) MayBeAllowed() bool { return a.Verdict != "" && !a.NeverAllowed }

// Outcomes of a PastAction.
const (
	OutcomeUnknown   = "unknown"
	OutcomeCompleted = "completed"
	OutcomeFailed    = "failed"
	OutcomeInDoubt   = "in_doubt"
)
