package executor

import (
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// applyVerdict folds a supervisor's verdict on an action; the lease on it is
// the mechanism that undoes (S76).
func (s *State) applyVerdict(e ledger.Entry) Result {
	k := e.Record.GetVerdictGiven()
	p := s.plan(e.Record.Plan)
	if p == nil {
		return refused("plan %s was never opened", e.Record.Plan)
	}
	a := s.byName(p.id, e.Record.Action)
	if a == nil {
		return refused("action %s is not registered in plan %s", e.Record.Action, p.id)
	}
	a.row.Verdict, a.row.VerdictBy, a.row.VerdictReason, a.row.VerdictNs = k.Outcome, e.Source.Name,
		k.Reason, s.meta.TimeNs
	s.noteVerdict(e, p, a)
	if l, _ := s.lease(p, rows.Lease{Plan: p.id, N: a.id.N, Name: leaseVerdict}); l == nil {
		for _, name := range []string{leaseVerdict, leaseUnheard} {
			a.row.Leases = append(a.row.Leases, &rowspb.LeaseRow{Name: name, ArmedNs: s.meta.TimeNs})
		}
	}
	s.notices = append(s.notices, Notice{
		Plan: p.id, Agent: p.row.Agent, State: stateName(p.row), Reason: k.Reason, Action: a.fixed.Id,
		Verdict: verdictName(k.Outcome), By: e.Source.Name,
	})
	s.watch(p, a)
	s.reconsider(p, a)
	s.evaluateAction(p, a, e.Address)
	return effective
}
