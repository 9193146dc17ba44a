package view

import (
	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/writers"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Outcome returns a plan's state, why it is so, and the actions that wait for
// its owner; ok is false when there is no plan of that id.
func (r *Reader) Outcome(id string) (state, reason string, quarantined []string, ok bool) {
	p := r.core.Plan(id)
	if p == nil {
		return "", "", nil, false
	}
	for n := uint32(1); n <= p.Row.Actions && p.Row.Quarantined > uint32(len(quarantined)); n++ {
		if a := p.Action(n); a.Row.Undo == rowspb.Undo_UNDO_QUARANTINED {
			quarantined = append(quarantined, a.Fixed.Id)
		}
	}
	state = p.State()
	if p.Stops() && (p.Row.Signal != rowspb.Signal_SIGNAL_NONE || p.Row.Fired != nil) {
		state = ledger.StateUnwinding // as good as: its lease has turned, or fired
	}
	return state, p.Reason(), append(quarantined, orphanNames(p)...), true
}

// Turned reports whether a lease of a plan has turned true and is about to fire.
func (r *Reader) Turned(id string) bool {
	p := r.core.Plan(id)
	return p != nil && p.Stops() && p.Row.Turned != nil && !p.Row.Turned.Clocked
}

// UndoneAs returns the plan that undoes a committed one, or "".
func (r *Reader) UndoneAs(id string) string {
	if p := r.core.Plan(id); p != nil {
		return p.Row.UndoneAs
	}
	return ""
}

// Whole reports whether a plan is being undone, and is not open again afterwards.
func (r *Reader) Whole(id string) bool {
	p := r.core.Plan(id)
	return p != nil && p.Row.Phase == rowspb.Phase_PHASE_UNWINDING && !p.Row.Rewinding
}

// Writer returns the process whose records a plan takes, as its agent calls it; of a plan that was
// handed to an agent of which no process has resumed it, that agent with a slash, which no process
// is called.
func (r *Reader) Writer(id string) string {
	switch p := r.core.Plan(id); {
	case p == nil:
		return ""
	case writers.Awaited(p.Row):
		return p.Row.Agent + "/"
	default:
		return writers.Bare(p.Row.Writer)
	}
}

// HandedTo returns the agent that has a plan, and how it got there, if the plan was ever handed to
// another one.
func (r *Reader) HandedTo(id string) (agent string, last *api.Adoption) {
	p := r.core.Plan(id)
	if p == nil {
		return "", nil
	}
	if last = lastAdoption(p.Row); last != nil {
		agent = p.Row.Agent
	}
	return agent, last
}

func lastAdoption(p *rowspb.PlanRow) *api.Adoption {
	if n := len(p.Adoptions); n > 0 {
		return new(adoptionOf(p.Adoptions[n-1]))
	}
	return nil
}

func adoptionOf(a *rowspb.Adoption) api.Adoption {
	return api.Adoption{From: a.From, By: a.By, Reason: a.Reason, AtNs: a.Ns,
		At: ledger.FormatAddress(a.At)}
}

// WriterAt returns the sequence at which that process became the plan's writer.
func (r *Reader) WriterAt(id string) uint64 {
	if p := r.core.Plan(id); p != nil {
		return writers.From(p.Row)
	}
	return 0
}

// Deadline returns the deadline of a plan, in unix ns, or 0, the sequence of the record that has
// set it, and, where it was moved, who has moved it.
func (r *Reader) Deadline(id string) (ns int64, set uint64, moved *rowspb.Deadline) {
	p := r.core.Plan(id)
	if p == nil {
		return 0, 0, nil
	}
	ns, at := p.Deadline()
	return ns, at.GetSequence(), p.Row.Moved
}

// Parts returns how often an action of a plan and what came after it were undone, and the
// plan went on; and the action of the unwind that is under way, if it is such a one, else of
// the last, and why.
func (r *Reader) Parts(id string) (parts uint32, action, reason string) {
	p := r.core.Plan(id)
	switch {
	case p == nil:
		return 0, "", ""
	case p.Row.Phase != rowspb.Phase_PHASE_OPEN || p.Row.FromAction != "": // under way
		return p.Row.Parts, p.Row.FromAction, ""
	default:
		var last *rowspb.Word
		if n := len(p.Row.PartWords); n > 0 {
			last = p.Row.PartWords[n-1]
		}
		return p.Row.Parts, last.GetAction(), last.GetReason()
	}
}

// PartsAfter returns what was undone in the parts of a plan after the first so many, as far as it
// is kept.
func (r *Reader) PartsAfter(id string, known uint32) (list []api.UndonePart) {
	p := r.core.Plan(id)
	if p == nil {
		return nil
	}
	first := p.Row.Parts - uint32(len(p.Row.PartWords)) + 1
	for i, w := range p.Row.PartWords {
		if n := first + uint32(i); n > known {
			list = append(list, api.UndonePart{Number: n, Action: w.Action, Savepoint: w.Savepoint,
				Reason: w.Reason, At: w.At.GetSequence()})
		}
	}
	return list
}

// Undo returns what is known of an action, the state of its undo, and the plan that undoes it for
// the verdict on it where that is in a committed child; "" where there is no such action.
func (r *Reader) Undo(planID, actionName string) (outcome, undo, undoneIn string) {
	if p := r.core.Plan(planID); p != nil {
		if a := p.Named(actionName); a != nil {
			return a.Outcome(), a.Undo(), a.UndoneIn()
		}
	}
	return "", "", ""
}

// Verdict returns the last verdict on an action; outcome is empty while there is none.
func (r *Reader) Verdict(planID, actionName string) (outcome, reason, by string) {
	p := r.core.Plan(planID)
	if p == nil {
		return "", "", ""
	}
	a := p.Named(actionName)
	if a == nil {
		return "", "", ""
	}
	return a.Verdict(), a.Row.VerdictReason, a.Row.VerdictBy
}

// deliveryMax bounds each list of a Delivery.
const deliveryMax = 100

// Delivery returns what became of what is staged in a committed plan; nil: nothing is.
func (r *Reader) Delivery(id string) *api.Delivery {
	p := r.core.Plan(id)
	switch {
	case p == nil:
		return nil
	case p.Keeps(): // its root has yet to commit
		d := &api.Delivery{State: ledger.StateDelivering}
		if r.staged(d, p, ""); len(d.Waiting) == 0 {
			return nil
		}
		return d
	case p.Row.DeliveredAs == "":
		return nil
	}
	u := r.core.Plan(p.Row.DeliveredAs)
	d := &api.Delivery{Plan: u.ID}
	of := u
	for of.Row.Unwinding == nil && of.Row.Declared.ParentPlan != "" { // a part that has not begun
		of = r.core.Plan(of.Row.Declared.ParentPlan)
	}
	d.State = of.State()
	r.delivery(d, u, "")
	return d
}

// staged lists what waits in a plan for the commit of its root.
func (r *Reader) staged(d *api.Delivery, p *executor.Plan, under string) {
	for n := uint32(1); n <= p.Row.Actions && len(d.Waiting) < deliveryMax; n++ {
		switch a := p.Action(n); {
		case a.Fixed.Child != "":
			r.staged(d, r.core.Plan(a.Fixed.Child), a.Fixed.Child+"/")
		case a.Fixed.Forward.GetDeliver() != nil && a.Row.Undo == rowspb.Undo_UNDO_HELD:
			d.Waiting = append(d.Waiting, under+a.Fixed.Id)
		}
	}
}

func (r *Reader) delivery(d *api.Delivery, u *executor.Plan, under string) {
	for n := u.Row.Actions; n > 0; n-- { // the first of them has the highest number
		a := u.Action(n)
		if a.Fixed.Child != "" {
			c := r.core.Plan(a.Fixed.Child)
			r.delivery(d, c, c.Row.Origin+"/")
			continue
		}
		list, ended := &d.Waiting, u.Row.Phase == rowspb.Phase_PHASE_RESOLVED || u.Row.Retired
		switch undo := a.Row.Undo; {
		case undo == rowspb.Undo_UNDO_COMPENSATED:
			list = &d.Delivered
		case undo == rowspb.Undo_UNDO_QUARANTINED, undo == rowspb.Undo_UNDO_RESOLVED:
			list = &d.Owner
		case undo == rowspb.Undo_UNDO_SKIPPED, a.ToDrop(), ended: // its owner has left it as it is
			list = &d.Dropped
		}
		if len(*list) < deliveryMax {
			*list = append(*list, under+a.Fixed.Id)
		}
	}
}
