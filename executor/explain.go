package executor

import (
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// explainPrograms bounds the conditions that one question compiles.
const explainPrograms = 256

// leases shows what a plan (a is nil) or an action holds, with what each condition
// answers at the logical time of the state.
func (r *Reader) leases(p *plan, a *action) []LeaseView {
	rows := p.row.Leases
	if a != nil {
		rows = a.row.Leases
	}
	var views []LeaseView
	for _, l := range rows {
		views = append(views, r.lease(p, a, l))
	}
	return views
}

func (r *Reader) lease(p *plan, a *action, l *pb.LeaseRow) LeaseView {
	view := LeaseView{Name: l.Name, Condition: conditionOf(l), Truth: triggers.Unknown.String(), ArmedNs: l.ArmedNs, Fired: l.Fired, Moot: l.Moot}
	ref := leaseRef{p.id, number(a), l.Name}
	switch {
	case l.Fired:
		view.Truth = triggers.True.String()
		return view
	case !armed(p.row) || a != nil && settled(a.row.Undo):
		view.Moot = true // its plan is not open any more: it never fires
		return view
	}
	if r.s.programs == nil {
		r.s.programs = triggers.NewCache(explainPrograms)
	}
	condition, err := r.s.programs.Condition(view.Condition)
	if err != nil {
		view.Error = err.Error()
		return view
	}
	result := condition.Hold(scopeOf(p, a, l)).Evaluate(r.s.meta.TimeNs, factView{r.s})
	view.Truth, view.Waits = result.Truth.String(), result.Waits
	if turnedBy(p, ref) != nil {
		view.Truth = triggers.True.String() // it fires as soon as the clock allows
	}
	if result.Err != nil {
		view.Error = result.Err.Error()
	}
	if view.Moot {
		return view
	}
	view.Keys, view.WakeNs = l.Keys, l.WakeNs
	if l.Node != nil {
		if node := r.s.nodeRow(l.Node); node != nil {
			view.Keys, view.WakeNs, view.Shared = node.Keys, node.WakeNs, node.Leases
		}
	}
	if view.WakeNs == wakeNow {
		view.WakeNs = 0
	}
	for _, reading := range result.Readings {
		view.Readings = append(view.Readings, ReadingView{Name: reading.Name, Value: string(reading.Value), Sequence: reading.Sequence})
	}
	return view
}
