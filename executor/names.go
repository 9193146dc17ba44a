package executor

import (
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// stateName is the state of a plan as people read it.
func stateName(r *rowspb.PlanRow) string {
	switch r.Phase {
	case rowspb.Phase_PHASE_OPEN:
		return ledger.StateOpen
	case rowspb.Phase_PHASE_COMMITTING:
		return ledger.StateCommitting
	case rowspb.Phase_PHASE_COMMITTED:
		return ledger.StateCommitted
	case rowspb.Phase_PHASE_UNWINDING:
		return ledger.StateUnwinding
	case rowspb.Phase_PHASE_COMPENSATED:
		return ledger.StateCompensated
	case rowspb.Phase_PHASE_QUARANTINED:
		return ledger.StateQuarantined
	case rowspb.Phase_PHASE_FAILED:
		return ledger.StateFailed
	case rowspb.Phase_PHASE_RESOLVED:
		return ledger.StateResolved
	default:
		panic("executor: unknown phase")
	}
}

// statusName is plan.status as conditions read it: the state, and on an open
// plan what was asked of it.
func statusName(r *rowspb.PlanRow) string {
	if stops(r) {
		switch r.Signal {
		case rowspb.Signal_SIGNAL_FAILED:
			return "failed"
		case rowspb.Signal_SIGNAL_CANCELLED:
			return "cancelled"
		}
	}
	return stateName(r)
}

func outcomeName(o rowspb.Outcome) string {
	return [...]string{"unknown", "completed", "failed", "in_doubt"}[o]
}

func undoName(u rowspb.Undo) string {
	return [...]string{"held", "retired", "owed", "ready", "dispatched", "waiting", "compensated",
		"skipped", "quarantined", "resolved", "exhausted", "settling"}[u]
}

func questionName(q pb.Question) string { return [...]string{"", "effect", "undo", "verify"}[q] }

func presenceName(p pb.Presence) string {
	return [...]string{"", "present", "absent", "duplicate"}[p]
}

func onUndoFailureName(o pb.OnUndoFailure) string {
	if o == pb.OnUndoFailure_ON_UNDO_FAILURE_CONTINUE {
		return "continue"
	}
	return "halt"
}

func verdictName(v pb.VerdictOutcome) string {
	return [...]string{"", "allow", "block", "redirect"}[v]
}

func className(c pb.Class) string {
	return [...]string{"undeclared", "compensable", "irreversible", "effectless"}[c]
}

func resolutionName(r pb.Resolution) string {
	return [...]string{"", "done", "lost", "accepted", "skipped"}[r]
}

func endName(e pb.PlanEnd) string {
	if e < 0 || int(e) > 4 {
		return "unknown"
	}
	return [...]string{"", ledger.StateCompensated, ledger.StateQuarantined, ledger.StateFailed,
		ledger.StateResolved}[e]
}
