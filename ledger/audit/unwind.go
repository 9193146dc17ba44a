package audit

import (
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// letsGo reports whether an action lets what it came after go.
func (p *plan) letsGo(a *action) bool {
	switch a.undo {
	case compensated, skipped:
		return true
	case resolved:
		return !a.resolution.GetHalt()
	case quarantined:
		return p.declared.OnUndoFailure == pb.OnUndoFailure_ON_UNDO_FAILURE_CONTINUE
	default:
		return false
	}
}

// heldBack says of each action (by its index) whether something that came after it is
// not clear: clear is what has passed with nothing behind it that is not (I21).
func (p *plan) heldBack() []bool {
	blocked := make([]bool, len(p.actions))
	for i := len(p.actions) - 1; i >= 0; i-- { // what came after has a higher number
		a := p.actions[i]
		if !p.letsGo(a) || blocked[i] {
			for _, n := range a.before {
				blocked[n-1] = true
			}
		}
	}
	return blocked
}

// isReady: the undo of an action may begin.
func (p *plan) isReady(a *action) bool {
	return p.unwound() && a.undo == owed && !p.heldBack()[a.n-1]
}

// count counts the actions whose undo is in one of these states.
func (p *plan) count(states ...string) (count int) {
	for _, a := range p.actions {
		if slices.Contains(states, a.undo) {
			count++
		}
	}
	return count
}

// countScoped counts what an unwind has undone, or has let stand though it crossed.
func (p *plan) countScoped() (count int) {
	for _, a := range p.actions {
		if a.undo == compensated || a.undo == skipped && a.scoped {
			count++
		}
	}
	return count
}

// nothingGoesOn: nothing of the unwind is under way or can begin.
func (p *plan) nothingGoesOn() bool {
	blocked := p.heldBack()
	for i, a := range p.actions {
		if a.isOut() || a.undo == exhausted || len(a.duplicates) > 0 || a.undo == owed &&
			!blocked[i] {
			return false
		}
	}
	return true
}

// rightEnd says how an unwinding plan ends as it stands, if it does (I22, I23).
func (p *plan) rightEnd() pb.PlanEnd {
	switch {
	case p.phase != ledger.StateUnwinding || !p.nothingGoesOn():
		return pb.PlanEnd_PLAN_END_UNSPECIFIED
	case p.count(quarantined) > 0 || len(p.openClaims()) > 0:
		return pb.PlanEnd_PLAN_END_QUARANTINED
	case p.rewinding:
		return pb.PlanEnd_PLAN_END_UNSPECIFIED
	case p.byHand:
		return pb.PlanEnd_PLAN_END_RESOLVED
	case p.count(compensated, skipped, resolved) < len(p.actions):
		return pb.PlanEnd_PLAN_END_UNSPECIFIED
	case p.countScoped() == 0:
		return pb.PlanEnd_PLAN_END_FAILED
	default:
		return pb.PlanEnd_PLAN_END_COMPENSATED
	}
}

// anythingCrossed: an unwind would have something to look at.
func (p *plan) anythingCrossed() bool {
	if len(p.openClaims()) > 0 || p.countScoped() > 0 || p.byHand {
		return true
	}
	return slices.ContainsFunc(p.actions,
		func(a *action) bool { return !a.isSettled() && a.mayHaveCrossed() })
}

// cause is the record that the unwind of a plan goes back to.
func (p *plan) cause() *pb.Address {
	switch {
	case p.resumed != nil:
		return p.resumed
	case p.unwinding != nil:
		return p.unwinding
	default:
		return p.fired
	}
}

// closeAction ends an action's part in the unwind.
func (b *book) closeAction(p *plan, a *action, undo string, at *pb.Address) {
	a.settled, a.settledNs = at, b.now
	a.undo = undo
	if a.isSettled() {
		a.aliveUntilNs = 0
	}
	if undo == resolved {
		p.byHand = true
	}
}

// noteUnwind begins an unwind: for a lease that fired, or as a part of its parent's.
func noteUnwind(b *book, c *claim) {
	p, k := c.p, c.Record.GetUnwindStarted()
	switch {
	case k.ParentPlan != "":
		p.rewinding, p.target = false, 0
		p.firing = p.parent.firing
		if p.reason == "" {
			p.reason = k.Reason
		}
	case strings.Contains(p.toSavepoint, "~"): // from a late duty on
		p.rewinding, p.target = true, p.numberNamed(p.toSavepoint)-1
	case p.toSavepoint != "":
		p.rewinding, p.target = true, p.savepoint(p.toSavepoint).actions
	default:
		p.rewinding, p.target = false, 0
	}
	if p.phase == ledger.StateCommitting {
		b.dropDoubts(p)
		if !p.rewinding {
			p.committed = nil
		}
	}
	p.unwinding, p.unwindingNs, p.resumed = c.Address, b.now, nil
	b.dropLeases(p)
	p.turned, p.behind = nil, nil
	b.setPhase(p, ledger.StateUnwinding)
	for _, a := range p.actions {
		if a.undo == held && a.n > p.target {
			a.undo = owed
		}
	}
}

// noteRewound opens a plan again that is back at its savepoint.
func noteRewound(b *book, c *claim) {
	p := c.p
	p.hasFired = nil
	whole := p.toSavepoint == "" // it was asked for meanwhile
	p.rewinding, p.fired, p.unwinding, p.resumed, p.toSavepoint = false, nil, nil, nil, ""
	if !whole {
		p.signal, p.signalled, p.reason, p.passed = "", false, "", nil
	}
	p.savepoints = slices.DeleteFunc(p.savepoints,
		func(s savepoint) bool { return s.actions > p.target })
	again := ledger.StateOpen
	if p.committed != nil { // for a late duty: its commit goes on
		again = ledger.StateCommitting
	}
	b.setPhase(p, again)
	for _, a := range p.actions {
		if a.undo == owed { // its owner said halt
			a.undo = held
		}
	}
	p.target = 0
	b.holdAgain(p)
	if again == ledger.StateCommitting {
		b.beginDoubts(p)
	}
}

// ends are the phases that the ends of a plan lead to.
var ends = map[pb.PlanEnd]string{
	pb.PlanEnd_PLAN_END_COMPENSATED: ledger.StateCompensated,
	pb.PlanEnd_PLAN_END_FAILED:      ledger.StateFailed,
	pb.PlanEnd_PLAN_END_RESOLVED:    ledger.StateResolved,
	pb.PlanEnd_PLAN_END_QUARANTINED: ledger.StateQuarantined,
}

func noteEnd(b *book, c *claim) {
	p, end := c.p, c.Record.GetPlanEnded().End
	if c.endsAtOnce() {
		p.committed = nil
		b.dropLeases(p)
		for _, a := range p.actions {
			if !a.isSettled() {
				b.closeAction(p, a, skipped, c.Address)
			}
		}
	}
	p.ended = c.Address
	b.setPhase(p, ends[end])
	switch {
	case end == pb.PlanEnd_PLAN_END_RESOLVED:
		b.letChildrenGo(p)
	case end == pb.PlanEnd_PLAN_END_QUARANTINED && len(p.openClaims()) > 0:
		b.page(p, nil, api.PageActClaimed, c.Address)
	}
}
