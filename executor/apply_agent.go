package executor

import (
	"bytes"
	"unicode/utf8"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// applyAgent folds what a coordinator wrote, in life-cycle order.
func (s *State) applyAgent(e ledger.Entry) Result {
	r := e.Record
	if opened, ok := r.Kind.(*pb.Record_PlanOpened); ok {
		return s.planOpened(e, opened.PlanOpened)
	}
	p := s.plan(r.Plan)
	if p == nil {
		switch r.Kind.(type) {
		case *pb.Record_ForwardRegistered, *pb.Record_ForwardCompleted, *pb.Record_ForwardInDoubt:
		default:
			return refused("plan %s was never opened", r.Plan)
		}
		// The forward may be crossing the boundary by now, or has: its undo must not be lost.
		p = s.openPlan(e, &pb.PlanOpened{})
		p.row.Implicit = true
	}
	if p.row.Agent != e.Source.Name {
		return refused("plan %s belongs to agent %s", p.id, p.row.Agent)
	}
	if _, ok := r.Kind.(*pb.Record_PlanResumed); ok {
		return s.planResumed(e, p)
	}
	if result := s.mayWrite(p, r); result.Verdict != Effective {
		if _, failed := r.Kind.(*pb.Record_ForwardFailed); failed && s.withdraw(p, r) {
			return effective
		}
		return result
	}
	p.row.LastNs = max(p.row.LastNs, e.StampNs)
	s.touch(p)
	switch k := r.Kind.(type) {
	case *pb.Record_ForwardRegistered:
		return s.forwardRegistered(e, p, k.ForwardRegistered)
	case *pb.Record_CompensationRegistered:
		return s.compensationRegistered(e, p, k.CompensationRegistered)
	case *pb.Record_ForwardCompleted, *pb.Record_ForwardFailed, *pb.Record_ForwardInDoubt:
		return s.outcome(e, p)
	case *pb.Record_SavepointSet:
		return s.savepointSet(e, p, k.SavepointSet)
	case *pb.Record_PlanCommitted:
		return s.planCommitted(e, p)
	case *pb.Record_PlanFailed:
		return s.signal(e, p, rowspb.Signal_SIGNAL_FAILED, k.PlanFailed.Reason, "")
	case *pb.Record_PlanCancelled:
		return s.signal(e, p, rowspb.Signal_SIGNAL_CANCELLED, k.PlanCancelled.Reason, "")
	case *pb.Record_UnwindRequested:
		return s.unwindRequested(e, p, k.UnwindRequested)
	default:
		panic("executor: unknown agent record " + ledger.KindOf(r).Name)
	}
}

func (s *State) planOpened(e ledger.Entry, declared *pb.PlanOpened) Result {
	if p := s.plan(e.Record.Plan); p != nil {
		if unopened(p.row) {
			return refused("plan %s has failed: its opening was refused at %s; want another ID", p.id,
				ledger.FormatAddress(p.row.Opened))
		}
		if p.row.Agent == e.Source.Name && p.row.Opener == e.Record.Writer &&
			bytes.Equal(rows.Encode(p.row.Declared), rows.Encode(declared)) {
			return repeated
		}
		return refused("plan %s was opened before, by agent %s at %s", p.id, p.row.Agent,
			ledger.FormatAddress(p.row.Opened))
	}
	if err := pastDeadline(declared, min(e.StampNs, s.beforeNs)); err != nil {
		return Result{Refused, err.Error()}
	}
	s.openPlan(e, declared)
	return effective
}

func (s *State) openPlan(e ledger.Entry, declared *pb.PlanOpened) *plan {
	p := s.addPlan(e.Record.Plan, &rowspb.PlanRow{
		Agent: e.Source.Name, Opened: e.Address, OpenedNs: s.meta.TimeNs, LastNs: e.StampNs,
		Declared: declared, Phase: rowspb.Phase_PHASE_OPEN, Writer: e.Record.Writer,
		Opener: e.Record.Writer,
	})
	s.meta.Open++
	s.armPlan(p, e.Address)
	if declared.ParentPlan != "" {
		s.attach(e, p)
	}
	return p
}

// reasonUnopened is why a plan whose opening was refused has failed. Its refusals say more.
const reasonUnopened = "its opening was refused"

// openRefused opens a plan whose own opening was refused, and fails it at once, as attach
// does. Its agent may have called forwards by now, and goes on under the plan's ID: without
// this the first pair would open the plan, with no deadline and no owner.
func (s *State) openRefused(e ledger.Entry) {
	declared := e.Record.GetPlanOpened()
	if declared == nil || e.Source.Class != ledger.ClassAgent || !opensHere(e) ||
		s.plan(e.Record.Plan) != nil {
		return
	}
	p := s.openPlan(e, &pb.PlanOpened{
		Label: usableText(declared.Label), Owner: usableText(declared.Owner),
		SecondApprover: declared.SecondApprover,
	})
	s.signal(e, p, rowspb.Signal_SIGNAL_FAILED, reasonUnopened, "")
}

// unopened reports whether the opening of a plan was refused. No agent can set the two
// together: its own words come in records of their own.
func unopened(r *rowspb.PlanRow) bool {
	return r.Reason == reasonUnopened && sameAddress(r.Signalled, r.Opened)
}

// opensHere reports whether an agent may open the plan that a record names, on the subject
// of the record.
func opensHere(e ledger.Entry) bool {
	plan, writer := e.Record.Plan, e.Record.Writer
	on := e.Source.Plan == plan || e.Source.Plan == ledger.ManyPlans
	return on && plan != ledger.ManyPlans && ledger.ValidToken(plan) &&
		(writer == "" || ledger.ValidToken(writer))
}

// usableText is a text of a declaration that was refused, or "" if a limit refuses it.
func usableText(s string) string {
	if len(s) > ledger.TextMax || !utf8.ValidString(s) {
		return ""
	}
	return s
}

func (s *State) forwardRegistered(e ledger.Entry, p *plan, f *pb.ForwardRegistered) Result {
	r := e.Record
	if n := s.number(p.id, r.Action); n != 0 {
		input := s.payload(rows.Action{Plan: p.id, N: n}).Input
		if bytes.Equal(rows.Encode(s.action(p.id, n).fixed.Forward), rows.Encode(f)) &&
			bytes.Equal(input, r.Payload.GetInput()) {
			return repeated
		}
		return refused("action %s was registered before, differently, at %s", r.Action,
			ledger.FormatAddress(s.action(p.id, n).fixed.Registered))
	}
	if !takesActions(p.row) {
		return s.lateForward(e, p)
	}
	before, missing := s.predecessors(p, f)
	if missing != "" {
		return refused("after: action %s is not registered in plan %s", missing, p.id)
	}
	s.adopt(p, e, f)
	fixed := &rowspb.ActionStatic{Id: r.Action, Registered: e.Address, AtNs: s.meta.TimeNs, Forward: f,
		Before: before}
	if r.Writer != p.row.Opener {
		fixed.Writer = r.Writer
	}
	a := s.enlist(p, fixed, &rowspb.ActionRow{})
	if input := r.Payload.GetInput(); len(input) > 0 {
		rows.Payloads.Set(s.tx, a.id, &pb.Payload{Input: input})
	}
	s.evaluateCounting(p, e.Address)
	if p.row.Phase != rowspb.Phase_PHASE_OPEN {
		s.joinUnwind(p, a)
	}
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
func (s *State) lateForward(e ledger.Entry, p *plan) Result {
	result := refused("plan %s has ended (%s)", p.id, stateName(p.row))
	s.notices = append(s.notices, Notice{Plan: p.id, Agent: p.row.Agent, State: stateName(p.row),
		Reason: "an action came after its end"})
	return result
}

// predecessors resolves after; by default an action comes after the one
// registered before it.
func (s *State) predecessors(p *plan, f *pb.ForwardRegistered) (before []uint32, missing string) {
	if !f.Branch {
		before = s.latest(p)
	}
	for _, id := range f.After {
		n := s.number(p.id, id)
		if n == 0 {
			return nil, id
		}
		before = insert(before, n)
	}
	return before, ""
}

// latest are the actions that the next one comes after by default: the one registered
// last, and the duties that have come since, which stand beside others.
func (s *State) latest(p *plan) (before []uint32) {
	for n := p.row.Actions; n > 0; n-- {
		before = insert(before, n)
		if s.action(p.id, n).fixed.DutyOf == 0 {
			break
		}
	}
	return before
}

func (s *State) compensationRegistered(e ledger.Entry, p *plan,
	c *pb.CompensationRegistered) Result {
	a := s.byName(p.id, e.Record.Action)
	if a == nil {
		return refused("its forward_registered was refused, or does not stand before it")
	}
	if a.fixed.Compensation != nil {
		if bytes.Equal(rows.Encode(a.fixed.Compensation), rows.Encode(c)) {
			return repeated
		}
		return refused("action %s has a registered compensation that differs", e.Record.Action)
	}
	if a.fixed.Registered.Sequence != e.Address.Sequence {
		return refused("action %s was registered without it, at %s", e.Record.Action,
			ledger.FormatAddress(a.fixed.Registered))
	}
	a.fixed = &rowspb.ActionStatic{
		Id: a.fixed.Id, Registered: a.fixed.Registered, AtNs: a.fixed.AtNs,
		Forward: a.fixed.Forward, Compensation: c, Before: a.fixed.Before, Writer: a.fixed.Writer,
	}
	a.begun = true
	s.change(a)
	if before := e.Record.Payload.GetBefore(); len(before) > 0 {
		key := rows.Payloads.Key(a.id)
		payload := s.payloadAt(key)
		payload.Before = before
		rows.Payloads.SetKey(s.tx, key, payload)
	}
	s.windowOf(p, a)
	s.reconsider(p, a)
	s.armAction(p, a, e.Address)
	return effective
}

// outcome folds what became of a forward. The first definite outcome stands; in
// doubt may still become known, and a completion is believed even after a failure:
// of two words, the one that owes more.
func (s *State) outcome(e ledger.Entry, p *plan) Result {
	a := s.byName(p.id, e.Record.Action)
	if a == nil {
		if _, failed := e.Record.Kind.(*pb.Record_ForwardFailed); failed && s.withdraw(p, e.Record) {
			return effective
		}
		return refused("action %s is not registered in plan %s", e.Record.Action, p.id)
	}
	return s.outcomeOf(e, p, a)
}

// outcomeOf folds what became of a forward into an action of it: the one that was
// registered, or the duty for a doubt about it.
func (s *State) outcomeOf(e ledger.Entry, p *plan, a *action) Result {
	now, failure := rowspb.Outcome_OUTCOME_COMPLETED, ""
	switch k := e.Record.Kind.(type) {
	case *pb.Record_ForwardFailed:
		now, failure = rowspb.Outcome_OUTCOME_FAILED,
			joinText(k.ForwardFailed.Code, k.ForwardFailed.Message)
	case *pb.Record_ForwardInDoubt:
		now, failure = rowspb.Outcome_OUTCOME_IN_DOUBT,
			joinText(k.ForwardInDoubt.Code, k.ForwardInDoubt.Message)
	}
	switch a.row.Outcome {
	case now:
		if !s.sameOutcome(a, e.Record, failure) {
			return refused("action %s is already %s, with another result", a.fixed.Id, outcomeName(now))
		}
		return repeated
	case rowspb.Outcome_OUTCOME_COMPLETED:
		return refused("the outcome of action %s is already completed", a.fixed.Id)
	case rowspb.Outcome_OUTCOME_FAILED:
		if now != rowspb.Outcome_OUTCOME_COMPLETED {
			return refused("the outcome of action %s is already failed", a.fixed.Id)
		}
	}
	a.row.Outcome, a.row.Failure, a.row.OutcomeAt, a.row.OutcomeNs = now, failure, e.Address,
		s.meta.TimeNs
	if k, ok := e.Record.Kind.(*pb.Record_ForwardCompleted); ok {
		a.row.ExternalRef, a.row.LiftedOutput = k.ForwardCompleted.ExternalRef, k.ForwardCompleted.Lifted
		a.row.OutputIncomplete = k.ForwardCompleted.OutputIncomplete
		s.keepOutput(a, e.Record.Payload.GetOutput())
	}
	if now == rowspb.Outcome_OUTCOME_IN_DOUBT && a.row.Asking == pb.Question_QUESTION_EFFECT {
		// before its caller gave up, whatever the clocks say
		a.row.AskedNs = min(a.row.AskedNs, s.meta.TimeNs-1)
	}
	s.change(a)
	switch now {
	case rowspb.Outcome_OUTCOME_COMPLETED:
		s.windowOf(p, a)
		s.completedLate(e, p, a)
	case rowspb.Outcome_OUTCOME_FAILED:
		s.failedLate(p, a)
	case rowspb.Outcome_OUTCOME_IN_DOUBT:
		s.doubtedLate(e, p, a)
	}
	s.reconsider(p, a)
	s.knownSince(p, a)
	s.tellDoubted(e, p, a)
	s.evaluateAction(p, a, e.Address)
	if p.row.UndoneAs != "" && a.fixed.DutyOf == 0 { // what undoes a committed plan must know, too
		s.outcome(e, s.plan(p.row.UndoneAs))
	}
	return effective
}

// sameOutcome reports whether r says what is known of a, whose outcome has the
// kind of r.
func (s *State) sameOutcome(a *action, r *pb.Record, failure string) bool {
	k, ok := r.Kind.(*pb.Record_ForwardCompleted)
	if !ok {
		return a.row.Failure == failure
	}
	output := s.payload(a.id).Output
	return a.row.ExternalRef == k.ForwardCompleted.ExternalRef &&
		a.row.OutputIncomplete == k.ForwardCompleted.OutputIncomplete &&
		bytes.Equal(a.row.LiftedOutput, k.ForwardCompleted.Lifted) &&
		bytes.Equal(output, r.Payload.GetOutput())
}

func (s *State) keepOutput(a *action, output []byte) {
	if len(output) == 0 {
		return
	}
	key := rows.Payloads.Key(a.id)
	payload := s.payloadAt(key)
	payload.Output = output
	rows.Payloads.SetKey(s.tx, key, payload)
	a.row.HasOutput = bindable(output)
}

// planCommitted retires the whole held set at once (S62), if the plan is still
// open where the record lands.
func (s *State) planCommitted(e ledger.Entry, p *plan) Result {
	switch {
	case p.row.Committed != nil:
		return repeated
	case p.row.Phase != rowspb.Phase_PHASE_OPEN:
		return refused("plan %s is %s: it was not open any more when the commit landed", p.id,
			stateName(p.row))
	case p.row.Signal != rowspb.Signal_SIGNAL_NONE || p.row.Fired != nil:
		return refused("plan %s was declared %s before the commit landed", p.id, statusName(p.row))
	case p.row.Turned != nil && !p.row.Turned.Clocked:
		return turnedBefore(p)
	case p.row.OpenChildren > 0:
		return refused("plan %s has %d child plans that are neither committed nor undone", p.id,
			p.row.OpenChildren)
	case s.orphanedBelow(p) != "":
		return refused("plan %s has acts that were claimed by records which were refused, and may have "+
			"happened: %s; their owner says what became of them", p.id, s.orphanedBelow(p))
	case child(p.row) && s.root(p).row.Phase != rowspb.Phase_PHASE_OPEN:
		root := s.root(p)
		return refused("plan %s is %s, and plan %s is a part of it", root.id, stateName(root.row), p.id)
	}
	var late *plan
	s.descendants(p, func(c *plan) bool {
		if keeps(c.row) && c.row.Turned != nil && !c.row.Turned.Clocked {
			late = c
		}
		return late == nil
	})
	if late != nil {
		return turnedBefore(late)
	}
	switch {
	case child(p.row):
		s.childCommitted(e, p)
	case s.mustSettle(p):
		s.commitLater(e, p)
	default:
		p.row.Committed = e.Address
		s.commitRoot(p)
	}
	return effective
}

// childCommitted closes a child for its agent, which is told now. The commit of its root
// retires it; until then the leases of its actions are held on.
func (s *State) childCommitted(e ledger.Entry, p *plan) {
	if p.row.Turned.GetAction() == 0 {
		s.nextTurn(p, func(t *rowspb.Turned) bool { return t.Action != 0 })
	}
	p.row.Committed, p.row.EndedNs = e.Address, s.meta.TimeNs
	s.disarmPlan(p)
	s.phase(p, rowspb.Phase_PHASE_COMMITTED)
	s.evaluateActions(p, p.row.Watchers, e.Address)
	s.notices = append(s.notices, Notice{Plan: p.id, Agent: p.row.Agent, State: ledger.StateCommitted})
}

func turnedBefore(p *plan) Result {
	return refused("lease %s of plan %s turned true at %s, before the commit landed",
		p.row.Turned.Lease, p.id, ledger.FormatAddress(p.row.Turned.At))
}
