package audit

import (
	"cmp"
	"slices"

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
		for _, a := range c.actions {
			if a.doubt = ""; a.waitsForAnswer() {
				a.doubt, c.unwindingNs = doubtDue, b.now
			}
		}
	}
}

// dropDoubts ends what a commit has begun: its tree unwinds.
func (b *book) dropDoubts(root *plan) {
	for _, c := range root.tree() {
		for _, a := range c.actions {
			if a.doubt != "" {
				b.endDoubt(c, a)
			}
		}
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
	b.giveUp(p)
	b.setPhase(p, ledger.StateCommitted)
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
		a.presence = pb.Presence_PRESENCE_ABSENT
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
