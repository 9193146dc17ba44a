package audit

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// I36: a commit retires nothing of which nobody knows whether it happened. Until each
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

// doubtful: nobody knows whether the effect of an action is there, and it would be retired.
func (a *action) doubtful() bool {
	return a.unsure() && !a.isSettled() && a.forward.GetClass() != pb.Class_CLASS_EFFECTLESS
}

// waitsForAnswer: the commit of its tree has to wait for an action.
func (a *action) waitsForAnswer() bool { return a.doubtful() && a.resolution == nil }

// committing: the commit of the tree waits, and the plan is part of it.
func (p *plan) committing() bool {
	return p.root().phase == ledger.StateCommitting && (p.parent == nil || p.keeps())
}

// tree lists a root and what is committed with it.
func (p *plan) tree() []*plan {
	gone := func(c *plan) bool { return !c.keeps() }
	return append([]*plan{p}, slices.DeleteFunc(p.below(), gone)...)
}

// doubts names the actions of a tree that are in doubt, in order.
func (p *plan) doubts() (names []string) {
	for _, c := range p.tree() {
		for _, a := range c.actions {
			switch {
			case !a.doubtful() || len(names) == namedMax:
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

// commitLater lets a commit wait. The deadline is over: it was ended in time.
func (b *book) commitLater(e ledger.Entry, p *plan) {
	p.committed = e.Address
	b.enter(p, ledger.StateCommitting)
	due := func(t *turn) bool { return t.number == 0 && t.lease == leaseDeadline }
	p.behind = slices.DeleteFunc(p.behind, due)
	if p.turned != nil && due(p.turned) {
		b.nextTurn(p, func(*turn) bool { return true })
	}
	b.beginSettling(p)
	b.lookPlan(p)
}

func (b *book) beginSettling(root *plan) {
	for _, c := range root.tree() {
		for _, a := range c.actions {
			if a.doubt = ""; a.waitsForAnswer() {
				a.doubt, c.unwindingNs = doubtDue, b.now
			}
		}
	}
}

// stopSettling ends what a commit has begun: its tree unwinds.
func (b *book) stopSettling(root *plan) {
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
	a.land()
	a.doubt, a.duplicates, a.proposal = "", nil, nil
}

// weigh goes on with an action in doubt after something has become known of it.
func (b *book) weigh(p *plan, a *action) {
	switch waits := a.waitsForAnswer(); {
	case !p.committing() || a.isSettled():
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

// decidedDoubt folds what a holder decides about an action while a commit waits.
func (b *book) decidedDoubt(e ledger.Entry, p *plan, a *action) verdict {
	switch k := e.Record.Kind.(type) {
	case *pb.Record_ProbeAsked:
		return b.askDoubt(e, p, a, k.ProbeAsked)
	case *pb.Record_ProbeAnswered:
		return b.answerDoubt(p, a, k.ProbeAnswered)
	case *pb.Record_CommitWaits:
		switch {
		case a.doubt == "" || a.doubt == doubtAsked || a.doubt == doubtGiven:
			return void("I36", "no commit waits for the owner of action %s", a.id)
		case e.Record.EpochNs < p.doubtBy(a):
			return void("I29", "the forward of action %s may still land", a.id)
		}
		a.land()
		a.doubt, a.settled, a.settledNs = doubtGiven, e.Address, b.now
		b.page(p, a, api.PageCommitWaits, e.Address)
		return effective
	}
	return void("I15", "plan %s is %s", p.id, ledger.StateCommitting)
}

func (b *book) askDoubt(e ledger.Entry, p *plan, a *action, k *pb.ProbeAsked) verdict {
	call := a.compensation.GetProbe().GetCall()
	effect := k.Question == pb.Question_QUESTION_EFFECT
	switch {
	case !effect || call == nil || call.Capability != k.Capability:
		return void("I20", "%s is not what a commit asks about action %s", k.Capability, a.id)
	case a.doubt != doubtDue && a.doubt != doubtAgain:
		return void("I20", "no commit waits for an answer about action %s", a.id)
	case e.Record.EpochNs < p.doubtBy(a):
		return void("I29", "the forward of action %s may still land", a.id)
	case k.Attempt != a.asked+1:
		return void("I20", "question %d, but question %d is next", k.Attempt, a.asked+1)
	}
	if a.doubt == doubtDue {
		a.askedFrom = a.asked
	}
	a.doubt, a.asking, a.asked, a.askedNs = doubtAsked, k.Question, k.Attempt, e.Record.EpochNs
	a.arguments = e.Record.Payload.GetArguments()
	return effective
}

func (b *book) answerDoubt(p *plan, a *action, k *pb.ProbeAnswered) verdict {
	_, known := pb.Presence_name[int32(k.Presence)]
	if a.doubt != doubtAsked || k.Question != a.asking || k.Attempt != a.asked || !known {
		return void("I20", "no such question about action %s is open", a.id)
	}
	tries := cmp.Or(a.compensation.Probe.Call.Attempts, 3)
	switch early := p.tooEarly(a, a.askedNs); {
	case k.Presence == pb.Presence_PRESENCE_UNSPECIFIED && k.Attempt-a.askedFrom < tries:
		a.doubt = doubtAgain
	case k.Presence == pb.Presence_PRESENCE_UNSPECIFIED:
		a.land()
		a.doubt = doubtSpent
	case k.Presence == pb.Presence_PRESENCE_ABSENT && early:
		a.land()
		a.absentNs, a.doubt = a.askedNs, doubtDue
	default:
		if k.ExternalRef != "" {
			a.externalRef = k.ExternalRef
		}
		a.land()
		if k.Presence == pb.Presence_PRESENCE_DUPLICATE { // nothing unwinds that could undo both
			a.doubt, a.duplicates = doubtSpent, k.Duplicates
			return effective
		}
		a.presence = k.Presence
		b.weigh(p, a)
	}
	return effective
}

// resolveDoubt takes the owner's word on an action that a commit waits for.
func (b *book) resolveDoubt(
	e ledger.Entry, p *plan, a *action, k *pb.Resolved, word proposal,
) verdict {
	if k.Outcome == pb.Resolution_RESOLUTION_LOST || k.Halt {
		return refused("I36", "nothing of plan %s is being undone", p.id)
	}
	counts, waits := p.counts(e, a.proposal, word)
	if a.proposal = waits; !counts {
		return effective
	}
	a.resolution, p.byHand = k, true
	switch {
	case k.Outcome == pb.Resolution_RESOLUTION_DONE && len(a.duplicates) == 0:
		a.presence = pb.Presence_PRESENCE_ABSENT
	case k.Outcome != pb.Resolution_RESOLUTION_SKIPPED:
		a.presence = pb.Presence_PRESENCE_PRESENT
	}
	b.endDoubt(p, a)
	return effective
}

// retryDoubt has the world asked once more.
func (b *book) retryDoubt(e ledger.Entry, p *plan, a *action, k *pb.RetryRequested) verdict {
	if a.compensation.GetProbe() == nil {
		return refused("I36", "the contract of action %s has no probe to ask again", a.id)
	}
	counts, waits := p.counts(e, a.proposal, proposal{answer: "retry", force: k.Force})
	if a.proposal = waits; counts {
		b.endDoubt(p, a)
		a.doubt = doubtDue
	}
	return effective
}

// commitRoot retires what a root and all that is part of it hold.
func (b *book) commitRoot(p *plan) {
	p.turned, p.behind = nil, nil
	p.inDoubt = p.doubts()
	b.retire(p)
	b.enter(p, ledger.StateCommitted)
}

// turns: a lease of the plan has turned true, and fires.
func (p *plan) turns() bool { return p.turned != nil && !p.turned.clocked }

// retirement follows the commit of a root, or makes one that has waited.
func (b *book) retirement(p *plan, k *pb.HeldSetRetired) verdict {
	switch waiting := p.phase == ledger.StateCommitting; {
	case waiting && p.undecided() > 0:
		return void("I36", "%d actions are in doubt, and unanswered", p.undecided())
	case waiting && p.claims() != nil:
		return void("I31", "acts were claimed and refused, and nobody has answered: %.200q", p.claims())
	case waiting && (p.signal != "" || p.fired != nil || p.openChildren() > 0):
		return void("I15", "plan %s is %s", p.id, p.status())
	case waiting && slices.ContainsFunc(p.tree(), (*plan).turns):
		return void("I13", "a lease of plan %s, or of a part of it, turned true before", p.id)
	case waiting:
		if names := p.doubts(); !slices.Equal(names, k.InDoubt) {
			return misnamed(names, k)
		}
		b.commitRoot(p)
	case p.phase != ledger.StateCommitted || p.retired || p.parent != nil: // not with its root
		return void("I24", "plan %s is %s and has nothing to retire", p.id, p.status())
	case !slices.Equal(p.inDoubt, k.InDoubt):
		return misnamed(p.inDoubt, k)
	}
	p.retired, p.inDoubt = true, nil
	return effective
}

func misnamed(names []string, k *pb.HeldSetRetired) verdict {
	return void("I36", "it names %.200q in doubt, and these are %.200q", k.InDoubt, names)
}

// doubtRule is I36, from what stands behind the retirement: each action in doubt that it
// has retired is accepted by the plan's option, or answered for, and named.
func doubtRule(p *plan, k *pb.HeldSetRetired) string {
	tree := []*plan{p}
	for _, c := range p.below() {
		if c.retired {
			tree = append(tree, c)
		}
	}
	for _, c := range tree {
		for _, a := range c.actions {
			if !a.doubtful() || p.accepts() {
				continue
			}
			answered := a.resolution.GetOutcome() == pb.Resolution_RESOLUTION_SKIPPED
			named := slices.Contains(k.InDoubt, a.id) || slices.Contains(k.InDoubt, c.id+"/"+a.id)
			named = named || len(k.InDoubt) == namedMax
			if !answered || !named {
				return fmt.Sprintf("action %s of plan %s is retired in doubt", a.id, c.id)
			}
		}
	}
	return ""
}

// countedRule is a part of I24: a retirement counts what its commit has retired.
func countedRule(p *plan, k *pb.HeldSetRetired) string {
	if int(k.Count) != p.gaveUp {
		return fmt.Sprintf("%d registrations retired, want %d", k.Count, p.gaveUp)
	}
	return ""
}

// retiredRule is a part of I24: the commit of a root leaves nothing held.
func retiredRule(p *plan) string {
	if p.parent == nil && p.phase != ledger.StateCommitting && p.held() != 0 {
		return fmt.Sprintf("%d registrations are held behind the commit", p.held())
	}
	return ""
}
