package executor

import (
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// What an agent says of the whole plan: failed, cancelled, or to be unwound.

// signal records that a plan failed or was cancelled, whole or back to a
// savepoint. It undoes nothing by itself: the leases that read plan.status do (S70).
// A plan that goes back to a savepoint still takes the end of all of it.
func (s *State) signal(e ledger.Entry, p *plan, signal rowspb.Signal, reason, to string) Result {
	partly := p.row.ToSavepoint != "" && (stops(p.row) || p.row.Rewinding)
	switch {
	case p.row.Signal == signal && p.row.Signalled != nil && p.row.ToSavepoint == to &&
		p.row.Reason == reason:
		return repeated
	case partly && to == "":
	case !stops(p.row) || p.row.Signal != rowspb.Signal_SIGNAL_NONE:
		return refused("plan %s is already %s", p.id, statusName(p.row))
	}
	p.row.Signal, p.row.Reason, p.row.Signalled, p.row.ToSavepoint = signal, reason, e.Address, to
	p.row.Asked = s.asked(e, signal, reason)
	s.touch(p)
	s.evaluatePlan(p, e.Address)
	return effective
}

func (s *State) unwindRequested(e ledger.Entry, p *plan, k *pb.UnwindRequested) Result {
	switch {
	case k.Number == 0:
		return refused(
			"unwind_requested.number: missing; the agent counts its requests of plan %s from 1", p.id)
	case k.Number <= p.row.Rewinds:
		return repeated
	}
	result := s.unwindTo(e, p, "unwind_requested", k.ToSavepoint, k.Reason)
	if result.Verdict == Effective {
		p.row.Rewinds = k.Number
	}
	return result
}

// unwindTo asks for an unwind back to a savepoint.
func (s *State) unwindTo(e ledger.Entry, p *plan, field, to, reason string) Result {
	if p.row.Phase == rowspb.Phase_PHASE_COMMITTING {
		return refused("%s.to_savepoint: plan %s is being committed; want none, to have all of it undone",
			field, p.id)
	}
	if savepoint(p, to) == nil {
		return refused("%s.to_savepoint: plan %s has no savepoint %q", field, p.id, to)
	}
	return s.signal(e, p, rowspb.Signal_SIGNAL_CANCELLED, reason, to)
}

func joinText(code, message string) string {
	if code == "" || message == "" {
		return code + message
	}
	return code + ": " + message
}
