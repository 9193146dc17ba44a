package executor

import (
	"bytes"
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/ids"
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

// fold is one record that is being folded into a state.
type fold struct {
	*State
	e        ledger.Entry
	beforeNs int64 // logical time before it
	rate     error // why its writer may write nothing new in this second; nil: it may
}

func (s *State) folding(e ledger.Entry) *fold {
	s.current = fold{State: s, e: e, beforeNs: s.meta.TimeNs}
	return &s.current
}

// about is a record that is folded and the action that it is about.
type about struct {
	*fold
	a *action
}

func (s *fold) about(a *action) about { return about{s, a} }

// Apply folds one record. It is total: whatever the entry holds, the state
// goes on, and the result says what it was. Entries must come in the order of
// the ledger (invariant I1 is the host's to guard).
func (s *State) Apply(e ledger.Entry) Result {
	f := s.folding(e.Under(s.meta.HolderFold))
	f.advance()
	endLeases(f)
	result := f.applyEntry()
	switch result.Verdict {
	case Effective, Repeated:
	case Refused:
		s.meta.Refused++
		f.openRefused()
		f.noteOrphan(result.Reason)
		f.refuse(result)
	case Void:
		s.meta.Voided++
		f.refuse(result)
	default:
		panic("executor: unknown verdict")
	}
	s.current = fold{} // an idle tenant keeps no record
	return result
}

// advance moves cursor and logical time: the maximum of stamps and epochs so
// far (I8).
func (s *fold) advance() {
	s.meta.Applied = s.e.Address
	s.meta.AppliedCount = s.e.Count
	s.meta.StampNs = s.e.StampNs
	s.meta.Records++
	if s.later() {
		s.meta.TimeNs++
	}
	s.meta.TimeNs = max(s.meta.TimeNs, s.e.StampNs)
	if s.e.Source.Term {
		s.meta.Fence = s.e.Address.Sequence
	}
	if s.e.Err == nil && s.e.Record != nil && s.e.Source.Class == ledger.ClassExecutor &&
		s.e.Record.Term >= s.meta.Term {
		s.meta.TimeNs = max(s.meta.TimeNs, s.e.Record.EpochNs)
	}
}

// later reports whether a message begins that comes after the one before it, whatever the
// clocks say: its stamp is before logical time, which an epoch or a server's clock has moved
// ahead. All of them would share one instant otherwise. A fact comes later also than what has
// the same stamp.
func (s *fold) later() bool {
	early := s.e.StampNs < s.meta.TimeNs ||
		s.e.StampNs == s.meta.TimeNs && s.e.Source.Class == ledger.ClassFact
	return early && s.e.Address.GetIndex() == 0 && s.meta.TimeNs < epochMax &&
		s.meta.HolderFold >= ledger.LaterSince
}

func (s *fold) applyEntry() Result {
	s.rate = s.rated()
	if s.e.Err != nil && !(s.e.Partial && s.meta.HolderFold >= ledger.PartialSince) {
		return Result{Refused, s.e.Err.Error()}
	}
	class := s.e.Source.Class
	switch {
	case !ledger.TakesID(class):
		return s.applyRecord()
	case s.e.Record.Id == "":
		if err := ledger.NameRequired(s.tenant, s.meta.Tenant, s.e.Record, class); err != nil {
			return Result{Refused, err.Error()}
		}
		return s.applyRecord()
	}
	id, err := ledger.ParseRecordID(s.e.Record.Id)
	if err != nil {
		return Result{Refused, err.Error()}
	}
	return s.applyOnce(id)
}

// applyOnce folds a record that has an id, unless one of the same writer counted under it.
func (s *fold) applyOnce(id ledger.RecordID) Result {
	known, body := ids.Of(s.tx, s.e.Source), s.e.BodyDigest()
	switch row := known.Find(id); {
	case row != nil && bytes.Equal(row.Body, body):
		return repeated
	case row != nil:
		return refused("id: %d.%d has it, %s: want %s", row.Sequence, row.Index, ledger.IDTaken,
			ledger.IDWanted)
	case known.IsBefore(id):
		return refused("id: made before the %d that are kept, so that it may be a copy's: "+
			"want %s, made now", ledger.IDsKept, ledger.IDWanted)
	case id.Ms()-s.meta.TimeNs/1e6 > ledger.IDAheadMax.Milliseconds():
		return refused("id: made at %s, and the ledger's time is %s: want %s, made now",
			time.UnixMilli(id.Ms()).UTC().Format(time.RFC3339), instant(s.meta.TimeNs), ledger.IDWanted)
	}
	result := s.applyRecord()
	if result.Verdict == Effective {
		known.Keep(id, &rowspb.IdRow{Sequence: s.e.Address.Sequence, Index: s.e.Address.Index,
			Body: body}, ledger.IDsKept)
	}
	return result
}

func (s *fold) applyRecord() Result {
	if r := s.e.Record; r.GetPlan() != "" && r.GetPlanOpened() == nil {
		holdsAgain(s, s.plan(r.Plan))
	}
	switch s.e.Source.Class {
	case ledger.ClassAgent:
		if err := s.unusable(); err != nil {
			return Result{Refused, err.Error()}
		}
		return byAgent(s)
	case ledger.ClassFact:
		return s.applyFact()
	case ledger.ClassVerdict:
		return s.applyVerdict()
	case ledger.ClassOperator:
		return s.applyOperator()
	case ledger.ClassWorker:
		return s.applyWorker()
	case ledger.ClassExecutor:
		return s.applyExecutor()
	default:
		panic("executor: unknown subject class " + s.e.Source.Class.String())
	}
}

// refuse keeps the reason where people find it: by place and by plan.
func (s *fold) refuse(r Result) {
	row := &rowspb.RefusedRow{
		Reason: r.Reason, Subject: s.e.Source.Subject(), StampNs: s.e.StampNs, Voided: r.Verdict == Void,
	}
	if s.e.Record != nil {
		row.Kind = ledger.KindOf(s.e.Record).Name
	}
	row.Plan = planOf(s.e)
	rows.Refused.Set(s.tx, rows.At(s.e.Address), row)
	s.refusedTo = s.e.Address.Sequence
	if row.Plan != "" {
		rows.Refusals.Add(s.tx, rows.NamedPlace{Name: row.Plan, At: rows.At(s.e.Address)})
	}
	// A decision that lost is explained here and needs no further record; a
	// refused record of anybody else is answered in the ledger itself.
	// One answer per message is enough: whoever sends a thousand bad records must
	// not make the holder append a thousand.
	if r.Verdict == Refused && s.e.Source.Class != ledger.ClassExecutor &&
		s.answered != s.e.Address.Sequence {
		s.answered = s.e.Address.Sequence
		s.todo.Add(todoRefused + string(rows.At(s.e.Address).Bytes()))
	}
}

// MayRefuse reports whether a record of a message was refused, or void, as far as it is known
// without a look at the rows: false is exact.
func (r *Reading) MayRefuse(at uint64) bool { return at != 0 && at <= r.s.refusedTo }

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

// hasWork reports whether a plan needs a decision. What a committed tree has held and has turned
// waits for a part of it that is being undone; its retirement waits for nothing.
func (p *plan) hasWork() bool {
	r := p.row
	switch r.Phase {
	case rowspb.Phase_PHASE_OPEN:
		return r.Fired != nil || turnsByRecord(r)
	case rowspb.Phase_PHASE_COMMITTING:
		return r.Fired != nil || r.Turned != nil && !r.Turned.Clocked || commitWork(p)
	case rowspb.Phase_PHASE_COMMITTED:
		switch {
		case !child(r) && !r.Retired:
			return true
		case turnedSince(r):
			return !waitsForPart(p)
		}
		return keeps(r) && (r.Turned != nil && !r.Turned.Clocked || commitWork(p))
	case rowspb.Phase_PHASE_UNWINDING:
		return len(r.Parked) > 0 || len(r.Reported) > 0 || len(r.Duplicated) > 0 ||
			len(r.Ready) > 0 && r.InFlight < concurrency(r) ||
			rewound(r) || endOf(r) != pb.PlanEnd_PLAN_END_UNSPECIFIED || stuck(r)
	default:
		return false
	}
}

// turnsByRecord reports whether a lease of a plan has turned true, whatever the clock says.
func turnsByRecord(r *rowspb.PlanRow) bool {
	return r.Turned != nil && !r.Turned.Clocked || len(r.Duplicated) > 0
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

// endOf says how an unwinding plan ends by what its actions are, or UNSPECIFIED while
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
	case r.Delivers:
		return pb.PlanEnd_PLAN_END_DELIVERED
	default:
		return pb.PlanEnd_PLAN_END_COMPENSATED
	}
}

// stateName is the state of a plan as people read it.
func stateName(r *rowspb.PlanRow) string {
	switch {
	case r.Delivers && r.Phase == rowspb.Phase_PHASE_UNWINDING:
		return ledger.StateDelivering
	case r.Delivers && r.Phase == rowspb.Phase_PHASE_COMPENSATED:
		return ledger.StateDelivered
	}
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

// undoName is the undo of an action as people read it.
func (a *action) undoName() string { return undoOf(a.plan.row, a.row) }

func presenceName(p pb.Presence) string {
	return [...]string{"", "present", "absent", "duplicate"}[p]
}

func verdictName(v pb.VerdictOutcome) string {
	return [...]string{"", "allow", "block", "redirect"}[v]
}

func resolutionName(r pb.Resolution) string {
	return [...]string{"", "done", "lost", "accepted", "skipped"}[r]
}

func endName(e pb.PlanEnd) string {
	if e < 0 || int(e) > 5 {
		return "unknown"
	}
	return [...]string{"", ledger.StateCompensated, ledger.StateQuarantined, ledger.StateFailed,
		ledger.StateResolved, ledger.StateDelivered}[e]
}

// unusable says why a well-formed record of an agent can never do what it says, or nil.
func (s *fold) unusable() error {
	if err := s.outOfRange(); err != nil {
		return err
	}
	switch k := s.e.Record.Kind.(type) {
	case *pb.Record_PlanOpened:
		return s.Opening(k.PlanOpened, s.meta.HolderFold)
	case *pb.Record_ForwardRegistered:
		return s.Pair(k.ForwardRegistered, s.e.Pair.GetCompensationRegistered(), s.meta.HolderFold)
	case *pb.Record_CompensationRegistered:
		return s.Pair(s.e.Pair.GetForwardRegistered(), k.CompensationRegistered, s.meta.HolderFold)
	default:
		return nil
	}
}

// outOfRange refuses a duration or an instant that no one can keep, of the record or of the other
// half of its pair.
func (s *fold) outOfRange() error {
	if !s.readsExactly() {
		return nil
	}
	err := ledger.CheckSpans(s.e.Record)
	if err == nil && s.e.Pair != nil {
		err = ledger.CheckSpans(s.e.Pair)
	}
	return err
}

// What was given up by mistake.

// mistaken reports whether a part of a plan that is not committed was given up with a plan that it
// is no part of, as holders of before PartsSince did where a plan between the two was let go.
func mistaken(p *plan) bool {
	return p.row.Retired && child(p.row) && !committedRoot(p) &&
		p.s.meta.HolderFold >= ledger.PartsSince
}

// committedRoot reports whether the plan is committed that another one is committed with.
func committedRoot(p *plan) bool { return p.root().row.Phase == rowspb.Phase_PHASE_COMMITTED }

// holdsAgain takes back a part that was given up by mistake, before anything is made of what a
// record says of it, or of the commit of its root. What its conditions would have read meanwhile,
// they have not seen.
func holdsAgain(s *fold, p *plan) {
	if p != nil && mistaken(p) && s.meta.HolderFold >= ledger.TakenBackSince {
		takeBack(p)
		p.evaluateActions(p.row.Watchers, s.e.Address)
	}
}

// takeBack has a part hold its set again that was given up by mistake.
func takeBack(p *plan) {
	was := armed(p.row)
	p.row.Retired, p.row.EndedNs = false, 0
	p.s.meta.Held += uint64(p.registrations())
	turnsArmed(p, was)
	p.touch()
}

// notOpen says why a plan, or one that it is part of, does not stay open; what: is refused then.
func notOpen(p *plan, what string) string {
	above := notOpenAbove(p)
	switch {
	case p.row.Phase != rowspb.Phase_PHASE_OPEN || p.row.Signal != rowspb.Signal_SIGNAL_NONE:
		return "plan " + p.id + " is " + statusName(p.row) + ", and " + what
	case p.row.Fired != nil:
		return "plan " + p.id + " unwinds already for " + ledger.FormatAddress(p.row.Fired) + ", and " +
			what
	case above != nil:
		return "plan " + above.id + " is " + stateName(above.row) + ", and plan " + p.id +
			" is a part of it"
	}
	return ""
}
