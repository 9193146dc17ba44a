package view

import (
	"crypto/sha256"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/writers"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// History returns a batch of what is recorded of an agent's plan, in order of
// registration: what the agent needs to run its function again (S34). Of
// another agent's plan it says whose it is; of none, nothing.
func (r *Reader) History(agent string, q api.HistoryQuery) api.HistoryAnswer {
	p := r.core.Plan(q.Plan)
	if p == nil {
		return api.HistoryAnswer{}
	}
	switch {
	case p.Row.Agent == agent:
	case writers.Had(p.Row, agent):
		return api.HistoryAnswer{Agent: p.Row.Agent, Handed: lastAdoption(p.Row)}
	default:
		return api.HistoryAnswer{Agent: p.Row.Agent}
	}
	answer := api.HistoryAnswer{
		Agent: p.Row.Agent, Handed: lastAdoption(p.Row),
		Opened: rows.Encode(p.Row.Declared), UndoneAs: p.Row.UndoneAs,
		Actions: []api.PastAction{}, OpenedNs: p.Row.OpenedNs,
		Input:  inputOf(r, p),
		Writer: r.Writer(p.ID), WriterAt: r.WriterAt(p.ID),
		SavepointsSet: p.Row.SavepointsSet, Rewinds: p.Row.Rewinds,
		Parts: p.Row.Parts,
	}
	answer.DueNs, answer.DueSet, _ = r.Deadline(p.ID)
	for _, s := range p.Row.Savepoints {
		answer.Savepoints = append(answer.Savepoints, api.PastSavepoint{Name: s.Name, Actions: s.Actions})
	}
	answer.State, answer.Reason, answer.Outstanding, _ = r.Outcome(p.ID)
	list := newBatch[api.PastAction](q.Limit)
	for n := q.After; n < p.Row.Actions; n++ {
		if !list.add("", r.pastAction(p, p.Action(n+1))) {
			answer.Next = n
			break
		}
	}
	answer.Actions = append(answer.Actions, list.list...)
	return answer
}

func (r *Reader) pastAction(p *executor.Plan, a *executor.Action) api.PastAction {
	f, c, row := a.Fixed.Forward, a.Fixed.Compensation, a.Row
	past := api.PastAction{
		Number: a.N, Action: a.Fixed.Id, Child: a.Fixed.Child,
		Sequence: a.Fixed.Registered.GetSequence(), Writer: writers.Of(p.Row, a.Fixed),
		Outcome: a.Outcome(), OutcomeAt: row.OutcomeAt.GetSequence(), ExternalRef: row.ExternalRef,
		Verdict: a.Verdict(), VerdictBy: row.VerdictBy,
		NeverAllowed: f.GetReview() && !row.Allowed &&
			row.Outcome == rowspb.Outcome_OUTCOME_UNKNOWN,
		Compensation: c.GetCapability(), HandlerVersion: c.GetHandlerVersion(),
		Owed: handlerNeeded(p, a), Undone: a.UndoneInPart(),
		Undo: a.Undo(), ToDrop: a.ToDrop(), Note: row.Note,
	}
	if row.Resolution != nil {
		past.Resolution, past.ResolvedBy = a.Resolution(), row.Resolution.Actor
		past.ResolvedReason = row.Resolution.Reason
	}
	if row.FoundRef != "" && row.Outcome != rowspb.Outcome_OUTCOME_COMPLETED {
		past.ExternalRef = row.FoundRef // a completed forward has said its own, or none
	}
	if a.Fixed.DutyOf != 0 {
		past.DutyOf = p.Action(a.Fixed.DutyOf).Fixed.Id
	}
	if f == nil || past.Child != "" || past.DutyOf != "" {
		return past // no call of the function
	}
	past.Forward = rows.Encode(f)
	payload := r.payload(rows.Action{Plan: p.ID, N: a.N})
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
func handlerNeeded(p *executor.Plan, a *executor.Action) bool {
	retired := a.Row.Undo == rowspb.Undo_UNDO_RETIRED ||
		p.Row.Phase == rowspb.Phase_PHASE_COMMITTED && !p.Keeps()
	return a.Fixed.Forward.GetClass() == pb.Class_CLASS_COMPENSABLE && !a.Settled() && !retired &&
		a.Row.Outcome != rowspb.Outcome_OUTCOME_FAILED
}
