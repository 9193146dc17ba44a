package audit

import (
	"cmp"
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

// waitsForAnswer: no one has answered for an action in doubt.
func (a *action) waitsForAnswer() bool { return a.retiresUnknown() && a.resolution == nil }

// hasSurplus: a commit has found more than one effect of an action, and its owner has yet to say
// what becomes of them. That one of them is its agent's own is no answer to that.
func hasSurplus(b *book, a *action) bool {
	return len(a.surplus) > 0 && a.resolution == nil && !a.isSettled() &&
		b.rules >= ledger.SurplusSince
}

// isOpenTo: the commit of its tree has to wait for an action.
func isOpenTo(b *book, a *action) bool { return a.waitsForAnswer() || hasSurplus(b, a) }

// besides are, of the effects that were found of an action, those that are neither its own nor
// owed.
func besides(p *plan, a *action, found []string) (refs []string) {
	for _, ref := range found {
		if ref != "" && ref != a.nameOf() && !slices.Contains(refs, ref) && !p.hasDutyFor(a, ref) {
			refs = append(refs, ref)
		}
	}
	return refs
}

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
func undecided(b *book, p *plan) (count int) {
	for _, c := range p.tree() {
		for _, a := range c.actions {
			if isOpenTo(b, a) {
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
			if a.doubt = ""; !isOpenTo(b, a) {
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
			if a.doubt == "" {
				continue
			}
			// What is beside its agent's own stays: no one looks for that again.
			if !hasSurplus(b, a) || a.outcome != completed {
				asksUnnamed(b, a)
				a.surplus = nil
			}
			b.endDoubt(c, a)
		}
	}
}

// asksUnnamed: what a commit found too much of is asked about without the name of one.
func asksUnnamed(b *book, a *action) {
	own := hasSurplus(b, a) && a.outcome == completed // its agent has named it
	if len(a.surplus) > 0 && b.rules >= ledger.ThereSince && !own {
		a.foundRef = ""
	}
}

// endDoubt ends what a commit has begun about an action, but for what it has found.
func (b *book) endDoubt(p *plan, a *action) {
	if a.doubt == doubtGiven {
		delete(b.pages, page{p.id, a.n, api.PageCommitWaits})
		delete(b.pages, page{p.id, a.n, api.PageQuarantined})
		a.settled, a.settledNs = nil, 0
	}
	a.dropCall()
	a.doubt, a.proposal = "", nil
}

// reviewDoubt goes on with an action in doubt after something has become known of it.
func (b *book) reviewDoubt(p *plan, a *action) {
	switch waits := isOpenTo(b, a); {
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
	case a.late || a.doubt != doubtDue || !a.unsure():
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
		foundAtCommit(b, p, a, k)
	}
}

// foundAtCommit: the world has answered about an action that a commit waits for.
func foundAtCommit(b *book, p *plan, a *action, k *pb.ProbeAnswered) {
	known, refs := a.outcome == completed, k.Duplicates
	if known && a.nameOf() != "" {
		refs = besides(p, a, append([]string{k.ExternalRef}, refs...))
	} else {
		noteName(b, a, k)
	}
	a.dropCall()
	a.surplus = nil
	switch duplicate := k.Presence == pb.Presence_PRESENCE_DUPLICATE; {
	case duplicate && (!known || len(refs) > 0): // nothing unwinds that could undo both
		a.doubt, a.surplus = doubtSpent, refs
		return
	case !known:
		a.presence = k.Presence
	}
	b.reviewDoubt(p, a)
}

// owesFound owes, in an unwind that begins, what a commit has found beside what agents call their
// own.
func owesFound(b *book, p *plan, at *pb.Address) {
	for _, a := range slices.Clone(p.actions) {
		if a.undo == held || a.isSettled() || len(a.surplus) == 0 {
			continue
		}
		refs := besides(p, a, a.surplus)
		a.surplus = nil
		for _, ref := range refs {
			oweExtraEffect(b, p, a, at, ref)
		}
	}
}

// answerDoubt takes the owner's word on an action that a commit waits for.
func (b *book) answerDoubt(p *plan, a *action, k *pb.Resolved) {
	a.resolution, p.byHand = k, true
	switch {
	case k.Outcome == pb.Resolution_RESOLUTION_DONE && len(a.surplus) == 0:
		a.presence, a.there = pb.Presence_PRESENCE_ABSENT, false
	case k.Outcome != pb.Resolution_RESOLUTION_SKIPPED:
		a.presence = pb.Presence_PRESENCE_PRESENT
	}
	b.endDoubt(p, a)
	a.surplus = nil
}

// noteRetirement follows the commit of a root, or makes one that has waited.
func noteRetirement(b *book, c *claim) {
	if c.p.phase == ledger.StateCommitting {
		b.commitTree(c.p)
	}
	c.p.retired, c.p.inDoubt = true, nil
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
	if d.undo = owed; !namesEffect(b, d) && p.isReady(d) {
		d.undo = exhausted // its compensation would not know which
	}
}

// extraOf is the duty for an extra effect.
func extraOf(b *book, p *plan, a *action, at *pb.Address, ref string) *action {
	return b.duty(p, a, at, &action{
		outcome: inDoubt, presence: pb.Presence_PRESENCE_PRESENT, externalRef: ref,
		approved: a.approved,
		extra:    p.holdsLeases() || p.phase == ledger.StateCommitted && anytime(b),
	})
}

// owesBeside owes what a probe has seen beside what a forward says: with its plan, if that is open.
func owesBeside(b *book, p *plan, a *action, at *pb.Address, seen string) {
	switch {
	case hasSurplus(b, a) && p.isCommitting():
		if refs := besides(p, a, append([]string{seen}, a.surplus...)); refs != nil {
			a.surplus = refs
		}
	case seen == "":
	case p.phase == ledger.StateOpen, p.phase == ledger.StateCommitting:
		extraOf(b, p, a, at, seen)
	default:
		oweExtraEffect(b, p, a, at, seen)
	}
}

// namesEffect: the undo of an extra effect says which one it is about.
func namesEffect(b *book, a *action) bool {
	return slices.ContainsFunc(a.compensation.GetBindings(), func(x *pb.Binding) bool {
		if !strings.Contains(x.Expression, "external_ref") || b.rules < ledger.OthersSince {
			return strings.Contains(x.Expression, "external_ref")
		}
		binding, err := b.programs.Reader(x.Expression)
		return err == nil && binding.ReadsField("meta", "external_ref")
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

func codeRetired(c *coder, p *plan) {
	c.flag(&p.retired)
	c.flag(&p.letBe)
}

func codeFound(c *coder, a *action) {
	sequence(c, &a.duplicates, (*coder).text)
	sequence(c, &a.surplus, (*coder).text)
}
