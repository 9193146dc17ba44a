package executor

import (
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// explainedMax bounds the leases of one answer.
const explainedMax = 200

// Explain says what leases answer and why. The error is a *ledger.Refused: there is
// no such plan, action or lease.
func (r *Reader) Explain(q ExplainQuery) (ExplainView, error) {
	p := r.s.plan(q.Plan)
	if p == nil {
		return ExplainView{}, ledger.Refuse("plan", "there is no plan "+q.Plan, "a plan of this tenant")
	}
	view := ExplainView{Plan: p.id, State: stateName(p.row), TimeNs: r.s.meta.TimeNs, Leases: []HeldLease{}}
	add := func(name string, a *action, rows []*pb.LeaseRow) {
		for _, l := range rows {
			if q.Lease != "" && q.Lease != l.Name {
				continue
			}
			if len(view.Leases) == explainedMax {
				view.Omitted = true
				return
			}
			view.Leases = append(view.Leases, HeldLease{name, r.lease(p, a, l, true)})
		}
	}
	if q.Action == "" {
		add("", nil, p.row.Leases)
		for _, n := range p.row.Watchers {
			a := r.s.action(p.id, n)
			add(a.fixed.Id, a, a.row.Leases)
		}
	} else {
		a := r.s.byName(p.id, q.Action)
		if a == nil {
			return ExplainView{}, ledger.Refuse("action", "plan "+p.id+" has no action "+q.Action, "an action of it")
		}
		add(q.Action, a, a.row.Leases)
	}
	if len(view.Leases) == 0 && q.Lease != "" {
		return ExplainView{}, ledger.Refuse("lease", "no lease "+q.Lease+" is held there", "one of those that plan show lists")
	}
	return view, nil
}

// faultyShown bounds the plans with leases in error that a status names.
const faultyShown = 10

// faultyPlans names plans that hold leases in error, up to limit: those with one of
// their own first, then one of each condition that many share.
func (r *Reader) faultyPlans(limit int) (plans []string) {
	end := after([]byte{keyFaulty})
	for from := []byte{keyFaulty, 1}; from != nil && len(plans) < limit; {
		next := from
		from = nil
		for k := range r.s.kv.Scan(next, end) {
			plan := parseLeaseRef(k[1:]).plan
			plans, from = append(plans, plan), append(planKey(keyFaulty, plan), 1)
			break
		}
	}
	nodes := []byte{keyFaulty, 0}
	for k := range r.s.kv.Scan(nodes, after(nodes)) {
		if len(plans) >= limit {
			break
		}
		for _, ref := range r.s.members(k[2:], 1) {
			if !slices.Contains(plans, ref.plan) {
				plans = append(plans, ref.plan)
			}
		}
	}
	return plans
}

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
		views = append(views, r.lease(p, a, l, false))
	}
	return views
}

// lease shows one lease; with what it reads where whole is set.
func (r *Reader) lease(p *plan, a *action, l *pb.LeaseRow, whole bool) LeaseView {
	view := LeaseView{Name: l.Name, Condition: conditionOf(p, a, l), Truth: triggers.Unknown.String(), ArmedNs: l.ArmedNs, Fired: l.Fired, Moot: l.Moot, Cascade: cascadeName(l.Cascade)}
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
	if turnedBy(p, ref) != nil || l.Cascade == pb.Cascade_CASCADE_CUT {
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
	if !whole {
		view.Keys = nil
		return view
	}
	for _, reading := range result.Readings {
		view.Readings = append(view.Readings, ReadingView{Name: reading.Name, Value: string(reading.Value), Sequence: reading.Sequence})
	}
	return view
}
