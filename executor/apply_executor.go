package executor

import (
	"bytes"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// applyExecutor folds what a holder decided. Every record here is a claim: it
// counts only if the plan still allows it at this place in the log.
func (s *fold) applyExecutor() Result {
	r := s.e.Record
	if k, ok := r.Kind.(*pb.Record_TermStarted); ok {
		return s.termStarted(k.TermStarted)
	}
	if k, ok := r.Kind.(*pb.Record_LedgerRepaired); ok {
		return s.ledgerRepaired(k.LedgerRepaired)
	}
	if r.Term != s.meta.Term {
		return s.outOfTerm(r.Term)
	}
	if r.Folded != 0 && s.e.Address.Sequence != s.meta.Decided {
		if r.Folded < s.meta.Decided {
			return void("decided on what stood up to %d, and other decisions stand at %d since", r.Folded,
				s.meta.Decided)
		}
		s.meta.Decided = s.e.Address.Sequence
	}
	switch k := r.Kind.(type) {
	case *pb.Record_RecordRefused:
		s.todo.Remove(todoRefused + string(rows.Place{Sequence: k.RecordRefused.Sequence,
			Index: k.RecordRefused.Index}.Bytes()))
		return effective
	case *pb.Record_FactEvicted:
		return s.factEvicted(k.FactEvicted)
	case *pb.Record_FactReingested:
		return s.factReingested(k.FactReingested)
	case *pb.Record_CheckpointSigned:
		return s.checkpointSigned(k.CheckpointSigned)
	case *pb.Record_KeyRotated:
		return s.keyRotated(k.KeyRotated)
	case *pb.Record_TenantChanged:
		return s.tenantChanged(k.TenantChanged)
	}
	p := s.plan(r.Plan)
	if p == nil {
		return void("plan %s was never opened", r.Plan)
	}
	p.row.LastNs = max(p.row.LastNs, s.e.StampNs)
	p.touch()
	switch k := r.Kind.(type) {
	case *pb.Record_LeaseFired:
		return s.leaseFired(p, k.LeaseFired)
	case *pb.Record_UnwindStarted:
		return s.unwindStarted(p, k.UnwindStarted)
	case *pb.Record_HeldSetRetired:
		return s.heldSetRetired(p, k.HeldSetRetired)
	case *pb.Record_PlanEnded:
		return s.planEnded(p, k.PlanEnded)
	case *pb.Record_PlanRewound:
		return s.planRewound(p, k.PlanRewound)
	case *pb.Record_PlanErased:
		return s.planErased(p, k.PlanErased)
	case *pb.Record_OwnerPaged:
		return s.ownerPaged(p, k.OwnerPaged)
	case *pb.Record_CascadeCut:
		return s.cascadeCut(p, k.CascadeCut)
	}
	return s.applyAboutAction(p)
}

// applyAboutAction folds the records about one action; each names it by address.
func (s *fold) applyAboutAction(p *plan) Result {
	r := s.e.Record
	a := s.byName(p.id, r.Action)
	if a == nil {
		return void("action %s is not registered in plan %s", r.Action, p.id)
	}
	if !sameAddress(r.About, a.fixed.Registered) {
		return void("it names %s, but action %s was registered at %s", ledger.FormatAddress(r.About),
			r.Action, ledger.FormatAddress(a.fixed.Registered))
	}
	return s.about(a).apply()
}

// apply folds what an executor says about an action.
func (s about) apply() Result {
	r, p, a := s.e.Record, s.a.plan, s.a
	if k, ok := r.Kind.(*pb.Record_UndoWindowClosing); ok {
		return s.windowClosing(k.UndoWindowClosing)
	}
	if k := r.GetCompensationSucceeded(); k != nil && late(a, k.Attempt) {
		return s.doneLate(attemptEnd{state: "done", worker: k.Worker, code: k.Code,
			timing: k.Timing}, k.Attempt)
	}
	if k := r.GetProbeAnswered(); k != nil && asksOpenly(a) {
		return s.answeredOpenly(k)
	}
	if k := r.GetProbeAsked(); k != nil && p.row.Phase == rowspb.Phase_PHASE_OPEN {
		return s.askedOpenly(k)
	}
	if p.committing() {
		return s.applyToDoubt()
	}
	if p.row.Phase != rowspb.Phase_PHASE_UNWINDING {
		return void("plan %s is %s", p.id, statusName(p.row))
	}
	switch k := r.Kind.(type) {
	case *pb.Record_CompensationDispatched:
		return s.dispatched(k.CompensationDispatched)
	case *pb.Record_CompensationSucceeded:
		return s.succeeded(k.CompensationSucceeded)
	case *pb.Record_CompensationFailed:
		return s.failed(k.CompensationFailed)
	case *pb.Record_FactAsserted, *pb.Record_FactRetracted:
		return s.undoByFact()
	case *pb.Record_CompensationSkipped:
		return s.skipped(k.CompensationSkipped)
	case *pb.Record_ActionQuarantined:
		return s.quarantined(k.ActionQuarantined)
	case *pb.Record_ProbeAsked:
		return s.probeAsked(k.ProbeAsked)
	case *pb.Record_ProbeAnswered:
		return s.probeAnswered(k.ProbeAnswered)
	case *pb.Record_CommitWaits:
		return void("plan %s is %s, and no commit of it waits", p.id, statusName(p.row))
	default:
		panic("executor: unknown executor record " + ledger.KindOf(r).Name)
	}
}

// applyToDoubt folds what is decided about an action while a commit waits: its effect
// is asked about, and nothing is undone.
func (s about) applyToDoubt() Result {
	switch k := s.e.Record.Kind.(type) {
	case *pb.Record_ProbeAsked:
		if k.ProbeAsked.Question == pb.Question_QUESTION_EFFECT {
			return s.probeAsked(k.ProbeAsked)
		}
	case *pb.Record_ProbeAnswered:
		return s.probeAnswered(k.ProbeAnswered)
	case *pb.Record_CommitWaits:
		return s.commitWaits(k.CommitWaits)
	}
	return void("plan %s is %s", s.a.plan.id, ledger.StateCommitting)
}

func sameAddress(a, b *pb.Address) bool {
	return a.GetSequence() == b.GetSequence() && a.GetIndex() == b.GetIndex() &&
		bytes.Equal(a.GetLeaf(), b.GetLeaf())
}

// samePlace compares places only; a reference within one commit has no leaf yet.
func samePlace(ref *pb.Address, at *pb.Address, e ledger.Entry) bool {
	sequence := ref.GetSequence()
	if sequence == 0 {
		sequence = e.Address.Sequence
	}
	return ref != nil && at != nil && sequence == at.Sequence && ref.Index == at.Index
}

// termStarted takes the first record of a higher term; a holder of a lower one
// is fenced from here on (I26).
func (s *fold) termStarted(k *pb.TermStarted) Result {
	if s.e.Record.Term <= s.meta.Term {
		return s.outOfTerm(s.e.Record.Term)
	}
	s.meta.Term, s.meta.Holder, s.meta.TermSequence = s.e.Record.Term, k.Holder, s.e.Address.Sequence
	s.meta.HolderFold = k.FoldVersion
	if k.Tenant != nil {
		s.meta.Tenant = k.Tenant
	}
	return effective
}

// outOfTerm says why a holder's record of another term than the one that is under
// way does not count.
func (s *State) outOfTerm(term uint64) Result {
	switch {
	case s.meta.Term == 0:
		return void("term %d has not begun; none has", term)
	case term > s.meta.Term:
		return void("term %d has not begun: term %d is %s's", term, s.meta.Term, s.meta.Holder)
	case term == s.meta.Term:
		return void("term %d had begun already: it is %s's", term, s.meta.Holder)
	default:
		return void("term %d had ended: %s began term %d", term, s.meta.Holder, s.meta.Term)
	}
}

func (s *fold) leaseFired(p *plan, k *pb.LeaseFired) Result {
	if k.Lease == leaseDuplicate {
		return s.duplicateFired(p)
	}
	l, a, f, result := s.claimed(p, k.Lease, k.Depth, k.Chain)
	if result.Verdict != Effective {
		return result
	}
	p.noteFired(l, f)
	l.Fired = true
	if a != nil {
		a.change()
	}
	s.index(rows.Lease{Plan: p.id, N: number(a), Name: k.Lease}, l, 0, nil, false)
	turned := p.takeTurns(rows.Lease{Plan: p.id, N: number(a), Name: k.Lease})
	defer p.touch()
	reason := "lease " + k.Lease + ": " + conditionOf(p, a, l)
	if k.Lease == leaseVerdict || k.Lease == leaseUnheard {
		reason = a.verdictText()
	}
	if p.row.Phase == rowspb.Phase_PHASE_COMMITTED && !keeps(p.row) {
		return s.firedSince(p, a, l, f, reason)
	}
	if p.row.Phase == rowspb.Phase_PHASE_COMMITTED { // a child's held set is its root's
		to, part := p.root(), back{}
		if l.OfAction {
			to, part = p.undoneIn()
		}
		s.passOn(to, f, reason+" (child plan "+p.id+")", part)
		p.nextTurn(anyTurn) // what undoes more is passed on, too
		return effective
	}
	p.row.Fired = s.e.Address
	s.firedBeside(p, a, l, f, turned, k.Readings)
	if l.OfAction && p.row.Signal == rowspb.Signal_SIGNAL_NONE { // else more may be asked for
		p.row.FromAction = a.fixed.Id
	}
	if p.row.Reason == "" {
		p.row.Reason = reason
	}
	return effective
}

// firedBeside does justice to a lease that fires while a part of its plan was asked to be
// undone: what is on the plan undoes all of it, and what is on an action, which that part
// need not reach, has its turn once more after it.
func (s *fold) firedBeside(p *plan, a *action, l *rowspb.LeaseRow, f *rowspb.Firing,
	turned *rowspb.Turned, read []*pb.Reading) {
	switch {
	case !s.keepsTurns() || goesBack(p.row) == back{} || ofSignal(l.Name):
		return
	case !l.OfAction:
		p.row.ToSavepoint, p.row.FromAction, p.row.Reason = "", "", ""
		return
	}
	if turned == nil {
		c, err := s.Condition(conditionOf(p, a, l))
		turned = &rowspb.Turned{Action: a.id.N, Lease: l.Name, At: s.e.Address, Ns: s.meta.TimeNs,
			Clocked: err == nil && c.ReadsClock(), Readings: read, Firing: proto.CloneOf(f)}
	}
	if len(p.row.Behind) < behindMax {
		p.row.Behind = slices.Insert(p.row.Behind, 0, turned)
	}
}

// undoneIn is the plan that undoes a committed child for one of its actions, and the
// entry that it undoes there: the child was committed as a whole.
func (p *plan) undoneIn() (*plan, back) {
	parent, entry := p.entry()
	for keeps(parent.row) {
		parent, entry = parent.entry()
	}
	return parent, back{action: entry.fixed.Id}
}

// unwindStarted begins an unwind: for a lease that fired, or as a part of the
// unwind of the parent plan.
func (s *fold) unwindStarted(p *plan, k *pb.UnwindStarted) Result {
	if k.ParentPlan != "" {
		if why := s.childDue(p, k.ParentPlan); why != "" {
			return void("plan %s does not unwind with plan %s: %s", p.id, k.ParentPlan, why)
		}
		if p.row.Retired {
			takeBack(p)
		}
		p.row.Rewinding, p.row.Target, p.row.FromAction = false, 0, ""
		p.row.Firing = s.plan(k.ParentPlan).row.Firing
		if p.row.Reason == "" {
			p.row.Reason = k.Reason
		}
	} else {
		switch {
		case !stops(p.row):
			return void("plan %s is %s", p.id, statusName(p.row))
		case p.row.Fired == nil || !samePlace(s.e.Record.Cause, p.row.Fired, s.e):
			return void("no lease of plan %s fired at %s", p.id, ledger.FormatAddress(s.e.Record.Cause))
		}
		p.row.Rewinding, p.row.Target = p.target()
		if p.row.Phase == rowspb.Phase_PHASE_COMMITTING {
			p.stopSettling()
		}
		if !p.row.Rewinding {
			p.row.Committed = nil
		}
	}
	p.row.Unwinding, p.row.Resumed = s.e.Address, nil
	p.startUnwind()
	oweFound(s, p)
	s.notices = append(s.notices, Notice{Plan: p.id, Agent: p.row.Agent, State: ledger.StateUnwinding,
		Reason: p.row.Reason, FromAction: p.row.FromAction})
	return effective
}

func (s about) skipped(k *pb.CompensationSkipped) Result {
	a := s.a
	if a.row.Undo != rowspb.Undo_UNDO_READY {
		return void("the undo of action %s is %s", a.fixed.Id, undoName(a.row.Undo))
	}
	if next, _ := a.nextStep(); next != stepSkip {
		return void("the effect of action %s may have crossed: it must not be skipped", a.fixed.Id)
	}
	if why := a.saidDone(); why != "" {
		return void("%s", why)
	}
	if crossed(a) {
		a.plan.row.InScope++
	}
	a.row.Note = k.Reason
	a.settle(rowspb.Undo_UNDO_SKIPPED, s.e.Address)
	return effective
}

func (s about) quarantined(k *pb.ActionQuarantined) Result {
	a := s.a
	if k.Changed != isChanged(a) {
		return void("that action %s was changed by someone else is not why it is its owner's", a.fixed.Id)
	}
	switch a.row.Undo {
	case rowspb.Undo_UNDO_READY, rowspb.Undo_UNDO_SETTLING:
		if next, why := a.nextStep(); next == stepSkip { // its outcome came first
			return void("action %s is not its owner's: %s", a.fixed.Id, why)
		}
		if why := s.settles(); why != "" {
			return void("%s", why)
		}
		if why := a.saidDone(); why != "" {
			return void("%s", why)
		}
		a.dropRetry()
	case rowspb.Undo_UNDO_EXHAUSTED:
	case rowspb.Undo_UNDO_WAITING: // its next call cannot be built
		a.land()
	default:
		return void("the undo of action %s is %s", a.fixed.Id, undoName(a.row.Undo))
	}
	if !k.Changed {
		a.row.Change = pb.Change_CHANGE_UNSPECIFIED
	}
	a.row.Note, a.row.Proposal = k.Reason, nil // an answer to what was before is none to this
	a.row.LetsGo = isLastAct(a)
	a.settle(rowspb.Undo_UNDO_QUARANTINED, s.e.Address)
	a.plan.page(a, api.PageQuarantined, k.Reason+waitingSince(a.plan), s.e.Address)
	return effective
}

// planEnded accepts an end only if the state says the same.
func (s *fold) planEnded(p *plan, k *pb.PlanEnded) Result {
	direct := stops(p.row) && p.row.Fired != nil && k.End == pb.PlanEnd_PLAN_END_FAILED &&
		!p.inScope()
	if !direct && (k.End != endOf(p.row) || k.End == pb.PlanEnd_PLAN_END_UNSPECIFIED) {
		return void("plan %s is %s and does not end %s", p.id, statusName(p.row), endName(k.End))
	}
	if direct {
		s.skipAll(p)
		p.row.Committed = nil
	}
	p.row.Ended, p.row.EndedNs = s.e.Address, s.meta.TimeNs
	switch k.End {
	case pb.PlanEnd_PLAN_END_COMPENSATED, pb.PlanEnd_PLAN_END_DELIVERED:
		p.phase(rowspb.Phase_PHASE_COMPENSATED)
	case pb.PlanEnd_PLAN_END_FAILED:
		p.phase(rowspb.Phase_PHASE_FAILED)
	case pb.PlanEnd_PLAN_END_RESOLVED:
		s.meta.Held -= uint64(p.registrations())
		p.phase(rowspb.Phase_PHASE_RESOLVED)
		p.detachChildren()
	case pb.PlanEnd_PLAN_END_QUARANTINED:
		p.phase(rowspb.Phase_PHASE_QUARANTINED)
		if orphaned(p.row) {
			const text = "an act was claimed by a record that was refused: it may have happened, and " +
				"nothing undoes it"
			p.page(nil, api.PageActClaimed, text, s.e.Address)
		}
	default:
		panic("executor: unknown plan end")
	}
	told := Notice{Plan: p.id, Agent: p.row.Agent, State: stateName(p.row), Reason: k.Reason}
	if !unopened(p.row) { // else there is more to say of it: Plan.Reason
		told.At = s.e.Address.Sequence
	}
	s.notices = append(s.notices, told)
	return effective
}

// skipAll ends an open plan of which nothing crossed the boundary.
func (s *fold) skipAll(p *plan) {
	p.disarm()
	p.row.Turned, p.row.Behind = nil, nil
	for n := uint32(1); n <= p.row.Actions; n++ {
		if a := p.action(n); !settled(a.row.Undo) {
			_, a.row.Note = a.nextStep()
			a.settle(rowspb.Undo_UNDO_SKIPPED, s.e.Address)
		}
	}
}

// inScope reports whether a plan has anything that an unwind would look at.
func (p *plan) inScope() bool {
	if orphaned(p.row) || p.row.InScope > 0 || p.row.ByHand {
		return true
	}
	for n := uint32(1); n <= p.row.Actions; n++ {
		if a := p.action(n); !settled(a.row.Undo) && crossed(a) {
			return true
		}
	}
	return false
}

func joinText(code, message string) string {
	if code == "" || message == "" {
		return code + message
	}
	return code + ": " + message
}

// askUnnamed has all that a commit found too much of found again, by a probe that is given no name.
func askUnnamed(a *action) {
	if foundTooMuch(a) && a.row.Outcome == rowspb.Outcome_OUTCOME_COMPLETED {
		return // its agent has named its own, and what is beside that is known
	}
	if len(a.row.Duplicates) > 0 && a.plan.s.meta.HolderFold >= ledger.ThereSince {
		a.row.FoundRef = ""
	}
	a.row.Duplicates = nil
}
