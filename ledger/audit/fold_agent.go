package audit

import (
	"bytes"
	"errors"
	"math"
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

func asRefused(err error, to **ledger.Refused) bool { return errors.As(err, to) }

type message interface{ MarshalVT() ([]byte, error) }

// same reports whether two messages have the same bytes.
func same(a, b message) bool {
	x, err1 := a.MarshalVT()
	y, err2 := b.MarshalVT()
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// agent folds what a coordinator wrote, in the order of the life of a plan.
func (b *book) agent(e ledger.Entry) verdict {
	r := e.Record
	p := b.plan(r.Plan)
	if k := r.GetPlanOpened(); k != nil {
		switch {
		case p == nil && k.DeadlineNs != 0 && k.DeadlineNs <= min(b.before, e.StampNs)-int64(ledger.DeadlinePastMax):
			return refused("I4", "plan_opened.deadline_ns: it had passed before the plan was opened")
		case p == nil:
			b.openPlan(e, k)
			return effective
		case p.unopened:
			return refused("I5", "plan %s was opened before, by a record that was refused", p.id)
		case p.agent == e.Source.Name && p.opener == r.Writer && same(p.declared, k):
			return repeated
		}
		return refused("I5", "plan %s was opened before, by agent %s", p.id, p.agent)
	}
	if p == nil {
		if r.GetForwardRegistered() == nil && r.GetForwardCompleted() == nil && r.GetForwardInDoubt() == nil {
			return refused("I6", "plan %s was never opened", r.Plan)
		}
		p = b.openPlan(e, &pb.PlanOpened{}) // its forward may be crossing by now
	}
	if p.agent != e.Source.Name {
		return refused("I4", "plan %s belongs to agent %s", p.id, p.agent)
	}
	if r.GetPlanResumed() != nil {
		return b.resume(p, r.Writer)
	}
	if v := b.heard(p, r); !v.ok() {
		if b.withdraw(p, r) {
			return effective
		}
		return v
	}
	switch k := r.Kind.(type) {
	case *pb.Record_ForwardRegistered:
		return b.forward(e, p, k.ForwardRegistered)
	case *pb.Record_CompensationRegistered:
		return b.registration(e, p, k.CompensationRegistered)
	case *pb.Record_ForwardCompleted:
		return b.outcome(e, p, completed, "")
	case *pb.Record_ForwardFailed:
		return b.outcome(e, p, failed, join(k.ForwardFailed.Code, k.ForwardFailed.Message))
	case *pb.Record_ForwardInDoubt:
		return b.outcome(e, p, inDoubt, join(k.ForwardInDoubt.Code, k.ForwardInDoubt.Message))
	case *pb.Record_SavepointSet:
		return b.savepointSet(p, k.SavepointSet)
	case *pb.Record_PlanCommitted:
		return b.commit(e, p)
	case *pb.Record_PlanFailed:
		return b.signal(p, signalFailed, k.PlanFailed.Reason, "")
	case *pb.Record_PlanCancelled:
		return b.signal(p, signalCancelled, k.PlanCancelled.Reason, "")
	case *pb.Record_UnwindRequested:
		return b.unwindRequested(p, k.UnwindRequested)
	default:
		return refused("I4", "no record of an agent")
	}
}

func join(code, text string) string {
	if code == "" || text == "" {
		return code + text
	}
	return code + ": " + text
}

// forward registers an action. It joins a plan that is open, and also one that
// unwinds or has unwound: a forward on its way must be undone like the others.
func (b *book) forward(e ledger.Entry, p *plan, f *pb.ForwardRegistered) verdict {
	r := e.Record
	if a := p.named(r.Action); a != nil {
		if same(a.forward, f) && bytes.Equal(a.input, r.Payload.GetInput()) {
			return repeated
		}
		return refused("I5", "action %s was registered before, differently", r.Action)
	}
	if p.phase == ledger.StateCommitted || p.phase == ledger.StateCommitting || p.phase == ledger.StateResolved {
		return refused("I15", "plan %s has ended (%s)", p.id, p.phase)
	}
	var before []uint32
	if !f.Branch {
		before = p.latest()
	}
	for _, id := range f.After {
		n := p.number(id)
		if n == 0 {
			return refused("I6", "after: action %s is not registered in plan %s", id, p.id)
		}
		before = append(before, n)
	}
	slices.Sort(before)
	b.accepted(p, r)
	a := p.enlist(&action{id: r.Action, registered: e.Address, atNs: b.now, writer: r.Writer, forward: f, before: slices.Compact(before), input: r.Payload.GetInput()})
	b.lookCounting(p)
	if p.phase != ledger.StateOpen {
		b.reopen(p)
		a.undo = owed
	}
	return effective
}

// registration is the other half of the pair (I17).
func (b *book) registration(e ledger.Entry, p *plan, c *pb.CompensationRegistered) verdict {
	a := p.named(e.Record.Action)
	switch {
	case a == nil:
		return refused("I17", "its forward_registered was refused, or does not stand before it")
	case a.compensation != nil && same(a.compensation, c):
		return repeated
	case a.compensation != nil:
		return refused("I5", "action %s has a registered compensation that differs", a.id)
	case a.registered.Sequence != e.Address.Sequence:
		return refused("I17", "action %s was registered without it", a.id)
	}
	a.compensation, a.image = c, e.Record.Payload.GetBefore()
	b.window(p, a)
	if p.armed() {
		for _, t := range c.Triggers {
			a.leases = append(a.leases, &lease{name: t.Name, text: t.Condition, armedNs: b.now})
		}
		b.noteAsking(p)
		b.lookAction(p, a)
	}
	return effective
}

const epochMax = math.MaxInt64 - 4*int64(ledger.BackoffMax)

// window is the end of an action's undo window: by the calendar, or some time after
// it completed.
func (b *book) window(p *plan, a *action) {
	closes := a.compensation.GetValidUntilNs()
	if d := a.compensation.GetValidForNs(); d > 0 && a.outcome == completed {
		if end := b.now + min(d, epochMax-b.now); closes == 0 || end < closes {
			closes = end
		}
	}
	if closes != a.closesNs { // its owner was warned of another end
		delete(b.pages, page{p.id, a.n, api.PageWindowClosing})
		a.warned = false
	}
	a.closesNs = closes
}

// unwarn gives up the warnings of a plan that no hook has taken: its actions are held no
// more. One that is held again is warned of again.
func (b *book) unwarn(p *plan) {
	for _, a := range p.actions {
		if key := (page{p.id, a.n, api.PageWindowClosing}); b.pages[key] != nil {
			delete(b.pages, key)
			a.warned = false
		}
	}
}

// outcome folds what became of a forward. The first definite one stands; doubt may
// still become known, and a completion is believed even after a failure.
func (b *book) outcome(e ledger.Entry, p *plan, now, failure string) verdict {
	a := p.named(e.Record.Action)
	if a == nil && b.withdraw(p, e.Record) {
		return effective
	}
	if a == nil {
		return refused("I6", "action %s is not registered in plan %s", e.Record.Action, p.id)
	}
	return b.outcomeOf(e, p, a, now, failure)
}

// outcomeOf is outcome for an action of the forward: the registered one, or the duty for
// a doubt about it.
func (b *book) outcomeOf(e ledger.Entry, p *plan, a *action, now, failure string) verdict {
	k := e.Record.GetForwardCompleted()
	switch {
	case a.outcome == now && b.sameOutcome(a, e.Record, failure):
		return repeated
	case a.outcome == now, a.outcome == completed, a.outcome == failed && now != completed:
		return refused("I5", "the outcome of action %s is already %s", a.id, a.outcome)
	}
	a.outcome, a.failure, a.outcomeNs = now, failure, b.now
	if k != nil {
		a.externalRef, a.lifted, a.incomplete = k.ExternalRef, k.Lifted, k.OutputIncomplete
		if output := e.Record.Payload.GetOutput(); len(output) > 0 {
			a.output = output
		}
	}
	switch now {
	case completed:
		b.window(p, a)
		b.completedLate(e, p, a)
	case failed: // nothing to undo: what waits for another call is skipped next
		if a.undo == waiting || a.undo == dispatched && a.asking == pb.Question_QUESTION_EFFECT {
			a.land()
			a.undo = owed
		}
	case inDoubt:
		if a.asking == pb.Question_QUESTION_EFFECT && a.askedNs >= b.now { // it was asked before this
			a.askedNs = b.now - 1
		}
		b.doubtedLate(e, p, a)
	}
	b.weigh(p, a)
	if a.doubtedAs != 0 && now != inDoubt {
		d := p.actions[a.doubtedAs-1]
		b.outcomeOf(e, p, d, now, failure)
		d.late = d.late || now == completed && !d.isSettled() // the blind undo may have undone it
	}
	b.lookAction(p, a)
	if p.undoneAs != "" && a.dutyOf == 0 {
		b.outcome(e, b.plan(p.undoneAs), now, failure)
	}
	return effective
}

func (b *book) sameOutcome(a *action, r *pb.Record, failure string) bool {
	k := r.GetForwardCompleted()
	if k == nil {
		return a.failure == failure
	}
	return a.externalRef == k.ExternalRef && a.incomplete == k.OutputIncomplete && bytes.Equal(a.lifted, k.Lifted) && bytes.Equal(a.output, r.Payload.GetOutput())
}

// What was asked of an open plan.
const (
	signalFailed    = "failed"
	signalCancelled = "cancelled"
)

// signal is a plan's end as somebody asked for it, whole or back to a savepoint. A
// plan that goes back to a savepoint still takes the end of all of it.
func (b *book) signal(p *plan, signal, reason, to string) verdict {
	partly := p.toSavepoint != "" && (p.stops() || p.rewinding)
	switch {
	case p.signal == signal && p.signalled && p.toSavepoint == to && p.reason == reason:
		return repeated
	case partly && to == "":
	case !p.stops() || p.signal != "":
		return refused("I15", "plan %s is already %s", p.id, p.status())
	}
	p.signal, p.reason, p.signalled, p.toSavepoint = signal, reason, true, to
	b.lookPlan(p)
	return effective
}

// savepointsMax is how many savepoints a plan takes.
const savepointsMax = 256

func (p *plan) savepoint(name string) *savepoint {
	for i := range p.savepoints {
		if p.savepoints[i].name == name {
			return &p.savepoints[i]
		}
	}
	return nil
}

func (b *book) savepointSet(p *plan, k *pb.SavepointSet) verdict {
	switch {
	case k.Number == 0:
		return refused("I5", "a savepoint without its number")
	case k.Number <= p.savepointsSet:
		return repeated
	case p.savepoint(k.Name) != nil:
		return refused("I5", "savepoint %s of plan %s was set before", k.Name, p.id)
	case p.phase != ledger.StateOpen:
		return refused("I15", "plan %s is %s and takes no savepoint", p.id, p.status())
	case len(p.savepoints) >= savepointsMax:
		return refused("I5", "plan %s has %d savepoints", p.id, savepointsMax)
	}
	p.savepointsSet = k.Number
	p.savepoints = append(p.savepoints, savepoint{k.Name, uint32(len(p.actions))})
	return effective
}

func (b *book) unwindRequested(p *plan, k *pb.UnwindRequested) verdict {
	switch {
	case k.Number == 0:
		return refused("I5", "a request without its number")
	case k.Number <= p.rewinds:
		return repeated
	case p.phase == ledger.StateCommitting:
		return refused("I15", "plan %s is being committed", p.id)
	case p.savepoint(k.ToSavepoint) == nil:
		return refused("I6", "plan %s has no savepoint %q", p.id, k.ToSavepoint)
	}
	v := b.signal(p, signalCancelled, k.Reason, k.ToSavepoint)
	if v.ok() {
		p.rewinds = k.Number
	}
	return v
}

// commit retires the whole held set at once, if the plan is still open where the
// record lands, nothing of it has turned and no child plan is under way.
func (b *book) commit(e ledger.Entry, p *plan) verdict {
	root := p.root()
	switch {
	case p.committed != nil:
		return repeated
	case p.phase != ledger.StateOpen:
		return refused("I15", "plan %s is %s: it was not open any more when the commit landed", p.id, p.phase)
	case p.signal != "" || p.fired != nil:
		return refused("I15", "plan %s was declared %s before the commit landed", p.id, p.status())
	case p.turned != nil && !p.turned.clocked:
		return refused("I13", "lease %s of plan %s turned true before the commit landed", p.turned.lease, p.id)
	case p.openChildren() > 0:
		return refused("I15", "plan %s has %d child plans that are neither committed nor undone", p.id, p.openChildren())
	case len(p.unanswered()) > 0:
		return refused("I31", "plan %s has acts that were claimed and refused: %q", p.id, p.unanswered())
	case root != p && root.phase != ledger.StateOpen:
		return refused("I15", "plan %s is %s, and plan %s is a part of it", root.id, root.phase, p.id)
	}
	for _, c := range p.below() {
		if c.keeps() && len(c.unanswered()) > 0 {
			return refused("I31", "plan %s has acts that were claimed and refused: %q", c.id, c.unanswered())
		}
	}
	for _, c := range p.below() {
		if c.keeps() && c.turned != nil && !c.turned.clocked {
			return refused("I13", "lease %s of plan %s turned true before the commit landed", c.turned.lease, c.id)
		}
	}
	switch {
	case p.parent == nil && !p.accepts() && p.undecided() > 0:
		b.commitLater(e, p)
		return effective
	case p.parent == nil:
		p.committed = e.Address
		b.commitRoot(p)
		return effective
	case p.turned == nil || p.turned.number == 0: // the leases of a child's actions are held on
		b.nextTurn(p, func(t *turn) bool { return t.number != 0 })
	}
	p.committed = e.Address
	b.uncut(p, "", func(c *cut) bool { return c.number == 0 })
	b.enter(p, ledger.StateCommitted)
	b.lookActions(p)
	return effective
}

func (p *plan) openChildren() (count int) {
	for _, a := range p.actions {
		if a.child != nil && a.child.parent == p && !a.child.closed() {
			count++
		}
	}
	return count
}
