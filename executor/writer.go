package executor

import (
	"cmp"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The writer of a plan. An agent may run in several processes, and one that was thought
// dead may go on. A plan takes new actions, savepoints and its end from one process at a
// time: the one that opened it, or the last one that resumed it. What became of a forward
// is taken from the process that registered it too, for no one knows better (ADR 0024).

// writerOf is the process that registered an action.
func writerOf(p *plan, a *action) string { return cmp.Or(a.fixed.Writer, p.row.Opener) }

// hasWord reports whether a process may say what became of the forward of an action.
func hasWord(p *plan, a *action, writer string) bool {
	return writer == p.row.Writer || writer == writerOf(p, a)
}

// mayWrite refuses what another process than the plan's writer says.
func (s *State) mayWrite(p *plan, r *pb.Record) Result {
	if r.Writer == p.row.Writer {
		return effective
	}
	switch r.Kind.(type) {
	case *pb.Record_ForwardCompleted, *pb.Record_ForwardFailed, *pb.Record_ForwardInDoubt:
		if a := s.byName(p.id, r.Action); a != nil && writerOf(p, a) == r.Writer {
			return effective
		}
	}
	if p.row.ResumedNs != 0 {
		return refused("writer: plan %s takes the records of the process that resumed it at %s, and no "+
			"other's", p.id, instant(p.row.ResumedNs))
	}
	return refused("writer: plan %s takes the records of the process that opened it; another one "+
		"resumes it first", p.id)
}

// planResumed makes another process the writer of an open plan.
func (s *State) planResumed(e ledger.Entry, p *plan) Result {
	switch {
	case e.Record.Writer == p.row.Writer:
		return repeated
	case p.row.Phase != rowspb.Phase_PHASE_OPEN || p.row.Signal != rowspb.Signal_SIGNAL_NONE:
		return refused("plan %s is %s and is not resumed", p.id, statusName(p.row))
	}
	p.row.Writer, p.row.ResumedNs = e.Record.Writer, s.meta.TimeNs
	s.touch(p)
	s.notices = append(s.notices, Notice{Plan: p.id, Agent: p.row.Agent, State: ledger.StateOpen,
		Writer: p.row.Writer})
	return effective
}
