package ask

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func (d *Desk) plan(q api.PlanQuery) (answer api.PlanAnswer, err error) {
	if err := d.unfolded(q.Sequence, sequenceWait); err != nil {
		return answer, err
	}
	answer, err = d.seenPlan(q.Plan)
	if err != nil && d.catchUp() { // its first record may have been acknowledged just now
		return d.seenPlan(q.Plan)
	}
	return answer, err
}

// seenPlan shows a plan; the error says that there is none.
func (d *Desk) seenPlan(id string) (answer api.PlanAnswer, err error) {
	d.look(func(r *view.Reader) {
		shown, known := r.Plan(id)
		if !known {
			err = errors.New(r.NoPlan(id))
			return
		}
		d.showWaiting(&shown)
		answer.Plan = shown
	})
	return answer, err
}

// showWaiting says which of a plan's commands have found no worker.
func (d *Desk) showWaiting(shown *api.Plan) {
	for _, w := range d.Board.unserved() {
		for i := range shown.Actions {
			action := &shown.Actions[i]
			if w.Plan != shown.Plan || w.Action != action.Action {
				continue
			}
			action.NoWorker = !w.Working && w.Problem == ""
			switch {
			case w.Problem != "": // also of a handler: its process would change nothing
				action.WaitsFor = fmt.Sprintf("%s, tries: %d", w.Problem, w.Tries)
			case w.Handler != "" && !w.Working:
				action.WaitsFor = fmt.Sprintf("%s: no process offers it, tries: %d%s",
					w.Handler, w.Tries, ownersFrom(w))
			case w.Working:
				action.WaitsFor = "a worker that says it is still working on " + w.Capability +
					w.AskedAgain()
			default:
				action.WaitsFor = fmt.Sprintf("%s: none serves %s, tries: %d%s", w.Wanted("a worker"),
					w.Capability, w.Tries, ownersFrom(w))
			}
		}
	}
}

// ownersFrom says when a command that no worker takes becomes its owner's.
func ownersFrom(w api.Waiting) string {
	if w.UnservedNs == 0 {
		return ""
	}
	return "; its owner's at " + time.Unix(0, w.UnservedNs).UTC().Format(time.RFC3339)
}

// historyOf answers an agent about a plan of its own.
func (d *Desk) historyOf(agent string, q api.HistoryQuery) (answer api.HistoryAnswer, err error) {
	if err := d.unfolded(q.Sequence, sequenceWait); err != nil {
		return answer, alone{err}
	}
	read := func() { d.look(func(r *view.Reader) { answer = r.History(agent, q) }) }
	read()
	// its first record may have been acknowledged just now
	if answer.Agent == "" && q.Sequence == 0 && d.catchUp() {
		read()
	}
	return answer, nil
}

// preview decides nothing and appends nothing: it says what an unwind would do
// at this host's clock.
func (d *Desk) preview(q api.PreviewQuery) (answer api.PreviewAnswer, err error) {
	if err := d.unfolded(q.Sequence, sequenceWait); err != nil {
		return answer, &api.Problem{Text: err.Error(), Behind: true}
	}
	answer.Preview, err = looked(d, func(r *view.Reader) (api.Preview, error) {
		return r.Preview(q, d.Now().UnixNano())
	})
	return answer, err
}

// previewOf answers an agent about a plan of its own. What is sealed in the ledger is sealed in
// the arguments of calls.
func (d *Desk) previewOf(agent string, q api.PreviewQuery) (answer api.PreviewAnswer, err error) {
	if err := d.unfolded(q.Sequence, sequenceWait); err != nil {
		return answer, &api.Problem{Text: err.Error(), Behind: true}
	}
	answer.Preview, err = looked(d, func(r *view.Reader) (api.Preview, error) {
		return r.PreviewOf(agent, q, d.Now().UnixNano())
	})
	return answer, err
}

// reviews are the actions that wait for a verdict.
func (d *Desk) reviews(q api.ReviewQuery) (api.ReviewAnswer, error) {
	return looked(d, func(r *view.Reader) (api.ReviewAnswer, error) {
		return r.Reviews(q, d.Now().UnixNano())
	})
}

// explain says what leases answer now.
func (d *Desk) explain(q api.ExplainQuery) (answer api.ExplainAnswer, err error) {
	answer.Explain, err = looked(d, func(r *view.Reader) (api.Explain, error) {
		shown, err := r.Explain(q)
		var refused *ledger.Refused
		if errors.As(err, &refused) {
			err = errors.New(refused.Problem) // as the other commands say it
		}
		return shown, err
	})
	return answer, err
}

// dueUnservedMax is how many entries an answer of due.ls may have because of commands that
// no one takes, where it has fewer of its own.
const dueUnservedMax = 20

func (d *Desk) upcoming(q api.ListQuery) (answer api.UpcomingAnswer, err error) {
	d.look(func(r *view.Reader) { answer.Upcoming = r.Upcoming(q.Limit) })
	due := answer.Upcoming.Due
	limit := max(len(due), dueUnservedMax)
	for _, w := range d.Board.unserved() {
		if w.UnservedNs != 0 && !w.Working && w.Problem == "" {
			due = append(due, api.Due{Ns: w.UnservedNs, Kind: "unserved", Plan: w.Plan, Action: w.Action})
		}
	}
	slices.SortStableFunc(due, func(a, b api.Due) int {
		return cmp.Or(cmp.Compare(a.Ns, b.Ns), cmp.Compare(a.Plan, b.Plan),
			cmp.Compare(a.Action, b.Action))
	})
	answer.Upcoming.Due = due[:min(len(due), limit)]
	return answer, nil
}
