package executor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// An unwind may stop at a savepoint, or undo one action and what came after it; then
// the plan is open again.

// back is the part of a plan that an unwind undoes; the zero value: all of it.
type back struct {
	savepoint string // what came after it, or after a late duty, by its id, and that duty
	action    string // this action, and what came after it
}

// goesBack is what a plan was asked to undo of itself.
func goesBack(r *rowspb.PlanRow) back { return back{r.ToSavepoint, r.FromAction} }

// partly reports whether a plan goes back, or is about to, and is to be open again.
func (p *plan) partly() bool {
	return goesBack(p.row) != back{} && (stops(p.row) || p.row.Rewinding)
}

// ofAction reports whether what a condition or a verdict on an action undoes is that
// action, and not its plan.
func (s *State) ofAction(scope pb.Scope) bool {
	if scope == pb.Scope_SCOPE_UNSPECIFIED {
		return s.meta.HolderFold >= ledger.ScopedSince
	}
	return scope == pb.Scope_SCOPE_ACTION
}

// notFrom says why a plan cannot undo an action and what came after it, or "".
func (p *plan) notFrom(id string) string {
	switch a := p.s.byName(p.id, id); {
	case a == nil:
		return fmt.Sprintf("plan %s has no action %q", p.id, id)
	case settled(a.row.Undo):
		return fmt.Sprintf("action %s of plan %s is %s", id, p.id, undoName(a.row.Undo))
	default:
		return ""
	}
}

// reach returns whether an action of a plan, by its number, is among what it was asked
// to undo: the numbers from first on may be.
func (p *plan) reach(to back, first uint32) func(n uint32) bool {
	if to.action == "" {
		return func(n uint32) bool {
			return n >= first && (first == 1 || !keptApart(p.action(n)) || p.action(n).fixed.DutyOf >= first)
		}
	}
	reached := map[uint32]bool{p.s.number(p.id, to.action): true}
	for n := first; n <= p.row.Actions; n++ {
		after := func(m uint32) bool { return reached[m] }
		if a := p.action(n); slices.ContainsFunc(a.fixed.Before, after) || owesWith(a, after) {
			reached[n] = true
		}
	}
	return func(n uint32) bool { return reached[n] }
}

// owesWith reports whether a duty is undone with what else of its plan is.
func owesWith(a *action, reached func(n uint32) bool) bool {
	of := a.fixed.DutyOf
	return of != 0 && (reached(of) || !keptApart(a) &&
		(settled(a.plan.action(of).row.Undo) || a.row.Extra))
}

// partWordsMax bounds the parts of which a plan keeps what was undone, and why.
const partWordsMax = 64

// undoes reports whether a plan that goes back, or is about to, undoes an action of it.
func undoes(p *plan, id string) bool {
	n := p.s.number(p.id, id)
	if p.row.Rewinding {
		return p.action(n).row.Undo != rowspb.Undo_UNDO_HELD
	}
	_, last := p.target()
	return p.reach(goesBack(p.row), last+1)(n)
}

func (s *fold) savepointSet(p *plan, k *pb.SavepointSet) Result {
	name, old := k.Name, savepoint(p, k.Name)
	switch {
	case k.Number == 0:
		return refused("savepoint_set.number: missing; the agent counts its savepoints of plan %s from 1",
			p.id)
	case k.Number <= p.row.SavepointsSet:
		return repeated
	case old != nil:
		return refused("savepoint_set.name: savepoint %s of plan %s was set before, at %s", name, p.id,
			ledger.FormatAddress(old.At))
	case p.row.Phase != rowspb.Phase_PHASE_OPEN:
		return refused("plan %s is %s and takes no savepoint", p.id, statusName(p.row))
	case len(p.row.Savepoints) >= ledger.SavepointsMax:
		return refused("savepoint_set.name: plan %s has %d savepoints, and no more fit", p.id,
			ledger.SavepointsMax)
	}
	p.row.SavepointsSet = k.Number
	p.row.Savepoints = append(p.row.Savepoints, &rowspb.Savepoint{Name: name, Actions: p.row.Actions,
		At: s.e.Address})
	p.touch()
	return effective
}

func savepoint(p *plan, name string) *rowspb.Savepoint {
	for _, sp := range p.row.Savepoints {
		if sp.Name == name {
			return sp
		}
	}
	return nil
}

// target says where the unwind of a plan stops, if it stops at all: last is the action
// before all that is undone.
func (p *plan) target() (rewinding bool, last uint32) {
	if p.row.FromAction != "" {
		return true, p.s.number(p.id, p.row.FromAction) - 1
	}
	to := p.row.ToSavepoint
	if to == "" {
		return false, 0
	}
	if strings.Contains(to, DutySign) { // no name of a savepoint: a late duty
		return true, p.s.number(p.id, to) - 1
	}
	return true, savepoint(p, to).Actions
}

// rewindDuty undoes a duty of an open plan: its action was rewound before.
func (s about) rewindDuty(why string) {
	p := s.a.plan
	if p.row.Signal == rowspb.Signal_SIGNAL_NONE && p.row.FromAction == "" { // else it is reached
		s.signal(p, rowspb.Signal_SIGNAL_CANCELLED, why, back{savepoint: s.a.fixed.Id})
	}
}

// rewound reports whether an unwind back to a savepoint has nothing left to do.
func rewound(r *rowspb.PlanRow) bool {
	return r.Rewinding && r.Phase == rowspb.Phase_PHASE_UNWINDING && idle(r) && r.Quarantined == 0 &&
		!orphaned(r)
}

// planRewound opens a plan again. Its leases are armed again: what has turned true
// meanwhile fires now.
func (s *fold) planRewound(p *plan, k *pb.PlanRewound) Result {
	if !rewound(p.row) {
		return void("plan %s is %s and not back at %s", p.id, statusName(p.row),
			cmp.Or(k.Savepoint, k.FromAction))
	}
	reason, asked := p.row.Reason, p.row.Signalled.GetSequence()
	widened, from := goesBack(p.row) == back{}, p.row.FromAction
	p.row.Rewinding, p.row.ToSavepoint, p.row.FromAction = false, "", ""
	p.row.Fired, p.row.Unwinding, p.row.Resumed = nil, nil, nil
	counted := from != "" || !widened && p.row.Asked.GetCounted()
	if counted {
		p.row.Parts++
		p.row.PartWords = lastOf(partWordsMax, append(p.row.PartWords, &rowspb.Word{Action: from,
			Savepoint: k.Savepoint, Reason: reason, At: s.e.Address, AtNs: s.meta.TimeNs}))
	}
	if !widened {
		p.row.Signal, p.row.Signalled = rowspb.Signal_SIGNAL_NONE, nil
		p.row.Reason, p.row.Passed = "", nil
	}
	p.row.Savepoints = slices.DeleteFunc(p.row.Savepoints,
		func(sp *rowspb.Savepoint) bool { return sp.Actions > p.row.Target })
	state, phase := ledger.StateOpen, rowspb.Phase_PHASE_OPEN
	if p.row.Committed != nil { // for a late duty: its commit goes on
		state, phase = ledger.StateCommitting, rowspb.Phase_PHASE_COMMITTING
	}
	p.phase(phase)
	stays := map[uint32]bool{}
	for n := uint32(1); n <= p.row.Actions; n++ {
		a := p.action(n)
		if a.row.Undo == rowspb.Undo_UNDO_OWED { // its owner said halt
			a.move(rowspb.Undo_UNDO_HELD)
			stays[n] = from != ""
		}
		askLater(a)
		wantVerdict(a)
		if a.row.Blockers != 0 { // no one keeps count while it is open
			a.row.Blockers = 0
			a.change()
		}
	}
	p.row.Target = 0
	s.notices = append(s.notices, Notice{Plan: p.id, Agent: p.row.Agent, State: state,
		Savepoint: k.Savepoint, FromAction: from, Reason: reason, Parts: p.row.Parts,
		Counted: counted, Asked: asked, At: s.e.Address.GetSequence()})
	p.rearm(s.e.Address, stays, from != "")
	if phase == rowspb.Phase_PHASE_COMMITTING {
		p.settleDoubts()
	}
	return effective
}

// rearm takes out the leases of a plan again. Those that undo an action which stays by
// its owner's word have been answered.
func (p *plan) rearm(at *pb.Address, stays map[uint32]bool, part bool) {
	again := func(l *rowspb.LeaseRow) {
		l.Fired, l.Moot = false, false
		if !stopped(l) {
			l.Cascade = rowspb.Cascade_CASCADE_NONE
		}
	}
	for _, l := range p.row.Leases {
		again(l)
	}
	for n := uint32(1); n <= p.row.Actions; n++ {
		a := p.action(n)
		if settled(a.row.Undo) {
			continue
		}
		if a.row.Leases = slices.DeleteFunc(a.row.Leases, isDuplicate); len(a.row.Leases) == 0 {
			p.row.Watchers = rows.Without(p.row.Watchers, n)
		}
		for _, l := range a.row.Leases {
			if !l.OfAction || !stays[n] && !(part && answered(p, n, l)) {
				again(l)
			}
		}
		a.warnOf()
		a.change()
	}
	p.turnAgain(stays)
	p.evaluatePlan(at)
}

// A committed plan has retired its held set, and its terminal state absorbs (I15).
// Its owner may still have it undone inside its undo windows: by a new plan that
// holds the same registrations and refers to the old one.

// compensationRequested asks for an unwind: of an open plan, whole or back to a
// savepoint, or of a committed one.
func (s *fold) compensationRequested(p *plan, k *pb.CompensationRequested) Result {
	reason := byActor(k.Reason, k.Actor)
	switch {
	case p.row.Phase == rowspb.Phase_PHASE_COMMITTED:
		to := back{k.ToSavepoint, k.FromAction}
		if why := staysCommitted(p, to); why != "" {
			return refused("%s", why)
		}
		return s.undoCommitted(p, to, reason)
	case k.FromAction != "":
		return s.unwindFrom(p, k.FromAction, reason)
	case k.ToSavepoint != "":
		return s.unwindTo(p, "compensation_requested", k.ToSavepoint, reason)
	default:
		return s.signal(p, rowspb.Signal_SIGNAL_CANCELLED, reason, back{})
	}
}

// undoneSuffix is what the id of a plan that undoes a committed one ends with.
const undoneSuffix = "~1"

// closedShown bounds the closed windows that a refusal names.
const closedShown = 20

// staysCommitted says why a committed plan cannot be undone, or a part of it, or "".
func staysCommitted(p *plan, to back) string {
	switch {
	case child(p.row):
		return fmt.Sprintf("plan %s is a part of plan %s: unwind that one", p.id, p.root().id)
	case p.row.UndoneAs != "":
		return fmt.Sprintf("plan %s is undone by plan %s already", p.id, p.row.UndoneAs)
	case p.row.Origin != "":
		return fmt.Sprintf("plan %s undoes plan %s and cannot be undone itself", p.id, p.row.Origin)
	case to.action != "":
		if why := p.notFrom(to.action); why != "" {
			return "compensation_requested.from_action: " + why
		}
	case to.savepoint != "" && savepoint(p, to.savepoint) == nil:
		return fmt.Sprintf("compensation_requested.to_savepoint: plan %s has no savepoint %q", p.id,
			to.savepoint)
	}
	if busy := p.unfinished(); busy != nil {
		return fmt.Sprintf("plan %s, a part of it, is %s: wait for its end", busy.id, stateName(busy.row))
	}
	gone := p.irreversibleNow(p.reach(to, firstOf(p, to)))
	if len(gone) == 0 {
		return ""
	}
	more := ""
	if len(gone) > closedShown {
		more = fmt.Sprintf("; and %d more", len(gone)-closedShown)
	}
	return "undo windows have closed: " +
		strings.Join(gone[:min(len(gone), closedShown)], "; ") + more
}

// firstOf is the number of the first action of a plan that an unwind to a savepoint, or from an
// action on, may reach.
func firstOf(p *plan, to back) uint32 {
	switch {
	case to.action != "":
		return p.s.number(p.id, to.action)
	case to.savepoint != "":
		return savepoint(p, to.savepoint).Actions + 1
	}
	return 1
}

// undoCommitted opens the plan that undoes a committed one, or a part of it (staysCommitted), and
// tells the agent.
func (s *fold) undoCommitted(p *plan, to back, reason string) Result {
	u, reason := s.openUndoer(p, to, reason)
	return s.signal(u, rowspb.Signal_SIGNAL_CANCELLED, reason, back{})
}

// openUndoer makes that plan, of which nothing is asked yet, and tells the whole reason. The
// committed one holds no conditions any more: it is undone once.
func (s *fold) openUndoer(p *plan, to back, reason string) (*plan, string) {
	reached, more := widened(s, p, to)
	reason += more
	letGo(p)
	u := s.copyCommitted(p, p.id+undoneSuffix, func(n uint32) bool { return reached[n] }, "")
	u.row.Phase, u.row.Committed, u.row.EndedNs = rowspb.Phase_PHASE_OPEN, nil, 0
	s.meta.Ended--
	s.meta.Open++
	recall(p, u, s.e.Address, reason)
	u.armPlan(s.e.Address)
	s.notices = append(s.notices, Notice{Plan: p.id, Agent: p.row.Agent, State: stateName(p.row),
		Reason: reason, UndoneAs: u.id})
	return u, reason
}

// firedSince has a committed tree undone, or the part that a condition is about.
func (s *fold) firedSince(p *plan, a *action, l *rowspb.LeaseRow, f *rowspb.Firing,
	reason string) Result {
	root, part := p.root(), back{}
	if l.OfAction {
		_, part = a.committedAs(true)
	}
	if root != p {
		reason += " (child plan " + p.id + ")"
	}
	u, reason := s.openUndoer(root, part, reason)
	s.passOn(u, f, reason, back{})
	return effective
}

// unfinished finds a child plan that is being undone by itself: what its agent did
// after its end.
func (p *plan) unfinished() (busy *plan) {
	p.descendants(func(c *plan) bool {
		if !closed(c.row.Phase) {
			busy = c
		}
		return busy == nil
	})
	return busy
}

// whole reaches every action of a plan.
func whole(uint32) bool { return true }

// irreversibleNow lists what of a committed tree cannot be undone any more because
// its window has closed.
func (p *plan) irreversibleNow(reached func(n uint32) bool) (gone []string) {
	s := p.s
	for n := uint32(1); n <= p.row.Actions; n++ {
		a := p.action(n)
		switch {
		case settled(a.row.Undo) || !reached(n):
		case a.fixed.Child != "":
			gone = append(gone, s.plan(a.fixed.Child).irreversibleNow(whole)...)
		case a.row.Extra && anytime(s): // what is left of it is its owner's
		case crossed(a) && a.windowClosed():
			gone = append(gone, fmt.Sprintf("action %s of plan %s (%s) at %s", a.fixed.Id, p.id,
				a.fixed.Forward.Capability, instant(a.row.ClosesNs)))
		}
	}
	return gone
}

// copyCommitted makes the plan that holds what a committed plan held, with the
// same keys and addresses, and so for its children.
func (s *fold) copyCommitted(p *plan, id string, reached func(n uint32) bool,
	parent string) *plan {
	d := proto.CloneOf(p.row.Declared)
	d.DeadlineNs, d.Triggers, d.ParentPlan, d.ParentAction = 0, nil, parent, ""
	u := s.addPlan(id, &rowspb.PlanRow{
		Agent: p.row.Agent, Opened: s.e.Address, OpenedNs: s.meta.TimeNs, LastNs: s.e.StampNs,
		Declared: d,
		Origin:   p.id, Adoptions: p.row.Adoptions,
		Phase: rowspb.Phase_PHASE_COMMITTED, Committed: p.row.Committed, EndedNs: s.meta.TimeNs,
		Depth: p.row.Depth, Actions: p.row.Actions,
		// no one knows what they did
		Orphans: rows.CloneOrphans(p.row), Writer: p.row.Writer, Opener: p.row.Opener,
		ResumedNs: p.row.ResumedNs, LastGoes: p.row.LastGoes,
		MayLetGo: p.row.MayLetGo,
		// What was rewound before the commit counts on.
		InScope: p.row.InScope, Compensated: p.row.Compensated, Skipped: p.row.Skipped,
		Resolved: p.row.Resolved, ByHand: p.row.ByHand,
	})
	s.meta.Ended++
	u.listOwner()
	p.row.UndoneAs = id
	p.touch()
	for n := uint32(1); n <= p.row.Actions; n++ {
		a := p.action(n)
		fixed := &rowspb.ActionStatic{
			Id: a.fixed.Id, Registered: a.fixed.Registered, AtNs: a.fixed.AtNs, Forward: a.fixed.Forward,
			Compensation: a.fixed.Compensation,
			Before:       a.fixed.Before, DutyOf: a.fixed.DutyOf, Child: a.fixed.Child,
			Writer: a.fixed.Writer, Facts: a.fixed.Facts, FactsLost: a.fixed.FactsLost,
		}
		if a.fixed.Child == "" {
			fixed.Key = a.firstKey()
		}
		row := rows.CloneAction(a.row)
		row.Leases, row.Verdict, row.Warned = nil, pb.VerdictOutcome_VERDICT_OUTCOME_UNSPECIFIED, false
		if why := notOf(p, a, reached(n)); why != "" && !settled(row.Undo) {
			row.Undo, row.Note = rowspb.Undo_UNDO_SKIPPED, why
			u.row.Skipped++
		}
		if a.fixed.Child != "" && !settled(row.Undo) {
			fixed.Child = a.fixed.Child + undoneSuffix
			fixed.Id = entryPrefix + fixed.Child
			c := s.copyCommitted(s.plan(a.fixed.Child), fixed.Child, whole, id)
			c.row.ParentEntry = n
			c.touch() // what a root had to do, a child has not
			u.row.Children = rows.Insert(u.row.Children, n)
		}
		copied := s.addAction(id, n, fixed, row)
		if payload := a.payload(); payload != noPayload {
			copied.setPayload(payload)
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
