package executor

import (
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/view"
)

// workersPlans and workersActions bound what one look at the capabilities reads.
const (
	workersPlans   = 200_000
	workersActions = 50_000
)

// Workers counts, by the capability that undoes it, what the plans hold. It reads the
// plans one by one, which is for an operator's question and nothing else. Undos that
// an agent's own code carries out, or working memory, need no worker.
func (r *Reader) Workers() (views []view.Worker, partial bool) {
	at := map[string]int{}
	plans, actions := 0, 0
	for k, v := range r.s.tx.Scan(rows.Plans.Prefix(), rows.After(rows.Plans.Prefix())) {
		if plans++; plans > workersPlans || actions > workersActions {
			return sortedWorkers(views), true
		}
		row := new(rowspb.PlanRow)
		rows.Decode("scan", v, row)
		if row.Unsettled == 0 || row.Retired {
			continue
		}
		id := string(k[1:])
		for n := uint32(1); n <= row.Actions; n++ {
			actions++
			a := r.s.action(id, n)
			due, held := awaitsWorker(a)
			if !held {
				continue
			}
			capability := a.fixed.Compensation.Capability
			i, known := at[capability]
			if !known {
				i = len(views)
				at[capability] = i
				views = append(views, view.Worker{Capability: capability, Plan: id, Served: "unknown"})
			}
			views[i].Held++
			if due {
				views[i].Due++
				views[i].Plan = id
			}
		}
	}
	return sortedWorkers(views), false
}

// awaitsWorker reports whether a worker would undo an action, and whether it is to now.
func awaitsWorker(a *action) (due, held bool) {
	c := a.fixed.Compensation
	if c.GetCapability() == "" || c.GetHandlerVersion() != "" || a.fixed.Child != "" || inMemory(a) {
		return false, false
	}
	switch a.row.Undo {
	case rowspb.Undo_UNDO_HELD:
		return false, true
	case rowspb.Undo_UNDO_OWED, rowspb.Undo_UNDO_READY, rowspb.Undo_UNDO_SETTLING,
		rowspb.Undo_UNDO_DISPATCHED, rowspb.Undo_UNDO_WAITING:
		return true, true
	default:
		return false, false
	}
}

func sortedWorkers(views []view.Worker) []view.Worker {
	slices.SortFunc(views, func(a, b view.Worker) int {
		return strings.Compare(a.Capability, b.Capability)
	})
	return views
}
