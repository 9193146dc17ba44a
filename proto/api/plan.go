package api

import "encoding/json"

// PlanQuery asks for one plan (plan.show).
type PlanQuery struct {
	Plan     string `json:"plan"`
	Sequence uint64 `json:"sequence,omitempty"` // answer once this has been folded
}

// PlanAnswer answers plan.show.
type PlanAnswer struct {
	Plan Plan `json:"plan"`
}

// Plan is one plan. Actions, Leases and Refused are filled by Show only.
type Plan struct {
	Plan   string            `json:"plan"`
	Agent  string            `json:"agent"`
	Label  string            `json:"label,omitempty"`
	Owner  string            `json:"owner,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Input is what the plan was opened with; none: with nothing.
	Input      json.RawMessage `json:"input,omitempty"`
	State      string          `json:"state"`
	Reason     string          `json:"reason,omitempty"`
	OpenedNs   int64           `json:"opened_ns"`
	DeadlineNs int64           `json:"deadline_ns,omitempty"`
	// DefaultDeadline: the tenant's default gives it, because the plan has named none.
	DefaultDeadline bool `json:"default_deadline,omitempty"`
	// DeadlineMoved says who has moved the deadline to what it is; none: it is as declared.
	DeadlineMoved *DeadlineMove `json:"deadline_moved,omitempty"`
	// Adopted says how the plan got from one agent to the next, in order; none: Agent has opened
	// it. Awaited: no process of Agent has resumed it since.
	Adopted     []Adoption `json:"adopted,omitempty"`
	Awaited     bool       `json:"awaited,omitempty"`
	EndedNs     int64      `json:"ended_ns,omitempty"`
	LastNs      int64      `json:"last_ns"`
	ActionCount int        `json:"action_count"`
	// NoWriter is set where its agent's records name no writer: two processes under its id are
	// taken for one.
	NoWriter bool `json:"no_writer,omitempty"`
	// Held: registrations that an unwind would owe or still owes.
	Held        int       `json:"held"`
	Compensated int       `json:"compensated"` // undone
	Skipped     int       `json:"skipped"`
	Quarantined int       `json:"quarantined"` // waiting for the owner
	Opened      string    `json:"opened"`      // addresses
	Fired       string    `json:"fired,omitempty"`
	Ended       string    `json:"ended,omitempty"`
	Actions     []Action  `json:"actions,omitempty"`
	Leases      []Lease   `json:"leases,omitempty"`
	Refused     []Refused `json:"refused,omitempty"`
	// Orphans: forwards that came without their registration.
	Orphans []string `json:"orphans,omitempty"`

	// Parent: the plan that this one is a part of.
	Parent string `json:"parent,omitempty"`
	// ToSavepoint: unwinding: back to here, then open again.
	ToSavepoint string `json:"to_savepoint,omitempty"`
	// FromAction: unwinding: this action and what came after it, then open again.
	FromAction    string      `json:"from_action,omitempty"`
	Savepoints    []Savepoint `json:"savepoints,omitempty"`
	OnUndoFailure string      `json:"on_undo_failure"` // halt_unless_last, halt, continue
	// Proposals: about orphans, until a second operator says the same.
	Proposals      []Proposal `json:"proposals,omitempty"`
	SecondApprover bool       `json:"second_approver,omitempty"`
	// Origin: the committed plan that this one undoes, or delivers.
	Origin string `json:"origin,omitempty"`
	// UndoneAs: the plan that undoes this committed one.
	UndoneAs string `json:"undone_as,omitempty"`
	// Delivers: it delivers what is staged in the committed plan Origin, instead of undoing that.
	Delivers bool `json:"delivers,omitempty"`
	// DeliveredAs: the plan that delivers what is staged in this committed one.
	DeliveredAs string `json:"delivered_as,omitempty"`
	// Stopped: the record since which what it delivers is dropped, as far as it has no attempt.
	Stopped string `json:"stopped,omitempty"`
	// HeldConditions: of a committed plan: conditions that it holds after the commit; the first of
	// them ends at HeldUntilNs.
	HeldConditions int      `json:"held_conditions,omitempty"`
	HeldUntilNs    int64    `json:"held_until_ns,omitempty"`
	WindowClosesNs int64    `json:"window_closes_ns,omitempty"` // of its held actions, the first
	Omitted        []string `json:"omitted,omitempty"`          // what did not fit into one answer
	// Cuts: leases that a cascade limit holds.
	Cuts    []Cut    `json:"cuts,omitempty"`
	Erasure *Erasure `json:"erasure,omitempty"` // its sealed values were erased
}

// Action is one action of a plan, in the order of registration.
type Action struct {
	Number     int    `json:"number"` // 1..n
	Action     string `json:"action"`
	Capability string `json:"capability"`
	Class      string `json:"class"` // compensable, irreversible, effectless
	// Staged: it is made once its root has committed, and not by its agent.
	Staged  bool   `json:"staged,omitempty"`
	Outcome string `json:"outcome"` // unknown, completed, failed, in_doubt
	// Undo: held, retired, owed, ahead, ready, dispatched, waiting, compensated, skipped,
	// quarantined, resolved. Ahead: its dispatch is recorded, and counts from the success of the
	// undo before it on. Of a staged act: staged, delivering, delivered, dropped, quarantined or
	// resolved; of what delivers it, delivered and dropped instead of compensated and skipped.
	Undo string `json:"undo"`
	// ToDrop: of a staged act, or of what delivers it: its deliveries were stopped before it was made,
	// and it is dropped when its turn comes.
	ToDrop       bool   `json:"to_drop,omitempty"`
	Compensation string `json:"compensation,omitempty"`
	// Handler: version of the handler in the agent's code that undoes it.
	Handler    string `json:"handler,omitempty"`
	Key        string `json:"key,omitempty"`
	After      []int  `json:"after,omitempty"` // numbers of the actions it came after
	Attempt    int    `json:"attempt,omitempty"`
	Attempts   int    `json:"attempts,omitempty"`
	AtNs       int64  `json:"at_ns"`
	DueNs      int64  `json:"due_ns,omitempty"` // next attempt
	SettledNs  int64  `json:"settled_ns,omitempty"`
	Note       string `json:"note,omitempty"` // why skipped, failed or quarantined
	Failure    string `json:"failure,omitempty"`
	Verdict    string `json:"verdict,omitempty"`
	Resolution string `json:"resolution,omitempty"` // done, lost, accepted
	// ResolvedBy: the actor named; and the operator of the subject, where that is another.
	ResolvedBy string          `json:"resolved_by,omitempty"`
	Evidence   string          `json:"evidence,omitempty"`
	Input      json.RawMessage `json:"input,omitempty"`
	Output     json.RawMessage `json:"output,omitempty"`
	// Incomplete: Output is what the undo reads of it, or nothing: it was too large.
	Incomplete bool   `json:"output_incomplete,omitempty"`
	Registered string `json:"registered"` // addresses
	OutcomeAt  string `json:"outcome_at,omitempty"`
	Dispatched string `json:"dispatched,omitempty"`
	Settled    string `json:"settled,omitempty"`
	// About: Registered with its whole leaf, for programs.
	About string `json:"about"`
	// QuarantinedAt: likewise: the record that an answer points back to.
	QuarantinedAt string `json:"quarantined_at,omitempty"`
	WaitsFor      string `json:"waits_for,omitempty"` // worker or action it waits for now
	// Faster: the words of its contract that let its undo wait until its forward could no longer
	// land, and those that would not; of one that waits for 2 s or more.
	Faster string `json:"faster,omitempty"`
	// ForCommit: the commit of its plan waits for its owner's word; nothing is being undone.
	ForCommit bool `json:"for_commit,omitempty"`
	// Probe: the capability that is asked whether it has happened.
	Probe string `json:"probe,omitempty"`
	// NoWorker: no worker serves its undo, or no process offers its handler.
	NoWorker bool `json:"no_worker,omitempty"`

	// Unchanged: the condition by which it is asked first whether someone else has changed it.
	Unchanged string `json:"unchanged,omitempty"`
	// Changed: its owner's, because someone else has; Output is what the forward left, Found what is
	// there, as the probe or the worker says.
	Changed bool            `json:"changed,omitempty"`
	Found   json.RawMessage `json:"found,omitempty"`

	// Blind: its last attempt was sent without knowing whether it had happened.
	Blind bool `json:"blind,omitempty"`
	// Asking: effect, undo, verify, unchanged: the question under way or due.
	Asking string `json:"asking,omitempty"`
	// ExternalRef: what the provider calls its effect, as far as that is known.
	ExternalRef string `json:"external_ref,omitempty"`
	// Presence: what was found of its effect, by a probe or by someone who reported it: present,
	// absent, duplicate.
	Presence string `json:"presence,omitempty"`
	Fidelity string `json:"fidelity,omitempty"`  // exact, semantic, lossy
	ClosesNs int64  `json:"closes_ns,omitempty"` // end of its undo window
	Pivot    bool   `json:"pivot,omitempty"`
	// Approve: its undo waits for the owner's word.
	Approve bool `json:"approve,omitempty"`
	// Child: the plan whose entry this is.
	Child string `json:"child,omitempty"`
	// DutyOf: the action whose effect is owed once more.
	DutyOf   string `json:"duty_of,omitempty"`
	Contract string `json:"contract,omitempty"` // digest, 64 hex digits
	// Proposal: an owner's answer that waits for a second operator.
	Proposal string `json:"proposal,omitempty"`
	// Owed: its owner may answer for it: it is quarantined, or not dealt with yet.
	Owed bool `json:"owed,omitempty"`
	// Progress: what the worker of the attempt in flight has said last of how far it is.
	Progress   string `json:"progress,omitempty"`
	ProgressNs int64  `json:"progress_ns,omitempty"` // when it said so
	// AliveNs: an attempt without an answer may be at work until then.
	AliveNs        int64           `json:"alive_until_ns,omitempty"`
	ResolvedReason string          `json:"resolved_reason,omitempty"`
	Before         json.RawMessage `json:"before,omitempty"`    // the before-image
	Arguments      json.RawMessage `json:"arguments,omitempty"` // of the command in flight
	Leases         []Lease         `json:"leases,omitempty"`
	Sealed         bool            `json:"sealed,omitempty"` // its undo takes sealed values
}

// Lease is one standing condition.
type Lease struct {
	Name      string `json:"name"`
	Condition string `json:"condition"`
	// Undoes: action, with what came after it, or plan.
	Undoes string `json:"undoes"`
	// AfterCommit: it is held after the commit, too; of a committed plan, until HeldUntilNs.
	AfterCommit bool  `json:"after_commit,omitempty"`
	HeldUntilNs int64 `json:"held_until_ns,omitempty"`
	// Truth: true, unknown, false: now, by the clock of the host that answers.
	Truth   string `json:"truth"`
	ArmedNs int64  `json:"armed_ns,omitempty"`
	Fired   bool   `json:"fired"`
	// FiredAt: address of its LeaseFired, while the plan knows it.
	FiredAt string `json:"fired_at,omitempty"`
	Moot    bool   `json:"moot,omitempty"` // no future makes it fire
	// MootWhy: the name that is never set, the time that has passed; none: the expression alone says
	// so.
	MootWhy []string `json:"moot_why,omitempty"`
	// Retired: it is asked no more since then: the plan was committed or undone, and so on.
	Retired string `json:"retired,omitempty"`
	// Suspended: it is asked again when the plan is back at this savepoint, or SuspendedPart.
	Suspended string   `json:"suspended,omitempty"`
	WakeNs    int64    `json:"wake_ns,omitempty"` // when time alone could change it
	Waits     []string `json:"waits,omitempty"`   // what an unknown waits for
	Keys      []string `json:"keys,omitempty"`    // facts that it is indexed by
	// Shared: other leases that always have this answer, and are asked as one with it.
	Shared  uint64 `json:"shared,omitempty"`
	Error   string `json:"error,omitempty"`
	Cascade string `json:"cascade,omitempty"` // cut, resumed or given up, after a cascade

	Readings []Reading `json:"readings,omitempty"`
}

// SuspendedPart is Suspended where an action and what came after it are undone, and not what came
// after a savepoint.
const SuspendedPart = "where it was"

// SuspendedUntil says until when a condition that is Suspended is not asked.
func (l Lease) SuspendedUntil() string {
	if l.Suspended == SuspendedPart {
		return "until the plan goes on"
	}
	return "until the plan is back at " + l.Suspended
}

// Reading is one value that a condition reads.
type Reading struct {
	Name    string `json:"name"`
	Present bool   `json:"present"` // there is such a fact; a function has an answer
	// Value: JSON; empty where the condition asks only whether it is there, or when.
	Value    string `json:"value,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"` // of the record that set it
}

// Savepoint is a place that an unwind may stop at.
type Savepoint struct {
	Name    string `json:"name"`
	Actions int    `json:"actions"` // registered when it was set
	At      string `json:"at"`      // address
}

// Proposal is an owner's answer about an orphan that waits for a second
// operator.
type Proposal struct {
	Action   string `json:"action"`
	Answer   string `json:"answer"` // of a resolution, with --halt where it halts
	Operator string `json:"operator"`
}

// Refused is a record that the fold refused (it broke a rule) or found void
// (it lost a race in the log).
type Refused struct {
	Sequence uint64 `json:"sequence"`
	Index    uint32 `json:"index"`
	Kind     string `json:"kind,omitempty"`
	Plan     string `json:"plan,omitempty"`
	Subject  string `json:"subject"`
	Reason   string `json:"reason"`
	Void     bool   `json:"void"`
	StampNs  int64  `json:"stamp_ns"`
}

// Erasure is an erasure as people see it.
type Erasure struct {
	At     string `json:"at"` // address of the operator's record
	AtNs   int64  `json:"at_ns"`
	By     string `json:"by"`
	Reason string `json:"reason"`
	// Destroyed: address of the holder's record; empty: the key is about to be destroyed.
	Destroyed string `json:"destroyed,omitempty"`
}

// DeadlineMove is the last move of a plan's deadline.
type DeadlineMove struct {
	By     string `json:"by"` // an operator, or the plan's agent
	Reason string `json:"reason"`
	At     string `json:"at"` // address of the record
}

// Adoption is how an operator has handed a plan to another agent.
type Adoption struct {
	From   string `json:"from"` // the agent that had it before
	By     string `json:"by"`   // the operator
	Reason string `json:"reason"`
	AtNs   int64  `json:"at_ns"`
	At     string `json:"at"` // address of the record
}
