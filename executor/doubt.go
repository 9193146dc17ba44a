package executor

import (
	"cmp"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The doubt of an open plan. Its agent may have died, and the plan may be open for weeks: so the
// world is asked while it is. The question is no part of an undo, which stays held. That an effect
// is not there settles nothing: as long as the plan is open, its agent may call the forward once
// more, and no record says so.

// asksOpenly reports whether a question about the effect of an action is out that was asked while
// its plan was open.
func asksOpenly(a *action) bool {
	return a.row.Undo == rowspb.Undo_UNDO_HELD && a.row.Asking == pb.Question_QUESTION_EFFECT
}

// asksFrom is the epoch from which on the world is asked about an action while its plan is open;
// 0: it is not. A forward that runs has its time first, and one that waits for a verdict has none.
func asksFrom(a *action) int64 {
	p, f, c := a.plan, a.fixed.Forward, a.fixed.Compensation
	if p.row.Phase != rowspb.Phase_PHASE_OPEN || a.row.Undo != rowspb.Undo_UNDO_HELD ||
		c.GetProbe() == nil || p.s.meta.HolderFold < ledger.AskedSince || !unanswered(a) {
		return 0
	}
	after := cmp.Or(c.AskAfterNs, int64(ledger.AskAfterDefault))
	switch {
	case a.row.Outcome == rowspb.Outcome_OUTCOME_IN_DOUBT:
		return plusNs(a.row.OutcomeNs, after)
	case f.GetReview():
		return 0
	case f.GetTimeoutNs() > 0:
		after = max(after, f.GetTimeoutNs()+graceOf(a))
	}
	return plusNs(max(a.fixed.AtNs, p.row.ResumedNs), after)
}

// askLater has the world asked about an action of an open plan once its doubt has lasted, or not
// at all, as is known of it now. A question that is out is waited for as long as there is doubt.
func askLater(a *action) {
	switch out := asksOpenly(a); {
	case out && !unanswered(a):
		a.land()
		askAt(a, 0)
	case !out:
		askAt(a, asksFrom(a))
	}
}

// askAt moves the due entry of the question about an action; 0: it has none.
func askAt(a *action, ns int64) {
	p, ref := a.plan, rows.Lease{Plan: a.plan.id, N: a.id.N}
	if a.row.AskNs != ns {
		if a.row.AskNs != 0 {
			p.s.due.Drop(a.row.AskNs, rows.DueAsk, ref)
			admitQuestion(p) // it may have been admitted
		}
		if a.row.AskNs = ns; ns != 0 {
			p.s.due.Set(ns, rows.DueAsk, ref)
		}
		a.change()
	}
	list := rows.Without
	if ns != 0 || asksOpenly(a) {
		list = rows.Insert
	}
	listed := len(p.row.Asking)
	if p.row.Asking = list(p.row.Asking, a.id.N); len(p.row.Asking) != listed {
		p.touch()
	}
}

// stopAsking gives up the questions about what is held of a plan, and the pages about verdicts. The
// commit or the unwind that begins asks again: its agent may have called a forward once more.
func stopAsking(p *plan) {
	wantNoVerdicts(p)
	for _, n := range slices.Clone(p.row.Asking) {
		a := p.action(n)
		if asksOpenly(a) {
			a.land()
		}
		askAt(a, 0)
	}
}

// landOpenly ends the question that an open plan has asked about an action, if one is out.
func landOpenly(a *action) {
	if !asksOpenly(a) {
		return
	}
	p := a.plan
	p.row.Asking = rows.Without(p.row.Asking, a.id.N)
	p.row.InFlight--
	p.s.meta.Asking--
	admitQuestion(p)
	if p.s.base == nil {
		p.s.landed = append(p.s.landed, About{a.id.Plan, a.fixed.Id})
	}
	a.change()
	p.touch()
}

// What an open plan asks about a doubt, and what it makes of the answer.

// openAskingMax bounds the questions of a tenant's open plans that are out at once. Of one plan as
// many are out as it may have undos in flight.
const openAskingMax = 256

// admitQuestion has a question that found no room looked at again, where there is some.
func admitQuestion(p *plan) {
	if p.admit(); p.s.meta.Asking < openAskingMax {
		p.s.due.Admit("") // no plan has this name
	}
}

// crowded is what a question about an action of an open plan finds no room in: the questions of
// its plan, or of its tenant, that are out.
func crowded(p *plan) (giver string, is bool) {
	switch {
	case p.row.InFlight >= concurrency(p.row):
		return p.id, true
	case p.s.meta.Asking >= openAskingMax:
		return "", true
	default:
		return "", false
	}
}

// openQuestion is the record that asks about an action of an open plan, or why it cannot be asked:
// it will not be then, for what it reads comes with an outcome, which ends the doubt.
func openQuestion(a *action) (r *pb.Record, why string) {
	c, cause := a.fixed.Compensation, a.row.OutcomeAt
	if cause == nil {
		cause = a.fixed.Registered
	}
	r = new(decider).question(a.plan, a, pb.Question_QUESTION_EFFECT, cause)
	arguments, err := a.arguments(c.Probe.Call.Bindings)
	r.Payload = &pb.Payload{Arguments: arguments}
	switch {
	case c.Sealed && a.plan.s.erased(a.plan.id) != nil:
		return nil, "what it reads was erased"
	case err != nil:
		return nil, clip(err.Error())
	case a.nameless(c.Probe.Call.Bindings):
		return nil, noteNameless
	case ledger.RecordSize(r) > dispatchMax:
		return nil, "its record is larger than what fits"
	}
	return r, ""
}

// CannotAsk is why a question that is due about an action cannot be asked; empty: it can be.
func (a *Action) CannotAsk() string {
	if a.Row.AskNs == 0 {
		return ""
	}
	compiling(a.s)
	_, why := openQuestion(a.a)
	return why
}

// AsksLater reports whether the question about an action of an open plan waits until one of those
// that are out is answered.
func (a *Action) AsksLater() bool {
	_, is := crowded(a.plan())
	return is
}

// calls is when an entry of no lease, whose time has come, calls for a decision, or 0: a question
// that cannot be asked never does, and one that found no room does when another one is answered.
func (r *Reading) calls(ns int64, kind byte, ref rows.Lease) int64 {
	if kind != rows.DueAsk {
		return ns
	}
	if a := r.Plan(ref.Plan).Action(ref.N); a.AsksLater() || a.CannotAsk() != "" {
		return 0
	}
	return ns
}

// mayAskOpenly reports why the world must not be asked about an action of an open plan, or "".
func (s about) mayAskOpenly(k *pb.ProbeAsked) string {
	a := s.a
	switch {
	case k.Question != pb.Question_QUESTION_EFFECT:
		return "nothing of plan " + a.plan.id + " is being undone"
	case a.row.AskNs == 0 || asksFrom(a) == 0:
		return "no question about it is due"
	case s.e.Record.EpochNs < a.row.AskNs:
		return "a question about it is due at " + instant(a.row.AskNs)
	case a.nameless(a.fixed.Compensation.Probe.GetCall().GetBindings()):
		return noteNameless
	}
	return ""
}

// askedOpenly asks the world about an action of an open plan.
func (s about) askedOpenly(k *pb.ProbeAsked) Result {
	a := s.a
	switch why := s.mayAskOpenly(k); {
	case why != "":
		return void("action %s must not be asked about: %s", a.fixed.Id, why)
	case a.fixed.Compensation.Probe.GetCall().GetCapability() != k.Capability:
		return void("%s is not what the contract of action %s asks", k.Capability, a.fixed.Id)
	case k.Attempt != a.row.Asked+1:
		return void("question %d, but question %d is next", k.Attempt, a.row.Asked+1)
	}
	a.row.Asking, a.row.Asked, a.row.AskedNs = k.Question, k.Attempt, s.e.Record.EpochNs
	a.plan.row.InFlight++
	a.plan.s.meta.Asking++
	askAt(a, 0)
	a.plan.touch()
	a.change()
	a.fly(&rowspb.CommandRow{Asked: k, Arguments: s.e.Record.Payload.GetArguments()})
	return effective
}

// answeredOpenly takes the answer to a question that was asked while its plan was open.
func (s about) answeredOpenly(k *pb.ProbeAnswered) Result {
	p, a := s.a.plan, s.a
	_, known := pb.Presence_name[int32(k.Presence)]
	switch {
	case k.Question != a.row.Asking || k.Attempt != a.row.Asked:
		return void("no such question about action %s is open", a.fixed.Id)
	case !known:
		return void("presence %d is none that this version knows", k.Presence)
	case k.Unserved && unservedQuestion(s.e, a, k) != "":
		return void("%s", unservedQuestion(s.e, a, k))
	}
	a.land()
	absent := k.Presence == pb.Presence_PRESENCE_ABSENT
	switch {
	case k.Presence == pb.Presence_PRESENCE_UNSPECIFIED:
		askAt(a, s.askAgain(k))
	case absent && mayLand(p, a, a.row.AskedNs):
		askAt(a, s.askLanded(k))
	default:
		askAt(a, 0)
		s.foundOpenly(k)
	}
	a.change()
	return effective
}

// askAgain is when the world is asked once more after an answer that settled nothing; 0: it is not,
// for the contract's attempts are spent. What is in doubt then is settled by a commit or an unwind.
// A question that no one serves costs no attempt: it is asked for as long as the plan is open.
func (s about) askAgain(k *pb.ProbeAnswered) int64 {
	a, call := s.a, s.a.fixed.Compensation.Probe.GetCall()
	epoch, tries := min(s.e.Record.EpochNs, epochMax), k.Attempt-a.row.AskedFrom
	switch {
	case asksFrom(a) == 0:
		return 0
	case k.Unserved && s.meta.HolderFold >= ledger.AskedOnSince:
		s.untold(k)
		a.row.AskedFrom = a.row.Asked
		pause := max(unservedAfter(a.fixed.Compensation), unservedPauseMin)
		return epoch + min(pause, openBackoffMax)
	case k.Unserved || tries >= cmp.Or(call.GetAttempts(), attemptsDefault):
		s.untold(k)
		return 0
	}
	first := max(cmp.Or(call.GetBackoffNs(), backoffDefault), openBackoffMin)
	return epoch + doubled(first, max(openBackoffMax, first), tries)
}

// untold says of an action in doubt that its probe does not tell, and why; its agent hears it once.
func (s about) untold(k *pb.ProbeAnswered) {
	a, why := s.a, "no one knows yet"
	if k.Message != "" {
		why = k.Message
	}
	note := clip("in doubt, and its probe does not tell: " + why)
	if again := k.Unserved && a.row.Note == note; !again {
		s.tellPresence("inconclusive", note)
	}
	a.row.Note = note
}

// openBackoffMin and openBackoffMax bound the wait between two questions of an open plan, in ns:
// nothing waits for the answer. One that no one serves is out for its contract's unserved_after,
// and then pauses for as long, at least for unservedPauseMin.
const (
	openBackoffMin   = int64(15e9)
	openBackoffMax   = int64(3600e9)
	unservedPauseMin = int64(60e9)
)

// askLanded is when the world is asked once more after it was too early: as soon as the forward can
// no longer land, or, where no one knows when that is, like after an answer that settled nothing.
func (s about) askLanded(k *pb.ProbeAnswered) int64 {
	a := s.a
	switch by := landsBy(a.plan, a); {
	case asksFrom(a) == 0:
		return 0
	case by == neverNs:
		return s.askAgain(k)
	default:
		a.row.AskedFrom = a.row.Asked
		return max(by, min(s.e.Record.EpochNs, epochMax))
	}
}

// foundOpenly settles the doubt about an action by what the world says of it. Of what is not there
// the agent is told; the world is asked once more when the plan ends.
func (s about) foundOpenly(k *pb.ProbeAnswered) {
	a := s.a
	if sighted(a, finds(k)); !finds(k) {
		a.row.Note = "in doubt; its probe has found nothing, and is asked again when the plan ends"
		s.tellPresence(presenceName(k.Presence), "")
		return
	}
	a.row.Presence, a.row.Note = k.Presence, ""
	a.named(k)
	if k.Presence == pb.Presence_PRESENCE_DUPLICATE {
		s.foundDuplicates(k.Duplicates)
	}
	s.tellPresence(presenceName(k.Presence), "")
	if armed(a.plan.row) {
		a.evaluateAction(s.e.Address)
	}
}

// tellPresence tells the agent of a plan what is known of the effect of an action.
func (s about) tellPresence(presence, why string) {
	p := s.a.plan
	if p.row.Phase != rowspb.Phase_PHASE_OPEN {
		return // it is told of what has become of the plan
	}
	s.notices = append(s.notices, Notice{Plan: p.id, Agent: p.row.Agent, State: ledger.StateOpen,
		Action: s.a.fixed.Id, Presence: presence, Reason: why})
}

// releaseOf gives up the conditions of an action that are held after the commit, as it is known not
// to have happened: there is nothing that they could undo. What has turned true before stays.
func releaseOf(a *action) {
	p := a.plan
	if p.row.HeldOn == 0 {
		return
	}
	for _, l := range a.row.Leases {
		if l.UntilNs != 0 && l.TurnedNs == 0 && l.Cascade != rowspb.Cascade_CASCADE_CUT {
			releaseHeld(p, a, l)
		}
	}
	endsAt(p)
}

// What operators report of an effect. It is there, whatever its caller has said: what follows is
// what follows from its completion. That it is not there, no one reports: the world is asked, or
// its owner answers.

// effectReported takes the word of an operator that an effect is there.
func (s *fold) effectReported(p *plan, k *pb.EffectReported) Result {
	a, output := s.byName(p.id, s.e.Record.Action), s.e.Record.Payload.GetOutput()
	if a == nil {
		return refused("action %s is not registered in plan %s", s.e.Record.Action, p.id)
	}
	extra, known := newExtras(a, k), a.row.Outcome == rowspb.Outcome_OUTCOME_COMPLETED
	name, more := lacks(a)
	adds := name && k.ExternalRef != "" || more && len(output) > 0
	why := cmp.Or(cannotReport(a, k, output), cannotOwe(a, k, extra), cannotReturn(a, output))
	answer := &rowspb.Proposal{Answer: ledger.EffectAnswer(k, output), Actor: k.Actor}
	switch {
	case why != "":
		return refused("%s", why)
	case known && len(extra) == 0 && !adds:
		return repeated
	case !s.about(a).seconded(answer):
		return effective
	}
	switch {
	case known && adds:
		s.about(a).reportedMore(k, output)
	case !known:
		told := &fold{State: s.State, e: s.e, beforeNs: s.beforeNs}
		told.e.Record = &pb.Record{Plan: p.id, Action: a.fixed.Id, Payload: s.e.Record.Payload,
			Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{
				ExternalRef: cmp.Or(k.ExternalRef, a.name())}}}
		told.about(a).outcomeOf()
		a.row.Told = true
		a.change()
		s.about(a).tellPresence(presenceName(pb.Presence_PRESENCE_PRESENT), k.Reason)
	}
	if len(extra) > 0 {
		s.about(a).reportedExtras(extra)
	}
	return effective
}

// isFinal reports whether an action is settled, and what becomes known of its forward now changes
// nothing.
func isFinal(a *action) bool {
	if !settled(a.row.Undo) || a.row.Late {
		return false
	}
	return a.row.Outcome == rowspb.Outcome_OUTCOME_COMPLETED ||
		undoesSeen(a) || a.row.Undo == rowspb.Undo_UNDO_COMPENSATED && refusesLate(a) ||
		a.row.Undo == rowspb.Undo_UNDO_RESOLVED && letStand(a.row.Resolution)
}

// isNamed reports whether it is known what the provider calls the effect of an action, or that
// nothing more will be known of that.
func isNamed(a *action) bool {
	return a.name() != "" || a.row.Outcome == rowspb.Outcome_OUTCOME_COMPLETED
}

// cannotReport says why nothing can be reported of the effect of an action, or "".
func cannotReport(a *action, k *pb.EffectReported, output []byte) string {
	p, id := a.plan, a.fixed.Id
	name, _ := lacks(a)
	open, owedAs := name || a.row.Outcome != rowspb.Outcome_OUTCOME_COMPLETED, isOwed(a, k.ExternalRef)
	switch {
	case a.fixed.Child != "":
		return a.fixed.Child + " is a plan of its own: report of its actions"
	case a.fixed.DutyOf != 0:
		return "action " + id + " is owed already: report of action " + a.origin().fixed.Id
	case a.fixed.Forward.GetClass() == pb.Class_CLASS_EFFECTLESS || a.fixed.Compensation == nil:
		return "action " + id + " has no effect, or no undo, as its contract says"
	case staged(a):
		return "action " + id + " is staged: it happens when its plan is committed, and not before"
	case len(output) > 0 && a.fixed.Compensation.Sealed:
		return "payload.output: the values of action " + id + " are sealed"
	case staysOut(a), staysOut(p.s.byName(p.row.UndoneAs, id)): // of what undoes its plan
		return "action " + id + " was not asked to be undone: it is committed, and keeps what is there"
	case p.row.UndoneAs != "":
		return "plan " + p.id + " is committed: report of plan " + p.row.UndoneAs + ", which undoes it"
	case p.row.Phase == rowspb.Phase_PHASE_COMMITTED && !keeps(p.row) && !anytime(p.s):
		return "plan " + p.id + " is committed: nothing of it is owed, and it keeps what is there"
	case wasLeftOut(p):
		return "plan " + p.id + " is committed, and was left out of what undoes plan " + p.root().id
	case a.asksForCommit() && a.row.Undo != rowspb.Undo_UNDO_HELD && len(a.row.Duplicates) > 0:
		return "action " + id + " waits for its owner: it is there more than once"
	case len(k.Duplicates) == 0 && isFinal(a):
		return "nothing follows: action " + id + " is " + undoName(a.row.Undo) + " since " +
			ledger.FormatAddress(a.row.Settled)
	case open && owedAs != "":
		return "effect_reported.external_ref: \"" + k.ExternalRef + "\" is owed as " + owedAs
	case k.ExternalRef != "" && !name && isNamed(a) && !knowsEffect(a, k.ExternalRef):
		return "effect_reported.external_ref: the effect of action " + id + " is known as \"" + a.name() +
			"\"; name what is there beside it in duplicates"
	}
	return ""
}
