package executor

import (
	"cmp"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The commit of a root settles doubt first (I36). A registration that is retired is
// no one's any more, so that what it may have done must be known by then: the world is
// asked where the contract says how, and is not believed to be empty before the forward
// can no longer land; what it cannot tell, the owner does. Meanwhile the plan is
// committing: nothing is retired, its conditions but the deadline are held, and whatever
// asks for an unwind gets one.

// doubtful reports whether an action would be retired though no one knows whether its
// effect is there.
func doubtful(a *action) bool {
	effectless := a.fixed.Forward.GetClass() == pb.Class_CLASS_EFFECTLESS
	return doubted(a) && !settled(a.row.Undo) && !effectless
}

// unanswered reports whether a commit has to settle an action first: its owner has not
// said that it does not matter either.
func unanswered(a *action) bool {
	return (doubtful(a) || foundTooMuch(a)) && a.row.Resolution == nil
}

// committing reports whether the commit of the tree that a plan is part of waits for it.
func (p *plan) committing() bool {
	if !child(p.row) {
		return p.row.Phase == rowspb.Phase_PHASE_COMMITTING
	}
	return keeps(p.row) && p.root().row.Phase == rowspb.Phase_PHASE_COMMITTING
}

// retirable calls each for every action of a root, and of all that is committed with it,
// in order, until it returns false.
func (root *plan) retirable(each func(*plan, *action) bool) {
	of := func(p *plan) bool {
		for n := uint32(1); n <= p.row.Actions; n++ {
			if a := p.action(n); a.fixed.Child == "" && !each(p, a) {
				return false
			}
		}
		return true
	}
	if of(root) {
		root.descendants(func(c *plan) bool { return !keeps(c.row) || of(c) })
	}
}

// inDoubtMax bounds the actions that a HeldSetRetired names.
const inDoubtMax = 256

// inDoubt names what would be retired in doubt.
func (root *plan) inDoubt() (names []string) {
	root.retirable(func(p *plan, a *action) bool {
		if doubtful(a) {
			names = append(names, treeName(root, p, a))
		}
		return len(names) < inDoubtMax
	})
	return names
}

// treeName is an action as its root names it: in what undoes a committed tree, as that does.
func treeName(root, p *plan, a *action) string {
	if p == root {
		return a.fixed.Id
	}
	return cmp.Or(p.row.Origin, p.id) + "/" + a.fixed.Id
}

// mustSettle reports whether the commit of a root has to wait.
func (root *plan) mustSettle() (waits bool) {
	if root.row.Declared.GetDoubtAtCommit() == pb.DoubtAtCommit_DOUBT_AT_COMMIT_ACCEPT {
		return false
	}
	root.retirable(func(_ *plan, a *action) bool {
		waits = unanswered(a)
		return !waits
	})
	return waits
}

// commitLater lets a commit wait until no doubt is left. Its agent has ended it in time:
// the deadline is over.
func (s *fold) commitLater(p *plan) {
	p.row.Committed = s.e.Address
	p.phase(rowspb.Phase_PHASE_COMMITTING)
	p.dropDeadline()
	stopAsking(p)
	p.settleDoubts()
	p.evaluatePlan(s.e.Address)
	p.tell(ledger.StateCommitting)
}

// tell notes what an agent is told of its plan.
func (p *plan) tell(state string) {
	s := p.s
	s.notices = append(s.notices, Notice{Plan: p.id, Agent: p.row.Agent, State: state})
}

// dropDeadline gives up the lease on a plan's deadline.
func (p *plan) dropDeadline() {
	if l, _ := p.lease(rows.Lease{Plan: p.id, Name: LeaseDeadline}); l != nil {
		p.s.index(rows.Lease{Plan: p.id, Name: l.Name}, l, 0, nil, false)
	}
	due := func(t *rowspb.Turned) bool { return t.Action == 0 && t.Lease == LeaseDeadline }
	p.row.Behind = slices.DeleteFunc(p.row.Behind, due)
	if p.row.Turned != nil && due(p.row.Turned) {
		p.nextTurn(anyTurn)
	}
}

// settleDoubts begins to settle what a commit waits for.
func (root *plan) settleDoubts() {
	root.row.Doubts = 0
	root.retirable(func(p *plan, a *action) bool {
		if unanswered(a) {
			p.row.UnwindingNs = root.s.meta.TimeNs // its caller was heard last then
			root.settleDoubt(p, a)
		}
		return true
	})
	root.touch()
}

// settleDoubt begins to settle one. What the others wait for counts from when the commit
// began to wait, and does not move.
func (root *plan) settleDoubt(p *plan, a *action) {
	root.row.Doubts++
	a.makeReady()
	root.touch()
}

// weigh goes on with an action in doubt that something has become known of.
func (a *action) weigh() {
	a.dropRetry()
	if unanswered(a) {
		a.makeReady()
		return
	}
	a.holdAgain()
	root := a.plan.root()
	root.row.Doubts--
	root.touch()
}

// holdAgain gives an action back to the held set.
func (a *action) holdAgain() {
	if a.row.Undo == rowspb.Undo_UNDO_QUARANTINED {
		a.unpageDoubt()
		a.row.Settled, a.row.SettledNs = nil, 0
	}
	if flying(a.row.Undo) {
		a.land()
	}
	a.row.Note, a.row.Proposal = "", nil
	a.dropRetry()
	a.move(rowspb.Undo_UNDO_HELD)
	a.plan.listOwner()
}

// unpageDoubt closes what its owner was paged about an action of a commit that waits: the
// doubt, or a duty that became the owner's meanwhile.
func (a *action) unpageDoubt() {
	p := a.plan
	p.unpage(a, api.PageCommitWaits)
	p.unpage(a, api.PageQuarantined)
}

// knownSince ends the doubt about an action by what its agent reports.
func (a *action) knownSince() {
	p := a.plan
	switch {
	case !p.committing() || settled(a.row.Undo):
	case a.row.Undo != rowspb.Undo_UNDO_HELD && !unanswered(a):
		a.weigh()
	case a.row.Undo == rowspb.Undo_UNDO_HELD && unanswered(a): // what was known of it was too early
		p.root().settleDoubt(p, a)
	}
}

// asksForCommit reports whether an action is still part of a held set that is being
// committed: what is under way about it undoes nothing.
func (a *action) asksForCommit() bool {
	return !settled(a.row.Undo) && a.plan.committing()
}

// doubtsIn reports whether a commit waits for something in a plan, or a part of it.
func (p *plan) doubtsIn() (found bool) {
	if keeps(p.row) {
		p.retirable(func(_ *plan, a *action) bool {
			found = unanswered(a)
			return !found
		})
	}
	return found
}

// stopSettling ends what a commit has begun: the tree unwinds.
func (root *plan) stopSettling() {
	root.retirable(func(p *plan, a *action) bool {
		if a.row.Undo != rowspb.Undo_UNDO_HELD && !settled(a.row.Undo) {
			askUnnamed(a)
			a.holdAgain()
		}
		return true
	})
	root.row.Doubts = 0
}

// foundAtCommit goes on with an action in doubt when the world has answered. What it
// finds too much of is its owner's: nothing unwinds that a duty could belong to.
func (a *action) foundAtCommit(k *pb.ProbeAnswered) {
	known, extras := a.row.Outcome == rowspb.Outcome_OUTCOME_COMPLETED, k.Duplicates
	if known && a.name() != "" { // by what its agent calls its own
		extras = extrasBeside(a, append([]string{k.ExternalRef}, extras...))
	} else {
		a.named(k)
	}
	a.row.Duplicates = nil
	if k.Presence == pb.Presence_PRESENCE_DUPLICATE && (!known || len(extras) > 0) {
		a.row.Duplicates, a.row.Note = extras, extraEffects(extras)
		a.land()
		a.park()
		return
	}
	if !known { // its undo looks for itself
		a.row.Presence = k.Presence
	}
	a.land()
	a.weigh()
}

// commitStep says how the doubt about an action is settled.
func commitStep(a *action) (step, string) {
	if a.fixed.Compensation.GetProbe() == nil {
		forward := a.fixed.Forward.GetCapability()
		return stepQuarantine, "in doubt, and the contract of " + forward + " has no probe"
	}
	return stepProbe, ""
}

// commitWaits gives a doubt that a commit waits for to the owner of the action.
func (s about) commitWaits(k *pb.CommitWaits) Result {
	p, a := s.a.plan, s.a
	switch a.row.Undo {
	case rowspb.Undo_UNDO_READY, rowspb.Undo_UNDO_SETTLING:
		if why := s.settles(); why != "" {
			return void("%s", why)
		}
		a.dropRetry()
	case rowspb.Undo_UNDO_EXHAUSTED:
	case rowspb.Undo_UNDO_WAITING: // its next question cannot be built
		a.land()
	default:
		return void("the commit of plan %s does not wait for action %s", p.root().id, a.fixed.Id)
	}
	a.row.Note = k.Reason
	a.settle(rowspb.Undo_UNDO_QUARANTINED, s.e.Address)
	p.listOwner()
	p.page(a, api.PageCommitWaits, "its plan cannot be committed: "+k.Reason, s.e.Address)
	return effective
}

// answeredAtCommit takes the owner's word on an action that a commit waits for.
func (s about) answeredAtCommit(k *pb.Resolved) Result {
	p, a := s.a.plan, s.a
	switch {
	case k.Outcome == pb.Resolution_RESOLUTION_LOST:
		return refused("resolved.outcome: lost, and nothing of plan %s is being undone; "+
			"want accepted (it is there, and stays), done (it is not there) or skipped", p.id)
	case k.Halt:
		return refused("resolved.halt: given, and nothing of plan %s is being undone; "+
			"want none", p.id)
	case !s.seconded(&rowspb.Proposal{Answer: resolutionName(k.Outcome), Actor: k.Actor}):
		return effective
	}
	a.row.Resolution, a.row.ResolvedBy = k, s.e.Source.Name
	p.row.ByHand = true // should it be undone after all
	switch duplicate := len(a.row.Duplicates) > 0; {
	case k.Outcome == pb.Resolution_RESOLUTION_ACCEPTED,
		k.Outcome == pb.Resolution_RESOLUTION_DONE && duplicate:
		a.row.Presence = pb.Presence_PRESENCE_PRESENT
	case k.Outcome == pb.Resolution_RESOLUTION_DONE:
		a.row.Presence, a.row.There = pb.Presence_PRESENCE_ABSENT, false
	}
	a.row.Duplicates = nil
	a.weigh()
	return effective
}

// askedAgain has the world asked once more about an action that a commit waits for.
func (s about) askedAgain(k *pb.RetryRequested) Result {
	a := s.a
	switch {
	case k.NewKey, k.Overwrite:
		field := map[bool]string{true: "new_key", false: "overwrite"}[k.NewKey]
		return refused("retry_requested.%s: given, and nothing of plan %s is being undone; "+
			"want none", field, a.plan.id)
	case a.fixed.Compensation.GetProbe() == nil:
		return refused("there is nothing to retry: the contract of %s has no probe",
			a.fixed.Forward.GetCapability())
	case !s.seconded(&rowspb.Proposal{Answer: "retry", Force: k.Force, Actor: k.Actor}):
		return effective
	}
	a.unpageDoubt()
	if extras := a.row.Duplicates; s.meta.HolderFold >= ledger.SurplusSince {
		askUnnamed(a)
		a.row.Duplicates = extras // until the world has answered
	} else {
		askUnnamed(a)
	}
	a.row.Settled, a.row.SettledNs, a.row.Note = nil, 0, ""
	a.weigh()
	a.plan.listOwner()
	return effective
}

// uncommitted says why a commit that waits cannot be made now, or "".
func (p *plan) uncommitted() (why string) {
	turned := func(c *plan) bool { return c.row.Turned != nil && !c.row.Turned.Clocked }
	switch {
	case p.row.Signal != rowspb.Signal_SIGNAL_NONE || p.row.Fired != nil || turned(p):
		return "it is being undone"
	case p.row.Doubts > 0:
		return "some of its actions are in doubt"
	case p.row.OpenChildren > 0:
		return "some of its child plans are neither committed nor undone"
	case p.orphanedBelow() != "":
		return "acts were claimed by records that were refused, and wait for its owner: " +
			p.orphanedBelow()
	}
	p.descendants(func(c *plan) bool {
		if keeps(c.row) && turned(c) {
			why = "child plan " + c.id + " is being undone"
		}
		return why == ""
	})
	return why
}

// commitRoot retires the held set of a root and of all that is part of it, at once.
func (p *plan) commitRoot(at *pb.Address) {
	p.row.Turned, p.row.Behind = nil, nil
	p.row.InDoubt = p.inDoubt()
	p.row.EndedNs = p.s.meta.TimeNs
	holdOn(p)
	parts := toDeliver(p)
	p.row.RetiredCount = p.retire()
	p.phase(rowspb.Phase_PHASE_COMMITTED)
	lookOn(p, at)
	openDelivery(p, parts, at)
}

// heldSetRetired follows the commit of a root, or makes one that has waited; that
// retires what is part of it, too.
func (s *fold) heldSetRetired(p *plan, k *pb.HeldSetRetired) Result {
	names, late := p.row.InDoubt, p.row.Phase == rowspb.Phase_PHASE_COMMITTING
	switch {
	case late && p.uncommitted() != "":
		return void("plan %s is not committed: %s", p.id, p.uncommitted())
	case late:
		names = p.inDoubt()
	case p.row.Phase != rowspb.Phase_PHASE_COMMITTED || p.row.Retired || child(p.row):
		return void("plan %s is %s and has nothing to retire", p.id, statusName(p.row))
	}
	switch {
	case !slices.Equal(names, k.InDoubt):
		return void("it names %q in doubt, and these are %q", k.InDoubt, names)
	case late && s.meta.HolderFold >= ledger.OthersSince && k.Count != p.heldCount():
		return void("it counts %d registrations, and these are %d", k.Count, p.heldCount())
	case late:
		p.commitRoot(s.e.Address)
	}
	p.row.Retired, p.row.InDoubt = true, nil
	p.tell(ledger.StateCommitted)
	p.touch()
	return effective
}

// commitWork reports whether a commit that waits calls for a decision about a plan.
func commitWork(p *plan) bool {
	r := p.row
	return len(r.Parked) > 0 || len(r.Ready) > 0 && r.InFlight < concurrency(r) ||
		r.Phase == rowspb.Phase_PHASE_COMMITTING && r.Doubts == 0 && r.OpenChildren == 0 &&
			r.Signal == rowspb.Signal_SIGNAL_NONE && p.orphanedBelow() == ""
}

// closingStep takes the next step of a plan whose commit waits or was made.
func (d *decider) closingStep(p *plan) bool {
	switch t := p.row.Turned; {
	case p.row.Fired != nil:
		return d.unwind(p)
	case p.row.Phase == rowspb.Phase_PHASE_COMMITTED && !child(p.row) && !p.row.Retired:
		return d.retire(p, p.row.RetiredCount, p.row.InDoubt)
	case t != nil && !t.Clocked:
		if turnedSince(p.row) {
			return !waitsForPart(p) && d.fireTurned(firstSince(p.root()))
		}
		return d.fireTurned(p)
	default:
		return (child(p.row) || p.row.Phase == rowspb.Phase_PHASE_COMMITTING) && d.commitStep(p)
	}
}

// commitStep takes the next step of a commit that waits.
func (d *decider) commitStep(p *plan) bool {
	switch {
	case len(p.row.Parked) > 0:
		a := d.state.action(p.id, p.row.Parked[len(p.row.Parked)-1])
		return d.quarantine(p, a, d.quarantineReason(a))
	case len(p.row.Ready) > 0 && p.row.InFlight < concurrency(p.row):
		return d.next(p, d.state.action(p.id, p.row.Ready[len(p.row.Ready)-1]))
	case child(p.row) || p.uncommitted() != "":
		return false
	case d.state.memory.Occurred(): // a fact of this very commit may turn a lease of the plan
		return false
	default:
		return d.retire(p, p.heldCount(), p.inDoubt())
	}
}

func (d *decider) retire(p *plan, count uint32, inDoubt []string) bool {
	return d.propose(&pb.Record{Plan: p.id, Cause: p.row.Committed, Kind: &pb.Record_HeldSetRetired{
		HeldSetRetired: &pb.HeldSetRetired{Count: count, InDoubt: inDoubt}}})
}

// asks reports whether questions about a plan's actions may be out.
func (p *plan) asks() bool {
	return p.row.Phase == rowspb.Phase_PHASE_UNWINDING || p.committing()
}

// turnedBefore refuses a commit: something of its plan is to be undone.
func turnedBefore(p *plan) Result {
	if p.row.Turned == nil || p.row.Turned.Clocked {
		return refused("an extra effect of action %s of plan %s was found before the commit landed, and "+
			"is to be undone", p.action(p.row.Duplicated[0]).fixed.Id, p.id)
	}
	return refused("lease %s of plan %s turned true at %s, before the commit landed",
		p.row.Turned.Lease, p.id, ledger.FormatAddress(p.row.Turned.At))
}
