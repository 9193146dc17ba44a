package executor

import (
	"bytes"
	"crypto/sha256"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
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

// armed reports whether the leases of a plan are held.
func armed(r *rowspb.PlanRow) bool { return stops(r) || keeps(r) }

// attach makes a plan that was just opened a part of its parent. One that has no
// open parent can never be committed with its root: it fails at once.
func (s *fold) attach(p *plan) {
	d := p.row.Declared
	parent := s.plan(d.ParentPlan)
	why := ""
	switch {
	case parent == nil || parent == p:
		why = "was never opened"
	case !takesChildOf(parent.row, p.row):
		why = "takes no child plan of agent " + p.row.Agent + " without its token"
	case parent.row.Phase != rowspb.Phase_PHASE_OPEN || parent.row.Fired != nil:
		why = "is " + stateName(parent.row)
	case parent.row.Depth >= childDepthMax:
		why = "is nested too deeply"
	case d.ParentAction != "" && s.number(parent.id, d.ParentAction) == 0:
		why = "has no action " + d.ParentAction
	}
	if why != "" {
		s.signal(p, rowspb.Signal_SIGNAL_FAILED, "its parent plan "+d.ParentPlan+" "+why, back{})
		return
	}
	var before []uint32
	switch {
	case d.ParentAction != "":
		before = []uint32{s.number(parent.id, d.ParentAction)}
	default:
		before = parent.latest()
	}
	entry := parent.enlist(&rowspb.ActionStatic{Id: entryPrefix + p.id, Registered: s.e.Address,
		AtNs: s.meta.TimeNs, Before: before, Child: p.id}, &rowspb.ActionRow{})
	parent.row.OpenChildren++
	parent.row.Children = insert(parent.row.Children, entry.id.N)
	p.row.ParentEntry, p.row.Depth = entry.id.N, parent.row.Depth+1
	parent.touch()
	p.touch()
	parent.evaluateCounting(s.e.Address)
}

// takesChildOf reports whether a plan may become a child: it is of the parent's agent,
// or shows the token that the parent was opened with.
func takesChildOf(parent, p *rowspb.PlanRow) bool {
	if parent.Agent == p.Agent {
		return true
	}
	digest := sha256.Sum256(p.Declared.ParentToken)
	return len(p.Declared.ParentToken) > 0 && bytes.Equal(parent.Declared.AttachDigest, digest[:])
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
	case !armed(p.row):
		return "it is " + stateName(p.row)
	case !samePlace(s.e.Record.Cause, unwindCause(parent), s.e):
		return "not for " + ledger.FormatAddress(s.e.Record.Cause)
	default:
		return ""
	}
}

// descendants calls each for every child plan below p, with its entry's plan
// first, until it returns false.
func (p *plan) descendants(each func(*plan) bool) bool {
	s := p.s
	for _, n := range p.row.Children {
		c := s.plan(p.action(n).fixed.Child)
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
