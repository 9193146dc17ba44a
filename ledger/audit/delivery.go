package audit

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Staged acts. What cannot be undone may be delivered when its root has committed, and not before.

// isStaged: the act of an action is not its agent's to make.
func (a *action) isStaged() bool { return a.forward.GetDeliver() != nil }

// newest are the actions that the next one comes after by default: the one registered last, and
// the duties that have come since. None of them is staged, unless the next one is: it comes after
// the last staged one as well.
func (p *plan) newest(last bool) (before []uint32) {
	done := false
	for i := len(p.actions) - 1; i >= 0; i-- {
		a := p.actions[i]
		if a.isStaged() {
			if last {
				before = append(before, a.n)
				break
			}
			continue
		}
		if !done {
			before = append(before, a.n)
		}
		done = done || a.dutyOf == 0
		if done && !last {
			break
		}
	}
	slices.Sort(before)
	return before
}

// The plan that delivers what is staged in a committed one: PLAN~0, and one for each part of it.
// The act that is to be first has the highest number, and each comes after the one below it.

// deliveryOf makes it, of a tree that is committed now; nil: nothing is staged there.
func deliveryOf(b *book, p *plan, parent string, tree []*plan) *plan {
	if !slices.Contains(tree, p) {
		return nil
	}
	id := p.id + "~0"
	var list []*action
	for _, a := range p.actions {
		if a.undo == held && (a.isStaged() ||
			a.child != nil && deliveryOf(b, a.child, id, tree) != nil) {
			list = append(list, a)
		}
	}
	if len(list) == 0 {
		return nil
	}
	d := proto.CloneOf(p.declared)
	d.DeadlineNs, d.Triggers, d.ParentPlan, d.ParentAction = 0, nil, parent, ""
	u := &plan{id: id, agent: p.agent, earlier: p.earlier, adoptedFrom: p.adoptedFrom,
		opened: b.at, openedNs: b.now,
		declared: d, input: p.input, origin: p.id,
		phase: ledger.StateCommitted, depth: p.depth, opener: p.opener, writer: p.writer,
		proposals: map[string]*proposal{}, delivers: true,
		reason: "plan " + p.id + " was committed"}
	b.join(u, p.family)
	p.deliveredAs = id
	for i := len(list) - 1; i >= 0; i-- {
		a := list[i]
		c := &action{id: a.id, registered: a.registered, atNs: a.atNs, writer: a.writer,
			forward: a.forward, input: a.input, facts: a.facts, factsLost: a.factsLost}
		if n := len(u.actions); n > 0 {
			c.before = []uint32{uint32(n)}
		}
		if a.child == nil {
			c.compensation = a.forward.Deliver
			c.key = ledger.Key(b.tenant, p.id, a.id, ledger.PurposeDo)
		} else {
			c.child = b.plan(a.child.id + "~0")
			c.id = entryPrefix + c.child.id
		}
		u.addAction(c)
		if c.child != nil {
			c.child.parent, c.child.entry, c.child.committed = u, c.n, a.child.committed
		}
	}
	return u
}

// openDelivery begins to deliver what is staged in a tree that is committed now.
func openDelivery(b *book, root *plan, tree []*plan) {
	d := deliveryOf(b, root, "", tree)
	if d == nil {
		return
	}
	d.unwinding, d.unwindingNs = b.at, b.now
	b.setPhase(d, ledger.StateUnwinding)
	for _, a := range d.actions {
		a.undo = owed
	}
}

// isDelivery: what is owed of an action is the act itself.
func (p *plan) isDelivery(a *action) bool { return p.delivers && a.child == nil && a.dutyOf == 0 }

// isDoubtful: no one knows of an attempt since the owner's last word whether it was carried out.
func (a *action) isDoubtful() bool { return a.unsureOf > a.attemptsFrom }

// isSafe: another attempt cannot make the act twice, also if it lands as late as it may.
func (a *action) isSafe(ns int64) bool {
	return !a.isDoubtful() || max(ns-a.sentNs, 0)+a.landsIn() < a.compensation.GetDedupeNs()
}

// landsIn is for how long, in ns, an attempt of a delivery may land.
func (a *action) landsIn() int64 {
	return ledger.SettleNs(a.forward.SettleNs, callTimeout(a.compensation))
}

// deliveryNext says what is to be done with an act whose turn it is.
func deliveryNext(b *book, p *plan, a *action) string {
	switch {
	case a.outcome == completed:
		return doQuarantine
	case p.stopped != nil && a.unsureOf == 0:
		return doSkip
	case p.stopped != nil, a.compensation.GetSealed() && b.isErased(p),
		!a.isSafe(b.now) && a.compensation.GetProbe() == nil:
		return doQuarantine
	}
	return doDispatch
}

// noteDelivered keeps that an act was made.
func noteDelivered(b *book, c *claim) {
	a, k := c.a, c.Record.GetCompensationSucceeded()
	a.dropCall()
	a.successes++
	a.outcome, a.outcomeNs, a.unsureOf, a.aliveUntilNs = completed, b.now, 0, 0
	a.externalRef = cmp.Or(k.ExternalRef, a.nameOf())
	if output := c.Record.Payload.GetOutput(); len(output) > 0 {
		a.output = output
	}
	a.noteSaid(k.Attempt)
	if isRecalled(c.p) {
		a.undo = owed
	} else {
		b.closeAction(c.p, a, compensated, c.Address)
	}
	if a.ownKey(k.Attempt) && a.knownFailed != a.attempt && !a.wasSaid(a.attempt) {
		a.noteSaid(a.attempt)
		owesUndone(b, c)
	}
}

// leftUnsure: the owner has an act sent again before the attempt that is out has an answer.
func leftUnsure(b *book, p *plan, a *action) {
	if p.isDelivery(a) && a.undo == dispatched && a.asking == pb.Question_QUESTION_UNSPECIFIED {
		alive := a.landsIn()
		a.unsureOf, a.aliveUntilNs = a.attempt, max(a.aliveUntilNs, min(b.now, epochMax)+alive)
	}
}

// notesForgotten: from this attempt of a delivery on its provider need not know the key any more.
func (a *action) notesForgotten(epochNs int64) {
	lands := epochNs + a.landsIn()
	if a.attempt > 1 && a.forgotten == 0 && lands-a.sentNs >= a.compensation.GetDedupeNs() {
		a.forgotten = a.attempt
	}
}

// noteUndelivered ends an attempt that was not answered, or has failed.
func noteUndelivered(a *action, p *plan, k *pb.CompensationFailed, epochNs int64) {
	if !k.InDoubt && !k.Unserved {
		a.knownFailed = k.Attempt
	}
	if k.InDoubt {
		a.unsureOf = k.Attempt
	}
	switch {
	case k.InDoubt && a.compensation.GetProbe() != nil:
		a.asking, a.askedFrom, a.undo = pb.Question_QUESTION_DELIVERED, a.asked, waiting
	case p.stopped != nil:
		a.dropCall()
		a.undo = owed
	case k.InDoubt && !a.isSafe(epochNs), k.Final, a.noTriesLeft():
		a.dropCall()
		a.undo = exhausted
	default:
		a.undo = waiting
	}
}

// deliveryFound goes on with what a question has found.
func deliveryFound(b *book, p *plan, a *action, k *pb.ProbeAnswered) {
	switch {
	case k.Presence == pb.Presence_PRESENCE_PRESENT:
		noteName(b, a, k)
		a.confirmed = true
		a.hear(pb.Answer_ANSWER_DONE)
	case k.Presence == pb.Presence_PRESENCE_DUPLICATE:
		a.dropCall()
		a.undo = exhausted
	case a.askedNs < a.aliveUntilNs: // it may land yet
		a.undo, a.askedFrom = waiting, a.asked
	default:
		a.unsureOf, a.asking = 0, pb.Question_QUESTION_UNSPECIFIED
		switch {
		case p.stopped != nil:
			a.dropCall()
			a.undo = owed
		case a.noTriesLeft():
			a.dropCall()
			a.undo = exhausted
		default:
			a.undo = waiting
		}
	}
}

func codeDelivery(c *coder, a *action) {
	number(c, &a.unsureOf)
	number(c, &a.forgotten)
	number(c, &a.knownFailed)
	number(c, &a.sentNs)
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
	p.lastGoes, p.paths = lastGoes, nil // what was settled is owed
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

var deliveredOnce = clause{"I38.once",
	"A staged act is delivered once by the attempts that are one to its provider.",
	func(c *claim) judgement {
		again := c.p.isDelivery(c.a) && (c.a.successes > 0 || c.a.outcome == completed)
		twice := c.a.besides(c.Record.GetCompensationSucceeded().Attempt)
		return unless(!again || twice, "action %s was delivered", c.a.id)
	}}
