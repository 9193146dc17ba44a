package executor

import (
	"crypto/sha256"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// History returns a page of what is recorded of an agent's plan, in order of
// registration: what the agent needs to run its function again (S34, S35). Of
// another agent's plan it says whose it is; of none, nothing.
func (r *Reader) History(agent string, q api.HistoryQuery) api.HistoryAnswer {
	p := r.s.plan(q.Plan)
	if p == nil {
		return api.HistoryAnswer{}
	}
	if p.row.Agent != agent {
		return api.HistoryAnswer{Agent: p.row.Agent}
	}
	answer := api.HistoryAnswer{
		Agent: p.row.Agent, Opened: rows.Encode(p.row.Declared), UndoneAs: p.row.UndoneAs,
		Actions: []api.PastAction{},
		Writer:  p.row.Writer, SavepointsSet: p.row.SavepointsSet, Rewinds: p.row.Rewinds,
	}
	for _, s := range p.row.Savepoints {
		answer.Savepoints = append(answer.Savepoints, api.PastSavepoint{Name: s.Name, Actions: s.Actions})
	}
	answer.State, answer.Reason, answer.Outstanding, _ = r.Outcome(p.id)
	list := newBatch[api.PastAction](q.Limit)
	for n := q.After + 1; n <= p.row.Actions; n++ {
		if !list.add("", r.pastAction(p, r.s.action(p.id, n))) {
			answer.Next = n - 1
			break
		}
	}
	answer.Actions = append(answer.Actions, list.list...)
	return answer
}

func (r *Reader) pastAction(p *plan, a *action) api.PastAction {
	f, c, row := a.fixed.Forward, a.fixed.Compensation, a.row
	past := api.PastAction{
		Number: a.id.N, Action: a.fixed.Id, Child: a.fixed.Child,
		Sequence: a.fixed.Registered.GetSequence(),
		Outcome:  outcomeName(row.Outcome), ExternalRef: row.ExternalRef,
		Verdict:      verdictName(row.Verdict),
		Compensation: c.GetCapability(), HandlerVersion: c.GetHandlerVersion(),
		Owed: handlerNeeded(p.row, f, row),
	}
	if a.fixed.DutyOf != 0 {
		past.DutyOf = r.s.action(p.id, a.fixed.DutyOf).fixed.Id
	}
	if f == nil || past.Child != "" || past.DutyOf != "" {
		return past // no call of the function
	}
	past.Forward = rows.Encode(f)
	payload := r.s.payload(a.id)
	past.Output, past.Before, past.Incomplete = payload.Output, payload.Before, row.OutputIncomplete
	if len(payload.Input) > 0 {
		sum := sha256.Sum256(payload.Input)
		past.Input = sum[:]
	}
	switch row.Outcome {
	case rowspb.Outcome_OUTCOME_FAILED, rowspb.Outcome_OUTCOME_IN_DOUBT:
		past.Code, past.Message, _ = strings.Cut(row.Failure, ": ") // as joinText joined them
	}
	return past
}

// handlerNeeded reports whether the undo of an action may still be asked for (S36).
func handlerNeeded(p *rowspb.PlanRow, f *pb.ForwardRegistered, a *rowspb.ActionRow) bool {
	retired := a.Undo == rowspb.Undo_UNDO_RETIRED || p.Phase == rowspb.Phase_PHASE_COMMITTED &&
		!keeps(p)
	return f.GetClass() == pb.Class_CLASS_COMPENSABLE && !settled(a.Undo) && !retired &&
		a.Outcome != rowspb.Outcome_OUTCOME_FAILED
}
