package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// letsGo reports whether an action lets what it came after go.
func (p *plan) letsGo(a *action) bool {
	switch a.undo {
	case compensated, skipped:
		return true
	case resolved:
		return !a.resolution.GetHalt()
	case quarantined:
		return a.letsGo ||
			p.declared.OnUndoFailure == pb.OnUndoFailure_ON_UNDO_FAILURE_CONTINUE
	default:
		return false
	}
}

// isLast: what an irreversible act came after is undone as if it had passed, since nothing that
// came after it was undone in this unwind. Its plan has not said halt, and it is no pivot. Of a
// child plan, all that is left has to be such acts.
func (p *plan) isLast(a *action) bool {
	if !p.lastGoes || p.undoneAfter(a) {
		return false
	}
	if a.child == nil {
		f := a.forward
		return f.GetClass() == pb.Class_CLASS_IRREVERSIBLE && !f.GetPivot()
	}
	return !a.child.rewinding && len(a.child.openClaims()) == 0 &&
		!slices.ContainsFunc(a.child.actions, func(x *action) bool {
			return !x.isSettled() && (x.undo != quarantined || !x.letsGo)
		})
}

// undoneAfter: something that came after an action, at any remove, was undone in this unwind.
func (p *plan) undoneAfter(a *action) bool {
	after := map[uint32]bool{a.n: true}
	for _, later := range p.actions[a.n:] {
		if slices.ContainsFunc(later.before, func(n uint32) bool { return after[n] }) {
			if later.undoneNow {
				return true
			}
			after[later.n] = true
		}
	}
	return false
}

// toOwner gives the entry of a child plan to the child's owner.
func (p *plan) toOwner(entry *action) {
	entry.undo, entry.letsGo = quarantined, p.isLast(entry)
	entry.undoneNow = entry.undoneNow || entry.letsGo &&
		slices.ContainsFunc(entry.child.actions, func(a *action) bool { return a.undoneNow })
}

// index leads through the actions of a plan, so that one record costs what it is about, and not
// what the plan has. It follows from the actions, and grows with them.
type index struct {
	size    int // actions that it knows
	names   map[string]uint32
	after   [][]uint32 // of each action, by its index: what came right after it
	entries []uint32   // of child plans
	clear   []bool     // settled, as all that came after it: so until one joins, or a child goes on
	some    bool       // of them is
}

func (p *plan) indexed() *index {
	x := p.paths
	if x == nil {
		x = &index{names: map[string]uint32{}}
		p.paths = x
	}
	if x.size == len(p.actions) {
		return x
	}
	for _, a := range p.actions[x.size:] {
		x.size++
		if x.names[a.id] == 0 {
			x.names[a.id] = uint32(x.size)
		}
		x.after, x.clear = append(x.after, nil), append(x.clear, false)
		for _, n := range a.before {
			x.after[n-1] = append(x.after[n-1], uint32(x.size))
		}
		if a.child != nil {
			x.entries = append(x.entries, uint32(x.size))
		}
	}
	if x.some {
		clear(x.clear)
		x.some = false
	}
	return x
}

// isClear: an action has passed, and nothing that came after it is not clear (I21).
func (p *plan) isClear(a *action) bool {
	x := p.indexed()
	if x.clear[a.n-1] || !p.letsGo(a) {
		return x.clear[a.n-1]
	}
	stays := a.isSettled()
	for _, n := range x.after[a.n-1] {
		if !p.isClear(p.actions[n-1]) {
			return false
		}
		stays = stays && x.clear[n-1]
	}
	x.clear[a.n-1], x.some = stays, x.some || stays
	return true
}

// missing counts what came right after an action and is not clear.
func (p *plan) missing(a *action) (count int) {
	for _, n := range p.indexed().after[a.n-1] {
		if !p.isClear(p.actions[n-1]) {
			count++
		}
	}
	return count
}

// isReady: the undo of an action may begin.
func (p *plan) isReady(a *action) bool {
	return p.unwound() && a.undo == owed && p.missing(a) == 0
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

// countScoped counts what an unwind has undone, or has left as it is though it crossed.
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
	for _, a := range p.actions {
		if a.isOut() || a.undo == exhausted || len(a.duplicates) > 0 || a.undo == owed &&
			p.missing(a) == 0 {
			return false
		}
	}
	return true
}

// rightEnd says how an unwinding plan ends by what its actions are, if it does (I22, I23).
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
	case p.delivers:
		return pb.PlanEnd_PLAN_END_DELIVERED
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
	b.spent.leases -= p.conditionsOf(a)
	a.undo = undo
	b.spent.leases += p.conditionsOf(a)
	if a.isSettled() {
		a.aliveUntilNs = 0
	}
	if undo == resolved {
		p.byHand = true
	}
	if p.unwound() && (undo == compensated || undo == resolved) {
		a.undoneNow = true
	}
}

// noteUnwind begins an unwind: for a lease that fired, or as a part of its parent's.
func noteUnwind(b *book, c *claim) {
	p, k, to := c.p, c.Record.GetUnwindStarted(), c.p.wanted()
	switch {
	case k.ParentPlan != "":
		p.rewinding, p.target, p.fromAction, to = false, 0, "", back{}
		p.firing = p.parent.firing
		if p.reason == "" {
			p.reason = k.Reason
		}
	case p.fromAction != "":
		p.rewinding, p.target = true, p.numberNamed(p.fromAction)-1
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
	stopAsking(b, p)
	p.turned = nil
	if !p.rewinding {
		p.behind = nil
	}
	b.setPhase(p, ledger.StateUnwinding)
	part := p.part(to)
	for _, a := range p.actions {
		a.undoneNow = false
		if a.undo == held && part[a.n] {
			a.undo = owed
		}
	}
	owesFound(b, p, c.Address)
}

// back is what a plan is asked to undo of itself; the zero value: all of it.
type back struct{ savepoint, action string }

func (p *plan) wanted() back { return back{p.toSavepoint, p.fromAction} }

// part lists the actions that an unwind undoes, by number: of one action, it and what came
// after it at any remove, with the duties of those, and of what was undone before.
func (p *plan) part(to back) map[uint32]bool {
	part, from := map[uint32]bool{}, uint32(0)
	switch {
	case to.action != "":
		from = p.numberNamed(to.action)
		part[from] = true
	case strings.Contains(to.savepoint, "~"):
		from = p.numberNamed(to.savepoint) - 1
	case to.savepoint != "":
		from = p.savepoint(to.savepoint).actions
	}
	for _, a := range p.actions[from:] {
		came := slices.ContainsFunc(a.before, func(n uint32) bool { return part[n] })
		owes := a.dutyOf != 0 && (part[a.dutyOf] ||
			!keepsApart(p, a) && (p.actions[a.dutyOf-1].isSettled() || a.extra))
		after := to.action == "" && (from == 0 || !keepsApart(p, a) || a.dutyOf > from)
		part[a.n] = after || part[a.n] || came || owes
	}
	return part
}

// keepsApart: a plan keeps an extra effect that was found since its commit. A part of it is undone
// without, unless that is the action that it is of.
func keepsApart(p *plan, a *action) bool {
	return a.extra && p.phase == ledger.StateCommitted && isEarlier(p.committed, a.registered)
}

// noteRewound opens a plan again that is back at its savepoint.
func noteRewound(b *book, c *claim) {
	p := c.p
	p.hasFired = nil
	whole, single := p.wanted() == back{}, p.fromAction != "" // whole: it was asked for meanwhile
	p.rewinding, p.fired, p.unwinding, p.resumed = false, nil, nil, nil
	p.toSavepoint, p.fromAction = "", ""
	if single || !whole && p.counted {
		p.parts++
	}
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
	stays := map[*action]bool{}
	for _, a := range p.actions {
		if a.undo == owed { // its owner said halt
			a.undo, stays[a] = held, single
		}
		askLater(b, p, a)
		wantVerdict(b, p, a)
	}
	p.target = 0
	b.holdAgain(p, stays, single)
	if again == ledger.StateCommitting {
		b.beginDoubts(p)
	}
}

// ends are the phases that the ends of a plan lead to.
var ends = map[pb.PlanEnd]string{
	pb.PlanEnd_PLAN_END_COMPENSATED: ledger.StateCompensated,
	pb.PlanEnd_PLAN_END_DELIVERED:   ledger.StateCompensated,
	pb.PlanEnd_PLAN_END_FAILED:      ledger.StateFailed,
	pb.PlanEnd_PLAN_END_RESOLVED:    ledger.StateResolved,
	pb.PlanEnd_PLAN_END_QUARANTINED: ledger.StateQuarantined,
}

func noteEnd(b *book, c *claim) {
	p, end := c.p, c.Record.GetPlanEnded().End
	if c.endsAtOnce() {
		p.committed = nil
		b.dropLeases(p)
		p.turned, p.behind = nil, nil
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

// alsoUndoes is the part of a committed root that is undone when it is asked to undo one: that, and
// what each condition undoes that has turned true by now; more names one that undoes more.
func (c *claim) alsoUndoes(root *plan, to back) (part map[uint32]bool, more string) {
	asked, count := root.part(to), 0
	part = root.part(to)
	all := !slices.ContainsFunc(root.actions,
		func(a *action) bool { return !asked[a.n] && !a.isSettled() })
	for _, p := range append([]*plan{root}, root.below()...) {
		for _, l := range p.heldOn() {
			_, wider := p.undoesSince(l.a, l.lease)
			n := root.numberNamed(wider.action)
			if all || l.single && asked[n] || !c.isOwed(p, l) {
				continue
			}
			if count++; count == 1 {
				more = "; also for lease " + l.name
				if l.a != nil {
					more += " of action " + l.a.id
				}
				more += ofChild(root, p)
			}
			if !part[n] {
				also := root.part(wider)
				for _, a := range root.actions {
					part[a.n] = part[a.n] || also[a.n]
				}
			}
		}
	}
	if count > 1 {
		more += fmt.Sprintf(", and %d more", count-1)
	}
	return part, more
}

// isOwed: a condition of a committed plan has turned true. One on the clock is asked as of the
// record, which was made before the logical time where an earlier stamp is later.
func (c *claim) isOwed(p *plan, l heldLease) bool {
	switch {
	case l.fired || l.isStopped():
		return false
	case !clocked(c.b.programs, l.lease):
		return l.trueNs != 0
	}
	ns := min(c.b.now, c.StampNs)
	if c.Source.Class == ledger.ClassExecutor {
		ns = min(c.b.now, c.Record.EpochNs)
	}
	truth, _ := truthAt(c.b, p, l.a, l.lease, ns)
	return l.trueNs != 0 && l.trueNs <= ns || truth == triggers.True
}

// turnedFirst judges that no other condition of a committed tree has turned true before the one
// that fires, by a record.
func (c *claim) turnedFirst() judgement {
	own := c.p.turnOf(numberOf(c.a), c.l.name)
	if own != nil && own.clocked || own == nil && clocked(c.b.programs, c.l) {
		return judgement{}
	}
	root := c.p.root()
	for _, q := range append([]*plan{root}, root.below()...) {
		t := q.turned
		if t == nil || t.clocked || len(q.heldOn()) == 0 {
			continue
		}
		if own == nil || isEarlier(t.at, own.at) {
			return breaks("lease %s of plan %s turned true at %s", t.lease, q.id, reference{t.at})
		}
	}
	return judgement{}
}

func isEarlier(a, b *pb.Address) bool {
	if a.GetSequence() != b.GetSequence() {
		return a.GetSequence() < b.GetSequence()
	}
	return a.GetIndex() < b.GetIndex()
}
