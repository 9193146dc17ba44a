package executor

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// explainedMax bounds the leases of one answer.
const explainedMax = 200

// Explain says what leases answer and why. The error is a *ledger.Refused: there is
// no such plan, action or lease.
func (r *Reader) Explain(q view.ExplainQuery) (view.Explain, error) {
	p := r.s.plan(q.Plan)
	if p == nil {
		return view.Explain{}, noPlan(q.Plan)
	}
	shown := view.Explain{Plan: p.id, State: stateName(p.row), TimeNs: r.nowNs(),
		Leases: []view.HeldLease{}}
	add := func(name string, a *action, leases []*rowspb.LeaseRow) {
		for _, l := range leases {
			if q.Lease != "" && q.Lease != l.Name {
				continue
			}
			if len(shown.Leases) == explainedMax {
				shown.Omitted = true
				return
			}
			shown.Leases = append(shown.Leases, view.HeldLease{Action: name, Lease: r.lease(p, a, l, true)})
		}
	}
	if q.Action == "" {
		add("", nil, p.row.Leases)
		for _, n := range p.row.Watchers {
			a := r.s.action(p.id, n)
			add(a.fixed.Id, a, a.row.Leases)
		}
	} else {
		a := r.numbered(p, q.Action)
		if a == nil {
			return view.Explain{}, ledger.Refuse("action", "plan "+p.id+" has no action "+q.Action,
				"an action of it")
		}
		add(a.fixed.Id, a, a.row.Leases)
	}
	if len(shown.Leases) == 0 && q.Lease != "" {
		return view.Explain{}, ledger.Refuse("lease", "no lease "+q.Lease+" is held there",
			"one of those that plan show lists")
	}
	return shown, nil
}

// faultyShown bounds the plans with leases in error that a status names.
const faultyShown = 10

// faultyPlans names plans that hold leases in error, up to limit: those with one of
// their own first, then one of each condition that many share.
func (r *Reader) faultyPlans(limit int) (plans []string) {
	end := rows.After(rows.Faulty.Prefix())
	for from := append(rows.Faulty.Prefix(), 1); from != nil && len(plans) < limit; {
		next := from
		from = nil
		for k := range r.s.tx.Scan(next, end) {
			plan := rows.ParseLease(k[1:]).Plan
			plans, from = append(plans, plan), append(append(rows.Faulty.Prefix(), plan...), 1)
			break
		}
	}
	nodes := rows.FaultyNodes.Key(nil)
	for k := range r.s.tx.Scan(nodes, rows.After(nodes)) {
		if len(plans) >= limit {
			break
		}
		if p, _, _ := r.s.member(k[2:]); p != nil && !slices.Contains(plans, p.id) {
			plans = append(plans, p.id)
		}
	}
	return plans
}

// numbered is the action of an id or, where no action has that, of a number; or nil.
func (r *Reader) numbered(p *plan, which string) *action {
	if a := r.s.byName(p.id, which); a != nil {
		return a
	}
	n, err := strconv.ParseUint(which, 10, 32)
	if err != nil || n == 0 || n > uint64(p.row.Actions) {
		return nil
	}
	return r.s.action(p.id, uint32(n))
}

// explainPrograms bounds the conditions that one question compiles.
const explainPrograms = 256

// condition compiles a condition, once for the questions of this reader.
func (r *Reader) condition(text string) (*triggers.Condition, error) {
	if r.s.programs == nil {
		r.s.programs = triggers.NewCache(explainPrograms)
	}
	return r.s.programs.Condition(text)
}

// leases shows what a plan (a is nil) or an action holds, with what each condition
// answers now.
func (r *Reader) leases(p *plan, a *action) []view.Lease {
	list := p.row.Leases
	if a != nil {
		list = a.row.Leases
	}
	var views []view.Lease
	for _, l := range list {
		views = append(views, r.lease(p, a, l, false))
	}
	return views
}

// lease shows one lease; with what it reads where whole is set.
func (r *Reader) lease(p *plan, a *action, l *rowspb.LeaseRow, whole bool) view.Lease {
	shown := view.Lease{Name: l.Name, Condition: conditionOf(p, a, l),
		Truth: triggers.Unknown.String(), ArmedNs: l.ArmedNs, Fired: l.Fired, Moot: l.Moot,
		Cascade: cascadeName(l.Cascade)}
	if l.Fired {
		shown.Truth, shown.Moot, shown.FiredAt = triggers.True.String(), false, firedAt(p, a, l)
		return shown
	}
	if inTime(p, l) || !armed(p.row) || a != nil && settled(a.row.Undo) {
		shown.Moot = false
		shown.Suspended, shown.Retired = rest(p, a)
		return shown
	}
	if r.asked++; r.asked > explainedMax { // of a plan with many, only so many are asked
		shown.Error = "not asked: name an action, as trigger explain does"
		return shown
	}
	condition, err := r.condition(shown.Condition)
	if err != nil {
		shown.Error = err.Error()
		return shown
	}
	result := condition.Hold(scopeOf(p, a, l)).Evaluate(r.nowNs(), factView{r.s})
	shown.Truth, shown.Waits = result.Truth.String(), result.Waits
	turned := turnedBy(p, rows.Lease{Plan: p.id, N: number(a), Name: l.Name}) != nil
	if turned || l.Cascade == rowspb.Cascade_CASCADE_CUT {
		shown.Truth, shown.Waits = triggers.True.String(), nil
	}
	if result.Err != nil {
		shown.Error = result.Err.Error()
	}
	if shown.Moot = !turned && !stopped(l) && (l.Moot || result.Moot); shown.Moot {
		shown.MootWhy = result.MootWhy
		return shown
	}
	if stopped(l) {
		return shown
	}
	if !turned {
		shown.WakeNs = result.WakeNs
	}
	keys := l.Keys
	if l.Node != nil {
		node := r.s.nodeRow(l.Node)
		keys, shown.Shared = node.Keys, node.Leases-1
	}
	if whole {
		shown.Keys, shown.Readings = keys, readingViews(result.Readings)
	}
	return shown
}

func readingViews(list []triggers.Reading) (views []view.Reading) {
	for _, reading := range list {
		views = append(views, view.Reading{Name: reading.Name, Present: reading.Present,
			Value: string(reading.Value), Sequence: reading.Sequence})
	}
	return views
}

// firedAt is where a lease that fired did, or "": the plan knows of the last only.
func firedAt(p *plan, a *action, l *rowspb.LeaseRow) string {
	f, name := p.row.Firing, ""
	if a != nil {
		name = a.fixed.Id
	}
	if f == nil || f.Fired == nil || f.Plan != p.id || f.Lease != l.Name || f.Action != name {
		return ""
	}
	return ledger.FormatAddress(f.Fired)
}

// rest says why a lease of a plan or action that is not open is not asked: until
// the plan is back at a savepoint, or since when.
func rest(p *plan, a *action) (suspended, retired string) {
	switch {
	case a != nil && settled(a.row.Undo):
		return "", "its action was " + undoName(a.row.Undo)
	case p.row.Phase == rowspb.Phase_PHASE_COMMITTING: // the deadline
		return "", "the plan was committed before it"
	case p.row.Phase == rowspb.Phase_PHASE_COMMITTED:
		return "", "the plan was committed"
	case p.row.Rewinding && (a == nil || a.id.N <= p.row.Target):
		if strings.Contains(p.row.ToSavepoint, dutySign) {
			return "where it was", "" // a late duty is undone, and nothing else
		}
		return p.row.ToSavepoint, ""
	case p.row.Rewinding:
		return "", "the undo of its action began"
	case p.row.Phase == rowspb.Phase_PHASE_UNWINDING || p.row.Phase == rowspb.Phase_PHASE_QUARANTINED:
		return "", "the unwind of the plan began"
	default:
		return "", "the plan was undone"
	}
}
