package api

import "fmt"

// Modes of a tenant on a host, as in Status.
const (
	ModeStarting = "starting"    // its ledger is not open yet, or was interrupted
	ModeStandby  = "standby"     // folds; another host holds the tenant, or none yet
	ModeHolding  = "holding"     // decides and dispatches
	ModeGuard    = "clock-guard" // holds, but no clock lease fires
	ModeHalted   = "halted"      // a guard has failed: nothing is dispatched
	// a disk cannot be written: nothing is folded or dispatched until it can
	ModeDegraded = "degraded"
	ModeErased   = "erased" // for good, or about to be: nothing is read or written any more
)

// Modes are all of them.
var Modes = [...]string{ModeStarting, ModeStandby, ModeHolding, ModeGuard, ModeHalted, ModeDegraded,
	ModeErased}

// StatusAnswer answers status.
type StatusAnswer struct {
	Status Status `json:"status"`
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
	NextDueNs  int64        `json:"next_due_ns,omitempty"`
	InFlight   int          `json:"in_flight"`
	Waiting    []Waiting    `json:"waiting,omitempty"`     // commands without a worker
	Unpaged    int          `json:"unpaged,omitempty"`     // pages that no hook has taken yet
	OldestPage *UntakenPage `json:"oldest_page,omitempty"` // of them
	// Reviews are actions that wait for a verdict, OldestReviewNs since when the first of them does.
	Reviews        uint64 `json:"reviews,omitempty"`
	OldestReviewNs int64  `json:"oldest_review_ns,omitempty"`
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
	// Entry is what the control stream says of the tenant, and Effective its limits with the
	// defaults filled in; nil: the host that answers finds no entry there.
	Entry     *TenantEntry  `json:"entry,omitempty"`
	Effective *TenantLimits `json:"effective,omitempty"`
}

// Halt is what a guard has found, for which a tenant is halted.
type Halt struct {
	Guard    string `json:"guard"`    // G1 to G5, core or reader, as in docs/architecture.md
	Sequence uint64 `json:"sequence"` // where
	Problem  string `json:"problem"`
}

// UntakenPage is a call to an owner that no hook has taken.
type UntakenPage struct {
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
	// Version that it asks for, where a worker of another version has answered and none of this.
	Version string `json:"version,omitempty"`
	// UnservedNs: while no worker takes it: when it becomes its owner's.
	UnservedNs int64 `json:"unserved_ns,omitempty"`
	// AgainNs: while one says that it is still working: when it is asked again.
	AgainNs int64  `json:"again_ns,omitempty"`
	Problem string `json:"problem,omitempty"` // why it was not sent; empty: no worker has taken it
}

// Wanted is whom the command waits for: a worker, and of which version where another one is there.
func (w Waiting) Wanted(worker string) string {
	if w.Version == "" {
		return worker
	}
	return fmt.Sprintf("%s of version %.80q", worker, w.Version)
}

// AskedAgain says, after something else, when a worker that is working is asked again; "" where
// that is not known.
func (w Waiting) AskedAgain() string {
	if w.AgainNs == 0 {
		return ""
	}
	return "; asked again at " + At(w.AgainNs)
}

// Cascade is the limits of cascades, as executor.CascadeLimits has them.
type Cascade struct {
	Depth  uint32 `json:"depth"`
	Plan   uint32 `json:"plan"`
	Tenant uint64 `json:"tenant"`
}

// Checkpoint is what status says of a tenant's checkpoints.
type Checkpoint struct {
	Size    uint64 `json:"size"`     // records of the largest in the ledger; 0: none yet
	StampNs int64  `json:"stamp_ns"` // of its record
	Root    []byte `json:"root,omitempty"`
	Key     string `json:"key,omitempty"`     // verifier key that this host signs with
	Problem string `json:"problem,omitempty"` // why this host does not sign
	// NoKey: it lacks the key in force, or cannot use it.
	NoKey bool `json:"no_key,omitempty"`
	// the ledger is not the one that was signed
	Alarm   bool   `json:"alarm,omitempty"`
	Witness string `json:"witness,omitempty"` // name of its key
	// size of the largest checkpoint that it has cosigned
	Cosigned uint64 `json:"cosigned,omitempty"`
	Away     string `json:"away,omitempty"` // why it has not cosigned the last one
	// it says that the ledger is not the one that it has seen
	WitnessAlarm bool       `json:"witness_alarm,omitempty"`
	Rotations    []Rotation `json:"rotations,omitempty"`
}

// Rotation is one rotation of the key that checkpoints are signed by.
type Rotation struct {
	At      string `json:"at"` // address of its record
	StampNs int64  `json:"stamp_ns"`
	OldKey  string `json:"old_key"` // verifier key
	NewKey  string `json:"new_key"`
	Signed  bool   `json:"signed"` // by the old key; else that one was lost
	Reason  string `json:"reason"`
	Actor   string `json:"actor"`
}

// Copy is what status says of a tenant's tiles.
type Copy struct {
	Records uint64 `json:"records"`
	Last    uint64 `json:"last"` // sequence
	// ScrubbedNs: when the last full pass of the scrub ended.
	ScrubbedNs  int64 `json:"scrubbed_ns,omitempty"`
	NextScrubNs int64 `json:"next_scrub_ns,omitempty"` // when the next one begins
	// Scrubbing: sequence that a pass under way has reached.
	Scrubbing uint64   `json:"scrubbing,omitempty"`
	Repairs   []Repair `json:"repairs,omitempty"`
}

// Repair is one repair of the ledger.
type Repair struct {
	At           string `json:"at"` // address of its record
	StampNs      int64  `json:"stamp_ns"`
	Through      uint64 `json:"through"` // last sequence that only the tiles have
	Size         uint64 `json:"size"`    // records up to there
	Root         []byte `json:"root"`
	OldCreatedNs int64  `json:"old_created_ns"`
	NewCreatedNs int64  `json:"new_created_ns"`
	OldLast      uint64 `json:"old_last"`
	Lost         string `json:"lost"` // sequences of the old stream, as in "3, 7-9"
	Carried      string `json:"carried"`
	Dropped      string `json:"dropped"`
	Problem      string `json:"problem,omitempty"`
	Reason       string `json:"reason"`
	Actor        string `json:"actor"`
}

// HostAnswer answers host, which is asked of all hosts of a tenant.
type HostAnswer struct {
	Host Host `json:"host"`
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
	// NoTenantKey: why it could not open what is sealed, if an undo took it after a restart.
	NoTenantKey string `json:"no_tenant_key,omitempty"`
	// Forked: why the holder has another history than the leader of the stream, as this host has
	// proved; empty: it has not.
	Forked string `json:"forked,omitempty"`
	// Process tells hosts of one name apart, which is a mistake; At says where each runs.
	Process string `json:"process,omitempty"`
	At      string `json:"at,omitempty"`
}

// Pulse is how far the fold of a tenant is, and its counters.
type Pulse struct {
	Applied     uint64 `json:"applied"` // last sequence folded
	Records     uint64 `json:"records"`
	Held        uint64 `json:"held"`
	Open        uint64 `json:"open"`
	Unwinding   uint64 `json:"unwinding"`
	Quarantined uint64 `json:"quarantined"`
	Ended       uint64 `json:"ended"`
	Reviews     uint64 `json:"reviews,omitempty"` // actions that wait for a verdict
}
