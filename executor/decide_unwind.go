package executor

import (
	"cmp"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The steps of an unwind, from its start to its end.

// unwind starts the unwind that a fired lease asks for. With nothing in scope
// the plan fails at once (S15).
func (d *decider) unwind(p *plan) bool {
	r := &pb.Record{Plan: p.id, Cause: p.row.Fired}
	if (goesBack(p.row) != back{}) || p.inScope() {
		r.Kind = &pb.Record_UnwindStarted{UnwindStarted: &pb.UnwindStarted{Reason: clip(p.row.Reason),
			ToSavepoint: p.row.ToSavepoint, FromAction: p.row.FromAction}}
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
	case len(p.row.Duplicated) > 0:
		return d.fireDuplicate(p, d.state.action(p.id, p.row.Duplicated[0]))
	case len(p.row.Reported) > 0:
		return d.report(p, d.state.action(p.id, p.row.Reported[0]))
	case len(p.row.Parked) > 0:
		a := d.state.action(p.id, p.row.Parked[len(p.row.Parked)-1])
		return !newborn(a) && d.quarantine(p, a, d.quarantineReason(a))
	case len(p.row.Ready) > 0 && p.row.InFlight < concurrency(p.row):
		return d.next(p, d.state.action(p.id, p.row.Ready[len(p.row.Ready)-1]))
	case rewound(p.row):
		return d.propose(&pb.Record{Plan: p.id, Cause: unwindCause(p),
			Kind: &pb.Record_PlanRewound{PlanRewound: &pb.PlanRewound{Savepoint: p.row.ToSavepoint,
				FromAction: p.row.FromAction}}})
	default:
		return d.end(p)
	}
}

func (d *decider) quarantineReason(a *action) string {
	why := d.inWords(a, a.row.Note)
	told := a.row.Late || a.row.Unserved || isChanged(a) || delivers(a) && a.row.Unsure != 0
	if a.row.Attempt == 0 || told {
		return clip(why)
	}
	if why == "" {
		why = "the worker gave no reason"
	}
	return clip(a.attempts().Ended(a.fixed.Compensation, why))
}

// report records what was said of an attempt by other means than a reply: by its
// worker's own record, by a probe, by a check.
func (d *decider) report(p *plan, a *action) bool {
	k := a.row.Reported
	if k.Answer == pb.Answer_ANSWER_DONE {
		done := &pb.CompensationSucceeded{Attempt: k.Attempt, ExternalRef: k.ExternalRef,
			Timing: k.Timing}
		if a.row.Pending != nil {
			done = proto.CloneOf(a.row.Pending)
		}
		if a.row.Confirmed {
			done.Verified, done.Probed = a.row.Pending != nil, a.row.Pending == nil
		}
		return d.done(p, a, done, a.commandRow().GetResult(), a.row.ReportedAt)
	}
	r := d.about(p, a, a.row.ReportedAt)
	failed := &pb.CompensationFailed{Attempt: k.Attempt, Code: k.Code, Message: k.Message,
		Final:   k.Answer == pb.Answer_ANSWER_STOP || k.Answer == pb.Answer_ANSWER_CHANGED,
		Changed: k.Answer == pb.Answer_ANSWER_CHANGED, Timing: k.Timing,
		InDoubt: delivers(a) && a.fixed.Compensation.DedupeNs > 0} // copies may be under way
	if pending := a.row.Pending; pending != nil {
		failed.Worker, failed.Timing = pending.Worker, pending.Timing
	}
	r.Kind = &pb.Record_CompensationFailed{CompensationFailed: failed}
	if found := a.payload().Found; failed.Changed && len(found) > 0 { // at most FoundMax
		r.Payload = &pb.Payload{Output: found}
	}
	return d.propose(r)
}

func (d *decider) quarantine(p *plan, a *action, reason string) bool {
	cause := a.row.Dispatched
	if cause == nil {
		cause = unwindCause(p)
	}
	if a.row.Undo == rowspb.Undo_UNDO_DISPATCHED {
		panic("executor: an action in flight cannot be quarantined")
	}
	if p.committing() {
		r := d.about(p, a, p.root().row.Committed)
		r.Kind = &pb.Record_CommitWaits{CommitWaits: &pb.CommitWaits{Reason: clip(reason)}}
		return d.propose(r)
	}
	r := d.about(p, a, cause)
	k := &pb.ActionQuarantined{Reason: clip(reason), Changed: isChanged(a)}
	r.Kind = &pb.Record_ActionQuarantined{ActionQuarantined: k}
	if k.Changed {
		bothStates(a, r)
	}
	return d.propose(r)
}

// bothStates keeps with the quarantine of what someone else has changed what the forward left and
// what is there now, as far as there is room.
func bothStates(a *action, r *pb.Record) {
	payload := a.payload()
	for _, both := range []*pb.Payload{{Output: payload.Output, Found: payload.Found},
		{Found: payload.Found}} {
		if r.Payload = both; ledger.RecordSize(r) <= dispatchMax {
			return
		}
	}
	r.Payload = nil
}

// newborn reports whether an action is a duty of this very turn: its address is not
// known yet, so it waits for the next.
func newborn(a *action) bool { return a.fixed.Registered.Sequence == 0 }

// concurrencyDefault is how many compensations of one plan are in flight at once.
const concurrencyDefault = 8

func concurrency(r *rowspb.PlanRow) uint32 {
	if r.Declared != nil && r.Declared.Concurrency > 0 {
		return r.Declared.Concurrency
	}
	return concurrencyDefault
}

// Concurrency is how many calls of the plan are out at once, at most.
func (p *Plan) Concurrency() uint32 { return concurrency(p.Row) }

// next takes the next step of an action that is ready, or whose wait is over.
func (d *decider) next(p *plan, a *action) bool {
	switch {
	case newborn(a):
		return false
	case a.attempts().ReportedDone(): // its turn has come by the clock, before the plan's
		return d.report(p, a)
	}
	cause := unwindCause(p)
	if p.committing() {
		cause = p.root().row.Committed
		if a.row.Undo == rowspb.Undo_UNDO_WAITING {
			return d.ask(p, a, pb.Question_QUESTION_EFFECT, cause)
		}
	}
	if a.row.Undo == rowspb.Undo_UNDO_WAITING {
		cause = a.row.Dispatched
		if a.row.Asking != pb.Question_QUESTION_UNSPECIFIED {
			return d.ask(p, a, a.row.Asking, cause)
		}
	}
	next, why := a.nextStep()
	switch next {
	case stepSkip:
		r := d.about(p, a, cause)
		r.Kind = &pb.Record_CompensationSkipped{CompensationSkipped: &pb.CompensationSkipped{Reason: why}}
		return d.propose(r)
	case stepQuarantine:
		return d.quarantine(p, a, why)
	case stepProbe:
		return d.ask(p, a, pb.Question_QUESTION_EFFECT, cause)
	case stepCompare:
		if a.row.Attempt > 0 { // one of them may have undone it
			return d.ask(p, a, pb.Question_QUESTION_UNDO, cause)
		}
		return d.ask(p, a, pb.Question_QUESTION_UNCHANGED, cause)
	case stepChild:
		return d.propose(&pb.Record{Plan: a.fixed.Child, Cause: cause, Kind: &pb.Record_UnwindStarted{
			UnwindStarted: &pb.UnwindStarted{Reason: clip(p.row.Reason), ParentPlan: p.id}}})
	case stepDispatch:
		if d.forgotten(a) {
			return d.ask(p, a, questionOf(a), cause)
		}
		return d.dispatch(p, a, cause)
	default:
		panic("executor: unknown step")
	}
}

// forgotten reports whether a provider may have forgotten the key of an undo that
// was sent before: then the world is asked before it is sent again.
func (d *decider) forgotten(a *action) bool {
	c := a.fixed.Compensation
	if delivers(a) {
		return c.Probe != nil && !a.attempts().MayRepeat(d.state.meta.TimeNs)
	}
	return a.row.Attempt > 0 && c.Probe != nil && c.DedupeNs > 0 && a.row.SentNs != 0 &&
		d.in.EpochNs-a.row.SentNs >= c.DedupeNs
}

// dispatch proposes the next attempt. What cannot be scheduled is its owner's
// at once: a plan never sits unwinding with no command out (S26).
func (d *decider) dispatch(p *plan, a *action, cause *pb.Address) bool {
	k := d.tokened(a, a.dispatchOf(a.row.Attempt+1))
	r := d.about(p, a, cause)
	r.Kind = &pb.Record_CompensationDispatched{CompensationDispatched: k}
	if !d.call(p, a, r, k.Capability, a.fixed.Compensation.Bindings) {
		return false
	}
	if a.leads() { // and is not its owner's
		d.ahead(p, a)
	}
	return true
}

// tokened adds to a dispatch what a worker's own record about it has to show.
func (d *decider) tokened(a *action, k *pb.CompensationDispatched) *pb.CompensationDispatched {
	if d.in.Reporter != nil && !inMemory(a) {
		k.ReportDigest = ledger.ReportDigest(d.in.Reporter.Token(d.state.tenant, a.plan.id, a.fixed.Id,
			k.Key, k.Attempt))
	}
	return k
}

// ask proposes a question about an action.
func (d *decider) ask(p *plan, a *action, q pb.Question, cause *pb.Address) bool {
	call := callOf(a.fixed.Compensation, q)
	return d.call(p, a, d.question(p, a, q, cause), call.Capability, call.Bindings)
}

// question starts the record of a question about an action.
func (d *decider) question(p *plan, a *action, q pb.Question, cause *pb.Address) *pb.Record {
	call := callOf(a.fixed.Compensation, q)
	r := d.about(p, a, cause)
	r.Kind = &pb.Record_ProbeAsked{ProbeAsked: &pb.ProbeAsked{
		Attempt: a.row.Asked + 1, Capability: call.Capability, Key: a.key(), Question: q,
		TimeoutNs: cmp.Or(call.TimeoutNs, timeoutDefault),
	}}
	return r
}

// call proposes the record of a call with its arguments, or gives the action to its
// owner when they cannot be built.
func (d *decider) call(p *plan, a *action, r *pb.Record, capability string,
	bindings []*pb.Binding) bool {
	arguments, err := a.arguments(bindings)
	if err != nil {
		return d.quarantine(p, a, "cannot build the call of "+capability+": "+err.Error())
	}
	if _, undo := r.Kind.(*pb.Record_CompensationDispatched); undo && inMemory(a) {
		if _, _, err := undoFact(capability, arguments); err != nil {
			return d.quarantine(p, a, "cannot build the call of "+capability+": "+err.Error())
		}
	}
	r.Payload = &pb.Payload{Arguments: arguments}
	if size := ledger.RecordSize(r); size > dispatchMax {
		return d.quarantine(p, a,
			fmt.Sprintf("cannot build the call of %s: its record takes %d bytes; at most %d fit", capability,
				size, dispatchMax))
	}
	return d.propose(r)
}

// dispatchMax leaves room for the term, the epoch and the commit around a
// dispatch, in bytes.
const dispatchMax = ledger.CommitSizeMax - 256

// outstandingMax bounds the actions that a PlanEnded names.
const outstandingMax = 256

// begins reports whether nothing holds back the undo of an action but time.
func begins(a *action) bool {
	return a.row.Undo == rowspb.Undo_UNDO_READY || a.row.Undo == rowspb.Undo_UNDO_SETTLING
}

// outstanding reports whether an action is owed and not undone. What is held before a
// savepoint is not.
func outstanding(a *action) bool {
	return !settled(a.row.Undo) && a.row.Undo != rowspb.Undo_UNDO_HELD
}

// outstanding names the actions of a plan that are outstanding.
func (p *plan) outstanding() (names []string) {
	for n := uint32(1); n <= p.row.Actions && len(names) < outstandingMax; n++ {
		if a := p.action(n); outstanding(a) {
			names = append(names, a.fixed.Id)
		}
	}
	return names
}

func (d *decider) end(p *plan) bool {
	if stuck(p.row) {
		panic("executor: plan " + p.id + " owes an undo that nothing blocks")
	}
	k := &pb.PlanEnded{End: endOf(p.row), Reason: clip(p.row.Reason), Compensated: p.row.Compensated,
		Skipped: p.row.Skipped}
	if p.row.Unsettled > 0 {
		k.Outstanding = p.outstanding()
	}
	k.Outstanding = append(k.Outstanding, orphans(p.row)...)
	return d.propose(&pb.Record{Plan: p.id, Cause: unwindCause(p),
		Kind: &pb.Record_PlanEnded{PlanEnded: k}})
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

// deliveryStep says what to do with an act that is to be delivered.
func deliveryStep(a *action) (step, string) {
	p, d := a.plan, a.fixed.Compensation
	switch erased := p.s.erased(p.id); {
	case isDelivered(a):
		return stepQuarantine, "irreversible: " + d.Capability + " was delivered by plan " + p.id +
			" and has no inverse"
	case p.row.Stopped != nil && a.row.Unsure == 0:
		return stepSkip, "staged, and dropped: " + p.row.Reason
	case p.row.Stopped != nil:
		return stepQuarantine, "in doubt: it may have been delivered before it was stopped"
	case d.Sealed && erased != nil:
		return stepQuarantine, "what " + d.Capability + " takes was erased at " +
			ledger.FormatAddress(erased) + ": no one can read it any more"
	case d.Probe == nil && !a.attempts().MayRepeat(p.s.meta.TimeNs):
		return stepQuarantine, noteUnsure
	}
	return stepDispatch, ""
}

// noteUnsure is why an attempt is not repeated.
const noteUnsure = "in doubt: an attempt had no answer, and nothing says whether it was done"

// What undoes a committed plan takes up what delivers it.

// notOf says why what undoes a committed plan does not undo an action of it, or "".
func notOf(p *plan, a *action, reached bool) string {
	switch {
	case staged(a):
		return "staged: it is delivered, or dropped, as plan " + p.row.DeliveredAs
	case !reached:
		return ledger.NoteNotAsked
	}
	return ""
}

// recalled reports whether what undoes the committed plan has taken up what delivers it.
func recalled(p *plan) bool { return p.row.Delivers && !p.root().row.Delivers }

// recall stops what delivers a committed plan, and makes it the last entry of u, which undoes that
// one: what was delivered is its owner's there, as all that is irreversible.
func recall(p, u *plan, at *pb.Address, why string) {
	if p.row.DeliveredAs == "" {
		return
	}
	d := p.s.plan(p.row.DeliveredAs)
	stopDelivery(d, at, why)
	if !remains(d) {
		return
	}
	came := map[uint32]bool{}
	for n := uint32(1); n <= u.row.Actions; n++ {
		for _, m := range u.action(n).fixed.Before {
			came[m] = true
		}
	}
	var last []uint32
	for n := uint32(1); n <= u.row.Actions; n++ {
		if !came[n] {
			last = append(last, n)
		}
	}
	entry := u.enlist(&rowspb.ActionStatic{Id: entryPrefix + d.id, Registered: at,
		AtNs: p.s.meta.TimeNs, Before: last, Child: d.id}, &rowspb.ActionRow{})
	u.row.Children = rows.Insert(u.row.Children, entry.id.N)
	d.row.Declared = proto.CloneOf(d.row.Declared) // a fork shares it
	d.row.ParentEntry, d.row.Declared.ParentPlan = entry.id.N, u.id
	if !closed(d.row.Phase) {
		u.row.OpenChildren++
	}
	takeUp(d, u.row.LastGoes)
}

// remains reports whether anything of what delivers a plan was made, or may be.
func remains(p *plan) bool {
	for n := uint32(1); n <= p.row.Actions; n++ {
		a := p.action(n)
		if a.fixed.Child != "" && remains(p.s.plan(a.fixed.Child)) || a.fixed.Child == "" &&
			(a.row.Undo == rowspb.Undo_UNDO_COMPENSATED || !settled(a.row.Undo)) {
			return true
		}
	}
	return false
}

// takeUp has what was delivered owed, and lets go what came before it where its plan does so.
func takeUp(p *plan, lastGoes bool) {
	for n := uint32(1); n <= p.row.Actions; n++ {
		if a := p.action(n); a.fixed.Child != "" {
			takeUp(p.s.plan(a.fixed.Child), lastGoes)
		}
	}
	p.row.LastGoes, p.row.MayLetGo, p.row.UndoneNow = lastGoes, lastGoes, false
	p.touch()
	switch p.row.Phase {
	case rowspb.Phase_PHASE_FAILED, rowspb.Phase_PHASE_COMMITTED:
		return
	}
	p.reopen()
	for n := p.row.Actions; n >= 1; n-- {
		switch a := p.action(n); {
		case a.row.Undo == rowspb.Undo_UNDO_QUARANTINED && a.fixed.Child == "":
			letGoNow(a)
		case a.row.Undo == rowspb.Undo_UNDO_COMPENSATED && a.fixed.Child == "":
			a.row.Settled, a.row.SettledNs = nil, 0
			a.owe()
		}
	}
}

// letGoNow has an action that is its owner's already let go what came before it.
func letGoNow(a *action) {
	p := a.plan
	was := isClear(p, a)
	if a.row.LetsGo || !isLastAct(a) {
		return
	}
	a.row.LetsGo = true
	p.row.LetGo++
	a.change()
	if isClear(p, a) && !was {
		a.release()
	}
}
