package executor

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
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
	// SizeMax bounds the records returned, in bytes of one commit.
	SizeMax int
}

// Answer is what became of one attempt. Reply is nil when no answer came in
// time: the undo may have happened, and the attempt counts as failed (S25).
type Answer struct {
	Plan     string
	Number   uint32
	Attempt  uint32
	Reply    *ledger.Reply
	QueuedNs int64 // from dispatch until the worker had it
}

// Decide returns the records to append now, at most one commit of them. It
// changes nothing: each proposal is folded into a scratch copy before the next
// is made, so that one turn may settle an attempt, release what waited for it
// and dispatch that too. Called again with the same state and input it returns
// the same records (I9).
func (s *State) Decide(in Input) []*pb.Record {
	d := &decider{live: s, state: s.fork(), in: in}
	for _, a := range in.Answers {
		d.answer(a)
	}
	d.due()
	d.turned(s.todo.first(todoPerTurn))
	return d.records
}

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
}

func (d *decider) full() bool {
	return d.size+decisionSizeMin > d.in.SizeMax || len(d.records) >= ledger.CommitLenMax
}

// decisionSizeMin is the room a decision without payload needs, in bytes.
const decisionSizeMin = 1024

// propose folds r into the scratch state and keeps it if it is effective there.
// It reports false when the commit is full.
func (d *decider) propose(r *pb.Record) bool {
	r.Term, r.EpochNs = d.state.meta.Term, d.in.EpochNs
	size := ledger.RecordSize(r)
	if d.full() || len(d.records) > 0 && d.size+size > d.in.SizeMax {
		return false
	}
	e := ledger.Entry{
		Address: &pb.Address{Index: uint32(len(d.records))},
		Source:  ledger.Source{Tenant: d.state.tenant, Class: ledger.ClassExecutor},
		StampNs: d.in.EpochNs, Record: r,
	}
	d.state.meta.TimeNs = max(d.state.meta.TimeNs, d.in.EpochNs)
	if result := d.state.applyExecutor(e); result.Verdict != Effective {
		panic("executor: proposed a decision that does not hold: " + result.Reason)
	}
	d.records = append(d.records, r)
	d.size += size
	return true
}

// answer turns a worker's answer into its record, if the attempt still waits.
func (d *decider) answer(in Answer) {
	p := d.state.plan(in.Plan)
	if p == nil || p.row.Phase != pb.Phase_PHASE_UNWINDING || in.Number == 0 || in.Number > p.row.Actions {
		return
	}
	a := d.state.action(p.id, in.Number)
	if a.row.Undo != pb.Undo_UNDO_DISPATCHED || a.row.Attempt != in.Attempt {
		return
	}
	if reportedDone(a) && (in.Reply == nil || in.Reply.Status != ledger.StatusDone) {
		return // its own report says better
	}
	r := d.about(p, a, a.row.Dispatched)
	switch reply := in.Reply; {
	case reply == nil:
		r.Kind = &pb.Record_CompensationFailed{CompensationFailed: &pb.CompensationFailed{
			Attempt: in.Attempt, Code: "timeout", InDoubt: true,
			Message: "no answer within " + time.Duration(timeoutOf(a.fixed.Compensation)).String(),
		}}
	case reply.Status == ledger.StatusDone:
		r.Kind = &pb.Record_CompensationSucceeded{CompensationSucceeded: &pb.CompensationSucceeded{
			Attempt: in.Attempt, ExternalRef: clip(reply.ExternalRef), Worker: clip(reply.Worker), QueuedNs: in.QueuedNs, WorkNs: reply.WorkNs,
		}}
		if len(reply.Output) <= outputMax && json.Valid(reply.Output) {
			r.Payload = &pb.Payload{Output: reply.Output}
		}
	default:
		r.Kind = &pb.Record_CompensationFailed{CompensationFailed: &pb.CompensationFailed{
			Attempt: in.Attempt, Code: clip(reply.Code), Message: clip(reply.Message),
			Final: reply.Status == ledger.StatusStop, Worker: clip(reply.Worker),
		}}
	}
	if d.propose(r) {
		d.plan(p.id)
	}
}

// outputMax bounds what is kept of a compensation's output, in bytes.
const outputMax = 16 << 10

// clip keeps a worker's text within what a record takes.
func clip(s string) string {
	if len(s) > textMax {
		s = s[:textMax]
	}
	return string([]rune(s)) // what is not UTF-8 becomes U+FFFD
}

const textMax = ledger.TextMax / 4

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
		if e[:1] == todoRefused {
			d.refusal([]byte(e[1:]))
			continue
		}
		d.plan(e[1:])
	}
}

func (d *decider) refusal(place []byte) {
	sequence, index := binary.BigEndian.Uint64(place), binary.BigEndian.Uint32(place[8:])
	row := new(pb.RefusedRow)
	v, ok := d.state.get(recordKey(keyRefused, sequence, index))
	if !ok || row.UnmarshalVT(v) != nil {
		panic(&StoreError{"get", errMissingRow})
	}
	d.propose(&pb.Record{Plan: row.Plan, Kind: &pb.Record_RecordRefused{RecordRefused: &pb.RecordRefused{
		Sequence: sequence, Index: index, Reason: clip(row.Reason),
	}}})
}

// plan does all that a plan needs now.
func (d *decider) plan(id string) {
	p := d.state.plan(id)
	for hasWork(p.row) && d.step(p) {
	}
}

// step proposes the next record of a plan; false: nothing more this turn.
func (d *decider) step(p *plan) bool {
	switch p.row.Phase {
	case pb.Phase_PHASE_OPEN:
		if p.row.Fired != nil {
			return d.unwind(p)
		}
		return d.fireTurned(p)
	case pb.Phase_PHASE_COMMITTED:
		return d.propose(&pb.Record{Plan: p.id, Cause: p.row.Committed, Kind: &pb.Record_HeldSetRetired{
			HeldSetRetired: &pb.HeldSetRetired{Count: p.row.Actions}}})
	case pb.Phase_PHASE_UNWINDING:
		return d.unwindStep(p)
	default:
		return false
	}
}

// fireTurned records that a lease turned true where the fold saw it turn. What
// turned true by the clock is due, and not fired here.
func (d *decider) fireTurned(p *plan) bool {
	t := p.row.Turned
	l, a := d.state.lease(p, leaseRef{p.id, t.Action, t.Lease})
	return d.fire(p, a, l, t.Readings, t.At)
}

func (d *decider) fire(p *plan, a *action, l *pb.LeaseRow, readings []*pb.Reading, cause *pb.Address) bool {
	fired := &pb.LeaseFired{Lease: l.Name, Condition: conditionOf(l), Readings: readings, Depth: 1}
	if c, err := d.state.programs.Condition(fired.Condition); err == nil {
		digest := c.Digest()
		fired.ConditionDigest = digest[:]
	}
	r := &pb.Record{Plan: p.id, Cause: cause, Kind: &pb.Record_LeaseFired{LeaseFired: fired}}
	if a != nil {
		r.Action, r.About = a.fixed.Id, a.fixed.Registered
	}
	return d.propose(r)
}

// unwind starts the unwind that a fired lease asks for. With nothing in scope
// the plan fails at once (S15).
func (d *decider) unwind(p *plan) bool {
	r := &pb.Record{Plan: p.id, Cause: p.row.Fired}
	if d.state.inScope(p) {
		r.Kind = &pb.Record_UnwindStarted{UnwindStarted: &pb.UnwindStarted{Reason: clip(p.row.Reason)}}
	} else {
		r.Kind = &pb.Record_PlanEnded{PlanEnded: &pb.PlanEnded{
			End: pb.PlanEnd_PLAN_END_FAILED, Reason: clip(p.row.Reason + ": nothing crossed the boundary"),
		}}
	}
	return d.propose(r)
}

// unwindStep takes the next step of an unwind: reports, what must be parked,
// what is ready (the latest first), the end.
func (d *decider) unwindStep(p *plan) bool {
	switch {
	case len(p.row.Reported) > 0:
		return d.report(p, d.state.action(p.id, p.row.Reported[0]))
	case len(p.row.Parked) > 0:
		a := d.state.action(p.id, p.row.Parked[len(p.row.Parked)-1])
		return d.quarantine(p, a, quarantineReason(a))
	case len(p.row.Ready) > 0 && p.row.InFlight < concurrency(p.row):
		return d.ready(p, d.state.action(p.id, p.row.Ready[len(p.row.Ready)-1]))
	default:
		return d.end(p)
	}
}

func quarantineReason(a *action) string {
	if a.row.Late {
		return noteLate
	}
	why := a.row.Note
	if why == "" {
		why = "the worker gave no reason"
	}
	return clip(a.fixed.Compensation.Capability + " failed: " + why)
}

// report records what a worker said of a long undo.
func (d *decider) report(p *plan, a *action) bool {
	k := a.row.Reported
	r := d.about(p, a, a.row.ReportedAt)
	if k.Answer == pb.Answer_ANSWER_DONE {
		r.Kind = &pb.Record_CompensationSucceeded{CompensationSucceeded: &pb.CompensationSucceeded{Attempt: k.Attempt, ExternalRef: k.ExternalRef}}
	} else {
		r.Kind = &pb.Record_CompensationFailed{CompensationFailed: &pb.CompensationFailed{
			Attempt: k.Attempt, Code: k.Code, Message: k.Message, Final: k.Answer == pb.Answer_ANSWER_STOP,
		}}
	}
	return d.propose(r)
}

func (d *decider) quarantine(p *plan, a *action, reason string) bool {
	cause := a.row.Dispatched
	if cause == nil {
		cause = unwindCause(p)
	}
	r := d.about(p, a, cause)
	r.Kind = &pb.Record_ActionQuarantined{ActionQuarantined: &pb.ActionQuarantined{Reason: reason}}
	return d.propose(r)
}

func (d *decider) ready(p *plan, a *action) bool {
	next, why := nextStep(a)
	switch next {
	case stepSkip:
		r := d.about(p, a, unwindCause(p))
		r.Kind = &pb.Record_CompensationSkipped{CompensationSkipped: &pb.CompensationSkipped{Reason: why}}
		return d.propose(r)
	case stepQuarantine:
		return d.quarantine(p, a, why)
	case stepDispatch:
		return d.dispatch(p, a, unwindCause(p))
	default:
		panic("executor: unknown step")
	}
}

// dispatch proposes the next attempt. What cannot be scheduled is its owner's
// at once: a plan never sits unwinding with no command out (S26).
func (d *decider) dispatch(p *plan, a *action, cause *pb.Address) bool {
	k := d.state.dispatchOf(a, a.row.Attempt+1)
	arguments, err := d.state.arguments(p, a, k)
	if err != nil {
		return d.quarantine(p, a, clip("cannot build the call of "+k.Capability+": "+err.Error()))
	}
	r := d.about(p, a, cause)
	r.Kind = &pb.Record_CompensationDispatched{CompensationDispatched: k}
	r.Payload = &pb.Payload{Arguments: arguments}
	if size := ledger.RecordSize(r); size > dispatchMax {
		return d.quarantine(p, a, fmt.Sprintf("cannot build the call of %s: its record takes %d bytes; at most %d fit", k.Capability, size, dispatchMax))
	}
	return d.propose(r)
}

// dispatchMax leaves room for the term, the epoch and the commit around a
// dispatch, in bytes.
const dispatchMax = ledger.CommitSizeMax - 256

// outstandingMax bounds the actions that a PlanEnded names.
const outstandingMax = 256

func (d *decider) end(p *plan) bool {
	k := &pb.PlanEnded{End: endOf(p.row), Reason: clip(p.row.Reason), Compensated: p.row.Compensated, Skipped: p.row.Skipped}
	if p.row.Unsettled > 0 {
		for n := uint32(1); n <= p.row.Actions && len(k.Outstanding) < outstandingMax; n++ {
			if a := d.state.action(p.id, n); unsettled(a) {
				k.Outstanding = append(k.Outstanding, a.fixed.Id)
			}
		}
	}
	k.Outstanding = append(k.Outstanding, p.row.Orphans...)
	return d.propose(&pb.Record{Plan: p.id, Cause: unwindCause(p), Kind: &pb.Record_PlanEnded{PlanEnded: k}})
}

// unwindCause is the record that an unwind goes back to: its start, or the
// owner's word that let it go on. A plan that failed at
// once, and that a late pair joined, never had an UnwindStarted.
func unwindCause(p *plan) *pb.Address {
	switch {
	case p.row.Resumed != nil:
		return p.row.Resumed
	case p.row.Unwinding != nil:
		return p.row.Unwinding
	default:
		return p.row.Fired
	}
}

func unsettled(a *action) bool {
	switch a.row.Undo {
	case pb.Undo_UNDO_COMPENSATED, pb.Undo_UNDO_SKIPPED, pb.Undo_UNDO_RESOLVED:
		return false
	default:
		return true
	}
}
