package executor

import (
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/writers"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Child plans. A child is one entry in its parent's order, after the action that
// it was opened under. Its own commit closes it for its agent and
// keeps its held set, which goes with the root: retired when the root commits,
// unwound in its place when the root unwinds (S61, S62).

// childDepthMax bounds the nesting of plans.
const childDepthMax = 16

// entryPrefix is what the ids of entries of child plans begin with; no action can
// be called so.
const entryPrefix = "plan:"

// child reports whether a plan is a part of another.
func child(r *rowspb.PlanRow) bool { return r.ParentEntry != 0 }

// closed reports whether a plan is closed for its agent.
func closed(phase rowspb.Phase) bool {
	switch phase {
	case rowspb.Phase_PHASE_OPEN, rowspb.Phase_PHASE_COMMITTING, rowspb.Phase_PHASE_UNWINDING,
		rowspb.Phase_PHASE_QUARANTINED:
		return false
	default:
		return true
	}
}

// stops reports whether a plan can still be undone in the state that it is in: it is open, or
// its commit waits.
func stops(r *rowspb.PlanRow) bool {
	return r.Phase == rowspb.Phase_PHASE_OPEN || r.Phase == rowspb.Phase_PHASE_COMMITTING
}

// keeps reports whether a committed plan still holds its set, for its root.
func keeps(r *rowspb.PlanRow) bool {
	return r.Phase == rowspb.Phase_PHASE_COMMITTED && child(r) && !r.Retired
}

// givenUp reports whether the leases of a plan itself went with its commit, and those of its
// actions are held on.
func givenUp(p *plan) bool {
	return keeps(p.row) && p.s.meta.HolderFold >= ledger.GivenUpSince
}

// anytime reports whether effects are reported of what is committed, or was resolved, too.
func anytime(s *State) bool { return s.meta.HolderFold >= ledger.AnytimeSince }

// armed reports whether the leases of a plan are held.
func armed(r *rowspb.PlanRow) bool { return stops(r) || keeps(r) }

// attach makes a plan that was just opened a part of its parent. One that has no
// open parent can never be committed with its root: it fails at once.
func (s *fold) attach(p *plan) {
	d := p.row.Declared
	parent := s.plan(d.ParentPlan)
	why := ""
	if parent != nil {
		why = writers.RefusesChild(parent.row, p.row, s.meta.HolderFold)
	}
	switch {
	case parent == nil || parent == p:
		why = "was never opened"
	case why != "":
	case parent.row.Phase != rowspb.Phase_PHASE_OPEN || parent.row.Fired != nil:
		why = "is " + stateName(parent.row)
	case parent.row.Depth >= childDepthMax:
		why = "is nested too deeply"
	case d.ParentAction != "" && s.number(parent.id, d.ParentAction) == 0:
		why = "has no action " + d.ParentAction
	case d.ParentAction != "" && staged(s.byName(parent.id, d.ParentAction)):
		why = "has staged action " + d.ParentAction + ", which happens when it is committed"
	}
	if why != "" {
		s.signal(p, rowspb.Signal_SIGNAL_FAILED, ledger.ReasonParent+d.ParentPlan+" "+why, back{})
		return
	}
	var before []uint32
	switch {
	case d.ParentAction != "":
		before = []uint32{s.number(parent.id, d.ParentAction)}
	default:
		before = parent.latest(false)
	}
	entry := parent.enlist(&rowspb.ActionStatic{Id: entryPrefix + p.id, Registered: s.e.Address,
		AtNs: s.meta.TimeNs, Before: before, Child: p.id}, &rowspb.ActionRow{})
	parent.row.OpenChildren++
	parent.row.Children = rows.Insert(parent.row.Children, entry.id.N)
	p.row.ParentEntry, p.row.Depth = entry.id.N, parent.row.Depth+1
	parent.touch()
	p.touch()
	whileActive(s, parent, func() Result {
		parent.evaluateReading(s.Counts, parent.row.Counting, s.e.Address)
		return effective
	})
}

// entry is the place of a child in its parent.
func (p *plan) entry() (*plan, *action) {
	s := p.s
	parent := s.plan(p.row.Declared.ParentPlan)
	return parent, parent.action(p.row.ParentEntry)
}

// owner answers for a plan: a child without an owner of its own is its parent's.
func (p *plan) owner() string {
	for p.row.Declared.Owner == "" && child(p.row) {
		p, _ = p.entry()
	}
	return p.row.Declared.Owner
}

// root is the plan that a child's held set belongs to.
func (p *plan) root() *plan {
	for child(p.row) {
		p, _ = p.entry()
	}
	return p
}

// Root names the plan with which the plan is committed: itself, if it is no child.
func (p *Plan) Root() string { return p.p.root().id }

// follow keeps a parent true to the phase that its child has taken.
func (p *plan) follow(from rowspb.Phase) {
	if !child(p.row) {
		return
	}
	parent, a := p.entry()
	if closed(p.row.Phase) && !closed(from) {
		parent.row.OpenChildren--
	} else if closed(from) && !closed(p.row.Phase) {
		parent.row.OpenChildren++
	}
	parent.touch()
	parent.root().touch()
	touchHeld(parent.root())
	a.row.Note = ""
	switch p.row.Phase {
	case rowspb.Phase_PHASE_OPEN: // back at a savepoint of its own, but the parent unwinds all of it
		if ordered(parent.row) && (flying(a.row.Undo) || a.row.Undo == rowspb.Undo_UNDO_QUARANTINED) {
			a.owe()
		}
	case rowspb.Phase_PHASE_UNWINDING:
		a.entryUnwinds()
	case rowspb.Phase_PHASE_QUARANTINED:
		if a.row.Undo == rowspb.Undo_UNDO_DISPATCHED {
			a.row.Note = "child plan " + p.id + " waits for its owner"
			entryQuarantined(a)
		}
	case rowspb.Phase_PHASE_COMPENSATED:
		a.settle(rowspb.Undo_UNDO_COMPENSATED, p.row.Ended)
	case rowspb.Phase_PHASE_FAILED:
		a.settle(rowspb.Undo_UNDO_SKIPPED, p.row.Ended)
	case rowspb.Phase_PHASE_RESOLVED:
		a.settle(rowspb.Undo_UNDO_RESOLVED, p.row.Ended)
	}
}

// entryUnwinds takes an entry along when its child begins to unwind, or goes on.
func (a *action) entryUnwinds() {
	parent := a.plan
	switch {
	case !ordered(parent.row):
		if settled(a.row.Undo) {
			a.move(rowspb.Undo_UNDO_HELD)
		}
	// not reached yet, or before the savepoint
	case a.row.Undo == rowspb.Undo_UNDO_OWED, a.row.Undo == rowspb.Undo_UNDO_HELD:
	default:
		parent.reopen()
		a.move(rowspb.Undo_UNDO_DISPATCHED)
	}
}

// childDue says why a child does not unwind with its parent now, or "".
func (s *fold) childDue(p *plan, parentID string) string {
	if !child(p.row) || p.row.Declared.ParentPlan != parentID {
		return "it is no part of it"
	}
	parent, a := p.entry()
	switch {
	case parent.row.Phase != rowspb.Phase_PHASE_UNWINDING || a.row.Undo != rowspb.Undo_UNDO_READY:
		return "its turn has not come"
	case !armed(p.row) && !mistaken(p):
		return "it is " + stateName(p.row)
	case !samePlace(s.e.Record.Cause, unwindCause(parent), s.e):
		return "not for " + ledger.FormatAddress(s.e.Record.Cause)
	default:
		return ""
	}
}

// descendants calls each for every child plan below p that is still a part of it, with its entry's
// plan first, until it returns false. To holders of before PartsSince a child that was let go was a
// part, too.
func (p *plan) descendants(each func(*plan) bool) bool {
	s := p.s
	for _, n := range p.row.Children {
		c := s.plan(p.action(n).fixed.Child)
		if c.row.ParentEntry != n && s.meta.HolderFold >= ledger.PartsSince {
			continue
		}
		if !each(c) || !c.descendants(each) {
			return false
		}
	}
	return true
}

// retire gives up the held set of a plan and of all that is part of it, at once;
// it returns how many registrations that were.
func (p *plan) retire() (count uint32) {
	s := p.s
	count = p.heldCount()
	stopAsking(p)
	p.disarm()
	p.descendants(func(c *plan) bool {
		if keeps(c.row) {
			stopAsking(c)
			c.disarm()
			c.row.Retired, c.row.EndedNs = true, s.meta.TimeNs
			turnsArmed(c, true)
			c.touch()
		}
		return true
	})
	s.meta.Held -= uint64(count)
	return count
}

// heldCount counts the registrations that the commit of a plan retires.
func (p *plan) heldCount() (count uint32) {
	count = p.registrations()
	p.descendants(func(c *plan) bool {
		if keeps(c.row) {
			count += c.registrations()
		}
		return true
	})
	return count
}

// detachChildren lets go of what an owner left as it is: a committed child is
// retired, an open one goes on by itself.
func (p *plan) detachChildren() {
	s := p.s
	for _, n := range p.row.Children {
		a := p.action(n)
		if settled(a.row.Undo) {
			continue
		}
		c := s.plan(a.fixed.Child)
		if keeps(c.row) {
			c.retire()
			c.row.Retired, c.row.EndedNs = true, s.meta.TimeNs
			turnsArmed(c, true)
		}
		c.row.ParentEntry = 0
		c.touch()
	}
}

// What has turned true of a committed tree is undone, whichever of it fires, and whoever else asks
// for an undo first: the plan that undoes the tree reaches all of it.

// keepTurned keeps that a condition which is held after the commit has turned true.
func keepTurned(p *plan, l *rowspb.LeaseRow) {
	if l.UntilNs != 0 && l.TurnedNs == 0 {
		l.TurnedNs = p.s.meta.TimeNs
	}
}

// eachOfTree calls f for a committed root, and for each part of it, in order.
func eachOfTree(root *plan, f func(*plan)) {
	f(root)
	root.descendants(func(p *plan) bool {
		f(p)
		return true
	})
}

// firstSince is the plan of a committed tree a condition of which has turned true first, at a
// record; nil: none has. Of several at one record it is the first of the tree.
func firstSince(root *plan) (first *plan) {
	eachOfTree(root, func(p *plan) {
		if turnedSince(p.row) && (first == nil || turnedLater(first.row.Turned, p.row.Turned)) {
			first = p
		}
	})
	return first
}

// notFirst says which condition of a committed tree has turned true before this one, if this one
// reads no clock, or "".
func notFirst(p *plan, a *action, l *rowspb.LeaseRow) string {
	first := firstSince(p.root())
	t := turnOf(p, rows.Lease{Plan: p.id, N: number(a), Name: l.Name})
	if first == nil || t != nil && (t.Clocked || !turnedLater(t, first.row.Turned)) {
		return ""
	}
	if held := p.hold(a, l); t == nil && held != nil && held.ReadsClock() {
		return ""
	}
	return "lease " + first.row.Turned.Lease + " of plan " + first.id + " turned true at " +
		ledger.FormatAddress(first.row.Turned.At)
}

// toldNs is the instant at which a record was made: by the guarded clock of its holder, or by its
// stamp. Logical time is later where an earlier stamp was.
func toldNs(s *fold) int64 {
	if s.e.Source.Class == ledger.ClassExecutor {
		return min(s.e.Record.EpochNs, s.meta.TimeNs)
	}
	return min(s.e.StampNs, s.meta.TimeNs)
}

// owed reports whether a condition of a committed tree has turned true, and waits to be fired. One
// on the clock is asked: its holder may be late. It may not be early (I16).
func owed(s *fold, p *plan, a *action, l *rowspb.LeaseRow) bool {
	held := p.hold(a, l)
	switch {
	case l.Fired || stopped(l) || held == nil:
		return false
	case !held.ReadsClock():
		return l.TurnedNs != 0
	}
	told := toldNs(s)
	return l.TurnedNs != 0 && l.TurnedNs <= told ||
		held.Evaluate(asOf(l, told), s.memory.View()).Truth == triggers.True
}

// widened is what an undo of a committed root reaches, by the numbers of its actions: what it was
// asked to, and what the conditions undo that have turned true by now; more names the first of them
// that reaches further.
func widened(s *fold, root *plan, to back) (reached []bool, more string) {
	reached = make([]bool, root.row.Actions+1)
	first, all := firstOf(root, to), true
	asked := root.reach(to, first)
	for n := uint32(1); n <= root.row.Actions; n++ {
		reached[n] = n >= first && asked(n)
		all = all && (reached[n] || settled(root.action(n).row.Undo))
	}
	from, further := root.row.Actions+1, 0
	sources := map[uint32]bool{}
	eachOfTree(root, func(p *plan) {
		eachHeldOn(p, func(a *action, l *rowspb.LeaseRow) {
			n := uint32(0) // all of the root
			if l.OfAction {
				_, part := a.committedAs(true)
				n = root.s.number(root.id, part.action)
			}
			if all || l.OfAction && reached[n] || !owed(s, p, a, l) {
				return
			}
			if further++; further == 1 {
				more = "; also for lease " + treeLease(root, p, a, l)
			}
			from, sources[n] = min(from, n), true
		})
	})
	if further > 1 {
		more += fmt.Sprintf(", and %d more", further-1)
	}
	spread(root, from, sources, reached)
	return reached, more
}

// treeLease is a lease as the plan names it that undoes a committed root.
func treeLease(root, p *plan, a *action, l *rowspb.LeaseRow) string {
	name := l.Name
	if a != nil {
		name += " of action " + a.fixed.Id
	}
	if p != root {
		name += " (child plan " + p.id + ")"
	}
	return name
}

// spread adds to what is reached some actions of a plan, or all of it (0), and what came after.
func spread(p *plan, from uint32, sources map[uint32]bool, reached []bool) {
	for n := max(from, 1); n <= p.row.Actions; n++ {
		a := p.action(n)
		with := func(m uint32) bool { return reached[m] }
		reached[n] = reached[n] || sources[0] || sources[n] || owesWith(a, with) ||
			slices.ContainsFunc(a.fixed.Before, with)
	}
}

// letGo gives up all that a committed tree holds.
func letGo(root *plan) {
	eachOfTree(root, func(p *plan) {
		if p.row.HeldOn == 0 {
			return
		}
		eachHeldOn(p, func(a *action, l *rowspb.LeaseRow) { releaseHeld(p, a, l) })
		p.uncut(rowspb.Cascade_CASCADE_NONE, anyCut)
		p.row.Turned, p.row.Behind = nil, nil
		endsAt(p)
	})
}

// touchHeld looks again at what a committed tree holds when a part of it has ended.
func touchHeld(root *plan) {
	if root.row.Phase != rowspb.Phase_PHASE_COMMITTED || waitsForPart(root) {
		return
	}
	eachOfTree(root, func(p *plan) {
		if p.row.HeldOn == 0 {
			return
		}
		p.touch()
		eachHeldOn(p, func(a *action, l *rowspb.LeaseRow) {
			at := rows.Instant{Ns: l.WakeNs, Kind: rows.DueLease,
				Lease: rows.Lease{Plan: p.id, N: number(a), Name: l.Name}}
			if l.Node != nil {
				at = rows.Instant{Ns: p.s.nodeRow(l.Node).GetWakeNs(), Kind: rows.DueNode, Node: l.Node}
			}
			if at.Ns != 0 {
				p.s.due.AskAgain(rows.Due.Key(at))
			}
		})
	})
}

// notOpenAbove is a plan that this one is a part of, and that is not open; nil: there is none.
func notOpenAbove(p *plan) *plan {
	for child(p.row) {
		if p, _ = p.entry(); p.row.Phase != rowspb.Phase_PHASE_OPEN {
			return p
		}
	}
	return nil
}
