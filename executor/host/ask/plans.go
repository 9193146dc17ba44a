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

func (d *Desk) plan(q api.PlanQuery) any {
	if problem := d.Board.unfolded(q.Sequence, sequenceWait); problem != "" {
		return api.PlanAnswer{Error: problem}
	}
	answer, known := d.seenPlan(q.Plan)
	if !known && d.Board.catchUp() { // its first record may have been acknowledged just now
		answer, _ = d.seenPlan(q.Plan)
	}
	return answer
}

func (d *Desk) seenPlan(id string) (answer api.PlanAnswer, known bool) {
	d.look(func(r *view.Reader) {
		var shown api.Plan
		if shown, known = r.Plan(id); !known {
			answer.Error = r.NoPlan(id)
			return
		}
		d.showWaiting(&shown)
		answer.Plan = shown
	})
	return answer, known
}

// showWaiting says which of a plan's commands have found no worker.
func (d *Desk) showWaiting(shown *api.Plan) {
	for _, w := range d.Board.unserved() {
		for i := range shown.Actions {
			action := &shown.Actions[i]
			if w.Plan != shown.Plan || w.Action != action.Action {
				continue
			}
			action.NoWorker = !w.Working && (w.Handler != "" || w.Problem == "")
			switch {
			case w.Handler != "" && !w.Working:
				action.WaitsFor = fmt.Sprintf("%s: no process offers it, tries: %d%s",
					w.Handler, w.Tries, ownersFrom(w))
			case w.Problem != "":
				action.WaitsFor = fmt.Sprintf("%s, tries: %d", w.Problem, w.Tries)
			case w.Working:
				action.WaitsFor = "a worker that says it is still working on " + w.Capability
			default:
				action.WaitsFor = fmt.Sprintf("a worker: none serves %s, tries: %d%s",
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
func (d *Desk) historyOf(agent string, q api.HistoryQuery) any {
	if problem := d.Board.unfolded(q.Sequence, sequenceWait); problem != "" {
		return api.ErrorAnswer{Error: problem}
	}
	var answer api.HistoryAnswer
	read := func() { d.look(func(r *view.Reader) { answer = r.History(agent, q) }) }
	read()
	// its first record may have been acknowledged just now
	if answer.Agent == "" && q.Sequence == 0 && d.Board.catchUp() {
		read()
	}
	return answer
}

// preview decides nothing and appends nothing: it says what an unwind would do
// at this host's clock.
func (d *Desk) preview(q api.PreviewQuery) any {
	if problem := d.Board.unfolded(q.Sequence, sequenceWait); problem != "" {
		return api.PreviewAnswer{Error: problem, Behind: true}
	}
	preview, problem := looked(d, func(r *view.Reader) (api.Preview, error) {
		return r.Preview(q, d.Now().UnixNano())
	})
	return api.PreviewAnswer{Preview: preview, Error: problem}
}

// previewOf answers an agent about a plan of its own. What is sealed in the ledger is sealed in
// the arguments of calls.
func (d *Desk) previewOf(agent string, q api.PreviewQuery) any {
	if problem := d.Board.unfolded(q.Sequence, sequenceWait); problem != "" {
		return api.PreviewAnswer{Error: problem, Behind: true}
	}
	preview, problem := looked(d, func(r *view.Reader) (api.Preview, error) {
		return r.PreviewOf(agent, q, d.Now().UnixNano())
	})
	return api.PreviewAnswer{Preview: preview, Error: problem}
}

// explain says what leases answer now.
func (d *Desk) explain(q api.ExplainQuery) any {
	explained, problem := looked(d, func(r *view.Reader) (api.Explain, error) {
		shown, err := r.Explain(q)
		var refused *ledger.Refused
		if errors.As(err, &refused) {
			err = errors.New(refused.Problem) // as the other commands say it
		}
		return shown, err
	})
	return api.ExplainAnswer{Explain: explained, Error: problem}
}

// dueUnservedMax is how many entries an answer of due.ls may have because of commands that
// no one takes, where it has fewer of its own.
const dueUnservedMax = 20

func (d *Desk) upcoming(q api.ListQuery) any {
	var answer api.UpcomingAnswer
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
	return answer
}
