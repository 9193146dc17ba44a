package view

import (
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// workersPlans and workersActions bound what one look at the capabilities reads.
const (
	workersPlans   = 200_000
	workersActions = 50_000
)

// Workers counts, by the capability that undoes it, what the plans hold. It reads the
// plans one by one, which is for an operator's question and nothing else. Undos that
// an agent's own code carries out, or working memory, need no worker.
func (r *Reader) Workers() (views []api.Worker, partial bool) {
	at := map[string]int{}
	plans, actions := 0, 0
	for k, v := range r.tx.Scan(rows.Plans.Prefix(), rows.After(rows.Plans.Prefix())) {
		if plans++; plans > workersPlans || actions > workersActions {
			return sortedWorkers(views), true
		}
		p := r.core.PlanOf(string(k[1:]), rows.Plans.Decode("scan", v))
		if p.Row.Unsettled == 0 || p.Row.Retired {
			continue
		}
		for a := range p.Actions() {
			actions++
			due, held := awaitsWorker(a)
			if !held {
				continue
			}
			capability := a.Fixed.Compensation.Capability
			i, known := at[capability]
			if !known {
				i = len(views)
				at[capability] = i
				views = append(views, api.Worker{Capability: capability, Plan: p.ID, Served: "unknown"})
			}
			views[i].Held++
			if due {
				views[i].Due++
				views[i].Plan = p.ID
			}
		}
	}
	return sortedWorkers(views), false
}

// awaitsWorker reports whether a worker would undo an action, and whether it is to now.
func awaitsWorker(a *executor.Action) (due, held bool) {
	c := a.Fixed.Compensation
	if c.GetCapability() == "" || c.GetHandlerVersion() != "" || a.Fixed.Child != "" || a.InMemory() {
		return false, false
	}
	switch a.Row.Undo {
	case rowspb.Undo_UNDO_HELD:
		return false, true
	case rowspb.Undo_UNDO_OWED, rowspb.Undo_UNDO_READY, rowspb.Undo_UNDO_SETTLING,
		rowspb.Undo_UNDO_DISPATCHED, rowspb.Undo_UNDO_WAITING:
		return true, true
	default:
		return false, false
	}
}

func sortedWorkers(views []api.Worker) []api.Worker {
	slices.SortFunc(views, func(a, b api.Worker) int {
		return strings.Compare(a.Capability, b.Capability)
	})
	return views
}
