package view

import (
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// explainedMax bounds the leases of one answer.
const explainedMax = 200

// Explain says what leases answer and why. The error is a *ledger.Refused: there is
// no such plan, action or lease.
func (r *Reader) Explain(q api.ExplainQuery) (api.Explain, error) {
	p := r.core.Plan(q.Plan)
	if p == nil {
		return api.Explain{}, noPlan(q.Plan)
	}
	shown := api.Explain{Plan: p.ID, State: p.State(), TimeNs: r.nowNs(),
		Leases: []api.HeldLease{}}
	add := func(name string, leases []*executor.Lease) {
		for _, l := range leases {
			if q.Lease != "" && q.Lease != l.Row.Name {
				continue
			}
			if len(shown.Leases) == explainedMax {
				shown.Omitted = true
				return
			}
			shown.Leases = append(shown.Leases, api.HeldLease{Action: name, Lease: r.lease(l, true)})
		}
	}
	if q.Action == "" {
		add("", p.Leases())
		for _, n := range p.Row.Watchers {
			a := p.Action(n)
			add(a.Fixed.Id, a.Leases())
		}
	} else {
		a, err := which(p, q.Action)
		if err != nil {
			return api.Explain{}, err
		}
		if a == nil {
			return api.Explain{}, ledger.Refuse("action", "plan "+p.ID+" has no action "+q.Action,
				"an action of it")
		}
		add(a.Fixed.Id, a.Leases())
	}
	if len(shown.Leases) == 0 && q.Lease != "" {
		return api.Explain{}, ledger.Refuse("lease", "no lease "+q.Lease+" is held there",
			"one of those that plan show lists")
	}
	return shown, nil
}

// FaultyShown bounds the plans with leases in error that a status names.
const FaultyShown = 10

// faultyPlans names plans that hold leases in error, up to limit: those with one of
// their own first, then one of each condition that many share.
func (r *Reader) faultyPlans(limit int) (plans []string) {
	end := rows.After(rows.Faulty.Prefix())
	for from := append(rows.Faulty.Prefix(), 1); from != nil && len(plans) < limit; {
		next := from
		from = nil
		for k := range r.tx.Scan(next, end) {
			plan := rows.ParseLease(k[1:]).Plan
			plans, from = append(plans, plan), append(append(rows.Faulty.Prefix(), plan...), 1)
			break
		}
	}
	nodes := rows.FaultyNodes.Key(nil)
	for k := range r.tx.Scan(nodes, rows.After(nodes)) {
		if len(plans) >= limit {
			break
		}
		if l := r.core.Member(k[2:]); l != nil && !slices.Contains(plans, l.Plan().ID) {
			plans = append(plans, l.Plan().ID)
		}
	}
	return plans
}

// leases shows what a plan or an action holds, with what each condition answers now.
func (r *Reader) leases(list []*executor.Lease) (views []api.Lease) {
	for _, l := range list {
		views = append(views, r.lease(l, false))
	}
	return views
}

// lease shows one lease; with what it reads where whole is set.
func (r *Reader) lease(l *executor.Lease, whole bool) api.Lease {
	row := l.Row
	shown := api.Lease{Name: row.Name, Condition: l.Condition(),
		Truth: triggers.Unknown.String(), ArmedNs: row.ArmedNs, Fired: row.Fired, Moot: row.Moot,
		Cascade: l.Cascade(), Undoes: "plan", AfterCommit: l.AfterCommit(), HeldUntilNs: row.UntilNs}
	if row.OfAction {
		shown.Undoes = "action"
	}
	if row.Fired {
		shown.Truth, shown.Moot, shown.FiredAt = triggers.True.String(), false, firedAt(l)
		return shown
	}
	if l.Rests() {
		shown.Moot = false
		shown.Suspended, shown.Retired = rest(l.Plan(), l.Action())
		return shown
	}
	if r.asked++; r.asked > explainedMax { // of a plan with many, only so many are asked
		shown.Error = "not asked: name an action, as trigger explain does"
		return shown
	}
	result, err := l.Evaluate(r.nowNs())
	if err != nil {
		shown.Error = err.Error()
		return shown
	}
	shown.Truth, shown.Waits = result.Truth.String(), result.Waits
	turned := l.Turned()
	if turned || row.Cascade == rowspb.Cascade_CASCADE_CUT {
		shown.Truth, shown.Waits = triggers.True.String(), nil
	}
	if result.Err != nil {
		shown.Error = result.Err.Error()
	}
	if shown.Moot = !turned && !l.Stopped() && (row.Moot || result.Moot); shown.Moot {
		shown.MootWhy = result.MootWhy
		return shown
	}
	if l.Stopped() {
		return shown
	}
	if !turned {
		shown.WakeNs = result.WakeNs
	}
	keys := row.Keys
	if row.Node != nil {
		node := rows.Nodes.Find(r.tx, row.Node)
		keys, shown.Shared = node.Keys, node.Leases-1
	}
	if whole {
		for _, key := range keys {
			shown.Keys = append(shown.Keys, triggers.ShownKey(key))
		}
		shown.Readings = readingViews(result.Readings)
	}
	return shown
}

func readingViews(list []triggers.Reading) (views []api.Reading) {
	for _, reading := range list {
		views = append(views, api.Reading{Name: reading.Name, Present: reading.Present,
			Value: string(reading.Value), Sequence: reading.Sequence})
	}
	return views
}

// firedAt is where a lease that fired did, or "": the plan knows of the last only.
func firedAt(l *executor.Lease) string {
	p, name := l.Plan(), ""
	if a := l.Action(); a != nil {
		name = a.Fixed.Id
	}
	f := p.Row.Firing
	if f == nil || f.Fired == nil || f.Plan != p.ID || f.Lease != l.Row.Name || f.Action != name {
		return ""
	}
	return ledger.FormatAddress(f.Fired)
}

// rest says why a lease of a plan or action that is not open is not asked: until
// the plan is back at a savepoint, or since when.
func rest(p *executor.Plan, a *executor.Action) (suspended, retired string) {
	switch {
	case a != nil && a.Settled():
		return "", "its action was " + a.Undo()
	case p.Row.Phase == rowspb.Phase_PHASE_COMMITTING: // the deadline
		return "", "the plan was committed before it"
	case p.Row.Phase == rowspb.Phase_PHASE_COMMITTED:
		return "", "the plan was committed"
	case p.Row.Rewinding && (a == nil || a.Row.Undo == rowspb.Undo_UNDO_HELD):
		if p.Row.FromAction != "" || strings.Contains(p.Row.ToSavepoint, executor.DutySign) {
			return api.SuspendedPart, "" // an action, or a late duty, is undone, and nothing else
		}
		return p.Row.ToSavepoint, ""
	case p.Row.Rewinding:
		return "", "the undo of its action began"
	case p.Row.Phase == rowspb.Phase_PHASE_UNWINDING || p.Row.Phase == rowspb.Phase_PHASE_QUARANTINED:
		return "", "the unwind of the plan began"
	default:
		return "", "the plan was undone"
	}
}
