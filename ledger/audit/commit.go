package audit

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// I36: a commit retires nothing of which no one knows whether it happened. Until each
// such action of the tree is known, or its owner has answered for it, the plan is
// committing; only a plan that says so beforehand retires what is in doubt, by name.

// How far a commit that waits has come with an action in doubt.
const (
	doubtDue   = "due"   // to be asked about, or to be given to its owner
	doubtAsked = "asked" // a question is out
	doubtAgain = "again" // the answer was inconclusive
	doubtSpent = "spent" // and no question is left
	doubtGiven = "given" // it is its owner's
)

// retiresUnknown: no one knows whether the effect of an action is there, and it would be retired.
func (a *action) retiresUnknown() bool {
	return a.unsure() && !a.isSettled() && a.forward.GetClass() != pb.Class_CLASS_EFFECTLESS
}

// waitsForAnswer: the commit of its tree has to wait for an action.
func (a *action) waitsForAnswer() bool { return a.retiresUnknown() && a.resolution == nil }

// isCommitting: the commit of the tree waits, and the plan is part of it.
func (p *plan) isCommitting() bool {
	return p.root().phase == ledger.StateCommitting && (p.parent == nil || p.stillHolds())
}

// tree lists a root and what is committed with it.
func (p *plan) tree() []*plan {
	gone := func(c *plan) bool { return !c.stillHolds() }
	return append([]*plan{p}, slices.DeleteFunc(p.below(), gone)...)
}

// doubts names the actions of a tree that are in doubt, in order.
func (p *plan) doubts() (names []string) {
	for _, c := range p.tree() {
		for _, a := range c.actions {
			switch {
			case !a.retiresUnknown() || len(names) == namedMax:
			case c == p:
				names = append(names, a.id)
			default:
				names = append(names, c.id+"/"+a.id)
			}
		}
	}
	return names
}

// namedMax is how many actions in doubt a retirement names.
const namedMax = 256

// accepts: the plan was opened to be committed whatever is in doubt.
func (p *plan) accepts() bool {
	return p.declared.GetDoubtAtCommit() == pb.DoubtAtCommit_DOUBT_AT_COMMIT_ACCEPT
}

// undecided counts what a commit has to wait for.
func (p *plan) undecided() (count int) {
	for _, c := range p.tree() {
		for _, a := range c.actions {
			if a.waitsForAnswer() {
				count++
			}
		}
	}
	return count
}

// letCommitWait lets a commit wait. The deadline is over: it was ended in time.
func (b *book) letCommitWait(e ledger.Entry, p *plan) {
	p.committed = e.Address
	b.setPhase(p, ledger.StateCommitting)
	due := func(t *turn) bool { return t.number == 0 && t.lease == leaseDeadline }
	p.behind = slices.DeleteFunc(p.behind, due)
	if p.turned != nil && due(p.turned) {
		b.takeNextTurn(p, func(*turn) bool { return true })
	}
	b.beginDoubts(p)
	b.lookPlan(p)
}

func (b *book) beginDoubts(root *plan) {
	for _, c := range root.tree() {
		stopAsking(b, c)
		for _, a := range c.actions {
			if a.doubt = ""; !a.waitsForAnswer() {
				continue
			}
			a.doubt = doubtDue
			c.unwindingNs = b.now
		}
	}
}

// dropDoubts ends what a commit has begun: its tree unwinds.
func (b *book) dropDoubts(root *plan) {
	for _, c := range root.tree() {
		for _, a := range c.actions {
			if a.doubt != "" {
				asksUnnamed(b, a)
				b.endDoubt(c, a)
			}
		}
	}
}

// asksUnnamed: what a commit found too much of is asked about without the name of one.
func asksUnnamed(b *book, a *action) {
	if len(a.duplicates) > 0 && b.rules >= ledger.ThereSince {
		a.foundRef = ""
	}
}

func (b *book) endDoubt(p *plan, a *action) {
	if a.doubt == doubtGiven {
		delete(b.pages, page{p.id, a.n, api.PageCommitWaits})
		delete(b.pages, page{p.id, a.n, api.PageQuarantined})
		a.settled, a.settledNs = nil, 0
	}
	a.dropCall()
	a.doubt, a.duplicates, a.proposal = "", nil, nil
}

// reviewDoubt goes on with an action in doubt after something has become known of it.
func (b *book) reviewDoubt(p *plan, a *action) {
	switch waits := a.waitsForAnswer(); {
	case !p.isCommitting() || a.isSettled():
	case waits && a.doubt == "":
		a.doubt = doubtDue
	case !waits && a.doubt != "":
		b.endDoubt(p, a)
	}
}

// doubtBy is the instant before which an action in doubt is neither asked about nor its
// owner's; 0: none. Its caller has the first word, and after an answer that came too
// early its forward has had its time.
func (p *plan) doubtBy(a *action) int64 {
	switch {
	case a.late || a.doubt != doubtDue:
		return 0
	case a.compensation.GetProbe() != nil && a.absentNs != 0:
		return p.landed(a)
	case a.outcome == unheardOf:
		return p.lastWord(a, true)
	}
	return 0
}

// commitTree retires what a root and all that is part of it hold.
func (b *book) commitTree(p *plan) {
	p.turned, p.behind = nil, nil
	p.inDoubt = p.doubts()
	tree := p.tree()
	holdOn(b, tree)
	b.giveUp(p)
	b.setPhase(p, ledger.StateCommitted)
	defer openDelivery(b, p, tree)
	for _, c := range tree {
		if len(c.heldOn()) > 0 {
			b.lookPlan(c)
			noteReads(b, c)
		}
	}
}

// turns: a lease of the plan has turned true, and fires.
func (p *plan) turns() bool { return p.turned != nil && !p.turned.clocked }

// noteCommitWaits gives a doubt to the plan's owner.
func noteCommitWaits(b *book, c *claim) {
	c.a.dropCall()
	c.a.doubt, c.a.settled, c.a.settledNs = doubtGiven, c.Address, b.now
	b.page(c.p, c.a, api.PageCommitWaits, c.Address)
}

func noteDoubtAsked(b *book, c *claim) {
	a, k := c.a, c.Record.GetProbeAsked()
	if a.doubt == doubtDue {
		a.askedFrom = a.asked
	}
	a.doubt, a.asking, a.asked, a.askedNs = doubtAsked, k.Question, k.Attempt, c.Record.EpochNs
	a.arguments = c.Record.Payload.GetArguments()
}

func noteDoubtAnswered(b *book, c *claim) {
	p, a, k := c.p, c.a, c.Record.GetProbeAnswered()
	tries := cmp.Or(a.compensation.Probe.Call.Attempts, 3)
	switch early := p.tooEarly(a, a.askedNs); {
	case k.Presence == pb.Presence_PRESENCE_UNSPECIFIED && k.Attempt-a.askedFrom < tries:
		a.doubt = doubtAgain
	case k.Presence == pb.Presence_PRESENCE_UNSPECIFIED:
		a.dropCall()
		a.doubt = doubtSpent
	case k.Presence == pb.Presence_PRESENCE_ABSENT && early:
		a.dropCall()
		a.absentNs, a.doubt = a.askedNs, doubtDue
	default:
		a.sighted(b, k.Presence != pb.Presence_PRESENCE_ABSENT)
		noteName(b, a, k)
		a.dropCall()
		if k.Presence == pb.Presence_PRESENCE_DUPLICATE { // nothing unwinds that could undo both
			a.doubt, a.duplicates = doubtSpent, k.Duplicates
			return
		}
		a.presence = k.Presence
		b.reviewDoubt(p, a)
	}
}

// answerDoubt takes the owner's word on an action that a commit waits for.
func (b *book) answerDoubt(p *plan, a *action, k *pb.Resolved) {
	a.resolution, p.byHand = k, true
	switch {
	case k.Outcome == pb.Resolution_RESOLUTION_DONE && len(a.duplicates) == 0:
		a.presence, a.there = pb.Presence_PRESENCE_ABSENT, false
	case k.Outcome != pb.Resolution_RESOLUTION_SKIPPED:
		a.presence = pb.Presence_PRESENCE_PRESENT
	}
	b.endDoubt(p, a)
}

// noteRetirement follows the commit of a root, or makes one that has waited.
func noteRetirement(b *book, c *claim) {
	if c.p.phase == ledger.StateCommitting {
		b.commitTree(c.p)
	}
	c.p.retired, c.p.inDoubt = true, nil
}

// The doubt of an open plan. The world is asked about it while the plan is open. What is not there
// settles nothing: the agent may call the forward once more.

// asksOpenly: a question is out that an open plan has asked about the effect of an action.
func (a *action) asksOpenly() bool {
	return a.undo == held && a.doubt == "" && a.asking == pb.Question_QUESTION_EFFECT
}

// endless: no one knows when a forward that is held can no longer land, for its caller may go on
// for as long as nothing is undone.
func (p *plan) endless(a *action) bool {
	f := a.forward
	return f.GetTimeoutNs() == 0 || f.GetReview() || a.atNs <= p.writerSinceNs
}

// asksFrom is the epoch from which on an open plan asks about an action; 0: it does not.
func asksFrom(b *book, p *plan, a *action) int64 {
	c, f := a.compensation, a.forward
	if b.rules < ledger.AskedSince || p.phase != ledger.StateOpen || a.undo != held ||
		c.GetProbe() == nil || !a.waitsForAnswer() {
		return 0
	}
	after := span(c.AskAfterNs, int64(ledger.AskAfterDefault))
	switch {
	case a.outcome == inDoubt:
		return sum(a.outcomeNs, after)
	case f.GetReview():
		return 0
	case f.GetTimeoutNs() != 0:
		after = max(after, f.GetTimeoutNs()+span(f.GetGraceNs(), int64(ledger.GraceDefault)))
	}
	return sum(max(a.atNs, p.writerSinceNs), after)
}

// askLater sets when an open plan asks about an action, as is known of it now.
func askLater(b *book, p *plan, a *action) {
	switch out := a.asksOpenly(); {
	case out && !a.waitsForAnswer():
		a.dropCall()
		a.askNs = 0
	case !out:
		a.askNs = asksFrom(b, p, a)
	}
}

// stopAsking ends the questions of an open plan: a commit or an unwind asks for itself. Nothing of
// it waits for a verdict any more.
func stopAsking(b *book, p *plan) {
	for _, a := range p.actions {
		delete(b.pages, page{p.id, a.n, api.PageVerdictWanted})
		if a.askNs = 0; a.asksOpenly() {
			a.dropCall()
		}
	}
}

func noteAskedOpenly(_ *book, c *claim) {
	a, k := c.a, c.Record.GetProbeAsked()
	a.asking, a.asked, a.askedNs, a.askNs = k.Question, k.Attempt, c.Record.EpochNs, 0
	a.arguments = c.Record.Payload.GetArguments()
}

func noteAnsweredOpenly(b *book, c *claim) {
	p, a, k := c.p, c.a, c.Record.GetProbeAnswered()
	landed, early := p.landed(a), p.tooEarly(a, a.askedNs)
	a.dropCall()
	switch from := asksFrom(b, p, a); {
	case k.Presence == pb.Presence_PRESENCE_ABSENT && early && from != 0 && landed < math.MaxInt64:
		a.askNs, a.askedFrom = max(landed, min(c.Record.EpochNs, epochMax)), a.asked
	case k.Presence == pb.Presence_PRESENCE_ABSENT && early,
		k.Presence == pb.Presence_PRESENCE_UNSPECIFIED:
		a.askNs = a.askAgain(b, c, from)
	case k.Presence == pb.Presence_PRESENCE_ABSENT: // until the plan ends, it may be called again
		a.there = false
	default:
		a.sighted(b, true)
		a.presence = k.Presence
		noteName(b, a, k)
		if k.Presence == pb.Presence_PRESENCE_DUPLICATE {
			b.noteExtraRefs(p, a, k.Duplicates)
		}
		if p.holdsLeases() {
			b.lookAction(p, a)
		}
	}
}

// askAgain is when an open plan asks once more after an answer that settled nothing; 0: it does
// not.
func (a *action) askAgain(b *book, c *claim, from int64) int64 {
	call, k := a.compensation.Probe.GetCall(), c.Record.GetProbeAnswered()
	tries, most := k.Attempt-a.askedFrom, cmp.Or(call.GetAttempts(), 3)
	const least, longest = int64(15e9), int64(3600e9)
	switch {
	case from == 0:
		return 0
	case k.Unserved && b.rules >= ledger.AskedOnSince: // as if it had not been asked
		a.askedFrom = k.Attempt
		pause := max(span(a.compensation.UnservedAfterNs, longest), 4*least)
		return min(c.Record.EpochNs, epochMax) + min(pause, longest)
	case k.Unserved || tries >= most:
		return 0
	}
	first := max(cmp.Or(call.GetBackoffNs(), int64(1e9)), least)
	wait := first
	for n := uint32(1); n < tries && wait < max(longest, first); n++ {
		wait *= 2
	}
	return min(c.Record.EpochNs, epochMax) + min(wait, max(longest, first))
}

// owesExtra reports whether an extra effect is owed at once: by the unwind that is under way, or
// by an open plan that asks.
func (c *claim) owesExtra() bool {
	return c.p.phase == ledger.StateUnwinding ||
		c.p.phase == ledger.StateOpen && c.b.rules >= ledger.AskedSince
}

// oweExtraEffect has an extra effect undone: by the unwind that is under way, or by one of its duty
// alone. Of what is committed it is kept for its owner.
func oweExtraEffect(b *book, p *plan, a *action, at *pb.Address, ref string) {
	b.goOn(p)
	d := extraOf(b, p, a, at, ref)
	switch p.phase {
	case ledger.StateOpen, ledger.StateCommitting:
		if p.signal == "" && p.fromAction == "" {
			b.wants(p, signalCancelled, noteMore, back{savepoint: d.id})
		}
		return
	case ledger.StateCommitted:
		b.reviewDoubt(p, d)
		if p.undoneAs == "" {
			b.page(p, d, api.PageQuarantined, at)
		}
		return
	}
	if d.undo = owed; !d.namesExtra() && p.isReady(d) {
		d.undo = exhausted // its compensation would not know which
	}
}

// extraOf is the duty for an extra effect.
func extraOf(b *book, p *plan, a *action, at *pb.Address, ref string) *action {
	return b.duty(p, a, at, &action{
		outcome: inDoubt, presence: pb.Presence_PRESENCE_PRESENT, externalRef: ref,
		approved: a.approved, extra: p.holdsLeases(),
	})
}

// owesBeside owes what a probe has seen beside what a forward says: with its plan, if that is open.
func owesBeside(b *book, p *plan, a *action, at *pb.Address, seen string) {
	switch {
	case seen == "":
	case p.phase == ledger.StateOpen, p.phase == ledger.StateCommitting:
		extraOf(b, p, a, at, seen)
	default:
		oweExtraEffect(b, p, a, at, seen)
	}
}

// namesExtra: the undo of an extra effect says which one it is about.
func (a *action) namesExtra() bool {
	return slices.ContainsFunc(a.compensation.GetBindings(), func(x *pb.Binding) bool {
		return strings.Contains(x.Expression, "external_ref")
	})
}

// closesBy is when the undo window of an action closes at the latest, by what is known at a commit:
// one that counts from a completion which is not known counts from the commit.
func (a *action) closesBy(now int64) int64 {
	d := a.compensation.GetValidForNs()
	if d == 0 || a.outcome == completed {
		return a.closesNs
	}
	if end := now + min(d, epochMax-now); a.closesNs == 0 || end < a.closesNs {
		return end
	}
	return a.closesNs
}

// closesFirst is when the first undo window of a part of a plan closes; 0: it has none.
func (p *plan) closesFirst(part map[uint32]bool, now int64) (ns int64) {
	for _, a := range p.actions {
		closes := a.closesBy(now)
		switch {
		case !part[a.n] || a.isSettled():
			continue
		case a.child != nil:
			closes = a.child.closesFirst(a.child.part(back{}), now)
		case !a.mayHaveCrossed():
			continue
		}
		if closes != 0 && (ns == 0 || closes < ns) {
			ns = closes
		}
	}
	return ns
}
