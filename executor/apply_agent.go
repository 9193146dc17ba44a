package executor

import (
	"bytes"
	"cmp"

	"github.com/sagenbaum/sagenbaum/executor/arguments"
	"github.com/sagenbaum/sagenbaum/executor/deadlines"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/writers"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// applyAgent folds what a coordinator wrote, in life-cycle order.
func (s *fold) applyAgent() Result {
	r := s.e.Record
	if opened, ok := r.Kind.(*pb.Record_PlanOpened); ok {
		return s.planOpened(opened.PlanOpened)
	}
	p, away := s.plan(r.Plan), s.turnsAway()
	if p == nil {
		switch r.Kind.(type) {
		case *pb.Record_ForwardRegistered, *pb.Record_ForwardCompleted, *pb.Record_ForwardInDoubt:
		default:
			return refused("plan %s was never opened", r.Plan)
		}
		// The forward may be crossing the boundary by now, or has: its undo must not be lost.
		away = s.turnsPlanAway()
		p = s.openPlan(&pb.PlanOpened{})
		p.row.Implicit = true
		if s.meta.HolderFold >= ledger.BoundedSince {
			s.failAway(p, away)
		}
	}
	if !writers.Had(p.row, s.e.Source.Name) {
		return refused("plan %s belongs to agent %s", p.id, p.row.Agent)
	}
	if r.GetPlanResumed() != nil && p.row.Agent == s.e.Source.Name {
		return planResumed(s, p)
	}
	if why := mayNotWrite(s, p); why != "" {
		if r.GetForwardFailed() != nil && p.withdraw(r, nameOf(s, p)) {
			return effective
		}
		return refused("%s", why)
	}
	p.row.LastNs = max(p.row.LastNs, s.e.StampNs)
	p.touch()
	switch k := r.Kind.(type) {
	case *pb.Record_ForwardRegistered:
		return s.forwardRegistered(p, k.ForwardRegistered, away)
	case *pb.Record_CompensationRegistered:
		return s.compensationRegistered(p, k.CompensationRegistered)
	case *pb.Record_ForwardCompleted, *pb.Record_ForwardFailed, *pb.Record_ForwardInDoubt:
		return s.outcome(p)
	case *pb.Record_SavepointSet:
		return s.savepointSet(p, k.SavepointSet)
	case *pb.Record_PlanCommitted:
		return s.planCommitted(p, k.PlanCommitted)
	case *pb.Record_PlanFailed:
		return s.signal(p, rowspb.Signal_SIGNAL_FAILED, k.PlanFailed.Reason, back{})
	case *pb.Record_PlanCancelled:
		return s.signal(p, rowspb.Signal_SIGNAL_CANCELLED, k.PlanCancelled.Reason, back{})
	case *pb.Record_UnwindRequested:
		return s.unwindRequested(p, k.UnwindRequested)
	case *pb.Record_DeadlineMoved:
		return deadlineMoved(s, p, k.DeadlineMoved)
	default:
		panic("executor: unknown agent record " + ledger.KindOf(r).Name)
	}
}

func (s *fold) planOpened(declared *pb.PlanOpened) Result {
	if p := s.plan(s.e.Record.Plan); p != nil {
		if unopened(p.row) {
			return refused("plan %s has failed: its opening was refused at %s; want another ID", p.id,
				ledger.FormatAddress(p.row.Opened))
		}
		if writers.First(p.row) == s.e.Source.Name && p.row.Opener == s.e.Record.Writer &&
			bytes.Equal(rows.Encode(p.row.Declared), rows.Encode(declared)) &&
			bytes.Equal(inputOf(p), s.planInput()) {
			return repeated
		}
		return refused("plan %s was opened before, by agent %s at %s", p.id,
			writers.First(p.row),
			ledger.FormatAddress(p.row.Opened))
	}
	if err := cmp.Or(deadlines.Passed(declared, min(s.e.StampNs, s.beforeNs)),
		ledger.CheckPlanInput(s.planInput())); err != nil {
		return Result{Refused, err.Error()}
	}
	if err := cmp.Or(s.turnsPlanAway(), s.turnsConditionsAway(declared.Triggers)); err != nil {
		return Result{Refused, err.Error()}
	}
	s.openPlan(declared)
	return effective
}

func (s *fold) openPlan(declared *pb.PlanOpened) *plan {
	p := s.addPlan(s.e.Record.Plan, &rowspb.PlanRow{
		Agent: s.e.Source.Name, Opened: s.e.Address, OpenedNs: s.meta.TimeNs, LastNs: s.e.StampNs,
		ActiveNs: s.meta.TimeNs, Declared: declared, Phase: rowspb.Phase_PHASE_OPEN,
		Writer: s.e.Record.Writer, Opener: s.e.Record.Writer, LastGoes: s.lastGoes(declared),
	})
	if input := s.planInput(); s.e.Record.GetPlanOpened() != nil && len(input) > 0 {
		rows.Payloads.Set(s.tx, rows.Action{Plan: p.id}, &pb.Payload{Input: input})
	}
	s.meta.Open++
	p.row.Moved = deadlines.Default(declared, s.meta)
	p.armPlan(s.e.Address)
	if declared.ParentPlan != "" {
		s.attach(p)
	}
	return p
}

// forwardRegistered takes the first half of a pair. away is why the tenant takes nothing new.
func (s *fold) forwardRegistered(p *plan, f *pb.ForwardRegistered, away error) Result {
	r := s.e.Record
	if n := s.number(p.id, r.Action); n != 0 {
		input := p.action(n).payload().Input
		if bytes.Equal(rows.Encode(p.action(n).fixed.Forward), rows.Encode(f)) &&
			bytes.Equal(input, r.Payload.GetInput()) {
			return repeated
		}
		return refused("action %s was registered before, differently, at %s", r.Action,
			ledger.FormatAddress(p.action(n).fixed.Registered))
	}
	if !takesActions(p.row) {
		return s.lateForward(p)
	}
	before, why := p.predecessors(f)
	if why != "" {
		return refused("after: %s", why)
	}
	s.adopt(p, f)
	fixed := &rowspb.ActionStatic{Id: r.Action, Registered: s.e.Address, AtNs: s.meta.TimeNs,
		Forward: f,
		Before:  before}
	if name := nameOf(s, p); name != p.row.Opener {
		fixed.Writer = name
	}
	a := p.enlist(fixed, &rowspb.ActionRow{})
	if input := r.Payload.GetInput(); len(input) > 0 {
		a.setPayload(&pb.Payload{Input: input})
	}
	p.evaluateReading(s.Counts, p.row.Counting, s.e.Address)
	if p.row.Phase != rowspb.Phase_PHASE_OPEN {
		a.joinUnwind()
	}
	s.failAway(p, away)
	return effective
}

// takesActions reports whether a pair may still join: while open, and also when
// the plan unwinds or has unwound, because a forward that is on its way must be
// undone like the others (failure model: late pair after unwind began).
func takesActions(r *rowspb.PlanRow) bool {
	switch r.Phase {
	case rowspb.Phase_PHASE_COMMITTED, rowspb.Phase_PHASE_COMMITTING, rowspb.Phase_PHASE_RESOLVED:
		return false
	default:
		return true
	}
}

// lateForward remembers an act that its agent began after the plan's end.
func (s *fold) lateForward(p *plan) Result {
	result := refused("plan %s has ended (%s)", p.id, stateName(p.row))
	s.notices = append(s.notices, Notice{Plan: p.id, Agent: p.row.Agent, State: stateName(p.row),
		Reason: "an action came after its end"})
	return result
}

// predecessors resolves after; by default an action comes after the one registered before it. Only
// what is staged comes after what is staged, which happens when all else is done.
func (p *plan) predecessors(f *pb.ForwardRegistered) (before []uint32, why string) {
	if !f.Branch {
		before = p.latest(f.Deliver != nil)
	}
	for _, id := range f.After {
		n := p.s.number(p.id, id)
		switch {
		case n == 0:
			return nil, "action " + id + " is not registered in plan " + p.id
		case f.Deliver == nil && staged(p.action(n)):
			return nil, "action " + id + " is staged: it happens when plan " + p.id + " is committed"
		}
		before = rows.Insert(before, n)
	}
	return before, ""
}

func (s *fold) compensationRegistered(p *plan,
	c *pb.CompensationRegistered) Result {
	a := s.byName(p.id, s.e.Record.Action)
	if a == nil {
		return refused("its forward_registered was refused, or does not stand before it")
	}
	if a.fixed.Compensation != nil {
		if bytes.Equal(rows.Encode(a.fixed.Compensation), rows.Encode(c)) {
			return repeated
		}
		return refused("action %s has a registered compensation that differs", s.e.Record.Action)
	}
	if a.fixed.Registered.Sequence != s.e.Address.Sequence {
		return refused("action %s was registered without it, at %s", s.e.Record.Action,
			ledger.FormatAddress(a.fixed.Registered))
	}
	a.fixed = &rowspb.ActionStatic{
		Id: a.fixed.Id, Registered: a.fixed.Registered, AtNs: a.fixed.AtNs,
		Forward: a.fixed.Forward, Compensation: c, Before: a.fixed.Before, Writer: a.fixed.Writer,
	}
	a.begun = true
	a.change()
	if before := s.e.Record.Payload.GetBefore(); len(before) > 0 {
		payload := rows.ClonePayload(a.payload())
		payload.Before = before
		a.setPayload(payload)
	}
	freezeFacts(a)
	a.windowOf()
	a.reconsider()
	askLater(a)
	wantVerdict(a)
	away := s.turnsConditionsAway(c.Triggers)
	a.armAction(s.e.Address)
	s.failAway(p, away)
	return effective
}

// outcome folds what became of a forward. The first definite outcome counts; in
// doubt may still become known, and after a failure a completion is believed, and the doubt of a
// process that may have called it again: of two words, the one that owes more.
func (s *fold) outcome(p *plan) Result {
	a := s.byName(p.id, s.e.Record.Action)
	if a == nil {
		if s.e.Record.GetForwardFailed() != nil && p.withdraw(s.e.Record, nameOf(s, p)) {
			return effective
		}
		return refused("action %s is not registered in plan %s", s.e.Record.Action, p.id)
	}
	if staged(a) {
		return refused("action %s is staged: it happens when plan %s is committed, and its agent has no "+
			"word on it", a.fixed.Id, p.id)
	}
	return s.about(a).outcomeOf()
}

// outcomeOf folds what became of a forward into an action of it: the one that was
// registered, or the duty for a doubt about it.
func (s about) outcomeOf() Result {
	a := s.a
	now, failure, though := s.outcomeSaid()
	switch extra := s.meta.HolderFold >= ledger.EffectsSince &&
		isOwed(a, s.e.Record.GetForwardCompleted().GetExternalRef()) != ""; {
	case staysOut(a):
		return repeated // the plan that it is committed with has the word
	case a.row.Told:
		return s.ownWord()
	case extra:
		return s.outcomeOfExtra()
	}
	switch a.row.Outcome {
	case now:
		switch same := a.sameOutcome(s.e.Record, failure); {
		case same:
			return repeated
		case !though:
			return refused("action %s is already %s, with another result", a.fixed.Id, outcomeName(now))
		}
	case rowspb.Outcome_OUTCOME_COMPLETED:
		return refused("the outcome of action %s is already completed", a.fixed.Id)
	case rowspb.Outcome_OUTCOME_FAILED:
		if now == rowspb.Outcome_OUTCOME_IN_DOUBT && !s.calledAgain() {
			return refused("the outcome of action %s is already failed", a.fixed.Id)
		}
	}
	a.row.Outcome, a.row.Failure, a.row.OutcomeAt, a.row.OutcomeNs = now, failure, s.e.Address,
		s.meta.TimeNs
	other, seen := otherThanSeen(a, s.e.Record), namedOtherwise(a, s.e.Record)
	if k, ok := s.e.Record.Kind.(*pb.Record_ForwardCompleted); ok && !other {
		a.says(k.ForwardCompleted)
		a.keepOutput(s.e.Record.Payload.GetOutput())
	}
	if now == rowspb.Outcome_OUTCOME_IN_DOUBT && a.row.Asking == pb.Question_QUESTION_EFFECT {
		// before its caller gave up, whatever the clocks say
		a.row.AskedNs = min(a.row.AskedNs, s.meta.TimeNs-1)
	}
	a.change()
	switch {
	case though:
		s.failedThough()
	case now == rowspb.Outcome_OUTCOME_COMPLETED:
		a.windowOf()
		s.completedLate(other)
		s.beside(seen)
	case now == rowspb.Outcome_OUTCOME_FAILED:
		a.failedLate()
	default:
		s.doubtedLate()
	}
	a.reconsider()
	a.knownSince()
	askLater(a)
	wantVerdict(a)
	s.tellDoubted()
	a.evaluateAction(s.e.Address)
	if now == rowspb.Outcome_OUTCOME_FAILED {
		releaseOf(a)
	}
	s.tellUndoer()
	return effective
}

// outcomeSaid is the outcome that a record tells, and why. A failure of what is there is a doubt;
// though says so.
func (s about) outcomeSaid() (now rowspb.Outcome, failure string, though bool) {
	switch k := s.e.Record.Kind.(type) {
	case *pb.Record_ForwardFailed:
		failure = joinText(k.ForwardFailed.Code, k.ForwardFailed.Message)
		if isThere(s.a) {
			return rowspb.Outcome_OUTCOME_IN_DOUBT, failure, true
		}
		return rowspb.Outcome_OUTCOME_FAILED, failure, false
	case *pb.Record_ForwardInDoubt:
		failure = joinText(k.ForwardInDoubt.Code, k.ForwardInDoubt.Message)
		return rowspb.Outcome_OUTCOME_IN_DOUBT, failure, false
	}
	return rowspb.Outcome_OUTCOME_COMPLETED, "", false
}

// isThere reports whether someone has found the effect of an action, and it was neither undone nor
// found gone since: it counts as there, whatever is said of its forward. By the rules of before
// ThereSince, its agent could still say that it had never happened.
func isThere(a *action) bool {
	seen := a.row.There || a.row.Presence == pb.Presence_PRESENCE_PRESENT ||
		a.row.Presence == pb.Presence_PRESENCE_DUPLICATE
	over := a.row.Undo == rowspb.Undo_UNDO_COMPENSATED || a.row.Undo == rowspb.Undo_UNDO_RESOLVED
	return seen && !over && a.plan.s.meta.HolderFold >= ledger.ThereSince
}

// sighted notes that the effect of an action was found there, or gone. What was found there has not
// failed, whatever its agent has said before.
func sighted(a *action, there bool) {
	if a.row.There = there; isThere(a) && a.row.Outcome == rowspb.Outcome_OUTCOME_FAILED {
		a.row.Outcome = rowspb.Outcome_OUTCOME_IN_DOUBT
	}
}

// noteThough is why the effect of a forward counts of which its agent says that it has failed.
const noteThough = "its agent says that it failed, but its effect was found: it is there"

// failedThough tells the agent that its word takes nothing away.
func (s about) failedThough() {
	if s.a.row.Undo == rowspb.Undo_UNDO_HELD {
		s.a.row.Note = noteThough
		s.tellPresence(presenceName(pb.Presence_PRESENCE_PRESENT), noteThough)
	}
}

// planCommitted retires the whole held set at once (S62), if the plan is still
// open where the record lands.
func (s *fold) planCommitted(p *plan, k *pb.PlanCommitted) Result {
	switch {
	case p.row.Committed != nil:
		return repeated
	case p.row.Phase != rowspb.Phase_PHASE_OPEN:
		return refused("plan %s is %s: it was not open any more when the commit landed", p.id,
			stateName(p.row))
	case p.row.Signal != rowspb.Signal_SIGNAL_NONE || p.row.Fired != nil:
		return refused("plan %s was declared %s before the commit landed", p.id, statusName(p.row))
	case k.Parts < p.row.Parts:
		return refused("plan_committed.parts: %d, and %d parts of plan %s were undone, the last %s: its "+
			"agent does not know of all", k.Parts, p.row.Parts, p.id, lastPart(p.row))
	case turnsByRecord(p.row):
		return turnedBefore(p)
	case p.row.OpenChildren > 0:
		return refused("plan %s has %d child plans that are neither committed nor undone", p.id,
			p.row.OpenChildren)
	case p.orphanedBelow() != "":
		return refused("plan %s has acts that were claimed by records which were refused, and may have "+
			"happened: %s; their owner says what became of them", p.id, p.orphanedBelow())
	case child(p.row) && p.root().row.Phase != rowspb.Phase_PHASE_OPEN:
		root := p.root()
		return refused("plan %s is %s, and plan %s is a part of it", root.id, stateName(root.row), p.id)
	}
	p.descendants(func(c *plan) bool { holdsAgain(s, c); return true })
	var late *plan
	p.descendants(func(c *plan) bool {
		if keeps(c.row) && turnsByRecord(c.row) {
			late = c
		}
		return late == nil
	})
	if late != nil {
		return turnedBefore(late)
	}
	switch {
	case child(p.row):
		s.childCommitted(p)
	case p.mustSettle():
		s.commitLater(p)
	default:
		p.row.Committed = s.e.Address
		p.commitRoot(s.e.Address)
	}
	return effective
}

// childCommitted closes a child for its agent, which is told now. The commit of its root
// retires it; until then the leases of its actions are held on.
func (s *fold) childCommitted(p *plan) {
	if p.row.Turned.GetAction() == 0 {
		p.nextTurn(func(t *rowspb.Turned) bool { return t.Action != 0 })
	}
	p.row.Committed, p.row.EndedNs = s.e.Address, s.meta.TimeNs
	stopAsking(p)
	p.disarmPlan()
	p.phase(rowspb.Phase_PHASE_COMMITTED)
	p.evaluateActions(p.row.Watchers, s.e.Address)
	s.notices = append(s.notices, Notice{Plan: p.id, Agent: p.row.Agent, State: ledger.StateCommitted})
}

// freezeFacts keeps the facts that the expressions of a registration read, as they are there.
func freezeFacts(a *action) {
	s, c := a.plan.s, a.fixed.Compensation
	if readers := s.ReadersOf("facts", s.meta.HolderFold, c,
		a.fixed.Forward.GetDeliver()); len(readers) > 0 {
		a.fixed.Facts, a.fixed.FactsLost = arguments.Freeze(readers, s.memory.Value)
	}
}

// tellUndoer tells what undoes a committed plan what has become known of a forward of it, too.
func (s about) tellUndoer() {
	if p := s.a.plan; p.row.UndoneAs != "" && s.a.fixed.DutyOf == 0 {
		s.outcome(s.plan(p.row.UndoneAs))
	}
}

// ownMax is how many duties an action may have for its agent's own word to be owed as one more:
// what operators have reported does not fill it, but by the rules of before SeenSince.
func ownMax(s *State) uint32 {
	if s.meta.HolderFold < ledger.SeenSince {
		return extrasMax
	}
	return 2 * extrasMax
}
