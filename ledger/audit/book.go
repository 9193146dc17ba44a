package audit

import (
	"bytes"
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit/ids"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// What an undo of an action is at; "ready" and "retired" are not kept, they are said
// of an owed action that nothing holds back, and of a held one of a committed plan.
const (
	held        = "held"
	owed        = "owed"
	dispatched  = "dispatched"
	waiting     = "waiting"
	compensated = "compensated"
	skipped     = "skipped"
	quarantined = "quarantined"
	resolved    = "resolved"
	exhausted   = "exhausted"
	settling    = "settling" // in doubt, and its forward may still land
	ready       = "ready"
	retired     = "retired"
)

// What is known of a forward.
const (
	unheardOf = "unknown"
	completed = "completed"
	failed    = "failed"
	inDoubt   = "in_doubt"
)

// place is where a record is.
type place struct {
	sequence uint64
	index    uint32
}

func placeOf(a *pb.Address) place { return place{a.GetSequence(), a.GetIndex()} }

// book is everything that the records so far say.
type book struct {
	store
	tenant    string
	now       int64       // logical time, unix ns
	before    int64       // logical time before the record that is folded
	at        *pb.Address // of the record that is folded
	records   uint64      // so far, this one included
	part      bool        // and others are left out between them
	term      uint64
	holder    string
	rules     uint32 // version of the holder's fold, by which what is stored under it is meant
	decidedAt uint64 // last sequence with decisions that say what their holder had folded
	signed    signed
	pages     map[page]*pb.Address
	contracts map[string][]byte // digest of the last revision, by capability
	half      string            // action and message of the last forward that was refused
	may       *pb.TenantChanged // what the tenant may do; nil: nothing is limited
	spent     spent
	ids       *ids.ByWriter // of records that counted
	programs  *triggers.Cache
	onRead    func(plan string, keys, prefixes []string) // may be nil
}

// page is a call to an owner that no hook has taken yet.
type page struct {
	plan   string
	number uint32 // of the action; 0: the plan
	kind   string
}

type plan struct {
	family        *family
	id, agent     string
	earlier       []string // agents that had it before, in order
	adoptedFrom   uint64   // what the last adoption says that it follows
	awaited       bool     // no process of its agent has resumed it since
	opened        *pb.Address
	openedNs      int64
	idles         bool        // a lease of it, or of an action, reads activeNs
	deadlineNs    int64       // as declared, or moved; 0: none
	deadlineAt    *pb.Address // of the record that has set it
	movedFrom     uint64      // what the last move says that it follows
	activeNs      int64       // of the latest record of its agent that counts, or that of a part
	declared      *pb.PlanOpened
	input         []byte // with which it was opened
	phase         string // a state of package ledger
	signal        string // failed, cancelled or nothing
	reason        string
	signalled     bool
	toSavepoint   string
	parts         uint32  // that were undone, not by its agent, after which the plan went on
	counted       bool    // an operator has it go back to a savepoint: one of parts
	fromAction    string  // or only this one, and what came after it, is to be undone
	turned        *turn   // the first lease that turned true and has not fired
	behind        []*turn // and those that did after it
	fired         *pb.Address
	unwinding     *pb.Address
	unwindingNs   int64 // logical time at which its unwind began
	resumed       *pb.Address
	committed     *pb.Address
	ended         *pb.Address
	retired       bool
	letBe         bool      // the owner of its root has left it as it was, committed
	gaveUp        int       // registrations that its commit has retired
	inDoubt       []string  // what its retirement has to name
	actions       []*action // number n is at n-1
	paths         *index    // through them
	unopened      bool      // its own opening was refused
	byHand        bool
	lastGoes      bool   // it was opened to let go what an irreversible last act came after
	opener        string // the process that opened it
	writer        string // the one whose records it takes
	writerSinceNs int64  // logical time at which that one resumed it; 0: it opened it
	resumedAt     uint64 // sequence of the record by which it did
	orphans       []orphan
	leases        []*lease
	holding       int // leases that it holds after its commit, those of its actions, too
	savepoints    []savepoint
	rewinding     bool
	target        uint32
	parent        *plan // of a child plan
	entry         uint32
	depth         uint32
	origin        string
	undoneAs      string
	delivers      bool // it delivers what is staged in its origin
	deliveredAs   string
	stopped       *pb.Address // and makes no attempt any more, since this record
	rewinds       uint32
	savepointsSet uint32
	proposals     map[string]*proposal // about orphans
	firing        *firing
	passed        *firing
	cuts          []*cut
	hasFired      map[string]place // by firedName, until the plan is open again (I14)
	aheads        int              // actions with a dispatch ahead
	sealed        int              // sealed values in its records
	erasure       *pb.PlanErased
	erased        *pb.Address // the operator's record; nil: its sealed values can be read
	shredded      *pb.Address // the holder's: the key is gone
}

type action struct {
	n                     uint32
	id                    string
	registered            *pb.Address
	atNs                  int64
	forward               *pb.ForwardRegistered
	compensation          *pb.CompensationRegistered
	before                []uint32
	child                 *plan
	dutyOf                uint32
	writer                string     // the process that registered it
	key                   string     // of its undo, where a plan that undoes another one holds it
	laterKeys             []laterKey // keys that its owner has asked for in place of that one
	outcome               string
	outcomeNs             int64  // logical time of the record that says so
	outcomeAt             uint64 // and its sequence
	externalRef           string
	foundRef              string // what a probe calls its effect; empty: as externalRef
	failure               string
	lifted                []byte
	input, output         []byte
	image                 []byte   // what was there before it crossed
	facts                 []byte   // that its expressions read, as they were at its registration
	factsLost             []string // and those of them that were too large to be kept
	incomplete            bool     // output is a part of what was returned, or nothing
	unnamed               bool     // what the provider calls the effect could not be kept
	undo                  string
	attempt, attemptsFrom uint32
	unsureOf              uint32 // of a delivery: the last attempt that may have been carried out
	forgotten             uint32 // likewise: the first one that its provider may take for another
	knownFailed           uint32 // likewise: the last one that is known to have failed
	sentNs                int64  // epoch of its first attempt
	blindly               bool
	dispatched            *pb.Address
	arguments             []byte // of the command in flight
	settled               *pb.Address
	settledNs             int64
	scoped                bool // it was skipped though it may have crossed
	undoneNow             bool // since the unwind of its plan began
	letsGo                bool // quarantined: an irreversible act that nothing was undone after
	verdict               pb.VerdictOutcome
	verdictBy             string
	verdictReason         string
	verdictNs             int64
	resolution            *pb.Resolved
	leases                []*lease
	late                  bool
	reported              *pb.CompensationReported
	told                  bool // that it has happened is another's word: its agent's own counts, too
	toldAt                *pb.Address
	wordAt                uint64 // sequence of the last that named its effect or output after that
	asking                pb.Question
	asked, askedFrom      uint32
	askedNs               int64    // epoch of the last question
	absentNs              int64    // epoch of one that found nothing too early; 0: none
	askNs                 int64    // epoch from which on an open plan asks about it; 0: it does not
	extra                 bool     // a duty for an extra effect that no unwind has found
	doubtedAs             uint32   // the duty for a doubt that came too late
	owedElse              bool     // such a duty: it is owed as another one
	dispatchedNs          int64    // epoch of dispatched
	unserved              bool     // no one took its last attempt
	failedForNow          bool     // its last attempt was no final failure, and in no doubt
	saidDone              uint32   // the last attempt that a worker has called done; 0: none
	saidBefore            []uint32 // likewise under other keys than that one's
	undone                bool     // a duty for that: it was undone once more than its owner knew
	askedToSend           bool     // the question comes before an attempt, not after one
	presence              pb.Presence
	there                 bool // someone has found its effect there, and not gone since
	pending               *pb.CompensationSucceeded
	confirmed             bool
	change                pb.Change // what was found since the last attempt
	changeNs              int64     // logical time of that answer
	found                 []byte    // what was there then
	overwrite             bool      // its owner has it undone whatever was found
	aliveUntilNs          int64
	approved              bool
	proposal              *proposal
	closesNs              int64
	warned                bool
	duties                uint32
	duplicates            []string
	surplus               []string // as duplicates, found by a commit: its owner is asked
	successes             int      // effective ones, for I22
	secrets               []secret
	ahead                 *ahead // a dispatch that waits for another one; nil: none
	doubt                 string // how far a commit has come that waits for it; empty: none
}

type lease struct {
	name     string
	text     string // its condition; empty: a standing one
	single   bool   // it undoes its action and what came after it; else the plan
	exact    bool   // it reads numbers by value, as the holder under which it was taken out
	after    bool   // it asks to be held after the commit
	untilNs  int64  // it is, until then; 0: it is not
	trueNs   int64  // when it turned true since; 0: it has not
	armedNs  int64
	fired    bool
	ofStaged bool   // it is on a staged act, and a verdict turns it at once
	cascade  string // "", cut, resumed, given up
	joined   bool   // looked at since it was armed, and not true: if shared, its facts alone count
	watched  []string
}

// turn is the moment a lease turned true.
type turn struct {
	number  uint32
	lease   string
	ns      int64
	at      *pb.Address // the record at which it turned
	clocked bool
	firing  *firing
	read    []*pb.Reading // what its condition read
}

// firing is why a plan unwinds: one link of a cascade.
type firing struct {
	plan, action, lease string
	fired               *pb.Address
	depth               uint32
	by                  *made
	passed              *pb.Address
}

// made is a fact that an undo made.
type made struct {
	key                string
	fact               *pb.Address
	retracted          bool
	depth              uint32
	undonePlan, undone string
	fired              *pb.Address
}

type cut struct {
	number   uint32
	lease    string
	at       *pb.Address
	proposal *proposal
}

// proposal is an owner's answer that waits for a second operator.
type proposal struct {
	answer      string
	halt, force bool
	operator    string
}

type fact struct {
	value               []byte
	earlier             [][]byte // what its message has asserted before that
	assertedNs          int64
	changedNs           int64
	times               []int64 // of all assertions, ascending, after those of runs
	runs                []run   // of earlier ones, which are on the shelf
	source              *pb.Address
	retracted           bool
	tombstone           *pb.Address
	evicted             *pb.Address
	rough               bool // evicted by a holder that compares bytes
	asked               *pb.Address
	undo                bool
	cause               *pb.Address
	depth               uint32
	fired, madeAt       *pb.Address
	undonePlan, undoneA string
}

func (p *plan) numberNamed(id string) uint32 {
	return p.indexed().names[id]
}

func (p *plan) named(id string) *action {
	if n := p.numberNamed(id); n != 0 {
		return p.actions[n-1]
	}
	return nil
}

func (p *plan) status() string {
	if p.canStop() && p.signal != "" {
		return p.signal
	}
	return p.phase
}

// stillHolds: a committed child still holds its set, for its root.
func (p *plan) stillHolds() bool {
	return p.phase == ledger.StateCommitted && p.parent != nil && !p.retired
}

// holdsLeases: the leases of the plan are held.
func (p *plan) holdsLeases() bool { return p.canStop() || p.stillHolds() }

// canStop: the plan can still be undone from the state it is in.
func (p *plan) canStop() bool {
	return p.phase == ledger.StateOpen || p.phase == ledger.StateCommitting
}

// unwound: the plan is somewhere in its unwind, or after it.
func (p *plan) unwound() bool { return !p.canStop() && p.phase != ledger.StateCommitted }

// isClosed: the plan is closed for its agent.
func (p *plan) isClosed() bool {
	return !slices.Contains([]string{ledger.StateOpen, ledger.StateCommitting,
		ledger.StateUnwinding, ledger.StateQuarantined}, p.phase)
}

func (p *plan) root() *plan {
	for p.parent != nil {
		p = p.parent
	}
	return p
}

// below lists the child plans under a plan, with their own, in order of entry.
func (p *plan) below() (list []*plan) {
	for _, a := range p.actions {
		if a.child != nil && a.child.parent == p {
			list = append(append(list, a.child), a.child.below()...)
		}
	}
	return list
}

func (p *plan) needsTwo() bool { return p.declared.SecondApprover }

// isSettled: the action's part in the held set has ended.
func (a *action) isSettled() bool {
	return a.undo == compensated || a.undo == skipped || a.undo == resolved
}

// isOut: a call of the action is out, or waits for its next try.
func (a *action) isOut() bool { return a.undo == dispatched || a.undo == waiting }

// mayHaveCrossed: the effect crossed the boundary, or may have.
func (a *action) mayHaveCrossed() bool {
	return (!a.isStaged() || a.outcome == completed) &&
		a.outcome != failed && a.presence != pb.Presence_PRESENCE_ABSENT
}

func (a *action) isBlind() bool { return a.outcome != completed && !a.isStaged() }

func (a *action) makesFact() bool {
	return a.compensation.GetActuator() == ledger.ActuatorMemory
}

// undoKey is the idempotency key of the action's undo: of the plan and action that
// were registered, whatever plan undoes it now (I19).
func (b *book) undoKey(p *plan, a *action) string { return keyOf(b, p, a, a.attempt+1) }

// held counts the registrations that are neither retired nor settled (I24).
func (b *book) held() (count int) {
	b.families.each(func(_ string, f *family) {
		for _, p := range f.plans {
			count += p.held()
		}
	})
	return count
}

func (p *plan) held() (count int) {
	if p.phase == ledger.StateResolved || p.phase == ledger.StateCommitted && !p.stillHolds() {
		return 0
	}
	for _, a := range p.actions {
		if a.child == nil && !a.isSettled() {
			count++
		}
	}
	return count
}

func sameAddress(a, b *pb.Address) bool {
	return a.GetSequence() == b.GetSequence() && a.GetIndex() == b.GetIndex() &&
		bytes.Equal(a.GetLeaf(), b.GetLeaf())
}

// samePlace compares places: a reference with sequence 0 is to the commit that it
// is in, and has no leaf.
func samePlace(ref, at *pb.Address, e ledger.Entry) bool {
	if ref == nil || at == nil {
		return ref == at
	}
	sequence := ref.Sequence
	if sequence == 0 {
		sequence = e.Address.Sequence
	}
	return sequence == at.Sequence && ref.Index == at.Index
}

// shown is the phase of a plan as people read it.
func (p *plan) shown() string {
	switch {
	case p.delivers && p.phase == ledger.StateUnwinding:
		return ledger.StateDelivering
	case p.delivers && p.phase == ledger.StateCompensated:
		return ledger.StateDelivered
	}
	return p.phase
}
