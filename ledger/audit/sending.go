package audit

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/ledger"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// What is sent otherwise than an undo in its turn.

// Dispatches that are recorded ahead of their turn. Such a record names the dispatch that it
// goes behind, of the one action that has to be undone first. It counts as an attempt from the
// success of that one on. Once that success can no longer come, or is no longer all that is
// missing, it is an attempt of which no one knows whether it was sent, and none of those that
// the contract allows.

// ahead is a dispatch that waits for the success of another one.
type ahead struct {
	at      *pb.Address
	of      uint32 // number of the action that has to be undone first
	epochNs int64
}

// aheadMaxNs is for how long a dispatch ahead may be sent before it counts.
const aheadMaxNs = int64(1e9)

// first is the action that a dispatch names as the one to be undone before; nil: it names none
// that came after this one and after no other.
func (c *claim) first() *action {
	behind := c.Record.GetCompensationDispatched().GetBehind()
	for _, f := range c.p.actions[c.a.n:] {
		at := f.dispatched
		if f.ahead != nil {
			at = f.ahead.at
		}
		if slices.Equal(f.before, []uint32{c.a.n}) && samePlace(behind, at, c.Entry) && at != nil {
			return f
		}
	}
	return nil
}

// isPlain: it is known what there is to undo, and the contract asks for the undo and no more.
func (a *action) isPlain() bool {
	c := a.compensation
	asks := c.GetProbe() != nil || c.GetVerify() != nil || c.GetSealed() || c.GetDedupeNs() != 0
	return a.child == nil && a.dutyOf == 0 && a.outcome == completed && !a.late && !a.undone &&
		a.forward.GetClass() == pb.Class_CLASS_COMPENSABLE && c.GetCapability() != "" && !asks &&
		!a.makesFact()
}

// mayPrecede: all that is missing for the undo of an action is the success of f, which came
// after it, and is out or ahead itself. missing is of the plan.
func (f *action) mayPrecede(a *action, missing []int) bool {
	out := f.undo == dispatched && f.asking == pb.Question_QUESTION_UNSPECIFIED && missing[f.n-1] == 0
	return f.isPlain() && (out || f.ahead != nil) && missing[a.n-1] == 1
}

// followRuns settles what is ahead in a family, the last action first: it goes on to wait, it
// counts from now on, or it is called back. None of that changes what is missing.
func (b *book) followRuns(f *family, epochNs int64) {
	for _, p := range f.plans {
		if p.aheads == 0 {
			continue
		}
		missing := p.missing()
		for i := len(p.actions) - 1; i >= 0 && p.aheads > 0; i-- {
			a := p.actions[i]
			if a.ahead == nil {
				continue
			}
			f := p.actions[a.ahead.of-1]
			turn := f.undo == compensated && p.unwound() && missing[i] == 0 &&
				b.next(p, a) == doDispatch
			switch {
			case a.undo == owed && f.mayPrecede(a, missing):
				continue
			case a.undo == owed && turn:
				a.attempt, a.dispatched, a.dispatchedNs = 1, a.ahead.at, epochNs
				a.blindly, a.unserved, a.undo = false, false, dispatched
				a.ahead = nil
				p.aheads--
			default:
				b.callBack(p, a)
			}
		}
	}
}

// callBack makes what was ahead an attempt that may have been sent, or not.
func (b *book) callBack(p *plan, a *action) {
	a.attempt, a.attemptsFrom, a.arguments = 1, 1, nil
	a.dispatched, a.dispatchedNs = a.ahead.at, a.ahead.epochNs
	if !a.isSettled() {
		a.aliveUntilNs = max(a.aliveUntilNs, min(b.now, epochMax)+callTimeout(a.compensation))
	}
	a.ahead = nil
	p.aheads--
}

// isRecorded: an attempt was dispatched, or is ahead.
func (a *action) isRecorded(attempt uint32) bool {
	return attempt >= 1 && (attempt <= a.attempt || attempt == 1 && a.ahead != nil)
}

// aheadClauses are asked of a dispatch that names the one that it goes behind.
var aheadClauses = []clause{
	{"I21.behind",
		"A dispatch ahead names that of the one action that is to be undone first, and is out " +
			"or ahead.",
		func(c *claim) judgement {
			return unless(c.first() != nil, "behind: %s is no dispatch of what came after action %s",
				reference{c.Record.GetCompensationDispatched().Behind}, c.a.id)
		}},
	{"I21.whole", "Nothing is dispatched ahead in a plan that goes back to a savepoint.",
		func(c *claim) judgement {
			return unless(!c.p.rewinding, "plan %s goes back to a savepoint", c.p.id)
		}},
	{"I19.ahead", "Only the first attempt of an undo that is owed is dispatched ahead, once.",
		func(c *claim) judgement {
			return unless(c.a.undo == owed && c.a.ahead == nil && c.a.attempt == 0 &&
				c.Record.GetCompensationDispatched().Attempt == 1,
				"the undo of action %s is %s, with %d attempts", c.a.id, state{c.p, c.a}, c.a.attempt)
		}},
	{"I21.missing", "Nothing but the success that it waits for is missing for a dispatch ahead.",
		func(c *claim) judgement {
			f := c.first()
			return unless(f.mayPrecede(c.a, c.p.missing()), "more than the success of action %s", f.id)
		}},
	{"I20.ahead",
		"What is dispatched ahead is known to be there, and its contract asks no question and " +
			"no one.",
		func(c *claim) judgement {
			return unless(c.a.isPlain() && c.b.next(c.p, c.a) == doDispatch, "%s action %s",
				c.b.next(c.p, c.a), c.a.id)
		}},
	{"I20.closes", "No undo window closes while a dispatch ahead may be sent.",
		func(c *claim) judgement {
			closes := c.a.closesNs
			return unless(closes == 0 || closes > c.Record.EpochNs+aheadMaxNs,
				"the undo window of action %s closes at %d", c.a.id, closes)
		}},
}

// aheadChapter is asked of a dispatch ahead.
var aheadChapter = &chapter{
	counts: undone(slices.Concat(aheadClauses,
		clausesNamed("I19.undo", "I20.blind", "I20.output"))...),
	content: slices.DeleteFunc(slices.Clone(dispatchContent),
		func(k clause) bool { return k.id == orderClause.id }),
	collect: func(b *book, c *claim) {
		c.a.ahead = &ahead{c.Address, c.first().n, c.Record.EpochNs}
		c.a.arguments = c.Record.Payload.GetArguments()
		c.a.askToken(c.Record.GetCompensationDispatched())
		c.p.aheads++
	},
}

// clausesNamed are some of those of a dispatch.
func clausesNamed(ids ...string) (list []clause) {
	for _, k := range dispatchClauses {
		if slices.Contains(ids, k.id) {
			list = append(list, k)
		}
	}
	return list
}

func codeAhead(c *coder, a *ahead) {
	record(c, &a.at)
	number(c, &a.of)
	number(c, &a.epochNs)
}

// Staged acts. What cannot be undone may be delivered when its root has committed, and not before.

// wrongDelivery says what is wrong with the first expression of a delivery that cannot be
// evaluated, or reads what the delivery itself leaves.
func (c *claim) wrongDelivery(d *pb.CompensationRegistered) string {
	list := expressionsOf(d)
	if why := c.wrong(list); why != "" {
		return why
	}
	for _, e := range list {
		x, err := c.b.programs.Reader(e.text)
		if err == nil && (x.Reads("output") || x.Reads("before")) {
			return e.field + ": reads what is not there before it"
		}
	}
	return ""
}

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
	u := &plan{id: id, agent: p.agent, opened: b.at, openedNs: b.now, declared: d, origin: p.id,
		phase: ledger.StateCommitted, depth: p.depth, opener: p.opener, writer: p.writer,
		proposals: map[string]*proposal{}, delivers: true,
		reason: "plan " + p.id + " was committed"}
	b.join(u, p.family)
	p.deliveredAs = id
	for i := len(list) - 1; i >= 0; i-- {
		a := list[i]
		c := &action{id: a.id, registered: a.registered, atNs: a.atNs, writer: a.writer,
			forward: a.forward, input: a.input}
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

func codeRetired(c *coder, p *plan) {
	c.flag(&p.retired)
	c.flag(&p.letBe)
}

// shown is the phase of a plan as people read it.
func (p *plan) shown() string {
	switch {
	case p.delivers && p.phase == ledger.StateUnwinding:
		return ledger.StateDelivering
	case p.delivers && p.phase == ledger.StateCompensated:
		return ledger.StateDelivered
	}
	return p.phase
}
