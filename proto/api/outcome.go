package api

// Yield is the body of a request on YieldSubject: the process writes no more of the plan, and has
// stored what it knows, once it answers.
type Yield struct {
	Plan string `json:"plan"`
	// WriterAt is what made the process the plan's writer, as a HistoryAnswer says it. One that has
	// resumed the plan after that keeps it, and answers with a Problem that has Again. 0: the asking
	// process has an earlier version, and any hold is meant.
	WriterAt uint64 `json:"writer_at,omitempty"`
}

// Notice is the body of a message on NoticeSubject.
type Notice struct {
	Plan   string `json:"plan"`
	State  string `json:"state"` // of the plan: open, unwinding, compensated, ...
	Reason string `json:"reason,omitempty"`
	// Action, Verdict and By are set when a supervisor has given a verdict.
	Action  string `json:"action,omitempty"`
	Verdict string `json:"verdict,omitempty"` // allow, block, redirect
	By      string `json:"by,omitempty"`
	// UndoneAs is set when the plan, which stays committed, is undone: the plan that undoes it.
	UndoneAs string `json:"undone_as,omitempty"`
	// Action and Presence are set when the doubt about an action has been settled, or the
	// probe does not settle it.
	Presence string `json:"presence,omitempty"` // present, absent, duplicate, inconclusive
	// Savepoint is set when the plan was rewound to it and is open again.
	Savepoint string `json:"savepoint,omitempty"`
	// FromAction is set while this action and what came after it are undone, and when that is
	// over and the plan goes on.
	FromAction string `json:"from_action,omitempty"`
	// Parts is how often it went on so, or was rewound as an operator had asked; Counted: this was
	// the last time.
	Parts   uint32 `json:"parts,omitempty"`
	Counted bool   `json:"counted,omitempty"`
	// Asked is the sequence of the request that had the plan rewound; 0: a lease had, or it is
	// not known.
	Asked uint64 `json:"asked,omitempty"`
	// At is the sequence of the record that opened the plan again: what was stored after it was
	// not undone. Of a deadline it is that of the record that has moved it, and of an end that of
	// the record of it, or 0: what is stored after that may change it.
	At uint64 `json:"at,omitempty"`
	// Writer is set when the plan was resumed: the process that its records are taken
	// from now on.
	Writer string `json:"writer,omitempty"`
	// DueNs is set when the deadline of the plan was moved: it is this one now, in unix ns. By
	// and Reason say who has moved it, and why.
	DueNs int64 `json:"deadline_ns,omitempty"`
	// HandedTo is set when an operator has handed the plan to another agent, which has it now. By
	// and Reason say who has, and why.
	HandedTo string `json:"handed_to,omitempty"`
}

// OutcomeQuery asks, on QuerySubject(tenant, "plan.outcome"), what became of a
// plan once the record at Sequence has been folded.
type OutcomeQuery struct {
	Plan     string `json:"plan"`
	Sequence uint64 `json:"sequence"`
	// Action asks for the undo of this action, and the verdict on it, too.
	Action string `json:"action,omitempty"`
	// Parts is of how many parts of the plan that were undone the agent was told.
	Parts uint32 `json:"parts,omitempty"`
	// Doubts asks for the actions in doubt of a plan that is open, too.
	Doubts bool `json:"doubts,omitempty"`
	// Ended waits for the plan's end instead; the answer comes when it is there
	// or after WaitMs.
	Ended  bool  `json:"ended,omitempty"`
	WaitMs int64 `json:"wait_ms,omitempty"`
	// Digest, the SHA-256 in hex of the message that the agent was told is at Sequence, asks whether
	// it is, and nothing else.
	Digest string `json:"digest,omitempty"`
}

// OutcomeAnswer is the answer to an OutcomeQuery. A Problem comes instead when the
// plan is unknown or the sequence was not folded in time.
type OutcomeAnswer struct {
	State       string   `json:"state,omitempty"`
	Reason      string   `json:"reason,omitempty"`
	Outstanding []string `json:"outstanding,omitempty"`
	// Doubts are the actions of the tree that its commit waits for, while it is committing; and of
	// a plan that is open, where the query has Doubts, those that the world is or will be asked
	// about.
	Doubts []Doubt `json:"doubts,omitempty"`
	// Unknown are, where the query has Doubts, those that nothing asks about while the plan is
	// open, with why; and those that its commit waits for, where that is its owner's word
	// alone. Settled says that the plan has no others in doubt.
	Unknown []Doubt `json:"unknown,omitempty"`
	Settled bool    `json:"settled,omitempty"`
	// UndoneAs is the plan that undoes this committed one.
	UndoneAs string `json:"undone_as,omitempty"`
	// Delivery is what became of what is staged in this committed plan; none: nothing is.
	Delivery *Delivery `json:"delivery,omitempty"`
	// Refused says why records of the commit at Sequence were refused or void.
	Refused []string `json:"refused,omitempty"`
	// Turned: a lease of the plan, which is open, has turned true, and is about to fire.
	Turned bool `json:"turned,omitempty"`
	// Whole: all of the plan is being undone, and it is not open again afterwards.
	Whole   bool   `json:"whole,omitempty"`
	Applied uint64 `json:"applied"`
	// Writer is the process whose records the plan takes, and WriterAt the sequence at which it
	// became that. Of a plan that was handed to another agent, and that no process of it has
	// resumed, it is that agent with a slash.
	Writer   string `json:"writer,omitempty"`
	WriterAt uint64 `json:"writer_at,omitempty"`
	// Agent is whose process Writer is, of a plan that was handed to another agent.
	Agent string `json:"agent,omitempty"`
	// Handed is how it got to Agent.
	Handed *Adoption `json:"handed,omitempty"`
	// DueNs is the deadline of the plan, in unix ns, and DueSet the sequence of the record
	// that has set it: what a deadline_moved follows. 0: it has none.
	DueNs  int64  `json:"deadline_ns,omitempty"`
	DueSet uint64 `json:"deadline_set,omitempty"`
	// Parts is how often a part of the plan was undone, not by its agent, and the plan went on;
	// FromAction and PartReason are of the last time.
	Parts      uint32 `json:"parts,omitempty"`
	FromAction string `json:"from_action,omitempty"`
	PartReason string `json:"part_reason,omitempty"`
	// Undone are those after Parts of the query, in order; of the last 64 it is known what was
	// undone.
	Undone []UndonePart `json:"undone,omitempty"`
	// Outcome is what is known of the action that was asked for: completed, failed, in_doubt, unknown.
	Outcome string `json:"outcome,omitempty"`
	// Undo is the state of the undo of the action that was asked for: of an open plan, one that is
	// not held any more was undone with a part of the plan, also back to a savepoint.
	Undo string `json:"undo,omitempty"` // held, dispatched, compensated and others, as in a plan's view
	// Verdict, VerdictReason and VerdictBy are those of the action that was asked for.
	Verdict       string `json:"verdict,omitempty"`
	VerdictReason string `json:"verdict_reason,omitempty"`
	VerdictBy     string `json:"verdict_by,omitempty"`
	// Other: at Sequence is another message than that of Digest.
	Other bool `json:"other,omitempty"`
	// UndoneIn is the plan that undoes the action that was asked for, of a committed child, for that
	// verdict: with all of the child, as that is not yet committed with its root.
	UndoneIn string `json:"undone_in,omitempty"`
}

// UndoneWithChild says that the action that was asked for is undone with all of its child plan,
// where UndoneIn is set.
func (a OutcomeAnswer) UndoneWithChild() string {
	text := "is undone with all of its child plan in plan " + a.UndoneIn
	if a.Outcome == OutcomeUnknown && a.Undo != undoStaged {
		text += ", unless it is heard within 30 s of the verdict that it did not happen"
	}
	return text
}

const undoStaged = "staged" // Undo of an act that is made once its plan is committed

// IsWriter reports whether the plan takes the records of a process of an agent; one of another
// agent may be called the same.
func (a OutcomeAnswer) IsWriter(agent, process string) bool {
	return a.Writer == process && (a.Agent == "" || a.Agent == agent)
}

// UndonePart is what was undone of a plan that went on.
type UndonePart struct {
	Number uint32 `json:"number"` // of the parts of the plan, from 1
	Action string `json:"action"` // and what came after it; empty: what came after Savepoint
	// Savepoint is what an operator has had the plan go back to.
	Savepoint string `json:"savepoint,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// sequence of the record that opened the plan again: what was stored after it was not undone
	At uint64 `json:"at,omitempty"`
}

// Doubt is what a commit waits for: an action of which it is not known whether it happened,
// or an act that a refused record claims.
type Doubt struct {
	Action string `json:"action"` // of a child plan: plan/action
	// it waits for its owner's word; false: for an answer of the world
	Owner bool   `json:"owner,omitempty"`
	Waits string `json:"waits"` // for what, for people
}

// Delivery is what became of the acts that are staged in a committed plan, and in the plans that
// are a part of it: of those, plan/action. Each list has the first 100.
type Delivery struct {
	// Plan is the one that delivers them; empty while the root of a child plan has yet to commit.
	Plan string `json:"plan"`
	// State is delivering, delivered, failed (all were dropped), quarantined or resolved.
	State     string   `json:"state"`
	Delivered []string `json:"delivered,omitempty"`
	Dropped   []string `json:"dropped,omitempty"` // also what an owner's halt has left
	Waiting   []string `json:"waiting,omitempty"` // not made yet
	Owner     []string `json:"owner,omitempty"`   // for their owner's word, or answered by it
}
