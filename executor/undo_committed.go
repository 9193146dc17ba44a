package executor

import (
	"fmt"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// A committed plan has retired its held set, and its terminal state absorbs (I15).
// Its owner may still have it undone inside its undo windows: by a new plan that
// holds the same registrations and refers to the old one.

// compensationRequested asks for an unwind: of an open plan, whole or back to a
// savepoint, or of a committed one.
func (s *State) compensationRequested(e ledger.Entry, p *plan, k *pb.CompensationRequested) Result {
	reason := byActor(k.Reason, k.Actor)
	switch {
	case p.row.Phase == rowspb.Phase_PHASE_COMMITTED:
		return s.undoCommitted(e, p, k.ToSavepoint, reason)
	case k.ToSavepoint != "":
		return s.unwindTo(e, p, "compensation_requested", k.ToSavepoint, reason)
	default:
		return s.signal(e, p, rowspb.Signal_SIGNAL_CANCELLED, reason, "")
	}
}

// undoneSuffix is what the id of a plan that undoes a committed one ends with.
const undoneSuffix = "~1"

// closedShown bounds the closed windows that a refusal names.
const closedShown = 20

func (s *State) undoCommitted(e ledger.Entry, p *plan, to, reason string) Result {
	target := uint32(0)
	switch {
	case child(p.row):
		return refused("plan %s is a part of plan %s: unwind that one", p.id, s.root(p).id)
	case p.row.UndoneAs != "":
		return refused("plan %s is undone by plan %s already", p.id, p.row.UndoneAs)
	case p.row.Origin != "":
		return refused("plan %s undoes plan %s and cannot be undone itself", p.id, p.row.Origin)
	case to != "":
		sp := savepoint(p, to)
		if sp == nil {
			return refused("compensation_requested.to_savepoint: plan %s has no savepoint %q", p.id, to)
		}
		target = sp.Actions
	}
	if busy := s.unfinished(p); busy != nil {
		return refused("plan %s, a part of it, is %s: wait for its end", busy.id, stateName(busy.row))
	}
	if gone := s.irreversibleNow(p, target); len(gone) > 0 {
		more := ""
		if len(gone) > closedShown {
			more = fmt.Sprintf("; and %d more", len(gone)-closedShown)
		}
		return refused("undo windows have closed: %s%s",
			strings.Join(gone[:min(len(gone), closedShown)], "; "), more)
	}
	u := s.copyCommitted(e, p, p.id+undoneSuffix, target, "")
	u.row.Phase = rowspb.Phase_PHASE_OPEN
	s.meta.Ended--
	s.meta.Open++
	u.row.Committed, u.row.EndedNs = nil, 0
	s.armPlan(u, e.Address)
	return s.signal(e, u, rowspb.Signal_SIGNAL_CANCELLED, reason, "")
}

// unfinished finds a child plan that is being undone by itself: what its agent did
// after its end.
func (s *State) unfinished(p *plan) (busy *plan) {
	s.descendants(p, func(c *plan) bool {
		if !closed(c.row.Phase) {
			busy = c
		}
		return busy == nil
	})
	return busy
}

// irreversibleNow lists what of a committed tree cannot be undone any more because
// its window has closed.
func (s *State) irreversibleNow(p *plan, target uint32) (gone []string) {
	for n := target + 1; n <= p.row.Actions; n++ {
		a := s.action(p.id, n)
		switch {
		case settled(a.row.Undo):
		case a.fixed.Child != "":
			gone = append(gone, s.irreversibleNow(s.plan(a.fixed.Child), 0)...)
		case crossed(a) && s.windowClosed(a):
			gone = append(gone, fmt.Sprintf("action %s of plan %s (%s) at %s", a.fixed.Id, p.id,
				a.fixed.Forward.Capability, instant(a.row.ClosesNs)))
		}
	}
	return gone
}

// copyCommitted makes the plan that holds what a committed plan held, with the
// same keys and addresses, and so for its children.
func (s *State) copyCommitted(e ledger.Entry, p *plan, id string, target uint32,
	parent string) *plan {
	d := p.row.Declared.CloneVT()
	d.DeadlineNs, d.Triggers, d.ParentPlan, d.ParentAction = 0, nil, parent, ""
	u := s.addPlan(id, &rowspb.PlanRow{
		Agent: p.row.Agent, Opened: e.Address, OpenedNs: s.meta.TimeNs, LastNs: e.StampNs, Declared: d,
		Origin: p.id,
		Phase:  rowspb.Phase_PHASE_COMMITTED, Committed: p.row.Committed, EndedNs: s.meta.TimeNs,
		Depth: p.row.Depth, Actions: p.row.Actions,
		// no one knows what they did
		Orphans: rows.CloneOrphans(p.row), Writer: p.row.Writer, Opener: p.row.Opener,
		ResumedNs: p.row.ResumedNs,
		// What was rewound before the commit counts on.
		InScope: p.row.InScope, Compensated: p.row.Compensated, Skipped: p.row.Skipped,
		Resolved: p.row.Resolved, ByHand: p.row.ByHand,
	})
	s.meta.Ended++
	s.listOwner(u)
	p.row.UndoneAs = id
	s.touch(p)
	for n := uint32(1); n <= p.row.Actions; n++ {
		a := s.action(p.id, n)
		fixed := &rowspb.ActionStatic{
			Id: a.fixed.Id, Registered: a.fixed.Registered, AtNs: a.fixed.AtNs, Forward: a.fixed.Forward,
			Compensation: a.fixed.Compensation,
			Before:       a.fixed.Before, DutyOf: a.fixed.DutyOf, Child: a.fixed.Child,
			Writer: a.fixed.Writer,
		}
		if a.fixed.Child == "" {
			fixed.Key = s.key(a)
		}
		row := rows.CloneAction(a.row)
		row.Leases, row.Verdict, row.Warned = nil, pb.VerdictOutcome_VERDICT_OUTCOME_UNSPECIFIED, false
		if n <= target && !settled(row.Undo) {
			row.Undo, row.Note = rowspb.Undo_UNDO_SKIPPED, "before the savepoint"
			u.row.Skipped++
		}
		if a.fixed.Child != "" && !settled(row.Undo) {
			fixed.Child = a.fixed.Child + undoneSuffix
			fixed.Id = entryPrefix + fixed.Child
			c := s.copyCommitted(e, s.plan(a.fixed.Child), fixed.Child, 0, id)
			c.row.ParentEntry = n
			s.touch(c) // what a root had to do, a child has not
			u.row.Children = insert(u.row.Children, n)
		}
		s.addAction(id, n, fixed, row)
		if v, ok := rows.Payloads.Get(s.tx, rows.Action{Plan: p.id, N: n}); ok {
			rows.Payloads.Put(s.tx, rows.Action{Plan: id, N: n}, v)
		}
		if !settled(row.Undo) {
			u.row.Unsettled++
			if fixed.Child == "" {
				s.meta.Held++
			}
		}
	}
	return u
}
