package executor

import (
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// UndoneIn names the plan that undoes an action of a committed child, with all of the child, for
// the verdict on it; "": the plan is no committed child, or was committed with its root, or the
// verdict undoes nothing. The leases of such a child are held on, and what they undo is its root's.
func (a *Action) UndoneIn() string {
	x, p := a.a, a.a.plan
	l, _ := p.lease(rows.Lease{Plan: p.id, N: x.id.N, Name: leaseVerdict})
	verdict := x.row.Verdict
	switch {
	case l == nil || !keeps(p.row) || verdict == pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW:
		return ""
	case settled(x.row.Undo): // a part of the child has undone it before: only all of a plan is left
		if !crossed(x) || l.OfAction {
			return ""
		}
		return wholeOf(p).id
	case x.row.Outcome == rowspb.Outcome_OUTCOME_FAILED:
		return ""
	case l.OfAction:
		to, _ := p.undoneIn()
		return to.id
	}
	return p.root().id
}
