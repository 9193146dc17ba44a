package executor

import (
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// applyOperator folds what people and their tools asked for. What cannot be done
// any more is refused with the reason, so that the second of two operators
// learns who was first.
func (s *fold) applyOperator() Result {
	r := s.e.Record
	switch k := r.Kind.(type) {
	case *pb.Record_ContractPublished:
		return s.contractPublished(k.ContractPublished)
	case *pb.Record_ClockConfirmed:
		return effective // the host reads it
	case *pb.Record_EvictRequested:
		return s.evictRequested(k.EvictRequested.Keys)
	case *pb.Record_RestoreRequested:
		return s.restoreRequested(k.RestoreRequested.Keys)
	}
	p := s.plan(r.Plan)
	if p == nil {
		return refused("plan %s was never opened", r.Plan)
	}
	switch k := r.Kind.(type) {
	case *pb.Record_CancelRequested:
		if p.row.Delivers {
			return cancelDelivery(s, p, k.CancelRequested)
		}
		return s.signal(p, rowspb.Signal_SIGNAL_CANCELLED,
			byActor(k.CancelRequested.Reason, k.CancelRequested.Actor), back{})
	case *pb.Record_CompensationRequested:
		return s.compensationRequested(p, k.CompensationRequested)
	case *pb.Record_RetryRequested:
		return s.retryRequested(p, k.RetryRequested)
	case *pb.Record_Resolved:
		return s.resolved(p, k.Resolved)
	case *pb.Record_PlanErased:
		return s.planErased(p, k.PlanErased)
	case *pb.Record_CascadeAnswered:
		return s.cascadeAnswered(p, k.CascadeAnswered)
	case *pb.Record_EffectReported:
		return s.effectReported(p, k.EffectReported)
	case *pb.Record_DeadlineMoved:
		return deadlineMoved(s, p, k.DeadlineMoved)
	case *pb.Record_PlanAdopted:
		return planAdopted(s, p, k.PlanAdopted)
	default:
		panic("executor: unknown operator record " + ledger.KindOf(r).Name)
	}
}

func byActor(reason, actor string) string {
	if reason == "" && actor != "" {
		return "asked by " + actor
	}
	if actor == "" {
		return reason
	}
	return reason + " (" + actor + ")"
}

// seconded reports whether an owner's answer counts now: at once, or, where the
// plan asks for a second approver, when another operator has given the same one.
// The subject names the operator; what a record says of its actor proves nothing.
func (s about) seconded(answer *rowspb.Proposal) bool {
	a := s.a
	if !a.plan.row.Declared.SecondApprover {
		return true
	}
	if confirms(s.e, a.row.Proposal, answer) {
		a.row.Proposal = nil
		return true
	}
	a.row.Proposal = answer
	a.change()
	return false
}

// confirms reports whether an answer is the one that another operator has given
// first; otherwise it is a proposal itself.
func confirms(e ledger.Entry, first, answer *rowspb.Proposal) bool {
	answer.Operator, answer.At = e.Source.Name, e.Address
	return first != nil && first.Operator != answer.Operator &&
		first.Answer == answer.Answer && first.Halt == answer.Halt && first.Force == answer.Force
}

// applyWorker folds the report of a long undo; Decide turns it into its outcome.
func (s *fold) applyWorker() Result {
	r := s.e.Record
	p := s.plan(r.Plan)
	if p == nil {
		return refused("plan %s was never opened", r.Plan)
	}
	a := s.byName(p.id, r.Action)
	if a == nil {
		return refused("action %s is not registered in plan %s", r.Action, p.id)
	}
	switch k := r.Kind.(type) {
	case *pb.Record_CompensationProgressed:
		s.about(a).progressed(k.CompensationProgressed)
		return effective
	case *pb.Record_CompensationReported:
		return s.about(a).reported(k.CompensationReported)
	default:
		panic("executor: unknown worker record " + ledger.KindOf(r).Name)
	}
}

// progressed hears that an attempt goes on.
func (s about) progressed(k *pb.CompensationProgressed) {
	a := s.a
	if k.Key != a.keyOf(k.Attempt) || k.Attempt < 1 || k.Attempt > a.lastAttempt() ||
		s.foreign(k.Attempt, k.Token) != "" {
		return
	}
	s.reportedBy(k.Attempt)
	a.row.AliveUntilNs = max(a.row.AliveUntilNs, min(k.UntilNs, epochMax))
	if k.Note != "" && k.Attempt == a.row.Attempt {
		a.row.Progress = &rowspb.Progress{Note: k.Note, Ns: s.meta.TimeNs}
	}
	a.change()
}

// reported hears how a long undo ended.
func (s about) reported(report *pb.CompensationReported) Result {
	a, p := s.a, s.a.plan
	if report.Key != a.keyOf(report.Attempt) {
		return refused("key %q is not the key of attempt %d of action %s", report.Key, report.Attempt,
			a.fixed.Id)
	}
	if why := s.foreign(report.Attempt, report.Token); why != "" {
		return refused("compensation_reported.token: %s", why)
	}
	s.reportedBy(report.Attempt) // also if it is refused: readers of the ledger have the token now
	done := report.Answer == pb.Answer_ANSWER_DONE
	if done && a.row.Ahead != nil && report.Attempt == 1 {
		a.callBack() // it was sent, and no success before it is waited for
	}
	open := atOwner(a) || owing(a.row.Undo) || a.attempts().Twice(report.Attempt)
	if done && open && made(a, report.Attempt) && a.attempts().HeardDone(report.Attempt) {
		return repeated
	}
	if done && late(a, report.Attempt) {
		return s.doneLate(attemptEnd{state: "done", worker: s.e.Source.Name, timing: report.Timing},
			report.Attempt)
	}
	asking := a.row.Asking != pb.Question_QUESTION_UNSPECIFIED
	current := a.row.Undo == rowspb.Undo_UNDO_DISPATCHED && report.Attempt == a.row.Attempt && !asking
	if p.row.Phase != rowspb.Phase_PHASE_UNWINDING || !inFlight(a, report.Attempt) || !done &&
		!current || a.row.Asking == pb.Question_QUESTION_VERIFY {
		return refused("attempt %d is not in flight: the undo of action %s is %s", report.Attempt,
			a.fixed.Id, undoName(a.row.Undo))
	}
	// the first word counts, but for one that it is done
	if a.row.Reported != nil && (!done || a.attempts().ReportedDone()) {
		return repeated
	}
	if done {
		a.attempts().NoteDone(report.Attempt)
	}
	if report.Answer == pb.Answer_ANSWER_CHANGED {
		keepFound(a, s.e.Record.Payload.GetOutput())
	}
	a.heard(report, s.e.Address)
	return effective
}

// What an agent says of the whole plan: failed, cancelled, or to be unwound.

// signal records that a plan failed or was cancelled, whole or in part. It undoes
// nothing by itself: the leases that read plan.status do. A plan that goes back
// still takes the end of all of it.
func (s *fold) signal(p *plan, signal rowspb.Signal, reason string, to back) Result {
	switch {
	case p.row.Signal == signal && p.row.Signalled != nil && goesBack(p.row) == to &&
		p.row.Reason == reason:
		return repeated
	case p.partly() && to == back{}:
	case !stops(p.row) || p.row.Signal != rowspb.Signal_SIGNAL_NONE:
		return refused("%s", already(p)+notItsDelivery(p))
	case p.row.Fired != nil && to != back{} && s.keepsTurns():
		return refused("plan %s is about to unwind for %s", p.id, ledger.FormatAddress(p.row.Fired))
	}
	p.row.Signal, p.row.Reason, p.row.Signalled = signal, reason, s.e.Address
	p.row.ToSavepoint, p.row.FromAction = to.savepoint, to.action
	p.row.Asked = s.asked(signal, reason)
	p.touch()
	p.evaluatePlan(s.e.Address)
	return effective
}

func (s *fold) unwindRequested(p *plan, k *pb.UnwindRequested) Result {
	switch {
	case k.Number == 0:
		return refused(
			"unwind_requested.number: missing; the agent counts its requests of plan %s from 1", p.id)
	case k.Number <= p.row.Rewinds:
		return repeated
	}
	result := s.unwindTo(p, "unwind_requested", k.ToSavepoint, k.Reason)
	if result.Verdict == Effective {
		p.row.Rewinds = k.Number
	}
	return result
}

// unwindTo asks for an unwind back to a savepoint.
func (s *fold) unwindTo(p *plan, field, to, reason string) Result {
	if p.row.Phase == rowspb.Phase_PHASE_COMMITTING {
		return refused("%s.to_savepoint: plan %s is being committed; want none, to have all of it undone",
			field, p.id)
	}
	if savepoint(p, to) == nil {
		return refused("%s.to_savepoint: plan %s has no savepoint %q", field, p.id, to)
	}
	return s.signal(p, rowspb.Signal_SIGNAL_CANCELLED, reason, back{savepoint: to})
}

// unwindFrom asks for an unwind of one action and what came after it.
func (s *fold) unwindFrom(p *plan, from, reason string) Result {
	if why := p.notFrom(from); why != "" {
		return refused("compensation_requested.from_action: %s", why)
	}
	return s.signal(p, rowspb.Signal_SIGNAL_CANCELLED, reason, back{action: from})
}

// applyVerdict folds a supervisor's verdict on an action; the lease on it is
// the mechanism that undoes (S76). Of a committed plan no lease is held: it is undone as by
// an operator's request, inside its undo windows.
func (s *fold) applyVerdict() Result {
	k := s.e.Record.GetVerdictGiven()
	p := s.plan(s.e.Record.Plan)
	if p == nil {
		return refused("plan %s was never opened", s.e.Record.Plan)
	}
	a := s.byName(p.id, s.e.Record.Action)
	if a == nil {
		return refused("action %s is not registered in plan %s", s.e.Record.Action, p.id)
	}
	if why := notJudged(s, a, k); why != "" {
		return refused("%s", why)
	}
	committed := isCommitted(p) && s.reachesCommitted()
	root, part := a.committedAs(s.ofAction(k.Scope))
	undoes := committed && a.undoneFor(k) && !undoesToo(root, part)
	if undoes {
		if why := staysCommitted(root, part); why != "" {
			return refused("%s", why)
		}
	}
	if why := s.notCalled(a, k); why != "" {
		return refused("%s", why)
	}
	s.about(a).judged(k)
	stopsDelivery(s, a, k)
	switch {
	case undoes:
		reason := a.verdictText()
		if root != p {
			reason += " (child plan " + p.id + ")"
		}
		s.undoCommitted(root, part, reason)
	case !committed:
		s.about(a).armVerdict(k)
		a.watch()
		a.reconsider()
		a.evaluateAction(s.e.Address)
		if whole := besidePart(a, k); whole != nil {
			s.signal(whole, rowspb.Signal_SIGNAL_CANCELLED, a.verdictText(), back{})
		}
	case p.row.HeldOn > 0: // what is held after the commit may read it
		a.evaluateAction(s.e.Address)
	}
	return effective
}

// notCalled says why a supervisor does not allow an action any more, or "": it was undone, or is
// being undone, before its forward was called, and what its agent did now would be no one's.
func (s *State) notCalled(a *action, k *pb.VerdictGiven) string {
	if k.Outcome != pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW || !a.fixed.Forward.GetReview() ||
		a.row.Outcome != rowspb.Outcome_OUTCOME_UNKNOWN || a.row.Undo == rowspb.Undo_UNDO_HELD ||
		a.asksForCommit() || s.meta.HolderFold < ledger.StillHeldSince {
		return ""
	}
	return "verdict_given.outcome: allow, and action " + a.fixed.Id + " is " + undoName(a.row.Undo) +
		": its forward is not called any more"
}

// reachesCommitted reports whether a verdict undoes what is committed.
func (s *State) reachesCommitted() bool { return s.meta.HolderFold >= ledger.ReachesSince }

// judged keeps a verdict, and tells the agent of it.
func (s about) judged(k *pb.VerdictGiven) {
	p, a := s.a.plan, s.a
	a.row.Verdict, a.row.VerdictBy, a.row.VerdictReason, a.row.VerdictNs = k.Outcome, s.e.Source.Name,
		k.Reason, s.meta.TimeNs
	a.row.Allowed = a.row.Allowed || k.Outcome == pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW
	s.noteVerdict()
	a.change()
	wantVerdict(a)
	s.notices = append(s.notices, Notice{
		Plan: p.id, Agent: p.row.Agent, State: stateName(p.row), Reason: k.Reason, Action: a.fixed.Id,
		Verdict: verdictName(k.Outcome), By: s.e.Source.Name,
	})
}

// armVerdict takes out the leases that a verdict on an action turns.
func (s about) armVerdict(k *pb.VerdictGiven) {
	p, a := s.a.plan, s.a
	for _, name := range []string{leaseVerdict, leaseUnheard} {
		ref := rows.Lease{Plan: p.id, N: a.id.N, Name: name}
		l, _ := p.lease(ref)
		if l == nil {
			l = &rowspb.LeaseRow{Name: name, ArmedNs: s.meta.TimeNs}
			a.row.Leases = append(a.row.Leases, l)
		}
		if k.Outcome != pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW { // which undoes nothing
			// One that turned is owed as wide as it was: a later verdict only widens it (I13).
			mayNarrow := l.OfAction || l.Fired || turnOf(p, ref) == nil
			l.OfAction = s.ofAction(k.Scope) && mayNarrow
		}
	}
}

// A forward that waits for a verdict. Whoever is to judge is paged, as an owner is, until the
// verdict comes or the forward waits no more.

// waitsForVerdict reports whether the forward of an action has yet to be allowed. In a plan that is
// undone, or committed, it does not begin any more.
func waitsForVerdict(a *action) bool {
	return a.plan.row.Phase == rowspb.Phase_PHASE_OPEN && a.row.Undo == rowspb.Undo_UNDO_HELD &&
		a.fixed.Forward.GetReview() && a.fixed.DutyOf == 0 &&
		a.row.Verdict == pb.VerdictOutcome_VERDICT_OUTCOME_UNSPECIFIED &&
		a.row.Outcome == rowspb.Outcome_OUTCOME_UNKNOWN
}

// wantVerdict lists an action among those that wait for a verdict, and has whoever is to judge
// paged; or it ends that, as is known of the action now. The page is for the record that has
// registered the action: one record may open a plan again in which several actions wait, and a page
// that is asked for again after that is the same one.
func wantVerdict(a *action) {
	p := a.plan
	listed := slices.Contains(p.row.Reviews, a.id.N)
	switch waits := waitsForVerdict(a); {
	case waits == listed:
	case waits:
		p.row.Reviews = rows.Insert(p.row.Reviews, a.id.N)
		rows.Reviews.Add(p.s.tx, rows.Waiting{Ns: a.fixed.AtNs, Action: a.id})
		p.s.meta.Reviews++
		p.touch()
		if p.s.meta.HolderFold >= ledger.VerdictWantedSince {
			p.page(a, api.PageVerdictWanted, wantedText(p), a.fixed.Registered)
		}
	default:
		wantNoVerdict(a)
	}
}

// wantNoVerdict takes an action off the list of those that wait for a verdict.
func wantNoVerdict(a *action) {
	p := a.plan
	p.row.Reviews = rows.Without(p.row.Reviews, a.id.N)
	rows.Reviews.Delete(p.s.tx, rows.Waiting{Ns: a.fixed.AtNs, Action: a.id})
	p.s.meta.Reviews--
	p.touch()
	p.unpage(a, api.PageVerdictWanted)
}

// wantNoVerdicts does so with all of a plan that begins to be undone, or is committed.
func wantNoVerdicts(p *plan) {
	for len(p.row.Reviews) > 0 {
		wantNoVerdict(p.action(p.row.Reviews[len(p.row.Reviews)-1]))
	}
}

// WaitsForVerdict reports whether the forward of an action waits for a supervisor's verdict.
func (a *Action) WaitsForVerdict() bool { return waitsForVerdict(a.a) }

// undoneFor reports whether a verdict on an action of a committed plan asks for an undo of it. One
// on a staged act alone stops its delivery; one on what was undone before may ask for the plan.
func (a *action) undoneFor(k *pb.VerdictGiven) bool {
	ofPlan := !a.plan.s.ofAction(k.Scope)
	held := !settled(a.row.Undo) || ofPlan && a.plan.s.meta.HolderFold >= ledger.BesidePartSince
	return k.Outcome != pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW && held &&
		(crossed(a) || staged(a) && ofPlan)
}

// committedAs is the committed root that has an action, and the part of it that undoes the action,
// or the root: a child was committed as a whole.
func (a *action) committedAs(ofAction bool) (*plan, back) {
	root, part := a.plan, back{action: a.fixed.Id}
	for child(root.row) {
		parent, entry := root.entry()
		root, part.action = parent, entry.fixed.Id
	}
	if !ofAction {
		part = back{}
	}
	return root, part
}

// undoesToo reports whether the plan that undoes a committed one undoes a part of it, too.
func undoesToo(p *plan, part back) bool {
	u := p.undoer()
	if u == nil {
		return false
	}
	reached := p.reach(part, firstOf(p, part))
	for n := uint32(1); n <= p.row.Actions; n++ {
		a := p.action(n)
		if !reached(n) || a.fixed.DutyOf != 0 || settled(a.row.Undo) || staged(a) {
			continue
		}
		if leftOut(u.action(n)) {
			return false
		}
	}
	return true
}

// leftOut reports whether an action of a plan that undoes a part of a committed one is what that
// was not asked to undo: no record has settled it there.
func leftOut(a *action) bool {
	return a != nil && a.plan.row.Origin != "" && a.row.Undo == rowspb.Undo_UNDO_SKIPPED &&
		a.row.Settled == nil
}

// staysOut reports whether such an action stays as its plan was committed, whatever becomes
// known of its forward. Holders of before LeftOutSince undid what became known of it late.
func staysOut(a *action) bool {
	return leftOut(a) && a.plan.s.meta.HolderFold >= ledger.LeftOutSince
}

// verdictText is the reason of what a verdict on an action undoes.
func (a *action) verdictText() string {
	text := "verdict " + verdictName(a.row.Verdict) + " on action " + a.fixed.Id + " by " +
		a.row.VerdictBy
	if a.row.VerdictReason != "" {
		text += ": " + a.row.VerdictReason
	}
	return text
}
