package api

import "encoding/json"

// PreviewVerb is what PreviewSubject ends with, before the agent.
const PreviewVerb = "preview."

// PreviewSubject is where an agent asks what an unwind of a plan of its own would do. The
// subject carries the authority: of another agent's plan the answer says no more than that.
func PreviewSubject(tenant, agent string) string {
	return QuerySubject(tenant, PreviewVerb+agent)
}

// PreviewQuery asks what an unwind would do (plan.preview).
type PreviewQuery struct {
	Plan string `json:"plan"`
	To   string `json:"to,omitempty"` // savepoint; empty: all of it
	// Action: only this one, as WhyQuery has it, and what came after it; not with To. An agent names
	// it by its id.
	Action   string `json:"action,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"` // answer once this has been folded
}

// Preview is what an unwind would do now.
type Preview struct {
	Plan  string `json:"plan"`
	State string `json:"state"` // of the plan now
	To    string `json:"to,omitempty"`
	// Action: of this one and what came after it only.
	Action string `json:"action,omitempty"`
	Owner  string `json:"owner,omitempty"`
	// End: how it would end if every worker says done: compensated, quarantined, failed, open, and so
	// on.
	End         string        `json:"end"`
	Steps       []PreviewStep `json:"steps"`
	Refused     string        `json:"refused,omitempty"`     // why it could not even start
	Outstanding []string      `json:"outstanding,omitempty"` // what would be left for the owner
	// Stops: irreversible acts at which it stops until their owner has answered, since others came
	// after them, or the plan says that it halts: what they came after waits. Those of child plans as
	// plan/action; at most 256.
	Stops    []string  `json:"stops,omitempty"`
	Omitted  int       `json:"omitted,omitempty"`  // further steps
	Undoable *Undoable `json:"undoable,omitempty"` // of Action, if the plan has it
	// Deliveries: staged acts that the commit of the plan would have made, in their order, or that are
	// still to be made for one that is committed; of the plans that are a part of it as plan/action.
	// The unwind drops them. At most 256.
	Deliveries []string `json:"deliveries,omitempty"`
	// Unarmed: conditions of the actions of the plan, or of Action, that never fire, because a field
	// that they read was not lifted; at most 100.
	Unarmed []Unarmed `json:"unarmed,omitempty"`
}

// Unarmed is a condition that never fires, because a field that it reads was not lifted.
type Unarmed struct {
	Number  int    `json:"number"` // of the action
	Action  string `json:"action"`
	Trigger string `json:"trigger"` // its name
	Reason  string `json:"reason"`  // which field, and what has it not
}

// Undoable says whether one action can be undone now, until when, and how exactly.
type Undoable struct {
	// Can: nothing of it would be left, and no owner is asked before.
	Can bool `json:"can"`
	// Why: it cannot, as it is irreversible, its undo window has closed, it is undone, or it waits
	// for an owner; or nothing would be sent for it.
	Why      string `json:"why,omitempty"`
	ClosesNs int64  `json:"closes_ns,omitempty"` // end of its undo window; 0: none is known
	Class    string `json:"class"`               // compensable, irreversible or effectless
	Fidelity string `json:"fidelity,omitempty"`  // exact, semantic or lossy; empty: not said
	// With: what came after it and is undone first, at most 1,000 actions; those of child plans
	// as plan/action.
	With []string `json:"with,omitempty"`
}

// PreviewStep is one step of it, in the order in which it would be taken.
type PreviewStep struct {
	Stage      int             `json:"stage"` // steps of one stage run side by side
	Plan       string          `json:"plan"`  // of a child: its own
	Number     int             `json:"number"`
	Action     string          `json:"action"`
	Capability string          `json:"capability"` // of the forward
	Step       string          `json:"step"`       // compensate, probe, skip, quarantine
	Inverse    string          `json:"inverse,omitempty"`
	Arguments  json.RawMessage `json:"arguments,omitempty"` // as they would be sent
	Class      string          `json:"class"`
	Fidelity   string          `json:"fidelity,omitempty"`
	Outcome    string          `json:"outcome"` // of the forward; unknown and in_doubt are open doubts
	// Found: someone has seen the effect, or a step before asks about it and is taken to see it.
	Found    bool  `json:"found,omitempty"`
	ClosesNs int64 `json:"closes_ns,omitempty"`
	// Reason: of a skip or a quarantine; of a probe: what is assumed.
	Reason string `json:"reason,omitempty"`
	Owner  string `json:"owner,omitempty"` // quarantine: who decides
}

// PreviewAnswer answers a PreviewQuery. A Problem comes instead when there is no such plan (of
// that agent), the query names two parts, or the sequence was not folded in time.
type PreviewAnswer struct {
	Preview Preview `json:"preview"`
}
