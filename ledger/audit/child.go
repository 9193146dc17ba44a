package audit

import (
	"bytes"
	"container/heap"
	"crypto/sha256"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
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
	case parent.agent != p.agent && b.rules >= ledger.AttachEndsSince && len(parent.earlier) > 0:
		why = fmt.Sprintf("is agent %s's since it was handed over, and its token has ended with that: "+
			"agent %s opens child plans in it, agent %s a plan without a parent", parent.agent,
			parent.agent, p.agent)
	case parent.agent != p.agent && !showsToken(parent, p):
		why = "takes no child plan of agent " + p.agent + " without its token"
	case parent.phase != ledger.StateOpen || parent.fired != nil:
		why = "is " + parent.phase
	case parent.depth >= depthMax:
		why = "is nested too deeply"
	case d.ParentAction != "" && parent.numberNamed(d.ParentAction) == 0:
		why = "has no action " + d.ParentAction
	case d.ParentAction != "" && parent.named(d.ParentAction).isStaged():
		why = "has staged action " + d.ParentAction + ", which happens when it is committed"
	}
	if why != "" {
		b.wants(p, signalFailed, ledger.ReasonParent+d.ParentPlan+" "+why, back{})
		return
	}
	var before []uint32
	switch {
	case d.ParentAction != "":
		before = []uint32{parent.numberNamed(d.ParentAction)}
	default:
		before = parent.newest(false)
	}
	entry := parent.addAction(&action{id: entryPrefix + p.id, registered: e.Address, atNs: b.now,
		before: before, child: p})
	p.parent, p.entry, p.depth = parent, entry.n, parent.depth+1
	b.join(p, parent.family)
	parent.isActive(b.now)
	lookReading(b, parent, countNames...)
	lookIdling(b, parent)
}

// showsToken reports whether a plan has the token that its parent was opened with.
func showsToken(parent, p *plan) bool {
	sum := sha256.Sum256(p.declared.ParentToken)
	return len(p.declared.ParentToken) > 0 && bytes.Equal(sum[:], parent.declared.AttachDigest)
}

// childMoved keeps the entry of a child in its parent true to the child's new phase.
func (b *book) childMoved(p *plan) {
	parent, a := p.parent, p.parent.actions[p.entry-1]
	if a.isSettled() { // it may go on
		parent.paths = nil
	}
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
		for _, n := range slices.Backward(p.indexed().entries) {
			a := p.actions[n-1]
			if a.undo != owed || !p.isReady(a) {
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
	for _, n := range p.indexed().entries {
		if c := p.actions[n-1].child; c.parent == p {
			b.followChildren(c)
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
			for _, part := range c.tree() {
				part.letBe = true
			}
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
		case a.extra && anytime(b): // what is left of it is its owner's
		case a.mayHaveCrossed() && b.pastWindow(a):
			return true
		}
	}
	return false
}

func (b *book) pastWindow(a *action) bool { return a.closesNs != 0 && b.now >= a.closesNs }

// copyPlan makes a plan that holds what a committed one held, under the same
// addresses and keys (I19), and so for its children.
func (b *book) copyPlan(e ledger.Entry, p *plan, id string, part map[uint32]bool) *plan {
	d := proto.CloneOf(p.declared)
	d.DeadlineNs, d.Triggers, d.ParentPlan, d.ParentAction = 0, nil, "", ""
	u := &plan{
		id: id, agent: p.agent, earlier: p.earlier, adoptedFrom: p.adoptedFrom,
		opened: e.Address, openedNs: b.now,
		declared: d, input: p.input, origin: p.id,
		phase:     ledger.StateCommitted,
		lastGoes:  p.lastGoes,
		committed: p.committed, depth: p.depth, orphans: slices.Clone(p.orphans), byHand: p.byHand,
		opener: p.opener, writer: p.writer, writerSinceNs: p.writerSinceNs,
		proposals: map[string]*proposal{},
	}
	b.join(u, p.family)
	p.undoneAs = id
	for _, a := range p.actions {
		c := *a
		c.leases, c.verdict, c.warned = nil, pb.VerdictOutcome_VERDICT_OUTCOME_UNSPECIFIED, false
		c.secrets = nil // of attempts that the plan which is undone has made
		if (!part[c.n] || c.isStaged()) && !c.isSettled() {
			c.undo = skipped
		}
		switch {
		case a.child == nil:
			c.key = firstKey(b, p, a)
		case !c.isSettled():
			child := b.copyPlan(e, a.child, a.child.id+"~1", a.child.part(back{}))
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
	u, more := c.opensUndoer(p, to, reason)
	c.b.wants(u, signalCancelled, reason+more, back{})
}

// opensUndoer makes that plan, and says for which condition it undoes more than was asked for. The
// committed one holds no conditions any more: it is undone once.
func (c *claim) opensUndoer(p *plan, to back, reason string) (u *plan, more string) {
	b := c.b
	part, more := c.alsoUndoes(p, to)
	for _, q := range append([]*plan{p}, p.below()...) {
		if list := q.heldOn(); len(list) > 0 {
			dropHeld(b, q, list)
			q.turned, q.behind = nil, nil
		}
	}
	u = b.copyPlan(c.Entry, p, p.id+"~1", part)
	b.spent.opened(u.phase, ledger.StateOpen)
	u.phase, u.committed = ledger.StateOpen, nil
	recall(b, p, u, c.Address, reason+more)
	b.holdLeases(u)
	return u, more
}

// Conditions that are held after the commit of a root: each until the first undo window closes of
// what it would undo.

// heldLease is one that is held, with the action that it is on, or nil.
type heldLease struct {
	*lease
	a *action
}

// heldOn are the leases that a plan holds after the commit.
func (p *plan) heldOn() (list []heldLease) {
	if p.holding == 0 { // as each record about it asks
		return nil
	}
	for _, l := range p.leases {
		if l.untilNs != 0 {
			list = append(list, heldLease{l, nil})
		}
	}
	for _, a := range p.actions {
		for _, l := range a.leases {
			if l.untilNs != 0 {
				list = append(list, heldLease{l, a})
			}
		}
	}
	return list
}

// asOf is the instant at which a lease is asked: its last one at the latest.
func (l *lease) asOf(ns int64) int64 {
	if l.untilNs != 0 && ns >= l.untilNs {
		return l.untilNs - 1
	}
	return ns
}

// undoesSince is the committed root that a condition has undone, and how far.
func (p *plan) undoesSince(a *action, l *lease) (root *plan, to back) {
	if root = p.root(); !l.single {
		return root, back{}
	}
	to.action = a.id
	for ; p.parent != nil; p = p.parent {
		to.action = p.parent.actions[p.entry-1].id
	}
	return root, to
}

// holdOn has the conditions of a tree that say so held after its commit.
func holdOn(b *book, tree []*plan) {
	closes := map[back]int64{} // the first window of what is undone, by what that is
	for _, p := range tree {
		held := func(a *action, list []*lease) {
			for _, l := range list {
				if !l.after || l.fired || l.isStopped() {
					continue
				}
				root, to := p.undoesSince(a, l)
				ns, known := closes[to]
				if !known {
					ns = root.closesFirst(root.part(to), b.now)
					closes[to] = ns
				}
				if ns > b.now {
					l.untilNs = ns
					p.holding++
					b.spent.leases++
				}
			}
		}
		if p.parent == nil {
			held(nil, p.leases)
		}
		for _, a := range p.actions {
			if !a.isSettled() && a.mayHaveCrossed() {
				held(a, a.leases)
			}
		}
		if len(p.heldOn()) > 0 {
			p.turned, p.behind = nil, nil
			noteNext(b, p)
		}
	}
}

// noteNext keeps when a plan gives up the next of what it holds.
func noteNext(b *book, p *plan) {
	first := int64(0)
	for _, l := range p.heldOn() {
		if l.untilNs > b.now && (first == 0 || l.untilNs < first) {
			first = l.untilNs
		}
	}
	switch {
	case first == 0:
		delete(b.ends, p.id)
	case b.ends[p.id] != first:
		b.ends[p.id] = first
		heap.Push(&b.endings, ending{first, p.id})
	}
	b.noteAsking(p)
}

// endingsMax is how many plans give up what they hold before one record that changes no fact.
const endingsMax = 64

// endHeld gives up what ends before the record that comes now: of its own plan first, and of all
// before a fact changes. A condition on the clock is asked once more, as of its last instant.
func endHeld(b *book, r *pb.Record) {
	if ns, ok := b.ends[r.GetPlan()]; ok && ns <= b.now {
		delete(b.ends, r.Plan)
		endOf(b, b.plan(r.Plan))
	}
	all := r.GetFactAsserted() != nil || r.GetFactRetracted() != nil
	for done := 0; (all || done < endingsMax) && len(b.endings) > 0 && b.endings[0].ns <= b.now; {
		if e := heap.Pop(&b.endings).(ending); b.ends[e.plan] == e.ns {
			delete(b.ends, e.plan)
			endOf(b, b.plan(e.plan))
			done++
		}
	}
}

// endOf gives up what a plan has held until now, but for what has turned true or was cut short.
func endOf(b *book, p *plan) {
	var gone []heldLease
	for _, l := range p.heldOn() {
		if l.untilNs > b.now || l.cascade == cutShort {
			continue
		}
		if l.trueNs == 0 && clocked(b.programs, l.lease) && !l.isStopped() {
			if truth, read := b.truth(p, l.a, l.lease); truth == triggers.True {
				b.turn(p, numberOf(l.a), l.lease, true, read)
			}
		}
		if l.trueNs == 0 || p.turned == nil {
			gone = append(gone, l)
		}
	}
	if len(gone) > 0 || len(p.heldOn()) > 0 {
		dropHeld(b, p, gone)
	}
}

// releaseOf gives up those of an action that is known not to have happened, but for what has turned
// true before or was cut short.
func releaseOf(b *book, p *plan, a *action) {
	var gone []heldLease
	for _, l := range a.leases {
		if l.untilNs != 0 && l.trueNs == 0 && l.cascade != cutShort {
			gone = append(gone, heldLease{l, a})
		}
	}
	if len(gone) > 0 {
		dropHeld(b, p, gone)
	}
}

// dropHeld gives up leases that a plan holds after its commit.
func dropHeld(b *book, p *plan, list []heldLease) {
	for _, l := range list {
		l.untilNs, l.trueNs = 0, 0
		p.holding--
		b.spent.leases--
	}
	b.releaseCuts(p, "", func(x *cut) bool {
		l, _ := p.leaseNamed(x.number, x.lease)
		return l == nil || l.untilNs == 0
	})
	noteNext(b, p)
}

// firesSince has a committed tree undone, or the part that a condition is about.
func (c *claim) firesSince(reason string) {
	root, to := c.p.undoesSince(c.a, c.l)
	reason += ofChild(root, c.p)
	u, more := c.opensUndoer(root, to, reason)
	c.passesUp(u, back{}, reason+more)
}
