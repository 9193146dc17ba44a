package executor

import (
	"bytes"
	"crypto/sha256"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Child plans. A child stands in its parent's order as one entry, behind the
// action that it was opened under. Its own commit closes it for its agent and
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

// stops reports whether a plan can still be undone from where it stands: it is open, or
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
func (s *State) attach(e ledger.Entry, p *plan) {
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
		s.signal(e, p, rowspb.Signal_SIGNAL_FAILED, "its parent plan "+d.ParentPlan+" "+why, "")
		return
	}
	var before []uint32
	switch {
	case d.ParentAction != "":
		before = []uint32{s.number(parent.id, d.ParentAction)}
	default:
		before = s.latest(parent)
	}
	entry := s.enlist(parent, &rowspb.ActionStatic{Id: entryPrefix + p.id, Registered: e.Address,
		AtNs: s.meta.TimeNs, Before: before, Child: p.id}, &rowspb.ActionRow{})
	parent.row.OpenChildren++
	parent.row.Children = insert(parent.row.Children, entry.id.N)
	p.row.ParentEntry, p.row.Depth = entry.id.N, parent.row.Depth+1
	s.touch(parent)
	s.touch(p)
	s.evaluateCounting(parent, e.Address)
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

// entry is where a child stands in its parent.
func (s *State) entry(p *plan) (*plan, *action) {
	parent := s.plan(p.row.Declared.ParentPlan)
	return parent, s.action(parent.id, p.row.ParentEntry)
}

// owner answers for a plan: a child without an owner of its own is its parent's.
func (s *State) owner(p *plan) string {
	for p.row.Declared.Owner == "" && child(p.row) {
		p, _ = s.entry(p)
	}
	return p.row.Declared.Owner
}

// root is the plan that a child's held set belongs to.
func (s *State) root(p *plan) *plan {
	for child(p.row) {
		p, _ = s.entry(p)
	}
	return p
}

// follow keeps a parent true to the phase that its child has taken.
func (s *State) follow(p *plan, from rowspb.Phase) {
	if !child(p.row) {
		return
	}
	parent, a := s.entry(p)
	if closed(p.row.Phase) && !closed(from) {
		parent.row.OpenChildren--
	} else if closed(from) && !closed(p.row.Phase) {
		parent.row.OpenChildren++
	}
	s.touch(parent)
	s.touch(s.root(parent))
	a.row.Note = ""
	switch p.row.Phase {
	case rowspb.Phase_PHASE_OPEN: // back at a savepoint of its own, but the parent unwinds all of it
		if ordered(parent.row) && (flying(a.row.Undo) || a.row.Undo == rowspb.Undo_UNDO_QUARANTINED) {
			s.owe(parent, a)
		}
	case rowspb.Phase_PHASE_UNWINDING:
		s.entryUnwinds(parent, a)
	case rowspb.Phase_PHASE_QUARANTINED:
		if a.row.Undo == rowspb.Undo_UNDO_DISPATCHED {
			a.row.Note = "child plan " + p.id + " waits for its owner"
			s.move(parent, a, rowspb.Undo_UNDO_QUARANTINED)
		}
	case rowspb.Phase_PHASE_COMPENSATED:
		s.settle(parent, a, rowspb.Undo_UNDO_COMPENSATED, p.row.Ended)
	case rowspb.Phase_PHASE_FAILED:
		s.settle(parent, a, rowspb.Undo_UNDO_SKIPPED, p.row.Ended)
	case rowspb.Phase_PHASE_RESOLVED:
		s.settle(parent, a, rowspb.Undo_UNDO_RESOLVED, p.row.Ended)
	}
}

// entryUnwinds takes an entry along when its child begins to unwind, or goes on.
func (s *State) entryUnwinds(parent *plan, a *action) {
	switch {
	case !ordered(parent.row):
		if settled(a.row.Undo) {
			s.move(parent, a, rowspb.Undo_UNDO_HELD)
		}
	// not reached yet, or before the savepoint
	case a.row.Undo == rowspb.Undo_UNDO_OWED, a.row.Undo == rowspb.Undo_UNDO_HELD:
	default:
		s.reopen(parent)
		s.move(parent, a, rowspb.Undo_UNDO_DISPATCHED)
	}
}

// childDue says why a child does not unwind with its parent now, or "".
func (s *State) childDue(e ledger.Entry, p *plan, parentID string) string {
	if !child(p.row) || p.row.Declared.ParentPlan != parentID {
		return "it is no part of it"
	}
	parent, a := s.entry(p)
	switch {
	case parent.row.Phase != rowspb.Phase_PHASE_UNWINDING || a.row.Undo != rowspb.Undo_UNDO_READY:
		return "its turn has not come"
	case !armed(p.row):
		return "it is " + stateName(p.row)
	case !samePlace(e.Record.Cause, unwindCause(parent), e):
		return "not for " + ledger.FormatAddress(e.Record.Cause)
	default:
		return ""
	}
}

// descendants calls each for every child plan below p, with its entry's plan
// first, until it returns false.
func (s *State) descendants(p *plan, each func(*plan) bool) bool {
	for _, n := range p.row.Children {
		c := s.plan(s.action(p.id, n).fixed.Child)
		if !each(c) || !s.descendants(c, each) {
			return false
		}
	}
	return true
}

// retire gives up the held set of a plan and of all that is part of it, at once;
// it returns how many registrations that were.
func (s *State) retire(p *plan) (count uint32) {
	count = s.heldCount(p)
	s.disarm(p)
	s.descendants(p, func(c *plan) bool {
		if keeps(c.row) {
			s.disarm(c)
			c.row.Retired, c.row.EndedNs = true, s.meta.TimeNs
			s.touch(c)
		}
		return true
	})
	s.meta.Held -= uint64(count)
	return count
}

// heldCount counts the registrations that the commit of a plan retires.
func (s *State) heldCount(p *plan) (count uint32) {
	count = s.registrations(p)
	s.descendants(p, func(c *plan) bool {
		if keeps(c.row) {
			count += s.registrations(c)
		}
		return true
	})
	return count
}

// detachChildren lets go of what an owner left as it is: a committed child is
// retired, an open one goes on by itself.
func (s *State) detachChildren(p *plan) {
	for _, n := range p.row.Children {
		a := s.action(p.id, n)
		if settled(a.row.Undo) {
			continue
		}
		c := s.plan(a.fixed.Child)
		if keeps(c.row) {
			s.retire(c)
			c.row.Retired, c.row.EndedNs = true, s.meta.TimeNs
		}
		c.row.ParentEntry = 0
		s.touch(c)
	}
}
