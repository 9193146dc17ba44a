package executor

import (
	"fmt"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Verdict says what became of a record in the fold.
type Verdict uint8

// Verdicts of Apply.
const (
	Effective Verdict = iota
	Repeated          // a second copy of a record that was folded before: changes nothing
	Refused           // breaks a rule
	Void              // a decision that lost a race in the log
)

// Result is what Apply says of one record. Reason is empty when Effective.
type Result struct {
	Verdict Verdict
	Reason  string
}

var effective = Result{}

func refused(format string, a ...any) Result { return Result{Refused, fmt.Sprintf(format, a...)} }
func void(format string, a ...any) Result    { return Result{Void, fmt.Sprintf(format, a...)} }

var repeated = Result{Repeated, "a copy of an earlier record"}

// Apply folds one record. It is total: whatever the entry holds, the state
// goes on, and the result says what it was. Entries must come in the order of
// the ledger (invariant I1 is the host's to guard).
func (s *State) Apply(e ledger.Entry) Result {
	s.beforeNs = s.meta.TimeNs
	s.advance(e)
	result := s.applyEntry(e)
	switch result.Verdict {
	case Effective, Repeated:
	case Refused:
		s.meta.Refused++
		s.openRefused(e)
		s.noteOrphan(e, result.Reason)
		s.refuse(e, result)
	case Void:
		s.meta.Voided++
		s.refuse(e, result)
	default:
		panic("executor: unknown verdict")
	}
	return result
}

// advance moves cursor and logical time: the maximum of stamps and epochs so
// far (I8).
func (s *State) advance(e ledger.Entry) {
	s.meta.Applied = e.Address
	s.meta.AppliedCount = e.Count
	s.meta.StampNs = e.StampNs
	s.meta.Records++
	s.meta.TimeNs = max(s.meta.TimeNs, e.StampNs)
	if e.Source.Term {
		s.meta.Fence = e.Address.Sequence
	}
	if e.Err == nil && e.Record != nil && e.Source.Class == ledger.ClassExecutor &&
		e.Record.Term >= s.meta.Term {
		s.meta.TimeNs = max(s.meta.TimeNs, e.Record.EpochNs)
	}
}

func (s *State) applyEntry(e ledger.Entry) Result {
	if e.Err != nil {
		return Result{Refused, e.Err.Error()}
	}
	switch e.Source.Class {
	case ledger.ClassAgent:
		if err := s.unusable(e); err != nil {
			return Result{Refused, err.Error()}
		}
		return s.applyAgent(e)
	case ledger.ClassFact:
		return s.applyFact(e)
	case ledger.ClassVerdict:
		return s.applyVerdict(e)
	case ledger.ClassOperator:
		return s.applyOperator(e)
	case ledger.ClassWorker:
		return s.applyWorker(e)
	case ledger.ClassExecutor:
		return s.applyExecutor(e)
	default:
		panic("executor: unknown subject class " + e.Source.Class.String())
	}
}

// refuse keeps the reason where people find it: by place and by plan.
func (s *State) refuse(e ledger.Entry, r Result) {
	row := &rowspb.RefusedRow{
		Reason: r.Reason, Subject: e.Source.Subject(), StampNs: e.StampNs, Voided: r.Verdict == Void,
	}
	if e.Record != nil {
		row.Kind = ledger.KindOf(e.Record).Name
	}
	row.Plan = planOf(e)
	rows.Refused.Set(s.tx, rows.At(e.Address), row)
	if row.Plan != "" {
		rows.Refusals.Add(s.tx, rows.NamedPlace{Name: row.Plan, At: rows.At(e.Address)})
	}
	// A decision that lost is explained here and needs no further record; a
	// refused record of anybody else is answered in the ledger itself.
	// One answer per message is enough: whoever sends a thousand bad records must
	// not make the holder append a thousand.
	if r.Verdict == Refused && e.Source.Class != ledger.ClassExecutor &&
		s.answered != e.Address.Sequence {
		s.answered = e.Address.Sequence
		s.todo.add(todoRefused + string(rows.At(e.Address).Bytes()))
	}
}

// planOf is the plan that a record is refused about, or "": that of its subject, which
// is known of any bytes, or else the one that it names.
func planOf(e ledger.Entry) string {
	if e.Source.Class == ledger.ClassAgent && e.Source.Plan != ledger.ManyPlans {
		return e.Source.Plan
	}
	if plan := e.Record.GetPlan(); ledger.ValidDerived(plan) && plan != ledger.ManyPlans {
		return plan
	}
	return ""
}

// hasWork reports whether a plan needs a decision.
func hasWork(r *rowspb.PlanRow) bool {
	switch r.Phase {
	case rowspb.Phase_PHASE_OPEN:
		return r.Fired != nil || r.Turned != nil && !r.Turned.Clocked
	case rowspb.Phase_PHASE_COMMITTING:
		return r.Fired != nil || r.Turned != nil && !r.Turned.Clocked || commitWork(r)
	case rowspb.Phase_PHASE_COMMITTED:
		if child(r) {
			return keeps(r) && (r.Turned != nil && !r.Turned.Clocked || commitWork(r))
		}
		return !r.Retired
	case rowspb.Phase_PHASE_UNWINDING:
		return len(r.Parked) > 0 || len(r.Reported) > 0 || len(r.Duplicated) > 0 ||
			len(r.Ready) > 0 && r.InFlight < concurrency(r) ||
			rewound(r) || endOf(r) != pb.PlanEnd_PLAN_END_UNSPECIFIED || stuck(r)
	default:
		return false
	}
}

// concurrencyDefault is how many compensations of one plan are in flight at once.
const concurrencyDefault = 8

func concurrency(r *rowspb.PlanRow) uint32 {
	if r.Declared != nil && r.Declared.Concurrency > 0 {
		return r.Declared.Concurrency
	}
	return concurrencyDefault
}

// idle reports whether an unwind has nothing under way.
func idle(r *rowspb.PlanRow) bool {
	return len(r.Ready) == 0 && len(r.Parked) == 0 && len(r.Duplicated) == 0 &&
		r.InFlight == 0 && len(r.Settling) == 0
}

// stuck reports what must never be: a plan that owes an undo which nothing blocks,
// with no command out (S26).
func stuck(r *rowspb.PlanRow) bool {
	return idle(r) && len(r.Reported) == 0 && !rewound(r) && r.Unsettled > 0 &&
		endOf(r) == pb.PlanEnd_PLAN_END_UNSPECIFIED
}

// endOf says how an unwinding plan ends as it stands, or UNSPECIFIED while
// something is still to be done. It never says compensated while anything is
// owed (S41, S48, I22, I23).
func endOf(r *rowspb.PlanRow) pb.PlanEnd {
	switch {
	case r.Phase != rowspb.Phase_PHASE_UNWINDING:
		return pb.PlanEnd_PLAN_END_UNSPECIFIED
	case !idle(r):
		return pb.PlanEnd_PLAN_END_UNSPECIFIED
	case r.Quarantined > 0 || orphaned(r):
		return pb.PlanEnd_PLAN_END_QUARANTINED
	case r.Rewinding:
		return pb.PlanEnd_PLAN_END_UNSPECIFIED
	case r.ByHand:
		return pb.PlanEnd_PLAN_END_RESOLVED
	case r.Unsettled > 0:
		return pb.PlanEnd_PLAN_END_UNSPECIFIED // impossible; Decide says so
	case r.InScope == 0:
		return pb.PlanEnd_PLAN_END_FAILED
	default:
		return pb.PlanEnd_PLAN_END_COMPENSATED
	}
}
