package sim

import (
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// planCheck is what the effective records say of a plan, as far as the rules ask.
type planCheck struct {
	id        string
	parent    *planCheck
	opened    *pb.PlanOpened
	items     []*itemCheck
	committed uint64   // where
	waits     uint64   // where it was committed, while that waits; 0: it does not
	inDoubt   []string // what its retirement has to name
	phase     phase
	fired     map[string]uint64 // leases that have, and where
	owes      bool              // a lease has fired: no further child joins
	writer    string            // the process whose records it takes
	saves     map[string]int    // savepoints, and how many items came before
	unsure    bool              // it may unwind again: an owner has spoken where two must agree, or about a part of it
	unopened  bool              // its opening was refused
	agent     string            // whose records it takes
	claims    []*claim          // acts that records which were refused claim
	resumed   uint64            // where an owner or a rewind has let it go on last
}

type phase uint8

const (
	phaseOpen phase = iota
	phaseCommitted
	phaseUnwinding
	phaseEnded
)

// itemCheck is one action in the order of a plan, or the entry of a child plan.
type itemCheck struct {
	id           string
	sequence     uint64
	before       []int // places of those that it came after
	class        pb.Class
	compensation *pb.CompensationRegistered
	forward      *pb.ForwardRegistered
	writer       string // the process that registered it
	child        *planCheck
	apart        bool // the child had ended when its parent was committed: what reopens it later holds nobody back
	outcome      rowspb.Outcome
	presence     pb.Presence
	absent       bool // the last answer about its effect has found nothing
	undo         undo
	halt         bool
	started      bool // its undo has, since it was owed last
	blindBegun   bool // a dispatch of it was blind
	tryAgain     bool // its last attempt failed for now
	approved     bool
	duty         bool
	attempt      uint32
	from         uint32 // attempts before its owner's last word
	kept         bool   // it came before the savepoint that a committed plan was undone to
	taken               // what bindings read of it
	earlier      taken  // before its outcome was known
	asked        bool   // its owner, by a commit that waits
	spoken       bool   // and has said something
	lost         bool   // its output is incomplete, and lacks what its undo reads
	gone         bool   // a check after the undo, or a probe, found the effect gone
	toldLate     uint32 // the attempt that, behind its quarantine or its owner's answer, a worker has said to be done
	owesWord     bool   // its owner has to be asked because of that
}

type undo uint8

const (
	undoHeld undo = iota
	undoDone
	undoSkipped
	undoQuarantined
	undoResolved
)

// effectless: there is nothing to undo, and nothing is registered that would.
func (it *itemCheck) effectless() bool {
	return it.class == pb.Class_CLASS_EFFECTLESS && it.compensation.Capability == ""
}

func (p *planCheck) root() *planCheck {
	for p.parent != nil {
		p = p.parent
	}
	return p
}

func (p *planCheck) item(id string) (int, *itemCheck) {
	for i, it := range p.items {
		if it.id == id {
			return i, it
		}
	}
	origin := originOf(id)
	if origin == id {
		return -1, nil
	}
	i, it := p.item(origin)
	if it == nil {
		return -1, nil
	}
	// A duty stands beside the action that it comes from.
	d := &itemCheck{id: id, before: p.items[i].before, class: it.class, compensation: it.compensation, forward: it.forward, duty: true, outcome: rowspb.Outcome_OUTCOME_COMPLETED, taken: it.taken, earlier: it.taken}
	p.items = append(p.items, d)
	return len(p.items) - 1, d
}

// latest is the action that the next one comes after by default. A duty is none: when
// it came up is known from its first record only.
func (p *planCheck) latest() []int {
	for i := len(p.items) - 1; i >= 0; i-- {
		if !p.items[i].duty {
			return []int{i}
		}
	}
	return nil
}

func (c *checker) open(id string, opened *pb.PlanOpened, at uint64) *planCheck {
	p := &planCheck{id: id, opened: opened, fired: map[string]uint64{}, saves: map[string]int{}}
	c.plans[id] = p
	c.order = append(c.order, p)
	parent := c.plans[opened.ParentPlan]
	if opened.ParentPlan == "" || parent == nil || parent == p || parent.phase != phaseOpen || parent.owes || parent.waits != 0 {
		return p
	}
	entry := &itemCheck{id: "plan:" + id, sequence: at, child: p}
	if opened.ParentAction != "" {
		i, it := parent.item(opened.ParentAction)
		if it == nil {
			return p
		}
		entry.before = []int{i}
	} else {
		entry.before = parent.latest()
	}
	p.parent = parent
	parent.items = append(parent.items, entry)
	return p
}

// openRefused: an opening that was refused opens its plan failed at once.
func (c *checker) openRefused(e ledger.Entry, result executor.Result) {
	k := e.Record.GetPlanOpened()
	if k == nil || result.Verdict != executor.Refused || c.plans[e.Record.Plan] != nil {
		return
	}
	p := c.open(e.Record.Plan, &pb.PlanOpened{Owner: k.Owner, SecondApprover: k.SecondApprover}, e.Address.Sequence)
	p.writer, p.agent, p.unopened = e.Record.Writer, e.Source.Name, true
}

// effective follows one effective record.
func (c *checker) effective(e ledger.Entry) {
	r, at := e.Record, e.Address.Sequence
	p := c.plans[r.Plan]
	switch k := r.Kind.(type) {
	case *pb.Record_PlanOpened:
		p := c.open(r.Plan, k.PlanOpened, at)
		p.writer, p.agent = r.Writer, e.Source.Name
		return
	case *pb.Record_ForwardRegistered:
		if p == nil {
			p = c.open(r.Plan, &pb.PlanOpened{}, at)
			p.writer, p.agent = r.Writer, e.Source.Name
		}
		c.registered(e, p, k.ForwardRegistered)
		return
	}
	if p == nil {
		if kind := ledger.KindOf(r); kind.NeedsPlan {
			c.fail("I6", at, "%s about plan %s, which nobody opened", kind.Name, r.Plan)
		}
		return
	}
	switch k := r.Kind.(type) {
	case *pb.Record_PlanResumed:
		p.writer = r.Writer
	case *pb.Record_PlanCommitted:
		c.committed(p, at)
	case *pb.Record_HeldSetRetired:
		c.retired(p, at, k.HeldSetRetired)
	case *pb.Record_PlanRewound:
		p.phase, p.owes, p.fired, p.resumed = phaseOpen, false, map[string]uint64{}, at
	case *pb.Record_UnwindStarted:
		c.absorbed(p, at, "unwind_started")
		p.phase = phaseUnwinding
		if !strings.Contains(k.UnwindStarted.ToSavepoint, "~") { // else its commit goes on behind a late duty
			p.waits = 0
		}
	case *pb.Record_PlanEnded:
		c.ended(p, at, k.PlanEnded)
	case *pb.Record_SavepointSet:
		p.saves[k.SavepointSet.Name] = len(p.items)
	case *pb.Record_LeaseFired:
		c.fired(p, at, r, k.LeaseFired)
	case *pb.Record_CompensationRequested:
		if p.phase == phaseCommitted {
			c.copyOf(p, nil, p.saves[k.CompensationRequested.ToSavepoint])
		}
	default:
		if r.Action != "" {
			c.aboutAction(e, p)
		}
	}
}

// absorbed: what was committed at its root never fires and is never undone (I15).
func (c *checker) absorbed(p *planCheck, at uint64, what string) {
	if root := p.root(); p.phase == phaseCommitted && root.phase == phaseCommitted { // a child that was undone before may have a late duty
		c.fail("I15", at, "%s of plan %s, whose root was committed at %d", what, p.id, root.committed)
	}
}

// copyOf is the plan that undoes a committed one, from behind a place in its order.
func (c *checker) copyOf(p, parent *planCheck, from int) *planCheck {
	u := &planCheck{id: p.id + "~1", parent: parent, opened: p.opened, writer: p.writer, fired: map[string]uint64{}}
	if parent != nil {
		u.phase = phaseCommitted
	}
	c.plans[u.id] = u
	c.order = append(c.order, u)
	for i, it := range p.items {
		copied := *it
		if i < from && copied.undo != undoDone {
			copied.undo, copied.kept = undoSkipped, true
		}
		copied.started, copied.from = false, it.attempt
		if it.child != nil && it.child.phase == phaseCommitted {
			copied.child = c.copyOf(it.child, u, 0)
			copied.id = "plan:" + copied.child.id
		}
		copied.apart = it.child != nil && copied.child == it.child
		u.items = append(u.items, &copied)
	}
	return u
}

// registered takes in a pair; its other half is in the same commit (I17).
func (c *checker) registered(e ledger.Entry, p *planCheck, f *pb.ForwardRegistered) {
	it := &itemCheck{id: e.Record.Action, sequence: e.Address.Sequence, class: f.Class, forward: f, writer: e.Record.Writer}
	it.input = e.Record.Payload.GetInput()
	if !f.Branch {
		it.before = p.latest()
	}
	for _, id := range f.After {
		if i, other := p.item(id); other != nil && !slices.Contains(it.before, i) {
			it.before = append(it.before, i)
		}
	}
	for _, other := range c.w.stream.stored[e.Address.Sequence-1].entries {
		if k := other.Record.GetCompensationRegistered(); k != nil && other.Record.Plan == p.id && other.Record.Action == it.id {
			it.compensation, it.image = k, other.Record.Payload.GetBefore()
		}
	}
	if it.compensation == nil {
		c.fail("I17", e.Address.Sequence, "action %s of plan %s is registered without its compensation", it.id, p.id)
		it.compensation = &pb.CompensationRegistered{}
	}
	p.saidBy(e.Record)
	p.items = append(p.items, it)
	if p.phase == phaseEnded { // an open child of a plan that has ended goes on by itself
		c.reopen(p, e.Address.Sequence)
	}
}

// fired: a lease fires once while it is held, not after the commit, not before its
// deadline, and not deeper than its limit.
func (c *checker) fired(p *planCheck, at uint64, r *pb.Record, k *pb.LeaseFired) {
	if k.Lease == "action.duplicate" {
		return // a new one is taken out whenever a probe finds more
	}
	c.absorbed(p, at, "lease_fired")
	name := r.Action + "/" + k.Lease
	if before := p.fired[name]; before != 0 {
		c.fail("I14", at, "lease %s of plan %s fired at %d before", name, p.id, before)
	}
	p.fired[name] = at
	if p.phase == phaseOpen {
		p.owes = true
	} else {
		p.root().owes = true
	}
	if k.Lease == "plan.deadline" && (c.timeNs < p.opened.DeadlineNs || r.EpochNs < p.opened.DeadlineNs) {
		c.fail("I16", at, "the deadline of plan %s fires %d ms early", p.id, (p.opened.DeadlineNs-min(c.timeNs, r.EpochNs))/millisecond)
	}
	if limit := c.w.settings.cascade.OrDefault().Depth; k.Depth > limit && !strings.Contains(k.Lease, ".") {
		c.fail("I25", at, "lease %s of plan %s fires at depth %d of %d", name, p.id, k.Depth, limit)
	}
}

// ended: what a plan's end says is so (I22, I23).
func (c *checker) ended(p *planCheck, at uint64, k *pb.PlanEnded) {
	c.absorbed(p, at, "plan_ended")
	p.phase = phaseEnded
	if k.End == pb.PlanEnd_PLAN_END_FAILED {
		for _, it := range p.items { // nothing of it had crossed
			if it.child == nil && it.undo == undoHeld {
				it.undo = undoSkipped
			}
		}
	}
	for _, it := range p.items {
		if it.child != nil {
			continue
		}
		named := slices.Contains(k.Outstanding, it.id)
		crossed := it.outcome == rowspb.Outcome_OUTCOME_COMPLETED && it.presence != pb.Presence_PRESENCE_ABSENT
		if it.owesWord && !c.isTold(p, it) {
			c.fail("I23", at, "plan %s ends %s, and nobody is told that %s was undone behind its owner's answer", p.id, k.End, it.id)
		}
		switch k.End {
		case pb.PlanEnd_PLAN_END_COMPENSATED, pb.PlanEnd_PLAN_END_FAILED:
			switch {
			case it.undo == undoQuarantined || it.undo == undoHeld:
				c.fail("I23", at, "plan %s ends %s, and the undo of %s is not settled", p.id, k.End, it.id)
			case it.undo == undoSkipped && crossed && !it.absent && it.class == pb.Class_CLASS_COMPENSABLE && !it.duty && !it.kept && !c.hasDuty(p, it):
				c.fail("I22", at, "plan %s ends %s, and %s, which completed, was skipped", p.id, k.End, it.id)
			case it.undo == undoSkipped && crossed && !it.absent && it.class == pb.Class_CLASS_IRREVERSIBLE && !it.kept:
				c.fail("I23", at, "plan %s ends %s with the irreversible %s", p.id, k.End, it.id)
			}
		case pb.PlanEnd_PLAN_END_QUARANTINED:
			if it.undo == undoQuarantined && !named || named && (it.undo == undoDone || it.undo == undoSkipped) {
				c.fail("I23", at, "plan %s ends quarantined with %v outstanding, and %s does not fit", p.id, k.Outstanding, it.id)
			}
		}
	}
}

func (c *checker) hasDuty(p *planCheck, it *itemCheck) bool {
	return slices.ContainsFunc(p.items, func(d *itemCheck) bool { return d.duty && originOf(d.id) == it.id })
}

// isTold reports whether a later duty beside an action asks its owner about it.
func (c *checker) isTold(p *planCheck, it *itemCheck) bool {
	return slices.ContainsFunc(p.items, func(d *itemCheck) bool {
		return d.duty && d != it && originOf(d.id) == originOf(it.id)
	})
}
