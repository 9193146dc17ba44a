package audit

import (
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The questions of an unwind, and their answers.
var askClauses = []clause{
	{"I20.question", "A question is the one that the contract asks.", func(c *claim) judgement {
		k := c.Record.GetProbeAsked()
		call := questionCall(c.a.compensation, k.Question)
		return unless(call != nil && call.Capability == k.Capability,
			"%q, and not %s: so asks the contract of action %s",
			call.GetCapability(), k.Capability, c.a.id)
	}},
	{"I20.ask", "A question is asked where its answer decides what comes next.",
		func(c *claim) judgement {
			k := c.Record.GetProbeAsked()
			return unless(c.b.asksNext(c.p, c.a, k, c.p.isReady(c.a)),
				"the undo of action %s is %s",
				c.a.id, state{c.p, c.a})
		}},
	{"I29.asked", "No effect is asked about before its forward has had its time.",
		func(c *claim) judgement {
			switch c.Record.GetProbeAsked().Question {
			case pb.Question_QUESTION_EFFECT, pb.Question_QUESTION_UNCHANGED:
				return landedFirst(settlesBy)(c)
			default:
				return judgement{}
			}
		}},
	nextQuestion,
}

var nextQuestion = clause{"I20.number", "The questions about an action are numbered from 1.",
	func(c *claim) judgement {
		n := c.Record.GetProbeAsked().Attempt
		return unless(n == c.a.asked+1, "question %d about action %s is next, and not %d",
			c.a.asked+1,
			c.a.id, n)
	}}

var foundClauses = []clause{
	{"I20.open", "An answer is to the question that is out.", func(c *claim) judgement {
		k, a := c.Record.GetProbeAnswered(), c.a
		open := a.undo == dispatched && a.asking == k.Question && a.asked == k.Attempt &&
			k.Question != pb.Question_QUESTION_UNSPECIFIED
		return unless(open, "the undo of action %s is %s, at question %d", a.id, state{c.p, a},
			a.asked)
	}},
	{"I20.presence", "An answer has a presence that this version knows.", func(c *claim) judgement {
		_, known := pb.Presence_name[int32(c.Record.GetProbeAnswered().Presence)]
		return unless(known, "a presence that this version knows")
	}},
	{"I20.unserved", "A question that no one has answered has found nothing.",
		func(c *claim) judgement {
			k := c.Record.GetProbeAnswered()
			return unless(!k.Unserved || k.Presence == pb.Presence_PRESENCE_UNSPECIFIED,
				"no presence of action %s", c.a.id)
		}},
	{"I20.change", "An answer says of a change what its contract asks for, and no more.",
		func(c *claim) judgement {
			k, a := c.Record.GetProbeAnswered(), c.a
			_, known := pb.Change_name[int32(k.Change)]
			there := k.Presence == pb.Presence_PRESENCE_PRESENT ||
				k.Presence == pb.Presence_PRESENCE_DUPLICATE
			waits := k.Question == pb.Question_QUESTION_UNCHANGED ||
				k.Question == pb.Question_QUESTION_UNDO && a.askedToSend
			if k.Change == pb.Change_CHANGE_UNSPECIFIED {
				return unless(!waits || !there || !a.asksForChange(), "whether action %s was changed",
					a.id)
			}
			may := a.compensation.GetUnchanged() != "" && k.Question != pb.Question_QUESTION_VERIFY &&
				k.Presence != pb.Presence_PRESENCE_UNSPECIFIED
			return unless(known && may, "nothing of a change of action %s", a.id)
		}},
	{"I23.question", "A question is given up as served by no one after the time of its contract.",
		func(c *claim) judgement {
			until := c.a.offeredUntil()
			return unless(!c.Record.GetProbeAnswered().Unserved || c.Record.EpochNs >= until,
				"the question about action %s is offered until %d", c.a.id, until)
		}},
}

// openClauses are asked of a question while its plan is open.
var openClauses = append(aboutAction[:3:3],
	clause{"I20.openly", "An open plan asks the probe about what is in doubt.",
		func(c *claim) judgement {
			k := c.Record.GetProbeAsked()
			call := c.a.compensation.GetProbe().GetCall()
			due := c.a.askNs != 0 && asksFrom(c.b, c.p, c.a) != 0
			return unless(due && k.Question == pb.Question_QUESTION_EFFECT &&
				call.GetCapability() == k.Capability &&
				!hasNoName(c.b, c.p, c.a, call.GetBindings()),
				"no question about action %s: it is %s, and its undo %s", c.a.id, c.a.outcome,
				c.a.undo)
		}},
	clause{"I20.lasts", "A doubt of an open plan is asked about once it has lasted.",
		func(c *claim) judgement {
			return unless(c.Record.EpochNs >= c.a.askNs, "at %d or later about action %s",
				c.a.askNs, c.a.id)
		}},
	nextQuestion)

// doubtChapters are those of actions in doubt that an open plan asks about, or that a commit
// waits for.
var doubtChapters = map[string]*chapter{
	"probe_asked of an open plan": {counts: openClauses, content: questionContent,
		collect: noteAskedOpenly},
	"probe_answered of an open plan": {
		counts: append(append(aboutAction[:3:3],
			clause{"I20.heard", "An answer about a doubt is to the question that its open plan has asked.",
				func(c *claim) judgement {
					k := c.Record.GetProbeAnswered()
					return unless(k.Question == c.a.asking && k.Attempt == c.a.asked,
						"question %d about action %s is out", c.a.asked, c.a.id)
				}}), foundClauses[1:]...),
		collect: noteAnsweredOpenly,
	},
	"probe_asked for a commit": {
		counts: append(aboutAction[:3:3],
			clause{"I20.doubt", "A commit asks the probe whether an effect is there.",
				func(c *claim) judgement {
					k := c.Record.GetProbeAsked()
					call := c.a.compensation.GetProbe().GetCall()
					effect := k.Question == pb.Question_QUESTION_EFFECT
					return unless(effect && call != nil && call.Capability == k.Capability,
						"%q about the effect of action %s", call.GetCapability(), c.a.id)
				}},
			clause{"I20.waits", "A commit asks about what it waits for.", func(c *claim) judgement {
				return unless(c.a.doubt == doubtDue || c.a.doubt == doubtAgain,
					"no commit waits for an answer about action %s", c.a.id)
			}},
			clause{"I29.doubt", "No commit asks before a forward has had its time.",
				landedFirst(func(c *claim) int64 { return c.p.doubtBy(c.a) })},
			nextQuestion),
		content: questionContent,
		collect: noteDoubtAsked,
	},
	"probe_answered for a commit": {
		counts: append(aboutAction[:3:3],
			clause{"I20.answer", "An answer for a commit is to the question that is out.",
				func(c *claim) judgement {
					k, a := c.Record.GetProbeAnswered(), c.a
					_, known := pb.Presence_name[int32(k.Presence)]
					none := k.Change == pb.Change_CHANGE_UNSPECIFIED
					return unless(a.doubt == doubtAsked && k.Question == a.asking &&
						k.Attempt == a.asked && known && none,
						"no such question about action %s is out", a.id)
				}}),
		collect: noteDoubtAnswered,
	},
	"commit_waits": {
		counts: append(aboutAction[:3:3],
			clause{"I15.committing", "An owner is asked about a doubt while a commit waits.",
				func(c *claim) judgement {
					return unless(c.p.isCommitting(), "plan %s is %s", c.p.id, c.p.status())
				}},
			clause{"I36.owner", "An owner is asked where no question is out, and none is left.",
				func(c *claim) judgement {
					d := c.a.doubt
					return unless(d != "" && d != doubtAsked && d != doubtGiven,
						"no commit waits for the owner of action %s", c.a.id)
				}},
			clause{"I29.owner", "No owner is asked before a forward has had its time.",
				landedFirst(func(c *claim) int64 { return c.p.doubtBy(c.a) })}),
		collect: noteCommitWaits,
	},
}

// What is told of an effect after it was reported.

// toldAs is the action whose undo is of the effect that was reported of an action: that one, or a
// duty of it.
func toldAs(p *plan, a *action) *action {
	if a.doubtedAs != 0 {
		return p.actions[a.doubtedAs-1]
	}
	for _, d := range p.actions {
		if d.dutyOf == a.n && sameAddress(d.registered, a.toldAt) {
			return d
		}
	}
	return a
}

// lacks says what a report may still add to an earlier one until the undo of the effect is sent.
func lacks(b *book, p *plan, a *action) (name, output bool) {
	of := toldAs(p, a)
	if !a.told || isSent(b, of) {
		return false, false
	}
	return a.nameOf() == "" && of.nameOf() == "", len(a.output) == 0
}

// isSent is hasBegun, but for an undo before whose first attempt the world is asked: that reads
// what becomes known until then.
func isSent(b *book, a *action) bool {
	asks := a.attempt == 0 && a.ahead == nil && a.isOut() && b.rules >= ledger.ReturnedSince
	return a.hasBegun() && !asks
}

func (c *claim) addsToReport() bool {
	name, more := lacks(c.b, c.p, c.a)
	return name && c.Record.GetEffectReported().ExternalRef != "" ||
		more && len(c.Record.Payload.GetOutput()) > 0
}

// addsReport keeps what a report adds to an earlier one.
func addsReport(b *book, c *claim) {
	for _, a := range slices.Compact([]*action{c.a, toldAs(c.p, c.a)}) {
		if a.nameOf() == "" {
			a.externalRef = c.Record.GetEffectReported().ExternalRef
		}
		if len(a.output) == 0 {
			a.output = c.Record.Payload.GetOutput()
		}
		a.wordAt = c.Address.Sequence
		b.lookAction(c.p, a)
	}
}

// What is asked of a delivery.

// mayDeliver: another attempt of a delivery may be asked for.
func mayDeliver(p *plan, a *action) bool {
	return p.isDelivery(a) && a.outcome != completed && p.stopped == nil
}

// goesOn: a delivery has not ended, or has yet to begin as a part of another.
func goesOn(p *plan) bool { return p != nil && (!p.isOver() || p.stillHolds()) }

// cancelClauses are those of an operator who cancels: a plan, or what is left of a delivery.
var cancelClauses = append([]clause{openedPlan,
	{"I38.cancel", "A delivery is cancelled whole, once, and before it has ended.",
		func(c *claim) judgement {
			p := c.p
			return unless(!p.delivers || p.parent == nil && p.stopped == nil && !p.isClosed(),
				"plan %s is stopped, or %s, or a part of another", p.id, p.phase)
		}}},
	ofPlans(endClauses)...)

// ofPlans has clauses ask nothing of a plan that delivers.
func ofPlans(clauses []clause) (out []clause) {
	for _, k := range clauses {
		judge := k.judge
		k.judge = func(c *claim) judgement {
			if c.p.delivers {
				return judgement{}
			}
			return judge(c)
		}
		out = append(out, k)
	}
	return out
}

func noteCancel(b *book, c *claim) {
	if !c.p.delivers {
		noteWish(b, c)
		return
	}
	_, reason, _ := c.wish()
	stopDelivery(c.p, c.Address, reason)
}

var verdictClauses = slices.Concat([]clause{openedPlan, registeredAction}, stagedVerdicts,
	reachClauses)

// stagedVerdicts say which verdicts count on what is staged.
var stagedVerdicts = []clause{
	{"I38.judged", "A verdict is given on an act in the plan that has staged it.",
		func(c *claim) judgement {
			return unless(!c.p.delivers, "plan %s delivers plan %s", c.p.id, c.p.origin)
		}},
	{"I38.blocked", "What was delivered, or dropped, is not blocked any more.",
		func(c *claim) judgement {
			d := c.b.plan(c.p.deliveredAs)
			if d == nil || c.Record.GetVerdictGiven().Outcome == pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW {
				return judgement{}
			}
			a := d.named(c.a.id)
			return unless(a == nil || !a.isSettled(), "action %s of plan %s has ended", c.a.id, d.id)
		}},
}

// stopsDelivery has a block on a staged act of a committed plan stop what delivers it.
func stopsDelivery(b *book, c *claim) {
	d := b.plan(c.p.root().deliveredAs)
	allows := c.Record.GetVerdictGiven().Outcome == pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW
	if goesOn(d) && c.a.isStaged() && !allows {
		stopDelivery(d, c.Address, verdictText(c.a))
	}
}

// How a delivery is stopped, and taken up by what undoes its plan.

// isRecalled: what undoes the committed plan has taken up what delivers it.
func isRecalled(p *plan) bool { return p.delivers && !p.root().delivers }

// stopDelivery drops what of a delivery has no attempt.
func stopDelivery(p *plan, at *pb.Address, why string) {
	for _, a := range p.actions {
		if a.child != nil {
			stopDelivery(a.child, at, why)
		}
	}
	if p.stopped != nil || p.isClosed() && !p.stillHolds() {
		return
	}
	p.stopped, p.reason = at, why
	for _, a := range p.actions {
		if a.undo == waiting && a.asking == pb.Question_QUESTION_UNSPECIFIED {
			a.dropCall()
			a.undo = owed
		}
	}
}

// recall stops the delivery of a committed plan, and takes what was delivered into what undoes it.
func recall(b *book, p, u *plan, at *pb.Address, why string) {
	d := b.plan(p.deliveredAs)
	if d == nil {
		return
	}
	stopDelivery(d, at, why)
	if !hasRest(d) {
		return
	}
	var last []uint32
	for _, a := range u.actions {
		if !slices.ContainsFunc(u.actions,
			func(x *action) bool { return slices.Contains(x.before, a.n) }) {
			last = append(last, a.n)
		}
	}
	entry := u.addAction(&action{id: entryPrefix + d.id, registered: at, atNs: b.now, before: last,
		child: d})
	d.parent, d.entry, d.declared.ParentPlan = u, entry.n, u.id
	takeUp(b, d, u.lastGoes)
}

// hasRest: something of a delivery was made, or may be.
func hasRest(p *plan) bool {
	return slices.ContainsFunc(p.actions, func(a *action) bool {
		if a.child != nil {
			return hasRest(a.child)
		}
		return a.undo == compensated || !a.isSettled()
	})
}

// takeUp has what was delivered owed.
func takeUp(b *book, p *plan, lastGoes bool) {
	for _, a := range p.actions {
		if a.child != nil {
			takeUp(b, a.child, lastGoes)
		}
	}
	p.lastGoes = lastGoes
	for _, a := range p.actions {
		a.undoneNow = false
	}
	if p.phase == ledger.StateFailed || p.phase == ledger.StateCommitted {
		return
	}
	b.goOn(p)
	for _, a := range p.actions {
		switch {
		case a.child != nil:
		case a.undo == quarantined:
			a.letsGo = a.letsGo || p.isLast(a)
		case a.undo == compensated:
			a.undo, a.settled, a.settledNs = owed, nil, 0
		}
	}
}

// deliveredInOrder is I38, by a walk over the order of the tree that was committed: what comes
// before an act there, at any remove and above it, has been passed in what delivers it.
var deliveredInOrder = clause{"I38.order",
	"A staged act is delivered when all that is staged before it in its tree has been passed.",
	func(c *claim) judgement {
		if !c.p.isDelivery(c.a) || c.a.undo != owed {
			return judgement{}
		}
		a := c.a
		for p := c.p; p.delivers; p = p.parent {
			if first := notPassed(c.b, p, a); first != nil {
				return breaks("action %s of plan %s first, which is %s", first.id, p.id, state{p, first})
			}
			if p.parent == nil {
				break
			}
			a = p.parent.actions[p.entry-1]
		}
		return judgement{}
	}}

// notPassed is what of a delivery is to be passed before one of its acts, and is not; nil: all
// of it is. What was staged earlier has a higher number there, and has mostly been passed.
func notPassed(b *book, p *plan, act *action) *action {
	waits := map[string]*action{}
	for _, a := range p.actions[act.n:] {
		switch {
		case a.dutyOf != 0, p.letsGo(a):
		case a.child != nil:
			waits[entryPrefix+a.child.origin] = a
		default:
			waits[a.id] = a
		}
	}
	if len(waits) == 0 {
		return nil
	}
	origin, id := b.plan(p.origin), act.id
	if act.child != nil {
		id = entryPrefix + act.child.origin
	}
	before := map[uint32]bool{}
	for left := slices.Clone(origin.named(id).before); len(left) > 0; {
		a := origin.actions[left[len(left)-1]-1]
		if left = left[:len(left)-1]; before[a.n] {
			continue
		}
		if x := waits[a.id]; x != nil {
			return x
		}
		before[a.n] = true
		left = append(left, a.before...)
	}
	return nil
}

var deliveredOnce = clause{"I38.once", "A staged act is delivered once.",
	func(c *claim) judgement {
		again := c.p.isDelivery(c.a) && (c.a.successes > 0 || c.a.outcome == completed)
		return unless(!again, "action %s was delivered", c.a.id)
	}}

// questionCall is the call that a question makes.
func questionCall(c *pb.CompensationRegistered, q pb.Question) *pb.Call {
	if q == pb.Question_QUESTION_VERIFY {
		return c.GetVerify().GetCall()
	}
	return c.GetProbe().GetCall()
}
