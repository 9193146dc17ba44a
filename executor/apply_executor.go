package executor

import (
	"bytes"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// applyExecutor folds what a holder decided. Every record here is a claim: it
// counts only if the plan still allows it at this place in the log.
func (s *State) applyExecutor(e ledger.Entry) Result {
	r := e.Record
	if k, ok := r.Kind.(*pb.Record_TermStarted); ok {
		return s.termStarted(e, k.TermStarted)
	}
	if k, ok := r.Kind.(*pb.Record_LedgerRepaired); ok {
		return s.ledgerRepaired(e, k.LedgerRepaired)
	}
	if r.Term != s.meta.Term {
		return s.outOfTerm(r.Term)
	}
	if r.Folded != 0 && e.Address.Sequence != s.meta.Decided {
		if r.Folded < s.meta.Decided {
			return void("decided on what stood up to %d, and other decisions stand at %d since", r.Folded,
				s.meta.Decided)
		}
		s.meta.Decided = e.Address.Sequence
	}
	switch k := r.Kind.(type) {
	case *pb.Record_RecordRefused:
		s.todo.remove(todoRefused + string(rows.Place{Sequence: k.RecordRefused.Sequence,
			Index: k.RecordRefused.Index}.Bytes()))
		return effective
	case *pb.Record_FactEvicted:
		return s.factEvicted(e, k.FactEvicted)
	case *pb.Record_FactReingested:
		return s.factReingested(e, k.FactReingested)
	case *pb.Record_CheckpointSigned:
		return s.checkpointSigned(e, k.CheckpointSigned)
	case *pb.Record_KeyRotated:
		return s.keyRotated(e, k.KeyRotated)
	}
	p := s.plan(r.Plan)
	if p == nil {
		return void("plan %s was never opened", r.Plan)
	}
	p.row.LastNs = max(p.row.LastNs, e.StampNs)
	s.touch(p)
	switch k := r.Kind.(type) {
	case *pb.Record_LeaseFired:
		return s.leaseFired(e, p, k.LeaseFired)
	case *pb.Record_UnwindStarted:
		return s.unwindStarted(e, p, k.UnwindStarted)
	case *pb.Record_HeldSetRetired:
		return s.heldSetRetired(p, k.HeldSetRetired)
	case *pb.Record_PlanEnded:
		return s.planEnded(e, p, k.PlanEnded)
	case *pb.Record_PlanRewound:
		return s.planRewound(e, p, k.PlanRewound)
	case *pb.Record_PlanErased:
		return s.planErased(e, p, k.PlanErased)
	case *pb.Record_OwnerPaged:
		return s.ownerPaged(e, p, k.OwnerPaged)
	case *pb.Record_CascadeCut:
		return s.cascadeCut(e, p, k.CascadeCut)
	}
	return s.applyAboutAction(e, p)
}

// applyAboutAction folds the records about one action; each names it by address.
func (s *State) applyAboutAction(e ledger.Entry, p *plan) Result {
	r := e.Record
	a := s.byName(p.id, r.Action)
	if a == nil {
		return void("action %s is not registered in plan %s", r.Action, p.id)
	}
	if !sameAddress(r.About, a.fixed.Registered) {
		return void("it names %s, but action %s was registered at %s", ledger.FormatAddress(r.About),
			r.Action, ledger.FormatAddress(a.fixed.Registered))
	}
	if k, ok := r.Kind.(*pb.Record_UndoWindowClosing); ok {
		return s.windowClosing(e, p, a, k.UndoWindowClosing)
	}
	if k := r.GetCompensationSucceeded(); k != nil && late(a, k.Attempt) {
		return s.doneLate(e, p, a, attemptEnd{state: "done", worker: k.Worker, code: k.Code,
			timing: k.Timing}, k.Attempt)
	}
	if s.committing(p) {
		return s.applyAboutDoubt(e, p, a)
	}
	if p.row.Phase != rowspb.Phase_PHASE_UNWINDING {
		return void("plan %s is %s", p.id, statusName(p.row))
	}
	switch k := r.Kind.(type) {
	case *pb.Record_CompensationDispatched:
		return s.dispatched(e, p, a, k.CompensationDispatched)
	case *pb.Record_CompensationSucceeded:
		return s.succeeded(e, p, a, k.CompensationSucceeded)
	case *pb.Record_CompensationFailed:
		return s.failed(e, p, a, k.CompensationFailed)
	case *pb.Record_FactAsserted, *pb.Record_FactRetracted:
		return s.undoByFact(e, a)
	case *pb.Record_CompensationSkipped:
		return s.skipped(e, p, a, k.CompensationSkipped)
	case *pb.Record_ActionQuarantined:
		return s.quarantined(e, p, a, k.ActionQuarantined)
	case *pb.Record_ProbeAsked:
		return s.probeAsked(e, p, a, k.ProbeAsked)
	case *pb.Record_ProbeAnswered:
		return s.probeAnswered(e, p, a, k.ProbeAnswered)
	case *pb.Record_CommitWaits:
		return void("plan %s is %s, and no commit of it waits", p.id, statusName(p.row))
	default:
		panic("executor: unknown executor record " + ledger.KindOf(r).Name)
	}
}

// applyAboutDoubt folds what is decided about an action while a commit waits: its effect
// is asked about, and nothing is undone.
func (s *State) applyAboutDoubt(e ledger.Entry, p *plan, a *action) Result {
	switch k := e.Record.Kind.(type) {
	case *pb.Record_ProbeAsked:
		if k.ProbeAsked.Question == pb.Question_QUESTION_EFFECT {
			return s.probeAsked(e, p, a, k.ProbeAsked)
		}
	case *pb.Record_ProbeAnswered:
		return s.probeAnswered(e, p, a, k.ProbeAnswered)
	case *pb.Record_CommitWaits:
		return s.commitWaits(e, p, a, k.CommitWaits)
	}
	return void("plan %s is %s", p.id, ledger.StateCommitting)
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
func (s *State) termStarted(e ledger.Entry, k *pb.TermStarted) Result {
	if e.Record.Term <= s.meta.Term {
		return s.outOfTerm(e.Record.Term)
	}
	s.meta.Term, s.meta.Holder, s.meta.TermSequence = e.Record.Term, k.Holder, e.Address.Sequence
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

func (s *State) leaseFired(e ledger.Entry, p *plan, k *pb.LeaseFired) Result {
	if k.Lease == leaseDuplicate {
		return s.duplicateFired(e, p)
	}
	l, a, f, result := s.claimed(e, p, k.Lease, k.Depth, k.Chain)
	if result.Verdict != Effective {
		return result
	}
	s.noteFired(p, l, f)
	l.Fired = true
	if a != nil {
		s.change(a)
	}
	s.index(rows.Lease{Plan: p.id, N: number(a), Name: k.Lease}, l, 0, nil, false)
	p.row.Turned, p.row.Behind = nil, nil
	defer s.touch(p)
	reason := "lease " + k.Lease + ": " + conditionOf(p, a, l)
	if k.Lease == leaseVerdict || k.Lease == leaseUnheard {
		reason = "verdict " + verdictName(a.row.Verdict) + " on action " + a.fixed.Id + " by " +
			a.row.VerdictBy
		if a.row.VerdictReason != "" {
			reason += ": " + a.row.VerdictReason
		}
	}
	if p.row.Phase == rowspb.Phase_PHASE_COMMITTED { // a child's held set is its root's
		root := s.root(p)
		s.passOn(e, root, f, reason+" (child plan "+p.id+")")
		return effective
	}
	p.row.Fired = e.Address
	if p.row.Reason == "" {
		p.row.Reason = reason
	}
	return effective
}

// unwindStarted begins an unwind: for a lease that fired, or as a part of the
// unwind of the parent plan.
func (s *State) unwindStarted(e ledger.Entry, p *plan, k *pb.UnwindStarted) Result {
	if k.ParentPlan != "" {
		if why := s.childDue(e, p, k.ParentPlan); why != "" {
			return void("plan %s does not unwind with plan %s: %s", p.id, k.ParentPlan, why)
		}
		p.row.Rewinding, p.row.Target = false, 0
		p.row.Firing = s.plan(k.ParentPlan).row.Firing
		if p.row.Reason == "" {
			p.row.Reason = k.Reason
		}
	} else {
		switch {
		case !stops(p.row):
			return void("plan %s is %s", p.id, statusName(p.row))
		case p.row.Fired == nil || !samePlace(e.Record.Cause, p.row.Fired, e):
			return void("no lease of plan %s fired at %s", p.id, ledger.FormatAddress(e.Record.Cause))
		}
		p.row.Rewinding, p.row.Target = s.target(p)
		if p.row.Phase == rowspb.Phase_PHASE_COMMITTING {
			s.stopSettling(p)
		}
		if !p.row.Rewinding {
			p.row.Committed = nil
		}
	}
	p.row.Unwinding, p.row.Resumed = e.Address, nil
	s.startUnwind(p)
	s.notices = append(s.notices, Notice{Plan: p.id, Agent: p.row.Agent, State: ledger.StateUnwinding,
		Reason: p.row.Reason})
	return effective
}

func (s *State) skipped(e ledger.Entry, p *plan, a *action, k *pb.CompensationSkipped) Result {
	if a.row.Undo != rowspb.Undo_UNDO_READY {
		return void("the undo of action %s is %s", a.fixed.Id, undoName(a.row.Undo))
	}
	if next, _ := s.nextStep(a); next != stepSkip {
		return void("the effect of action %s may have crossed: it must not be skipped", a.fixed.Id)
	}
	if crossed(a) {
		p.row.InScope++
	}
	a.row.Note = k.Reason
	s.settle(p, a, rowspb.Undo_UNDO_SKIPPED, e.Address)
	return effective
}

func (s *State) quarantined(e ledger.Entry, p *plan, a *action, k *pb.ActionQuarantined) Result {
	switch a.row.Undo {
	case rowspb.Undo_UNDO_READY, rowspb.Undo_UNDO_SETTLING:
		if next, why := s.nextStep(a); next == stepSkip { // its outcome came first
			return void("action %s is not its owner's: %s", a.fixed.Id, why)
		}
		if why := s.settles(e, p, a); why != "" {
			return void("%s", why)
		}
		s.dropRetry(p, a)
	case rowspb.Undo_UNDO_EXHAUSTED:
	case rowspb.Undo_UNDO_WAITING: // its next call cannot be built
		s.land(p, a)
	default:
		return void("the undo of action %s is %s", a.fixed.Id, undoName(a.row.Undo))
	}
	a.row.Note, a.row.Proposal = k.Reason, nil // an answer to what was before is none to this
	s.settle(p, a, rowspb.Undo_UNDO_QUARANTINED, e.Address)
	s.page(p, a, api.PageQuarantined, k.Reason, e.Address)
	return effective
}

// planEnded accepts an end only if the state says the same.
func (s *State) planEnded(e ledger.Entry, p *plan, k *pb.PlanEnded) Result {
	direct := stops(p.row) && p.row.Fired != nil && k.End == pb.PlanEnd_PLAN_END_FAILED &&
		!s.inScope(p)
	if !direct && (k.End != endOf(p.row) || k.End == pb.PlanEnd_PLAN_END_UNSPECIFIED) {
		return void("plan %s is %s and does not end %s", p.id, statusName(p.row), endName(k.End))
	}
	if direct {
		s.skipAll(e, p)
		p.row.Committed = nil
	}
	p.row.Ended, p.row.EndedNs = e.Address, s.meta.TimeNs
	switch k.End {
	case pb.PlanEnd_PLAN_END_COMPENSATED:
		s.phase(p, rowspb.Phase_PHASE_COMPENSATED)
	case pb.PlanEnd_PLAN_END_FAILED:
		s.phase(p, rowspb.Phase_PHASE_FAILED)
	case pb.PlanEnd_PLAN_END_RESOLVED:
		s.meta.Held -= uint64(s.registrations(p))
		s.phase(p, rowspb.Phase_PHASE_RESOLVED)
		s.detachChildren(p)
	case pb.PlanEnd_PLAN_END_QUARANTINED:
		s.phase(p, rowspb.Phase_PHASE_QUARANTINED)
		if orphaned(p.row) {
			const text = "an act was claimed by a record that was refused: it may have happened, and " +
				"nothing undoes it"
			s.page(p, nil, api.PageActClaimed, text, e.Address)
		}
	default:
		panic("executor: unknown plan end")
	}
	s.notices = append(s.notices, Notice{Plan: p.id, Agent: p.row.Agent, State: stateName(p.row),
		Reason: k.Reason})
	return effective
}

// skipAll ends an open plan of which nothing crossed the boundary.
func (s *State) skipAll(e ledger.Entry, p *plan) {
	s.disarm(p)
	for n := uint32(1); n <= p.row.Actions; n++ {
		if a := s.action(p.id, n); !settled(a.row.Undo) {
			_, a.row.Note = s.nextStep(a)
			s.settle(p, a, rowspb.Undo_UNDO_SKIPPED, e.Address)
		}
	}
}

// inScope reports whether a plan has anything that an unwind would look at.
func (s *State) inScope(p *plan) bool {
	if orphaned(p.row) || p.row.InScope > 0 || p.row.ByHand {
		return true
	}
	for n := uint32(1); n <= p.row.Actions; n++ {
		if a := s.action(p.id, n); !settled(a.row.Undo) && crossed(a) {
			return true
		}
	}
	return false
}
