package executor

import (
	"cmp"
	"encoding/binary"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Input is what Decide knows beside the state.
type Input struct {
	// EpochNs is the host's guarded clock, unix ns: the instant that the
	// decisions carry and at which due conditions are asked.
	EpochNs int64
	// HoldClock holds every lease that depends on the clock (clock guard): late
	// is allowed, early is not (I16).
	HoldClock bool
	// Answers are what workers said since the last turn.
	Answers []Answer
	// Paged are the pages that hooks have taken since the last turn.
	Paged []Paged
	// Destroyed are the plans whose keys were destroyed since the last turn.
	Destroyed []string
	// Cascade bounds what follows from undos.
	Cascade CascadeLimits
	// MemoryMax bounds the bytes of facts in working memory; 0: no limit.
	MemoryMax int64
	// Tenant is what the tenant may do by the control stream; nil: it says nothing.
	Tenant *pb.TenantChanged
	// SizeMax bounds the records returned, in bytes of one commit.
	SizeMax int
	// Reporter makes the tokens that reports of long undos have to show; nil: they need none.
	Reporter *ledger.Reporter
	// Ahead bounds the dispatches that are recorded behind another one, before its undo has
	// succeeded; 0: none is.
	Ahead int
}

// Answer is what became of one call. Reply is nil when no answer came in time: an
// undo may have happened, and the attempt counts as failed (S25).
type Answer struct {
	Plan     string
	Number   uint32
	Purpose  string // of the command
	Attempt  uint32
	Reply    *api.Reply
	QueuedNs int64 // from dispatch until the worker had it
	// Unserved says that there is no answer because no one takes the call. It counts
	// once its contract's unserved_after is over, and may be given again and again.
	Unserved bool
	// Reached says that another copy may have come to a worker before.
	Reached bool
}

// Decide returns the records to append now, at most one commit of them. It
// changes nothing: each proposal is folded into a scratch copy before the next
// is made, so that one turn may settle an attempt, release what waited for it
// and dispatch that too. Called again with the same state and input it returns
// the same records (I9).
func (s *State) Decide(in Input) []*pb.Record {
	d := &decider{live: s, state: s.fork(), in: in}
	d.state.meta.TimeNs = max(d.state.meta.TimeNs, in.EpochNs)
	if s.Governed(in.Tenant) {
		d.propose(&pb.Record{Kind: &pb.Record_TenantChanged{TenantChanged: in.Tenant}})
	}
	attempts := d.due()
	if len(d.fired) > 0 {
		// More may fall due meanwhile: the turn stays short, so that it is not late.
		d.beside, d.whole = true, in.SizeMax
		d.in.SizeMax = min(in.SizeMax, d.size+besideFiringMax)
	}
	for _, a := range in.Answers {
		if !a.Unserved {
			d.answer(a)
		}
	}
	for _, a := range in.Answers {
		if a.Unserved && !in.HoldClock { // late is allowed, early is not
			d.answer(a)
		}
	}
	d.paged(in.Paged)
	d.destroyed(in.Destroyed)
	d.attempts(attempts)
	for _, id := range d.fired {
		d.plan(id)
	}
	d.memory() // bounded, and before the plans: a backlog of unwinds must not put off evictions
	if !d.full() {
		d.turned(s.todo.First(todoPerTurn))
	}
	return d.records
}

// besideFiringMax is how many bytes of other decisions a turn takes in which leases
// fire by the clock: what is under way is slowed by them and never stopped.
const besideFiringMax = 4 << 10

// todoPerTurn bounds the plans one turn looks at; the rest waits for the next.
const todoPerTurn = 1024

// decider collects one turn's proposals. Relative references (sequence 0) name
// records of the commit it builds.
type decider struct {
	live    *State // for its indexes; never changed, except what it may snooze
	state   *State // scratch fold
	in      Input
	records []*pb.Record
	size    int
	fired   []string // plans of leases that fire by the clock in this turn
	beside  bool     // they have: what follows is bounded
	whole   int      // bytes of the commit, whatever that bound
	grown   bool     // and one decision was larger
	facts   bool     // it asserts or retracts facts
}

func (d *decider) full() bool {
	return d.size+decisionSizeMin > d.in.SizeMax || len(d.records) >= ledger.CommitLenMax
}

// room is how large the commit may become. One decision beside firings may be larger
// than what is set aside for all of them, or it would never be taken.
func (d *decider) room() int {
	if d.beside && !d.grown {
		return d.whole
	}
	return d.in.SizeMax
}

// decisionSizeMin is the room a decision without payload needs, in bytes.
const decisionSizeMin = 1024

// propose folds r into the scratch state and keeps it if it is effective there.
// It reports false when the commit is full.
func (d *decider) propose(r *pb.Record) bool {
	r.Term, r.EpochNs, r.Folded = d.state.meta.Term, d.in.EpochNs, d.state.meta.Applied.GetSequence()
	size := ledger.RecordSize(r)
	if d.full() || len(d.records) > 0 && d.size+size > d.room() {
		return false
	}
	d.grown = d.grown || d.size+size > d.in.SizeMax
	e := ledger.Entry{
		Address: &pb.Address{Index: uint32(len(d.records))},
		Source:  ledger.Source{Tenant: d.state.tenant, Class: ledger.ClassExecutor},
		StampNs: d.in.EpochNs, Record: r,
	}
	if result := d.state.folding(e).applyExecutor(); result.Verdict != Effective {
		panic("executor: proposed a decision that does not hold: " + result.Reason)
	}
	d.facts = d.facts || r.GetFactAsserted() != nil || r.GetFactRetracted() != nil
	d.records = append(d.records, r)
	d.size += size
	return true
}

// about starts a record about an action.
func (d *decider) about(p *plan, a *action, cause *pb.Address) *pb.Record {
	return &pb.Record{Plan: p.id, Action: a.fixed.Id, About: a.fixed.Registered, Cause: cause}
}

// turned works through the to-do set, in its order.
func (d *decider) turned(entries []string) {
	for _, e := range entries {
		if d.full() {
			return
		}
		switch e[:1] {
		case todoRefused:
			d.refusal([]byte(e[1:]))
		case todoEvict, todoRestore:
			d.asked(e)
		default:
			d.plan(e[1:])
		}
	}
}

func (d *decider) refusal(place []byte) {
	at := rows.ParsePlace(place)
	row := rows.Refused.Must(d.state.tx, at)
	d.propose(&pb.Record{Plan: row.Plan,
		Kind: &pb.Record_RecordRefused{RecordRefused: &pb.RecordRefused{
			Sequence: at.Sequence, Index: at.Index, Reason: clip(row.Reason),
		}}})
}

// plan does all that a plan needs now.
func (d *decider) plan(id string) {
	p := d.state.plan(id)
	for again := true; again; again = d.settled(p) {
		for p.hasWork() && d.step(p) {
		}
	}
}

// settled takes the next step of the latest action whose forward can no longer land;
// false: there is none, or the commit is full.
func (d *decider) settled(p *plan) bool {
	for i := len(p.row.Settling) - 1; i >= 0 && !d.full() && p.row.InFlight < concurrency(p.row); i-- {
		if a := d.state.action(p.id, p.row.Settling[i]); a.row.DueNs <= d.in.EpochNs {
			return d.next(p, a)
		}
	}
	return false
}

// step proposes the next record of a plan; false: nothing more this turn.
func (d *decider) step(p *plan) bool {
	switch p.row.Phase {
	case rowspb.Phase_PHASE_OPEN:
		switch {
		case p.row.Fired != nil:
			return d.unwind(p)
		case len(p.row.Duplicated) > 0:
			return d.fireDuplicate(p, d.state.action(p.id, p.row.Duplicated[0]))
		}
		return d.fireTurned(p)
	case rowspb.Phase_PHASE_COMMITTING, rowspb.Phase_PHASE_COMMITTED:
		return d.closingStep(p)
	case rowspb.Phase_PHASE_UNWINDING:
		return d.unwindStep(p)
	default:
		return false
	}
}

// fireTurned records that a lease turned true where the fold saw it turn. What
// turned true by the clock is due, and not fired here. The scratch copy wakes no lease for a fact
// that is decided here; the fold will.
func (d *decider) fireTurned(p *plan) bool {
	t := p.row.Turned
	if d.facts && t.At.GetSequence() == 0 {
		return false // a fact of this commit may have turned it before the plan was open again
	}
	l, a := p.lease(rows.Lease{Plan: p.id, N: t.Action, Name: t.Lease})
	return d.fire(p, a, l, t.Readings, t.At)
}

// fireDuplicate records that the lease on extra effects turned true: the answer of a
// probe was the cause, and more is owed.
func (d *decider) fireDuplicate(p *plan, a *action) bool {
	l, _ := p.lease(rows.Lease{Plan: p.id, N: a.id.N, Name: leaseDuplicate})
	result := p.hold(a, l).Evaluate(d.in.EpochNs, d.state.memory.View())
	return d.fire(p, a, l, readingsOf(result.Readings), a.row.PresenceAt)
}

func (d *decider) fire(p *plan, a *action, l *rowspb.LeaseRow, readings []*pb.Reading,
	cause *pb.Address) bool {
	fired := &pb.LeaseFired{Lease: l.Name, Condition: conditionOf(p, a, l), Readings: readings}
	if c, err := d.state.Programs.Condition(fired.Condition); err == nil {
		digest := c.Digest()
		fired.ConditionDigest = digest[:]
	}
	r := &pb.Record{Plan: p.id, Cause: cause}
	if !d.bounded(p, a, l, fired, r) {
		return false
	}
	if a != nil {
		r.Action, r.About = a.fixed.Id, a.fixed.Registered
	}
	return d.propose(r)
}

// due fires the leases whose wake instant has come, and returns the other entries
// that are due. It comes before all else that a turn decides, and the unwinds of
// what fires here come with the other work, so that no lease is late for the unwind
// of another.
func (d *decider) due() (others []string) {
	for _, k := range d.live.due.Entries(d.in.EpochNs) {
		if k[9] != rows.DueLease && k[9] != rows.DueNode {
			others = append(others, k)
			continue
		}
		d.again(k, d.dueCondition)
	}
	return others
}

// attempts starts every attempt whose backoff is over, and warns of windows.
func (d *decider) attempts(entries []string) {
	for _, k := range entries {
		d.again(k, d.dueAttempt)
	}
}

// again handles one due entry, which ask tells when to ask again, if it stays,
// or 0. What was decided is looked at again at once: if its records never reach the
// ledger, the next Decide must propose them again (I9). A full turn looks at nothing.
func (d *decider) again(key string, ask func(key []byte) int64) {
	again := d.in.EpochNs
	if !d.full() {
		if _, ok := d.live.tx.Get([]byte(key)); !ok {
			return // moved or given up since it was snoozed
		}
		again = ask([]byte(key))
	}
	if again != 0 {
		d.live.due.Snooze(again, key)
	}
}

func (d *decider) dueCondition(key []byte) int64 {
	if key[9] == rows.DueNode {
		return d.dueNode(key[10:], int64(binary.BigEndian.Uint64(key[1:])))
	}
	at := rows.ParseInstant(key)
	ns, ref := at.Ns, at.Lease
	p := d.live.plan(ref.Plan)
	switch {
	case p == nil || ref.N > p.row.Actions:
		return 0
	case p.row.Fired != nil:
		return 0 // its unwind gives up the entry, or a rewind sets it again
	}
	return d.dueLease(d.state.plan(ref.Plan), ref, ns)
}

func (d *decider) dueAttempt(key []byte) int64 {
	at := rows.ParseInstant(key)
	ns, kind, ref := at.Ns, at.Kind, at.Lease
	p := d.state.plan(ref.Plan)
	if p == nil || ref.N > p.row.Actions {
		return 0
	}
	a := d.state.action(p.id, ref.N)
	switch kind {
	case rows.DueWindow:
		return d.dueWindow(p, a)
	case rows.DueAsk:
		return d.dueQuestion(p, a, key, ns)
	}
	settles := a.row.Undo == rowspb.Undo_UNDO_SETTLING
	waits := a.row.Undo == rowspb.Undo_UNDO_WAITING || settles
	switch {
	case !p.asks() || !waits || a.row.DueNs != ns:
	case settles && p.row.InFlight >= concurrency(p.row):
		d.live.due.Crowd(p.id, key)
		return 0 // it begins when an undo of its plan ends
	case d.next(p, a):
		d.plan(p.id)
	}
	return d.in.EpochNs
}

// dueWindow warns the owner of an action whose undo window is about to close.
func (d *decider) dueWindow(p *plan, a *action) int64 {
	if d.in.HoldClock {
		return d.in.EpochNs + heldAgain
	}
	if warns(p, a) && !d.full() {
		r := d.about(p, a, a.row.OutcomeAt)
		r.Kind = &pb.Record_UndoWindowClosing{
			UndoWindowClosing: &pb.UndoWindowClosing{ClosesNs: a.row.ClosesNs},
		}
		d.propose(r)
	}
	return d.in.EpochNs
}

// dueQuestion asks about a doubt of an open plan, or waits until there is room for the question.
// One that cannot be asked waits for a commit or an unwind, which has it answered by the owner.
func (d *decider) dueQuestion(p *plan, a *action, key []byte, ns int64) int64 {
	switch {
	case d.in.HoldClock:
		return d.in.EpochNs + heldAgain
	case p.row.Fired != nil || turnsByRecord(p.row) || a.row.AskNs != ns || asksFrom(a) == 0 ||
		d.full():
		return d.in.EpochNs
	}
	if giver, is := crowded(p); is {
		d.live.due.Crowd(giver, key)
		if giver == p.id && p.s.meta.Asking < openAskingMax {
			d.live.due.Admit("") // it may have been let in for the tenant's room, and takes none
		}
		return 0
	}
	r, why := openQuestion(a)
	if why != "" {
		admitQuestion(d.live.plan(p.id)) // the room that it was looked at for is another's
		return 0
	}
	d.propose(r)
	return d.in.EpochNs
}

// heldAgain is after how long a lease that the clock guard holds is looked at
// again, in ns: not at once, so that many of them leave room for retries.
const heldAgain = int64(100e6)

func (d *decider) dueLease(p *plan, ref rows.Lease, ns int64) int64 {
	l, a := p.lease(ref)
	idle := l == nil || l.WakeNs != ns || !isHeld(p, l)
	switch {
	case a == nil && givenUp(p) && turnOf(p, ref) == nil:
		return 0 // an earlier holder has taken it up again
	case idle || p.row.Fired != nil || d.full():
		return d.in.EpochNs
	case !armed(p.row) && waitsForPart(p):
		return d.partAgain(p)
	case d.in.HoldClock:
		return d.in.EpochNs + heldAgain
	}
	turned := turnedBy(p, ref)
	if turned != nil && turned.Ns <= d.in.EpochNs {
		return d.fireDue(p, a, l, turned.Readings, cmp.Or(movedTo(p, l), turned.At))
	}
	held := p.hold(a, l)
	if held == nil {
		return 0
	}
	result := d.state.answerAt(held, asOf(l, d.in.EpochNs), asOf(l, d.state.meta.TimeNs))
	if result.Truth == triggers.True {
		result = held.Evaluate(asOf(l, d.in.EpochNs), d.state.memory.View())
		return d.fireDue(p, a, l, readingsOf(result.Readings),
			cmp.Or(movedTo(p, l), p.row.Opened))
	}
	again := int64(0) // only a fact can change it now, and facts wake it themselves
	if result.WakeNs > d.in.EpochNs && asOf(l, result.WakeNs) == result.WakeNs {
		again = result.WakeNs
	}
	if turned != nil && (again == 0 || turned.Ns < again) {
		again = turned.Ns
	}
	return again
}

func (d *decider) fireDue(p *plan, a *action, l *rowspb.LeaseRow, readings []*pb.Reading,
	cause *pb.Address) int64 {
	if d.fire(p, a, l, readings, cause) {
		d.fired = append(d.fired, p.id)
	}
	return d.in.EpochNs
}

// NextWake returns the next instant (unix ns) at which time alone may call for
// a decision; ok is false when nothing waits for the clock.
func (s *State) NextWake() (ns int64, ok bool) { return s.due.Next() }

// HasWork reports whether Decide has something to do whatever the clock says.
func (s *State) HasWork() bool { return s.todo.Len() > 0 }
