package audit

import (
	"bytes"
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// openedPlan is the first clause of all that is about a plan.
var openedPlan = clause{"I6.plan", "A record is about a plan that was opened.",
	func(c *claim) judgement {
		return unless(c.p != nil, "plan %s was never opened", c.Record.Plan)
	}}

var registeredAction = clause{"I6.action",
	"A record is about an action that is registered in its plan.",
	func(c *claim) judgement {
		return unless(c.a != nil, "action %s is not registered in plan %s", c.Record.Action, c.p.id)
	}}

// ofItsAgent are the clauses of all records of an agent about a plan that is open.
var ofItsAgent = []clause{openedPlan,
	{"I4.agent", "A plan takes the records of the agent that opened it, or got it by an operator.",
		func(c *claim) judgement {
			word := hasHad(c.p, c.Source.Name) && (c.tells() || c.takesBack())
			return unless(c.p.agent == c.Source.Name || word, "plan %s is one of agent %s", c.p.id,
				c.p.agent)
		}},
}

// ofItsWriter are those of all but a process that resumes a plan.
var ofItsWriter = append(ofItsAgent[:2:2],
	clause{"I31.writer", "A plan takes the records of one process of its agent at a time.",
		func(c *claim) judgement {
			return unless(c.fromWriter() || c.takesBack(),
				"plan %s takes the records of process %q, not of %q",
				c.p.id, c.p.writer, c.process())
		}})

// writerAt is the sequence at which the present writer of a plan became that.
func (p *plan) writerAt() uint64 {
	if p.resumedAt != 0 {
		return p.resumedAt
	}
	return p.opened.GetSequence()
}

// fromWriter reports whether a record is one of the plan's writer, or tells that an action that
// its process has registered has happened, or may have. That it has not, only the plan's writer
// tells: that one may have called it once more.
func (c *claim) fromWriter() bool {
	return c.p.agent == c.Source.Name && isWriter(c.p, c.process()) || c.tells()
}

// takesBack reports whether a process says of an act that it has claimed, and that is not
// registered, that it did not happen.
func (c *claim) takesBack() bool {
	return (c.a == nil || !c.fromWriter()) && c.p.takenBack(c.Record, c.process()) >= 0
}

var agentChapters = map[string]*chapter{
	"plan_adopted": {counts: adoptedClauses, collect: noteAdopted},
	"plan_opened": {counts: openingClauses, collect: func(b *book, c *claim) {
		b.addPlan(c.Entry, c.Record.GetPlanOpened())
	}},
	"plan_resumed": {
		counts: append(ofItsAgent[:2:2],
			clause{"I5.resumed", "A process resumes a plan once.", func(c *claim) judgement {
				return copyIf(c.process() == c.p.writer && !c.p.awaited)
			}},
			clause{"I15.resumed", "A plan is resumed while it is open.", func(c *claim) judgement {
				return unless(c.p.phase == ledger.StateOpen && c.p.signal == "", "plan %s is %s",
					c.p.id, c.p.status())
			}},
			clause{"I31.follows", "A process that names the writer it follows takes over from that one.",
				func(c *claim) judgement {
					named := c.Record.GetPlanResumed().Follows
					if named == 0 || c.b.rules < ledger.FollowsSince {
						return judgement{}
					}
					return unless(named == c.p.writerAt(),
						"the writer of plan %s since %d, and not since %d", c.p.id, c.p.writerAt(), named)
				}}),
		collect: func(b *book, c *claim) {
			c.p.writer, c.p.writerSinceNs, c.p.awaited = c.process(), b.now, false
			c.p.resumedAt = c.Address.GetSequence()
		},
	},
	"forward_registered": {counts: append(ofItsWriter[:3:3], forwardClauses...),
		collect: noteForward},
	"compensation_registered": {counts: append(ofItsWriter[:3:3], undoClauses...),
		collect: noteUndo},
	"forward_completed": {counts: append(ofItsWriter[:3:3], outcomeClauses...),
		collect: noteOutcome},
	"forward_failed": {counts: append(ofItsWriter[:3:3], outcomeClauses...),
		collect: noteOutcome},
	"forward_in_doubt": {counts: append(ofItsWriter[:3:3], outcomeClauses...),
		collect: noteOutcome},
	"savepoint_set": {counts: append(ofItsWriter[:3:3], savepointClauses...),
		collect: noteSavepoint},
	"plan_committed": {
		counts: append(ofItsWriter[:3:3], commitClauses...),
		content: []clause{{"I15.commit", "What is committed was open, or is being committed.",
			func(c *claim) judgement {
				return c.p.neverEnded()
			}}},
		collect: noteCommit,
	},
	"plan_failed":    {counts: append(ofItsWriter[:3:3], endClauses...), collect: noteWish},
	"plan_cancelled": {counts: append(ofItsWriter[:3:3], endClauses...), collect: noteWish},
	"unwind_requested": {
		counts: slices.Concat(ofItsWriter, rewindClauses, endClauses),
		collect: func(b *book, c *claim) {
			noteWish(b, c)
			c.p.rewinds = c.Record.GetUnwindRequested().Number
		},
	},
}

var openingClauses = []clause{
	{"I4.deadline", "The deadline of a plan has not passed when it is opened.",
		func(c *claim) judgement {
			k := c.Record.GetPlanOpened()
			earliest := min(c.b.before, c.StampNs) - int64(ledger.DeadlinePastMax)
			return unless(c.p != nil || k.DeadlineNs == 0 || k.DeadlineNs > earliest,
				"plan_opened.deadline_ns: an instant to come, and not one before its opening")
		}},
	openingInput,
	{"I5.unopened", "A plan whose opening was refused is not opened again.",
		func(c *claim) judgement {
			return unless(c.p == nil || !c.p.unopened,
				"another id: the first opening of plan %s was refused", c.Record.Plan)
		}},
	{"I5.opened", "A plan is opened once.", func(c *claim) judgement {
		if c.p == nil {
			return judgement{}
		}
		if openedBy(c.p) == c.Source.Name && c.p.opener == c.Record.Writer && opensSame(c) {
			return judgement{is: copied}
		}
		return breaks("another id: plan %s was opened by agent %s, or otherwise", c.p.id, openedBy(c.p))
	}},
	newPlan, newConditions,
}

var forwardClauses = []clause{
	{"I5.action", "An action is registered once.", func(c *claim) judgement {
		f := c.Record.GetForwardRegistered()
		switch {
		case c.a == nil:
			return judgement{}
		case same(c.a.forward, f) && bytes.Equal(c.a.input, c.Record.Payload.GetInput()):
			return judgement{is: copied}
		}
		return breaks("another id: action %s was registered with another forward or input", c.a.id)
	}},
	{"I15.forward", "A plan that is committed, or resolved by its owner, takes no action.",
		func(c *claim) judgement {
			over := c.p.phase == ledger.StateCommitted || c.p.phase == ledger.StateCommitting ||
				c.p.phase == ledger.StateResolved
			return unless(!over, "plan %s is %s", c.p.id, c.p.phase)
		}},
	{"I6.after", "An action comes after actions of its own plan.", func(c *claim) judgement {
		for _, id := range c.Record.GetForwardRegistered().After {
			if c.p.numberNamed(id) == 0 {
				return breaks("after: registered actions of plan %s, and %s is none", c.p.id, id)
			}
		}
		return judgement{}
	}},
	{"I38.last", "What is not staged comes after nothing that is: that happens last.",
		func(c *claim) judgement {
			f := c.Record.GetForwardRegistered()
			for _, id := range f.After {
				if f.Deliver == nil && c.p.named(id).isStaged() {
					return breaks("after: actions of plan %s that are not staged, and %s is", c.p.id, id)
				}
			}
			return judgement{}
		}},
}

var undoClauses = []clause{
	{"I17.forward", "A compensation comes after the forward of its pair.",
		func(c *claim) judgement {
			return unless(c.a != nil, "its forward_registered counts, before it")
		}},
	{"I5.undo", "A compensation is registered once.", func(c *claim) judgement {
		switch k := c.Record.GetCompensationRegistered(); {
		case c.a.compensation == nil:
			return judgement{}
		case same(c.a.compensation, k):
			return judgement{is: copied}
		}
		return breaks("action %s keeps the compensation that it was registered with", c.a.id)
	}},
	{"I17.commit", "Both halves of a pair are in one commit.", func(c *claim) judgement {
		return unless(c.a.registered.Sequence == c.Address.Sequence,
			"action %s was registered at sequence %d without a compensation", c.a.id,
			c.a.registered.Sequence)
	}},
}

var outcomeClauses = []clause{
	{"I6.outcome", "An outcome is of an action that is registered.", func(c *claim) judgement {
		return unless(c.a != nil || c.takesBack(), "action %s is not registered in plan %s",
			c.Record.Action, c.p.id)
	}},
	{"I38.word", "What is staged happens when its plan is committed: its agent has no word on it.",
		func(c *claim) judgement {
			return unless(c.a == nil || !c.a.isStaged() || c.takesBack(),
				"action %s is staged", c.Record.Action)
		}},
	{"I5.outcome",
		"The first definite outcome counts; after a failure, a completion, or a later writer's doubt.",
		func(c *claim) judgement {
			if c.takesBack() {
				return judgement{}
			}
			return mayBecome(c.b, c.p, c.a, c.Entry)
		}},
}

// mayBecome judges an outcome of an action.
func mayBecome(b *book, p *plan, a *action, e ledger.Entry) judgement {
	switch now, failure, though := saidOf(b, a, e.Record); {
	case staysOut(b, p, a): // what it is committed with has the word
		return judgement{is: copied}
	case a.told:
		return mayAdd(b, p, a, e.Record)
	case a.outcome == completed && namesExtra(b, p, a, e.Record):
		return judgement{is: copied}
	case a.outcome == now && a.heardSame(e.Record, failure):
		return judgement{is: copied}
	case a.outcome == now && !though, a.outcome == completed,
		a.outcome == failed && now == inDoubt && !calledAgain(b, e, a):
		return breaks("the outcome of action %s is %s", a.id, a.outcome)
	}
	return judgement{}
}

// namesExtra: a completion names an effect that is owed already beside the action's own.
func namesExtra(b *book, p *plan, a *action, r *pb.Record) bool {
	return b.rules >= ledger.EffectsSince && isOwed(p, a, r.GetForwardCompleted().GetExternalRef())
}

// outcomeOf is the outcome that a record tells, and why it failed.
func outcomeOf(r *pb.Record) (outcome, failure string) {
	switch k := r.Kind.(type) {
	case *pb.Record_ForwardFailed:
		return failed, join(k.ForwardFailed.Code, k.ForwardFailed.Message)
	case *pb.Record_ForwardInDoubt:
		return inDoubt, join(k.ForwardInDoubt.Code, k.ForwardInDoubt.Message)
	}
	return completed, ""
}

func (a *action) heardSame(r *pb.Record, failure string) bool {
	k := r.GetForwardCompleted()
	if k == nil {
		return a.failure == failure
	}
	return a.externalRef == k.ExternalRef && a.incomplete == k.OutputIncomplete &&
		a.unnamed == k.ReferenceIncomplete &&
		bytes.Equal(a.lifted, k.Lifted) && bytes.Equal(a.output, r.Payload.GetOutput())
}

var savepointClauses = []clause{
	{"I5.savepoint",
		"The savepoints of a plan are numbered from 1, have names of their own, and are bounded.",
		func(c *claim) judgement {
			switch k := c.Record.GetSavepointSet(); {
			case k.Number == 0:
				return breaks("savepoint_set.number: 1 or more")
			case k.Number <= c.p.savepointsSet:
				return judgement{is: copied}
			case c.p.savepoint(k.Name) != nil:
				return breaks("savepoint_set.name: another one than %s, which plan %s has", k.Name,
					c.p.id)
			case len(c.p.savepoints) >= savepointsMax:
				return breaks("plan %s has %d savepoints, as many as it can", c.p.id, savepointsMax)
			}
			return judgement{}
		}},
	{"I15.savepoint", "A savepoint is set in an open plan.", func(c *claim) judgement {
		return unless(c.p.phase == ledger.StateOpen, "plan %s is %s", c.p.id, c.p.status())
	}},
}

var rewindClauses = []clause{
	{"I5.rewind", "The requests of an agent to go back are numbered from 1.",
		func(c *claim) judgement {
			switch k := c.Record.GetUnwindRequested(); {
			case k.Number == 0:
				return breaks("unwind_requested.number: 1 or more")
			case k.Number <= c.p.rewinds:
				return judgement{is: copied}
			}
			return judgement{}
		}},
	beforeItsCommit, knownSavepoint,
}

// beforeItsCommit and knownSavepoint are clauses of all who ask a plan to go back.
var (
	beforeItsCommit = clause{"I15.rewind",
		"A plan that is being committed goes back to no savepoint.",
		func(c *claim) judgement {
			_, _, to := c.wish()
			return unless(to.savepoint == "" || c.p.phase != ledger.StateCommitting,
				"plan %s is being committed", c.p.id)
		}}
	knownSavepoint = clause{"I6.savepoint", "A plan goes back to one of its savepoints.",
		func(c *claim) judgement {
			_, _, to := c.wish()
			there := to.savepoint == "" && c.Record.GetUnwindRequested() == nil
			return unless(there || c.p.savepoint(to.savepoint) != nil,
				"to_savepoint: one of plan %s, and %q is none", c.p.id, to.savepoint)
		}}
)

// endClauses are those of all who ask for a plan's end.
var endClauses = []clause{
	{"I5.end", "The same end of a plan is asked for once.", func(c *claim) judgement {
		signal, reason, to := c.wish()
		p := c.p
		return copyIf(p.signal == signal && p.signalled && p.wanted() == to &&
			p.reason == reason)
	}},
	{"I15.end",
		"An end is asked of an open plan, or of all of one that goes back.",
		func(c *claim) judgement {
			_, _, to := c.wish()
			return unless(c.p.mayTurnTo(to, c.b.rules), "plan %s is %s", c.p.id, c.p.status())
		}},
}

// wish is the end that a record asks of its plan, or of which part of it.
func (c *claim) wish() (signal, reason string, to back) {
	switch k := c.Record.Kind.(type) {
	case *pb.Record_PlanFailed:
		return signalFailed, k.PlanFailed.Reason, back{}
	case *pb.Record_PlanCancelled:
		return signalCancelled, k.PlanCancelled.Reason, back{}
	case *pb.Record_UnwindRequested:
		return signalCancelled, k.UnwindRequested.Reason,
			back{savepoint: k.UnwindRequested.ToSavepoint}
	case *pb.Record_CancelRequested:
		return signalCancelled, byActor(k.CancelRequested.Reason, k.CancelRequested.Actor), back{}
	case *pb.Record_CompensationRequested:
		of := k.CompensationRequested
		return signalCancelled, byActor(of.Reason, of.Actor),
			back{of.ToSavepoint, of.FromAction}
	}
	return "", "", back{}
}

func byActor(reason, actor string) string {
	switch {
	case actor == "":
		return reason
	case reason == "":
		return "asked by " + actor
	default:
		return reason + " (" + actor + ")"
	}
}

func noteWish(b *book, c *claim) {
	signal, reason, to := c.wish()
	if b.wants(c.p, signal, reason, to) {
		operators := c.Record.GetCompensationRequested() != nil
		c.p.counted = operators && to.savepoint != "" && b.rules >= ledger.RewindsSince
	}
}

var commitClauses = []clause{
	{"I5.commit", "A plan is committed once.",
		func(c *claim) judgement { return copyIf(c.p.committed != nil) }},
	{"I15.open", "A plan that is committed is open, and nothing has asked for its end.",
		func(c *claim) judgement {
			return unless(c.p.phase == ledger.StateOpen && c.p.signal == "" && c.p.fired == nil,
				"plan %s was %s before the commit landed", c.p.id, c.p.status())
		}},
	{"I15.parts", "A commit knows of every part of its plan that was undone.",
		func(c *claim) judgement {
			said := c.Record.GetPlanCommitted().Parts
			return unless(said >= c.p.parts, "parts: %d of plan %s were undone, and not %d", c.p.parts,
				c.p.id, said)
		}},
	{"I13.commit", "No commit lands after a lease of its plan that has turned true by no clock.",
		func(c *claim) judgement { return c.p.noneTurned() }},
	{"I15.children", "The child plans of what is committed are committed or undone.",
		func(c *claim) judgement {
			n := c.p.countOpenChildren()
			return unless(n == 0, "%d child plans of plan %s are neither committed nor undone", n,
				c.p.id)
		}},
	{"I31.commit",
		"No commit lands before an answer for each act that was claimed and refused.",
		func(c *claim) judgement {
			names := c.p.openClaims()
			return unless(len(names) == 0, "an answer for %q of plan %s", names, c.p.id)
		}},
	{"I15.root", "A child is committed while its root is open.", func(c *claim) judgement {
		root := c.p.root()
		return unless(root == c.p || root.phase == ledger.StateOpen,
			"plan %s is a part of plan %s, which is %s",
			c.p.id, root.id, root.phase)
	}},
	{"I31.tree", "No commit lands beside a claimed act of a plan that is committed with it.",
		func(c *claim) judgement {
			for _, part := range c.p.below() {
				if part.stillHolds() && len(part.openClaims()) > 0 {
					return breaks("an answer for %q of plan %s", part.openClaims(), part.id)
				}
			}
			return judgement{}
		}},
	{"I13.tree", "No commit lands after a turned lease of a plan that is committed with it.",
		func(c *claim) judgement {
			for _, part := range c.p.below() {
				if j := part.noneTurned(); part.stillHolds() && j.is == broken {
					return j
				}
			}
			return judgement{}
		}},
}

// noneTurned breaks a clause where a lease of the plan has turned true by no clock.
func (p *plan) noneTurned() judgement {
	more := slices.IndexFunc(p.actions, func(a *action) bool { return len(a.duplicates) > 0 })
	switch {
	case more >= 0:
		return breaks("an extra effect of action %s of plan %s was found before, and is owed",
			p.actions[more].id, p.id)
	case !p.turns():
		return judgement{}
	}
	return breaks("lease %s of plan %s turned true before, and fires", p.turned.lease, p.id)
}

// neverEnded is I15 seen from the states: what has ended stays so.
func (p *plan) neverEnded() judgement {
	return unless(p.canStop() || p.phase == ledger.StateCommitted, "plan %s was %s before", p.id,
		p.phase)
}
