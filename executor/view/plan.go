package view

import (
	"encoding/json"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Plan is one plan. Actions, Leases and Refused are filled by Show only.
type Plan struct {
	Plan        string            `json:"plan"`
	Agent       string            `json:"agent"`
	Label       string            `json:"label,omitempty"`
	Owner       string            `json:"owner,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	State       string            `json:"state"`
	Reason      string            `json:"reason,omitempty"`
	OpenedNs    int64             `json:"opened_ns"`
	DeadlineNs  int64             `json:"deadline_ns,omitempty"`
	EndedNs     int64             `json:"ended_ns,omitempty"`
	LastNs      int64             `json:"last_ns"`
	ActionCount int               `json:"action_count"`
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
	OnUndoFailure string      `json:"on_undo_failure"` // halt, continue
	// Proposals: about orphans, until a second operator says the same.
	Proposals      []Proposal `json:"proposals,omitempty"`
	SecondApprover bool       `json:"second_approver,omitempty"`
	// Origin: the committed plan that this one undoes.
	Origin string `json:"origin,omitempty"`
	// UndoneAs: the plan that undoes this committed one.
	UndoneAs       string   `json:"undone_as,omitempty"`
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
	Class      string `json:"class"`   // compensable, irreversible, effectless
	Outcome    string `json:"outcome"` // unknown, completed, failed, in_doubt
	// Undo: held, retired, owed, ahead, ready, dispatched, waiting, compensated, skipped,
	// quarantined, resolved. Ahead: its dispatch is recorded, and counts from the success of the
	// undo before it on.
	Undo         string `json:"undo"`
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
	// NoWorker: no worker serves its undo, or no process offers its handler.
	NoWorker bool `json:"no_worker,omitempty"`

	// Asking: effect, undo, verify: the question under way or due.
	Asking string `json:"asking,omitempty"`
	// Presence: what the probe found: present, absent, duplicate.
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
	// Suspended: it is asked again when the plan is back at this savepoint.
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

// Explain is what leases answer now, and why.
type Explain struct {
	Plan  string `json:"plan"`
	State string `json:"state"`
	// TimeNs: of the answers: the clock of the host, or the logical time where that is ahead.
	TimeNs  int64       `json:"time_ns"`
	Leases  []HeldLease `json:"leases"`
	Omitted bool        `json:"omitted,omitempty"` // there are more: name an action
}

// HeldLease is a lease and what it is held for.
type HeldLease struct {
	Action string `json:"action,omitempty"` // empty: the plan
	Lease
}

// Reading is one value that a condition reads.
type Reading struct {
	Name    string `json:"name"`
	Present bool   `json:"present"` // there is such a fact; a function has an answer
	// Value: JSON; empty where the condition asks only whether it is there, or when.
	Value    string `json:"value,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"` // of the record that set it
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

// Halt is what a guard has found, for which a tenant is halted.
type Halt struct {
	Guard    string `json:"guard"`    // G1, G2, G3, G4, core or reader, as in docs/architecture.md
	Sequence uint64 `json:"sequence"` // where
	Problem  string `json:"problem"`
}

// Status is the state of one tenant.
type Status struct {
	Tenant  string `json:"tenant"`
	Mode    string `json:"mode"` // as ModeHolding and its like
	Problem string `json:"problem,omitempty"`
	Halted  *Halt  `json:"halted,omitempty"` // in ModeHalted: by which guard, and where

	Erased *TenantErasure `json:"erased,omitempty"` // in ModeErased

	Holder      string `json:"holder"`
	Term        uint64 `json:"term"`
	SinceNs     int64  `json:"since_ns,omitempty"` // when that term began
	Applied     uint64 `json:"applied"`            // last sequence folded
	Last        uint64 `json:"last"`               // last sequence of the stream
	Records     uint64 `json:"records"`
	TimeNs      int64  `json:"time_ns"` // logical time
	Held        uint64 `json:"held"`
	Open        uint64 `json:"open"`
	Unwinding   uint64 `json:"unwinding"`
	Quarantined uint64 `json:"quarantined"`
	Ended       uint64 `json:"ended"`
	Refused     uint64 `json:"refused"`
	Void        uint64 `json:"void"`
	// NextDueNs: when time calls for the next decision; in the past: it waits to be made.
	NextDueNs  int64     `json:"next_due_ns,omitempty"`
	InFlight   int       `json:"in_flight"`
	Waiting    []Waiting `json:"waiting,omitempty"`     // commands without a worker
	Unpaged    int       `json:"unpaged,omitempty"`     // pages that no hook has taken yet
	OldestPage *Page     `json:"oldest_page,omitempty"` // of them
	// Faulty: leases in error, where many share one condition counted as one.
	Faulty      uint64   `json:"faulty"`
	FaultyPlans []string `json:"faulty_plans,omitempty"` // some plans that hold them
	// Cut: plans with a lease that a cascade limit holds.
	Cut     uint64  `json:"cut"`
	Cascade Cascade `json:"cascade"`        // in force on this host
	Copy    *Copy   `json:"copy,omitempty"` // of the ledger, in tiles
	// Lossy: the server need not sync what it acknowledges: its operator has said so.
	Lossy      bool        `json:"lossy,omitempty"`
	Disks      []Disk      `json:"disks,omitempty"` // of the host that answers
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	// RefusedReplies are answers of workers that did not count; nil: there were none
	// since the host that answers has started.
	RefusedReplies *RefusedReplies `json:"refused_replies,omitempty"`
	// UnreadFields are fields of workers' answers that could not be read, while the rest of
	// the answer counted; nil: as of RefusedReplies.
	UnreadFields *RefusedReplies `json:"unread_fields,omitempty"`

	// Cascaded: leases that fired at a depth above 1 in this hour of logical time.
	Cascaded uint64   `json:"cascaded"`
	Folding  *Folding `json:"folding,omitempty"` // while the host catches up with the ledger
	// May is what the tenant may do from the last record on that says so; nil: nothing is limited.
	May *TenantMay `json:"may,omitempty"`
}

// Page is a call to an owner that no hook has taken.
type Page struct {
	Kind   string `json:"kind"`
	Hook   string `json:"hook"`
	Plan   string `json:"plan"`
	Action string `json:"action,omitempty"`
	Reason string `json:"reason"`
	AtNs   int64  `json:"at_ns"` // when it was asked for
}

// RefusedReplies counts answers of workers that did not count, because they do not
// repeat the key and the attempt of their command or cannot be read; or fields of answers.
type RefusedReplies struct {
	Count uint64       `json:"count"`
	Last  RefusedReply `json:"last"`
}

// RefusedReply is one of them. The command goes on waiting for an answer that was refused.
type RefusedReply struct {
	AtNs       int64  `json:"at_ns"`
	Capability string `json:"capability"`
	Plan       string `json:"plan"`
	Action     string `json:"action"`
	Worker     string `json:"worker,omitempty"` // as it calls itself
	Problem    string `json:"problem"`
	// RightNs is when that worker has answered as it should since; 0: it has not.
	RightNs int64 `json:"right_ns,omitempty"`
}

// Folding is how far a host is that catches up with its ledger: after a start without a
// state, or with an old one.
type Folding struct {
	What       string  `json:"what"`               // "folding the ledger", or what comes before it
	From       uint64  `json:"from"`               // sequence at which it began
	At         uint64  `json:"at"`                 // sequence that it has come to
	To         uint64  `json:"to"`                 // last sequence of the stream when it began
	Records    uint64  `json:"records"`            // since it began
	RecordsPer float64 `json:"records_per_second"` // on average
	BeganNs    int64   `json:"began_ns"`
	LeftNs     int64   `json:"left_ns,omitempty"` // until To at this rate; 0: not known yet
}

// Disk is the file system of a store of the host that answers: "state", "tiles",
// and "ledger" where the server is in the same process.
type Disk struct {
	Store      string `json:"store"`
	FreeBytes  uint64 `json:"free_bytes"`
	TotalBytes uint64 `json:"total_bytes"`
}

// Host is one of the hosts that may hold a tenant.
type Host struct {
	Host    string `json:"host"` // as in Status.Holder when it holds
	Mode    string `json:"mode"`
	Problem string `json:"problem,omitempty"`
	Applied uint64 `json:"applied"` // last sequence folded
	Last    uint64 `json:"last"`    // last sequence of the stream
	// NoKey: why it could not sign checkpoints, if it held the tenant.
	NoKey string `json:"no_key,omitempty"`
}

// Waiting is a command in flight that wants to be looked at: no worker has
// taken it, or one says that it is still working.
type Waiting struct {
	Working bool `json:"working,omitempty"`
	// Handler: in an agent's code, which no process offers; for people.
	Handler    string `json:"handler,omitempty"`
	Capability string `json:"capability"`
	Plan       string `json:"plan"`
	Action     string `json:"action"`
	SinceNs    int64  `json:"since_ns"`
	Tries      int    `json:"tries"`
	// Heard: someone subscribes the call who is not known as a worker, as a terminal or a stream.
	Heard bool `json:"heard,omitempty"`
	// UnservedNs: while no worker takes it: when it becomes its owner's.
	UnservedNs int64  `json:"unserved_ns,omitempty"`
	Problem    string `json:"problem,omitempty"` // why it was not sent; empty: no worker has taken it
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

// Preview is what an unwind would do now, PreviewStep one step of it, and Undoable what it
// says of one action.
type (
	Preview     = api.Preview
	PreviewStep = api.PreviewStep
	Undoable    = api.Undoable
)

// Undo is one attempt of an undo (S31, S32).
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

// Contract is one published revision of a contract.
type Contract struct {
	Capability string          `json:"capability"`
	Digest     string          `json:"digest"`   // 64 hex digits
	Revision   int             `json:"revision"` // from 1
	Current    bool            `json:"current"`
	By         string          `json:"by"` // operator
	At         string          `json:"at"` // address
	AtNs       int64           `json:"at_ns"`
	Contract   json.RawMessage `json:"contract"` // canonical JSON
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

// Cascade is the limits of cascades, as executor.CascadeLimits has them.
type Cascade struct {
	Depth  uint32 `json:"depth"`
	Plan   uint32 `json:"plan"`
	Tenant uint64 `json:"tenant"`
}
