package executor

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// A run is dispatches that are recorded ahead of their turn, each behind the one before it
// (docs/adr/0031). The first is a dispatch like any other. The next one counts from the success
// of the first on, if its undo is still to be dispatched then; until that record its action is
// owed and its attempt is none. Only the holder that has recorded a run may send from it earlier:
// once the worker of the one before has said done. If the one before ends in another way, or
// anything else is to be undone first by now, what is behind it is called back.

// AheadNs is for how long after its record's epoch, in ns, a dispatch that was recorded ahead
// may be sent before it counts.
const AheadNs = int64(1e9)

// plain reports whether the undo of an action may be part of a run: it is known what is to be
// undone, and nothing is asked between its reply and its success.
func plain(a *action) bool {
	c := a.fixed.Compensation
	known := a.row.Outcome == rowspb.Outcome_OUTCOME_COMPLETED && !a.row.Late && !a.row.Undone
	return a.fixed.Child == "" && a.fixed.DutyOf == 0 && known &&
		a.fixed.Forward.GetClass() == pb.Class_CLASS_COMPENSABLE && c.GetCapability() != "" &&
		c.Probe == nil && c.Verify == nil && c.DedupeNs == 0 && !c.Sealed && !inMemory(a)
}

// leads reports whether the undo of an action is out, or ahead, and nothing but its success is
// missing for the one after it.
func (a *action) leads() bool {
	out := a.row.Undo == rowspb.Undo_UNDO_DISPATCHED &&
		a.row.Asking == pb.Question_QUESTION_UNSPECIFIED && a.row.Blockers == 0
	return plain(a) && (out || a.row.Ahead != nil)
}

// leadsOnly reports whether an action came after another one and after no other.
func (a *action) leadsOnly(n uint32) bool {
	return len(a.fixed.Before) == 1 && a.fixed.Before[0] == n
}

// lastDispatch is the dispatch that is ahead or out, or was last.
func (a *action) lastDispatch() *pb.Address {
	if a.row.Ahead != nil {
		return a.row.Ahead
	}
	return a.row.Dispatched
}

// notBehind says why the undo of an action must not be dispatched behind that of a, or "".
func (b *action) notBehind(a *action, epochNs int64) string {
	next, why := b.nextStep()
	closes := b.row.ClosesNs
	switch {
	case b.plan.row.Rewinding:
		return "plan " + b.plan.id + " goes back to a savepoint"
	case b.row.Undo != rowspb.Undo_UNDO_OWED || b.row.Ahead != nil:
		return "the undo of action " + b.fixed.Id + " is " + b.undoName()
	case b.row.Attempt != 0:
		return "it was dispatched before"
	case !a.leads() || !a.leadsOnly(b.id.N) || b.row.Blockers != 1:
		return "more than the success of action " + a.fixed.Id + " is missing"
	case !plain(b):
		return "its outcome is not known, or its contract asks for more than the undo"
	case next != stepDispatch:
		return cmp.Or(why, "it is not dispatched next")
	case closes != 0 && closes <= epochNs+AheadNs:
		return "its undo window closes at " + instant(closes)
	}
	return ""
}

// lastAttempt is the attempt that is ahead, or was the last.
func (a *action) lastAttempt() uint32 {
	if a.row.Ahead != nil {
		return 1
	}
	return a.row.Attempt
}

// behind finds the action that came after the one of this record and no other, and whose
// dispatch is at a place; nil: there is none. A holder names the dispatch before this one.
func (s about) behind(at *pb.Address) *action {
	b, p := s.a, s.a.plan
	is := func(a *action) bool {
		return a.leadsOnly(b.id.N) && samePlace(at, a.lastDispatch(), s.e)
	}
	if s.out.Plan == p.id && is(p.action(s.out.N)) {
		return p.action(s.out.N)
	}
	for n := b.id.N + 1; n <= p.row.Actions; n++ {
		if a := p.action(n); is(a) {
			return a
		}
	}
	return nil
}

// dispatchedAhead folds a dispatch that names the one that it goes behind.
func (s about) dispatchedAhead(k *pb.CompensationDispatched) Result {
	b, a := s.a, s.behind(k.Behind)
	if a == nil {
		return void("%s is no dispatch of an action that came after action %s alone",
			ledger.FormatAddress(k.Behind), b.fixed.Id)
	}
	if why := b.notBehind(a, s.e.Record.EpochNs); why != "" {
		return void("action %s must not be compensated behind action %s: %s", b.fixed.Id, a.fixed.Id,
			why)
	}
	if why := s.misdispatched(k); why != "" {
		return void("%s", why)
	}
	b.row.Ahead, b.row.Behind = s.e.Address, a.id.N
	b.row.SentNs = s.e.Record.EpochNs
	s.out = b.id
	row := &rowspb.CommandRow{Dispatched: k, Arguments: s.e.Record.Payload.GetArguments()}
	rows.Commands.Set(s.tx, b.id, row)
	if s.base == nil {
		command := b.command(row)
		command.Behind, command.UntilNs = a.fixed.Id, s.e.Record.EpochNs+AheadNs
		command.UnservedNs = plusNs(s.e.Record.EpochNs, unservedAfter(b.fixed.Compensation))
		s.commands = append(s.commands, command)
	}
	b.change()
	s.attemptDispatched(k, "ahead")
	return effective
}

// takeOff lets a dispatch count that was recorded ahead, now that what it went behind has
// succeeded. False: there is none, or it is called back.
func (a *action) takeOff() bool {
	if a.row.Ahead == nil {
		return false
	}
	if next, _ := a.nextStep(); next != stepDispatch {
		a.callBack()
		return false
	}
	s := a.plan.s
	row := a.commandRow()
	a.row.Attempt, a.row.Blind, a.row.Unserved = row.Dispatched.Attempt, false, false
	a.row.Dispatched, a.row.DispatchedNs = a.row.Ahead, s.current.e.Record.EpochNs
	a.row.Ahead, a.row.Behind = nil, 0
	a.row.ReadyNs = s.meta.TimeNs
	a.move(rowspb.Undo_UNDO_DISPATCHED)
	a.fly(row)
	a.attemptIs(a.row.Attempt, "dispatched")
	return true
}

// callBack gives up a dispatch that was recorded ahead, and all behind it. It may have been
// sent: it counts as an attempt that has no answer, for which no one waits, and of the attempts
// that the contract allows it is none.
func (a *action) callBack() {
	s := a.plan.s
	a.row.Attempt, a.row.AttemptsFrom = 1, 1
	a.row.Dispatched, a.row.DispatchedNs = a.row.Ahead, a.row.SentNs
	a.row.Ahead, a.row.Behind = nil, 0
	a.row.AliveUntilNs = max(a.row.AliveUntilNs,
		min(s.meta.TimeNs, epochMax)+timeoutOf(a.fixed.Compensation))
	rows.Commands.Delete(s.tx, a.id)
	a.change()
	if s.base == nil {
		s.landed = append(s.landed, About{a.plan.id, a.fixed.Id})
		s.current.about(a).attemptEnded(a.row.Attempt, attemptEnd{state: "recalled"})
	}
	a.callBackBehind()
}

// callBackBehind calls back what was dispatched behind an action.
func (a *action) callBackBehind() {
	if len(a.fixed.Before) != 1 {
		return
	}
	if b := a.plan.action(a.fixed.Before[0]); b.row.Ahead != nil && b.row.Behind == a.id.N {
		b.callBack()
	}
}

// ahead dispatches what comes after an action that was just dispatched, as far as nothing but
// their successes is missing, up to the limit of a run.
func (d *decider) ahead(p *plan, a *action) {
	for range d.in.Ahead {
		if len(a.fixed.Before) != 1 {
			return
		}
		b := p.action(a.fixed.Before[0])
		if b.notBehind(a, d.in.EpochNs) != "" {
			return
		}
		arguments, err := b.arguments(b.fixed.Compensation.Bindings)
		if err != nil {
			return // its owner's, once its turn comes
		}
		k := d.tokened(b, b.dispatchOf(1))
		k.WaitedNs, k.Behind = 0, &pb.Address{Index: uint32(len(d.records) - 1)}
		r := d.about(p, b, unwindCause(p))
		r.Kind = &pb.Record_CompensationDispatched{CompensationDispatched: k}
		r.Payload = &pb.Payload{Arguments: arguments}
		if ledger.RecordSize(r) > dispatchMax || !d.propose(r) {
			return
		}
		a = b
	}
}

// What is staged. Its agent has no part in it: it is delivered once its root has committed. Before
// that nothing is called, and nothing is in doubt.

// staged reports whether an action is, of a plan or of what delivers it.
func staged(a *action) bool { return a.fixed.Forward.GetDeliver() != nil }

// awaits reports whether an action is staged, and is not known to have been delivered.
func awaits(a *action) bool {
	return staged(a) && a.row.Outcome != rowspb.Outcome_OUTCOME_COMPLETED
}

// latest are the actions that the next one comes after by default: the one registered
// last, and the duties that have come since, which stand beside others. What is staged is passed
// over, but by what is staged, too: that comes after the last of both.
func (p *plan) latest(last bool) (before []uint32) {
	found := false
	for n := p.row.Actions; n > 0; n-- {
		switch a := p.action(n); {
		case staged(a) && !last, found && !staged(a):
		case staged(a):
			return rows.Insert(before, n)
		default:
			before = rows.Insert(before, n)
			found = a.fixed.DutyOf == 0
		}
		if found && !last {
			break
		}
	}
	return before
}

// standingOf is the condition of a lease that every plan or verdict has, or "". A verdict drops
// what is staged at once: its plan could be committed meanwhile.
func standingOf(a *action, name string) string {
	if name == leaseVerdict && staged(a) {
		return `verdict.outcome in ["block", "redirect"]`
	}
	return standing(name)
}

// A delivery is a plan beside the committed one, PLAN~0, and one for each part of it: the act that
// is to be first has the highest number, and its "undo" is the act, under the key of its forward.
// What may have been sent is sent again only if that is safe.

// deliverySuffix is what the id of a plan that delivers a committed one ends with.
const deliverySuffix = "~0"

// delivers reports whether what an action owes is the act itself.
func delivers(a *action) bool {
	return a.plan.row.Delivers && a.fixed.Child == "" && a.fixed.DutyOf == 0
}

// isDelivered reports whether it is known to have been made.
func isDelivered(a *action) bool {
	return delivers(a) && a.row.Outcome == rowspb.Outcome_OUTCOME_COMPLETED
}

// questionOf is what the world is asked about an attempt without an answer.
func questionOf(a *action) pb.Question {
	if delivers(a) {
		return pb.Question_QUESTION_DELIVERED
	}
	return pb.Question_QUESTION_UNDO
}

// deliveryOf makes the plan that delivers what is staged in a plan, or nil if nothing is.
func deliveryOf(p *plan, parent string, parts map[string]bool, at *pb.Address) *plan {
	if !parts[p.id] {
		return nil
	}
	s, id := p.s, p.id+deliverySuffix
	var list []*action
	for n := uint32(1); n <= p.row.Actions; n++ {
		a := p.action(n)
		entry := a.fixed.Child != ""
		if a.row.Undo == rowspb.Undo_UNDO_HELD && (staged(a) ||
			entry && deliveryOf(s.plan(a.fixed.Child), id, parts, at) != nil) {
			list = append(list, a)
		}
	}
	if len(list) == 0 {
		return nil
	}
	declared := proto.CloneOf(p.row.Declared)
	declared.DeadlineNs, declared.Triggers, declared.ParentPlan, declared.ParentAction = 0, nil,
		parent, ""
	u := s.addPlan(id, &rowspb.PlanRow{
		Agent: p.row.Agent, Adoptions: p.row.Adoptions,
		Opened: at, OpenedNs: s.meta.TimeNs, LastNs: p.row.LastNs,
		Declared: declared, Origin: p.id, Phase: rowspb.Phase_PHASE_COMMITTED,
		EndedNs: s.meta.TimeNs, Depth: p.row.Depth, Writer: p.row.Writer, Opener: p.row.Opener,
		Delivers: true, Reason: "plan " + p.id + " was committed",
	})
	s.meta.Ended++
	u.listOwner()
	p.row.DeliveredAs = id
	p.touch()
	for i, a := range slices.Backward(list) {
		enlistDelivery(u, a, uint32(len(list)-i))
	}
	return u
}

// enlistDelivery gives a plan that delivers its next act, after those that are to be made later.
func enlistDelivery(u *plan, a *action, n uint32) {
	s := u.s
	fixed := &rowspb.ActionStatic{Id: a.fixed.Id, Registered: a.fixed.Registered,
		AtNs: a.fixed.AtNs, Forward: a.fixed.Forward, Writer: a.fixed.Writer,
		Facts: a.fixed.Facts, FactsLost: a.fixed.FactsLost}
	if n > 1 {
		fixed.Before = []uint32{n - 1}
	}
	if a.fixed.Child != "" {
		c := s.plan(a.fixed.Child + deliverySuffix)
		fixed.Id, fixed.Child, c.row.ParentEntry = entryPrefix+c.id, c.id, n
		c.row.Committed = a.plan.s.plan(a.fixed.Child).row.Committed
		c.touch()
		u.row.Children = rows.Insert(u.row.Children, n)
	} else {
		fixed.Compensation = a.fixed.Forward.Deliver
		fixed.Key = ledger.Key(s.tenant, a.plan.id, a.fixed.Id, ledger.PurposeDo)
	}
	entry := u.enlist(fixed, &rowspb.ActionRow{})
	if payload := a.payload(); fixed.Child == "" && payload != noPayload {
		entry.setPayload(payload)
	}
}

// afterDelivery decides what follows a failed attempt. One that is known to have failed says
// nothing of those before it: its worker may not have come as far as its provider.
func afterDelivery(a *action, k *pb.CompensationFailed, epoch int64) {
	if k.InDoubt {
		a.row.Unsure = k.Attempt
	}
	switch safe := a.attempts().MayRepeat(epoch); {
	case k.InDoubt && a.fixed.Compensation.Probe != nil:
		a.row.Asking, a.row.AskedFrom = pb.Question_QUESTION_DELIVERED, a.row.Asked
		a.wait(epoch)
	case a.plan.row.Stopped != nil:
		a.land()
		a.owe()
	case k.InDoubt && !safe:
		a.row.Note = also(a, noteUnsure)
		a.land()
		a.park()
	case k.Final || spent(a):
		a.land()
		a.park()
	default:
		a.again(epoch)
	}
}

// delivered ends a delivery that was carried out; where it was stopped by what undoes its plan, it
// is its owner's.
func (s about) delivered(k *pb.CompensationSucceeded) Result {
	a := s.a
	a.row.Outcome, a.row.OutcomeAt, a.row.OutcomeNs = rowspb.Outcome_OUTCOME_COMPLETED, s.e.Address,
		s.meta.TimeNs
	a.row.ExternalRef, a.row.Unsure = cmp.Or(k.ExternalRef, a.name()), 0
	a.keepOutput(s.e.Record.Payload.GetOutput())
	a.attempts().NoteDone(k.Attempt)
	if recalled(a.plan) {
		a.owe()
	} else {
		a.settle(rowspb.Undo_UNDO_COMPENSATED, s.e.Address)
	}
	tries, n := a.attempts(), a.row.Attempt
	if tries.SentAnew(k.Attempt) && a.row.Answered != n && !tries.HeardDone(n) {
		tries.NoteDone(n) // and that one may have done it once more
		s.owedUndone()
	}
	return effective
}

// deliveredFound goes on after an attempt of which no one knew whether it was carried out. Nothing
// found while it may still land rules nothing out.
func (s about) deliveredFound(k *pb.ProbeAnswered) {
	a := s.a
	epoch := min(s.e.Record.EpochNs, epochMax)
	switch {
	case k.Presence == pb.Presence_PRESENCE_PRESENT:
		a.named(k)
		a.row.Confirmed = true
		s.heardOf(pb.Answer_ANSWER_DONE, "")
		return
	case k.Presence == pb.Presence_PRESENCE_DUPLICATE:
		a.row.Note = extraEffects(k.Duplicates)
		a.land()
		a.park()
		return
	case a.row.AskedNs < a.row.AliveUntilNs:
		a.row.AskedFrom = a.row.Asked
		a.wait(max(a.row.AliveUntilNs, epoch))
		return
	}
	a.row.Unsure, a.row.Asking = 0, pb.Question_QUESTION_UNSPECIFIED
	switch {
	case a.plan.row.Stopped != nil:
		a.land()
		a.owe()
	case spent(a):
		a.row.Note = also(a, "the probe finds nothing")
		a.land()
		a.park()
	default:
		a.again(epoch)
	}
}

// undoShown is the undo of an action as people read it. Of a staged act it is what becomes of that:
// staged, delivering, delivered or dropped, and its owner's.
func undoShown(a *action) string {
	name := undoOf(a.plan.row, a.row)
	row := a.plan.row
	switch {
	case a.fixed.DutyOf != 0, row.Origin != "" && !row.Delivers, !row.Delivers && !staged(a):
		return name
	case a.row.Undo == rowspb.Undo_UNDO_COMPENSATED:
		return ledger.StateDelivered
	case a.row.Undo == rowspb.Undo_UNDO_SKIPPED:
		return "dropped"
	case row.Delivers:
		return name
	case name == undoName(rowspb.Undo_UNDO_HELD):
		return "staged"
	case row.DeliveredAs == "":
		return name
	}
	d := a.plan.s.byName(row.DeliveredAs, a.fixed.Id)
	if d == nil || !settled(d.row.Undo) && d.row.Undo != rowspb.Undo_UNDO_QUARANTINED &&
		d.plan.row.Phase != rowspb.Phase_PHASE_RESOLVED && !d.plan.row.Retired {
		return ledger.StateDelivering
	}
	return undoShown(d) // also what its owner has left as it is
}
