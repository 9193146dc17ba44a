package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// End checks what must hold once nothing is under way any more: every unwind has
// ended (L1), every lease that is true and every deadline that has passed has fired
// (I13, L2), ended plans owe nothing (I22, I23) and nothing is held that was retired
// or settled (I24).
func (l *Ledger) End() (found []Violation) {
	l.EachAtEnd(nil, func(v Violation) { found = append(found, v) })
	slices.SortStableFunc(found, func(a, b Violation) int { return strings.Compare(a.Plan, b.Plan) })
	return found
}

// EachAtEnd is End for a ledger of any size: it calls each with what is wrong, plan by
// plan in any order, and seen with every plan as it stands; nil: nobody asks.
func (l *Ledger) EachAtEnd(seen func(Plan), each func(Violation)) {
	l.book.families.each(func(_ string, f *family) {
		for _, p := range f.plans {
			l.atEnd(p, each)
			if seen != nil {
				seen(l.view(p))
			}
		}
	})
}

func (l *Ledger) atEnd(p *plan, each func(Violation)) {
	add := func(rule, problem string) {
		if problem != "" {
			each(Violation{Rule: rule, Plan: p.id, Address: p.opened, Problem: problem})
		}
	}
	add("L1", liveRule(p))
	add("L2", l.book.deadlineRule(p))
	add("I13", l.book.completeRule(p))
	add("I22", settledRule(p))
	add("I24", heldRule(p))
}

// liveRule is L1: every unwind ends, and every commit is followed by its retirement.
func liveRule(p *plan) string {
	switch {
	case p.phase == ledger.StateUnwinding:
		return "the plan still unwinds"
	case p.stops() && p.fired != nil:
		return "a lease fired and the plan does not unwind"
	case p.phase == ledger.StateCommitting && p.undecided() == 0 && p.openChildren() == 0 && p.claims() == nil:
		return "the plan is committing, and nothing of it is in doubt"
	case p.phase == ledger.StateCommitted && p.parent == nil && !p.retired && p.origin == "":
		return "the plan was committed and its held set was not retired"
	}
	for _, a := range p.actions {
		if a.doubt != "" && a.doubt != doubtGiven {
			return "the commit of the plan waits for action " + a.id + ", which is " + a.doubt
		}
	}
	return ""
}

// deadlineRule is L2: a deadline that has passed has fired.
func (b *book) deadlineRule(p *plan) string {
	if p.phase == ledger.StateOpen && p.fired == nil && p.declared.DeadlineNs > 0 && b.now >= p.declared.DeadlineNs {
		return "its deadline has passed and has not fired"
	}
	return ""
}

// completeRule is I13: what is true while armed has fired.
func (b *book) completeRule(p *plan) string {
	if !p.armed() || p.fired != nil {
		return ""
	}
	for up := p.parent; up != nil; up = up.parent { // what it is a part of is undone already, or waits for its owner
		if up.fired != nil || !up.stops() && up.phase != ledger.StateCommitted {
			return ""
		}
	}
	for _, l := range p.leases {
		if p.asksOwn(l) && !l.fired && !l.stopped() && b.hasTurned(p, nil, l) { // a child's own go with its commit
			return "lease " + l.name + " is true and has not fired"
		}
	}
	for _, a := range p.actions {
		for _, l := range a.leases {
			if !a.isSettled() && !l.fired && !l.stopped() && b.hasTurned(p, a, l) {
				return "lease " + l.name + " of action " + a.id + " is true and has not fired"
			}
		}
	}
	return ""
}

func (b *book) hasTurned(p *plan, a *action, l *lease) bool {
	if t := p.turnedBy(numberOf(a), l.name); t != nil && !t.clocked {
		return true
	}
	truth, _ := b.truth(p, a, l)
	return truth == triggers.True
}

// settledRule is I22 and I23 of a plan that has ended: what it says is so.
func settledRule(p *plan) string {
	if p.phase != ledger.StateCompensated && p.phase != ledger.StateFailed {
		return ""
	}
	for _, a := range p.actions {
		if !a.isSettled() {
			return fmt.Sprintf("the plan is %s, and its action %s is %s", p.phase, a.id, p.stateOf(a))
		}
	}
	return ""
}

// heldRule is I24: nothing is held of what a commit has retired.
func heldRule(p *plan) string {
	if p.retired && p.held() != 0 {
		return fmt.Sprintf("%d registrations are held of a retired plan", p.held())
	}
	return ""
}
