package view

import (
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
)

// Worker is a capability that undoes what is held, and who serves it.
type Worker struct {
	Capability string `json:"capability"` // of the undo
	Held       uint64 `json:"held"`       // actions that it would undo, or is to undo now
	Due        uint64 `json:"due"`        // of these, owed or under way
	Plan       string `json:"plan"`       // one that holds them
	Served     string `json:"served"`     // as ServedYes and its like
	HeardNs    int64  `json:"heard_ns,omitempty"`
}

// Whether a worker serves a capability now, as far as the server says it.
const (
	ServedYes     = "yes"
	ServedNo      = "no"
	ServedUnknown = "unknown"
	// ServedListener: only such subscribe as are no members of a queue group, which workers are,
	// and have not just answered: a terminal that listens, a stream that stores.
	ServedListener = "listener"
)

// WorkersAnswer answers worker.ls.
type WorkersAnswer struct {
	Workers []Worker `json:"workers"`           // by capability
	Partial bool     `json:"partial,omitempty"` // there are more plans than one answer reads
	Error   string   `json:"error,omitempty"`
}

// ServedQuery asks worker.served about calls.
type ServedQuery struct {
	Calls []ServedCall `json:"calls"` // at most 1000
}

// ServedCall is a call that a worker has to take.
type ServedCall struct {
	Capability string `json:"capability"`
	Undo       bool   `json:"undo"`              // else a question
	Version    string `json:"version,omitempty"` // of the worker, that a registration asks for
}

// Served says who takes a call.
type Served struct {
	ServedCall
	Served  string `json:"served"`             // as Worker.Served
	HeardNs int64  `json:"heard_ns,omitempty"` // when a worker last answered this host
	// OtherVersion is what a worker has answered that refuses the version, if none of that
	// version has answered since.
	OtherVersion string `json:"other_version,omitempty"`
}

// ServedAnswer answers worker.served, in the order of the question.
type ServedAnswer struct {
	Calls []Served `json:"calls"`
	Error string   `json:"error,omitempty"`
}

// workersPlans and workersActions bound what one look at the capabilities reads.
const (
	workersPlans   = 200_000
	workersActions = 50_000
)

// Workers counts, by the capability that undoes it, what the plans hold. It reads the
// plans one by one, which is for an operator's question and nothing else. Undos that
// an agent's own code carries out, or working memory, need no worker.
func (r *Reader) Workers() (views []Worker, partial bool) {
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
				views = append(views, Worker{Capability: capability, Plan: p.ID, Served: "unknown"})
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

func sortedWorkers(views []Worker) []Worker {
	slices.SortFunc(views, func(a, b Worker) int {
		return strings.Compare(a.Capability, b.Capability)
	})
	return views
}
