package audit

import (
	"bytes"
	"crypto/sha256"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// depthMax bounds the nesting of plans.
const depthMax = 16

// entryPrefix is what the id of a child plan's entry begins with.
const entryPrefix = "plan:"

// joinParent makes a plan that was just opened a part of its parent. Without an open
// parent it can never be committed: it fails at once.
func (b *book) joinParent(e ledger.Entry, p *plan) {
	d := p.declared
	parent := b.plan(d.ParentPlan)
	why := ""
	switch {
	case parent == nil || parent == p:
		why = "was never opened"
	case parent.agent != p.agent && !showsToken(parent, p):
		why = "takes no child plan of agent " + p.agent + " without its token"
	case parent.phase != ledger.StateOpen || parent.fired != nil:
		why = "is " + parent.phase
	case parent.depth >= depthMax:
		why = "is nested too deeply"
	case d.ParentAction != "" && parent.numberNamed(d.ParentAction) == 0:
		why = "has no action " + d.ParentAction
	}
	if why != "" {
		b.wants(p, signalFailed, "its parent plan "+d.ParentPlan+" "+why, back{})
		return
	}
	var before []uint32
	switch {
	case d.ParentAction != "":
		before = []uint32{parent.numberNamed(d.ParentAction)}
	default:
		before = parent.newest()
	}
	entry := parent.addAction(&action{id: entryPrefix + p.id, registered: e.Address, atNs: b.now,
		before: before, child: p})
	p.parent, p.entry, p.depth = parent, entry.n, parent.depth+1
	b.join(p, parent.family)
	b.lookCounting(parent)
}

// showsToken reports whether a plan has the token that its parent was opened with.
func showsToken(parent, p *plan) bool {
	sum := sha256.Sum256(p.declared.ParentToken)
	return len(p.declared.ParentToken) > 0 && bytes.Equal(sum[:], parent.declared.AttachDigest)
}

// childMoved keeps the entry of a child in its parent true to the child's new phase.
func (b *book) childMoved(p *plan) {
	parent, a := p.parent, p.parent.actions[p.entry-1]
	switch p.phase {
	case ledger.StateOpen: // back at a savepoint of its own, but the parent unwinds all of it
		if parent.unwound() && (a.isOut() || a.undo == quarantined) {
			a.undo = owed
		}
	case ledger.StateUnwinding:
		switch {
		case !parent.unwound():
			if a.isSettled() {
				a.undo = held
			}
		case a.undo == held || a.undo == owed &&
			!parent.isReady(a): // before the savepoint, or not reached yet
		default:
			b.goOn(parent)
			a.undo = dispatched
		}
	case ledger.StateQuarantined:
		if a.undo == dispatched {
			parent.toOwner(a)
		}
	case ledger.StateCompensated:
		b.closeAction(parent, a, compensated, p.ended)
	case ledger.StateFailed:
		b.closeAction(parent, a, skipped, p.ended)
	case ledger.StateResolved:
		b.closeAction(parent, a, resolved, p.ended)
	}
}

// followChildren puts an entry that has become ready where its child is.
func (b *book) followChildren(p *plan) {
	for again := true; again; {
		again = false
		for i := len(p.actions) - 1; i >= 0; i-- {
			a := p.actions[i]
			if a.child == nil || a.undo != owed || !p.isReady(a) {
				continue
			}
			switch a.child.phase {
			case ledger.StateUnwinding:
				a.undo, again = dispatched, true
			case ledger.StateQuarantined:
				again = true
				p.toOwner(a)
			}
		}
	}
	for _, a := range p.actions {
		if a.child != nil && a.child.parent == p {
			b.followChildren(a.child)
		}
	}
}

// letChildrenGo lets go of what an owner left as it is: a committed child is retired, an
// open one goes on by itself.
func (b *book) letChildrenGo(p *plan) {
	for _, a := range p.actions {
		if a.child == nil || a.isSettled() {
			continue
		}
		if c := a.child; c.stillHolds() {
			b.giveUp(c)
			b.spent.retires(c)
		}
		a.child.parent, a.child.entry = nil, 0
		b.noteAsking(a.child)
	}
}

func (b *book) anyPastWindow(p *plan, part map[uint32]bool) bool {
	for _, a := range p.actions {
		switch {
		case !part[a.n] || a.isSettled():
		case a.child != nil:
			if b.anyPastWindow(a.child, a.child.part(back{})) {
				return true
			}
		case a.mayHaveCrossed() && b.pastWindow(a):
			return true
		}
	}
	return false
}

func (b *book) pastWindow(a *action) bool { return a.closesNs != 0 && b.now >= a.closesNs }

// copyPlan makes a plan that holds what a committed one held, under the same
// addresses and keys (I19), and so for its children.
func (b *book) copyPlan(e ledger.Entry, p *plan, id string, to back) *plan {
	d := proto.CloneOf(p.declared)
	d.DeadlineNs, d.Triggers, d.ParentPlan, d.ParentAction = 0, nil, "", ""
	u := &plan{
		id: id, agent: p.agent, opened: e.Address, openedNs: b.now, declared: d, origin: p.id,
		phase:     ledger.StateCommitted,
		lastGoes:  p.lastGoes,
		committed: p.committed, depth: p.depth, orphans: slices.Clone(p.orphans), byHand: p.byHand,
		opener: p.opener, writer: p.writer, writerSinceNs: p.writerSinceNs,
		proposals: map[string]*proposal{},
	}
	b.join(u, p.family)
	p.undoneAs = id
	part := p.part(to)
	for _, a := range p.actions {
		c := *a
		c.leases, c.verdict, c.warned = nil, pb.VerdictOutcome_VERDICT_OUTCOME_UNSPECIFIED, false
		c.secrets = nil // of attempts that the plan which is undone has made
		if !part[c.n] && !c.isSettled() {
			c.undo = skipped
		}
		switch {
		case a.child == nil:
			c.key = firstKey(b, p, a)
		case !c.isSettled():
			child := b.copyPlan(e, a.child, a.child.id+"~1", back{})
			child.declared.ParentPlan = id
			child.parent, child.entry = u, c.n
			c.child, c.id = child, entryPrefix+child.id
		}
		u.actions = append(u.actions, &c)
	}
	return u
}

// givesUp counts what the commit of a plan retires.
func (p *plan) givesUp() int {
	count := p.held()
	for _, c := range p.below() {
		if c.stillHolds() {
			count += c.held()
		}
	}
	return count
}

// giveUp gives up the held set of a plan and of all that is part of it.
func (b *book) giveUp(p *plan) {
	p.gaveUp = p.givesUp()
	stopAsking(b, p)
	b.dropLeases(p)
	for _, c := range p.below() {
		if c.stillHolds() {
			stopAsking(b, c)
			b.dropLeases(c)
			b.spent.retires(c)
			b.noteAsking(c)
		}
	}
}

// beginUndoing makes the plan that undoes a committed one.
func beginUndoing(_ *book, c *claim) {
	_, reason, to := c.wish()
	c.undoCommitted(c.p, to, reason)
}

func (c *claim) undoCommitted(p *plan, to back, reason string) {
	b := c.b
	u := b.copyPlan(c.Entry, p, p.id+"~1", to)
	b.spent.opened(u.phase, ledger.StateOpen)
	u.phase, u.committed = ledger.StateOpen, nil
	b.holdLeases(u)
	b.wants(u, signalCancelled, reason, back{})
}
