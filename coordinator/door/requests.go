package door

import (
	"encoding/json"
)

// Begin is the request of plan.begin.
type Begin struct {
	Plan           string            `json:"plan" req:"1" doc:"id of the plan, unique in the tenant: 1 to 64 letters, digits, '-' or '_'. A repeated call finds the plan by it"`
	Writer         string            `json:"writer" doc:"the process of the agent that acts, by a name that no other one has; a plan takes one writer. Default \"door\""`
	Label          string            `json:"label" doc:"what the plan is for, for people"`
	Input          json.RawMessage   `json:"input" doc:"what the plan is to do, at most 16 KiB: the arguments of its undos may read it as plan.input. It is recorded as it is"`
	Owner          string            `json:"owner" doc:"who answers for it when something cannot be undone"`
	Deadline       Duration          `json:"deadline" doc:"from now on, when an open plan is undone"`
	DeadlineAt     Instant           `json:"deadline_at" doc:"the same as an instant; one of the two"`
	Triggers       map[string]string `json:"triggers" doc:"standing conditions in CEL, by name; one that turns true undoes the plan"`
	AfterCommit    []string          `json:"after_commit" doc:"those of triggers that are held after the commit, too, until the first undo window of the plan closes"`
	Labels         map[string]string `json:"labels" doc:"what conditions read as plan.labels"`
	Concurrency    int               `json:"concurrency" doc:"undos at once, at most 1024; default 8"`
	OnUndoFailure  string            `json:"on_undo_failure" enum:"halt_unless_last,halt,continue" doc:"what an unwind does about what a quarantined action came after; default halt_unless_last: it stays, but not what an irreversible last act came after"`
	SecondApprover bool              `json:"second_approver" doc:"an owner's answer counts when a second operator has given the same"`
	DoubtAtCommit  string            `json:"doubt_at_commit" enum:"settle,accept" doc:"what a commit does about actions in doubt; default settle"`
	Parent         string            `json:"parent" doc:"the plan that this one is a part of"`
	ParentAction   string            `json:"parent_action" doc:"the action of it that this one comes after; default the last one"`
	AttachToken    string            `json:"attach_token" doc:"a secret of 16 to 64 bytes, by which other agents attach children"`
	ParentToken    string            `json:"parent_token" doc:"that of the parent, where it is another agent's"`
}

// Act is the request of plan.act.
type Act struct {
	Plan       string          `json:"plan" req:"1" doc:"the plan"`
	Writer     string          `json:"writer" doc:"as in plan.begin"`
	Action     string          `json:"action" req:"1" doc:"id of the action, unique in the plan: a repeated call finds the action by it"`
	Capability string          `json:"capability" req:"1" doc:"what is done, as in git.branch.create: a capability with a published contract"`
	Input      json.RawMessage `json:"input" doc:"what the tool is called with; it is recorded byte for byte"`
	After      []string        `json:"after" doc:"actions of this plan that this one depends on"`
	Branch     bool            `json:"branch" doc:"it depends on nothing but after"`
	Pivot      bool            `json:"pivot" doc:"once it has happened, going back past it needs the owner's word"`
	Review     bool            `json:"review" doc:"a supervisor's verdict comes before the tool is called"`
	Stage      bool            `json:"stage" doc:"the act cannot be undone and is made last: a worker makes it once the plan is committed, as the contract's deliver says. The tool is not to be called"`
	Wait       Duration        `json:"wait" zero:"not at all" doc:"how long the answer may wait for a verdict, at most 60s; default 20s"`
}

// Outcome is the request of plan.outcome.
type Outcome struct {
	Plan        string          `json:"plan" req:"1" doc:"the plan"`
	Writer      string          `json:"writer" doc:"as in plan.begin"`
	Action      string          `json:"action" req:"1" doc:"the action"`
	Outcome     string          `json:"outcome" req:"1" enum:"completed,not_taken,in_doubt" doc:"completed: it happened. not_taken: the tool's answer proves that it did not. in_doubt: everything else"`
	Output      json.RawMessage `json:"output" doc:"of what completed; the undo's arguments read it"`
	ExternalRef string          `json:"external_ref" doc:"what the provider calls the effect, for people and probes"`
	Incomplete  bool            `json:"incomplete" doc:"of what completed: its output cannot be told, since JSON does not have it or it is larger than a request. An undo that reads it is left to the owner; not with output"`
	Message     string          `json:"message" doc:"of what did not complete: what the tool said; with incomplete, why"`
}

// Report is the request of plan.report.
type Report struct {
	Plan        string          `json:"plan" req:"1" doc:"the plan"`
	Writer      string          `json:"writer" doc:"as in plan.begin"`
	Action      string          `json:"action" req:"1" doc:"id of the action, unique in the plan"`
	Capability  string          `json:"capability" req:"1" doc:"what was done"`
	Input       json.RawMessage `json:"input" doc:"what the tool was called with"`
	After       []string        `json:"after" doc:"as in plan.act"`
	Branch      bool            `json:"branch" doc:"as in plan.act"`
	Pivot       bool            `json:"pivot" doc:"as in plan.act"`
	Output      json.RawMessage `json:"output" doc:"what it returned"`
	ExternalRef string          `json:"external_ref" doc:"as in plan.outcome"`
	Before      json.RawMessage `json:"before" doc:"what was there before, where the contract keeps it; null: nothing was"`
}

// Savepoint is the request of plan.savepoint.
type Savepoint struct {
	Plan      string `json:"plan" req:"1" doc:"the plan"`
	Writer    string `json:"writer" doc:"as in plan.begin"`
	Savepoint string `json:"savepoint" req:"1" doc:"its name, unique in the plan"`
}

// UnwindTo is the request of plan.unwind_to.
type UnwindTo struct {
	Plan      string   `json:"plan" req:"1" doc:"the plan"`
	Writer    string   `json:"writer" doc:"as in plan.begin"`
	Savepoint string   `json:"savepoint" req:"1" doc:"the savepoint to go back to"`
	Reason    string   `json:"reason" doc:"why"`
	Number    int      `json:"number" req:"1" doc:"of such requests of this plan, from 1: a repeated call has the same number, and goes back once"`
	Wait      Duration `json:"wait" zero:"not at all" doc:"how long the answer may wait until the plan is open again, at most 60s; default 20s"`
}

// Commit is the request of plan.commit.
type Commit struct {
	Plan   string `json:"plan" req:"1" doc:"the plan"`
	Writer string `json:"writer" doc:"as in plan.begin"`
}

// End is the request of plan.fail and plan.cancel.
type End struct {
	Plan   string `json:"plan" req:"1" doc:"the plan"`
	Writer string `json:"writer" doc:"as in plan.begin"`
	Reason string `json:"reason" doc:"why"`
}

// Deadline is the request of plan.deadline.
type Deadline struct {
	Plan       string   `json:"plan" req:"1" doc:"the plan"`
	Writer     string   `json:"writer" doc:"as in plan.begin"`
	Deadline   Duration `json:"deadline" doc:"from now on, when the open plan is undone; earlier or later than before, or its first one"`
	DeadlineAt Instant  `json:"deadline_at" doc:"the same as an instant; one of the two"`
	Reason     string   `json:"reason" req:"1" doc:"why it is moved"`
	Follows    int      `json:"follows" req:"1" doc:"deadline_set of the deadline that is moved, as plan.get and plan.begin have it: a repeated call has the same, and moves it once; where another record has set it since, nothing is moved"`
}

// Wait is the request of plan.wait.
type Wait struct {
	Plan string   `json:"plan" req:"1" doc:"the plan"`
	Wait Duration `json:"wait" zero:"not at all" doc:"how long the answer may wait for the end, at most 60s; default 20s"`
	// Delivered has it wait for more than the end.
	Delivered bool `json:"delivered" doc:"of a plan that is committed, wait for its deliveries, too, until none is delivering"`
	// Settled has it wait for less than the end.
	Settled bool `json:"settled" doc:"wait only until nothing is asked any more about what is in doubt in an open plan; not with delivered"`
}

// Get is the request of plan.get.
type Get struct {
	Plan string `json:"plan" req:"1" doc:"the plan"`
}

// Preview is the request of plan.preview.
type Preview struct {
	Plan string `json:"plan" req:"1" doc:"the plan"`
	To   string `json:"to" doc:"a savepoint; default all of it"`
	// Action asks of one, and what came after it.
	Action string `json:"action" doc:"only this action and what came after it; the answer says in undoable whether it can be undone, until when and how exactly; not with to"`
	// Sequence is one that the caller has from the door of another host.
	Sequence int `json:"sequence" doc:"that the answer must know of, as plan.act says it; default what this door has stored of the plan"`
}

// Resume is the request of plan.resume.
type Resume struct {
	Plan   string `json:"plan" req:"1" doc:"the plan"`
	Writer string `json:"writer" doc:"who goes on with it; the writer before is refused from then on. Default \"door\""`
}

// Find is the request of plan.find.
type Find struct {
	State      string `json:"state" doc:"of the plans, as in plan.get"`
	Label      string `json:"label" doc:"the label, or key=value of one of the labels"`
	Text       string `json:"text" doc:"what the id or the label begins with"`
	Capability string `json:"capability" doc:"of one of the actions"`
	After      string `json:"after" doc:"next of the batch before"`
	Limit      int    `json:"limit" doc:"plans, at most 1000; default 100"`
}

// Put is the request of fact.put.
type Put struct {
	ID     string          `json:"id" doc:"of this request: a repeated call with it changes nothing, and another one is refused"`
	Key    string          `json:"key" req:"1" doc:"of the fact, as in order/7"`
	Value  json.RawMessage `json:"value" req:"1" doc:"what is so"`
	Plan   string          `json:"plan" doc:"plan of the action whose effect it is"`
	Action string          `json:"action" doc:"the action whose effect it is"`
}

// Retract is the request of fact.retract.
type Retract struct {
	ID     string `json:"id" doc:"of this request: a repeated call with it changes nothing, and another one is refused"`
	Key    string `json:"key" req:"1" doc:"of the fact"`
	Plan   string `json:"plan" doc:"plan of the action whose effect it is"`
	Action string `json:"action" doc:"the action whose effect it is"`
}

// Give is the request of verdict.give.
type Give struct {
	ID      string `json:"id" doc:"of this request: a repeated call with it changes nothing, and another one is refused"`
	Plan    string `json:"plan" req:"1" doc:"the plan"`
	Action  string `json:"action" req:"1" doc:"the action"`
	Verdict string `json:"verdict" req:"1" enum:"allow,block,redirect" doc:"allow: the tool is called. block and redirect: it is not"`
	Reason  string `json:"reason" doc:"why; of a redirect: what to do instead. Required for block and redirect"`
	Scope   string `json:"scope" enum:"action,plan" doc:"what a block or a redirect undoes where the action has happened: it and what came after it, and the plan goes on, or the whole plan; default action"`
}

// Reviews is the request of review.list.
type Reviews struct {
	Plan   string `json:"plan" doc:"with action: of this one action alone, with its whole input and what a block would undo"`
	Action string `json:"action" doc:"the action"`
	After  string `json:"after" doc:"next of the batch before"`
	Limit  int    `json:"limit" doc:"actions, at most 1000; default 100"`
}
