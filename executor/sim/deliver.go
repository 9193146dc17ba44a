package sim

import (
	"fmt"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Some worlds stage acts: their agents register what cannot be undone, and never call it. Once the
// root of its plan is committed, the executor has a worker make it. The provider counts: none of a
// plan that was not committed, and one of what was (E4). All of it is drawn from streams of its
// own.

// deliveries are what a world knows of them.
type deliveries struct {
	r       *random
	stopped map[string]bool // roots of which someone wanted a staged act not to be made
	again   map[string]int  // by key of the forward: times that its owner wanted it sent again
}

func newDeliveries(seed uint64) deliveries {
	return deliveries{newRandom(seed, streamStaged-2), map[string]bool{}, map[string]int{}}
}

// Stages reports whether plans of a seed stage acts.
func Stages(seed uint64) bool { return newRandom(seed, streamStaged-1).percent(20) }

// deliverySuffix is what the id of a plan that delivers another one ends with.
const deliverySuffix = "~0"

// slipsMax is for how long a sending may be under way whose sender thinks that it holds the tenant.
const slipsMax = 10 * second

// staged reports whether the executor makes an act, and not its agent.
func (a *actionSpec) staged() bool { return a.pair.forward.GetDeliver() != nil }

// drawStaged makes a plan with staged acts that is committed more often than not, at times with a
// child that has some, too.
func drawStaged(w *world, n int) *planSpec {
	r := newRandom(w.options.Seed, streamStaged+10+uint64(n))
	p := drawPlan(n, r)
	p.opened = drawWord(r, "staged")
	p.opened.SecondApprover = r.percent(5)
	if r.percent(20) {
		p.opened.DeadlineNs = epoch0 + p.startNs + r.between(2*second, 60*second)
	}
	for range r.below(3) {
		drawKept(w, p)
	}
	if r.percent(30) {
		q := &planSpec{n: n, id: fmt.Sprintf("%s_%d", p.id, len(p.steps)), agent: p.agent,
			parent: p, r: r, opened: drawWord(r, "part")}
		q.opened.ParentPlan = p.id
		drawKept(w, q)
		q.steps = append(q.steps, step{kind: pick(r, stepCommit, stepCommit, stepCommit, stepFail)})
		p.steps = append(p.steps, step{kind: stepChild, child: q},
			step{kind: stepWait, waitNs: r.between(5*second, 20*second)})
	}
	if r.percent(20) {
		p.steps = append(p.steps, step{kind: stepSave, name: "s1", number: 1})
		drawKept(w, p)
		p.steps = append(p.steps, step{kind: stepBack, name: "s1", number: 1})
	}
	if n := r.below(100); n < 80 {
		p.steps = append(p.steps, step{kind: stepCommit})
	} else if n < 90 {
		p.steps = append(p.steps, step{kind: stepFail})
	}
	stage(w, p, r, 2)
	return p
}

// drawKept adds an action that can be undone, often also after the commit.
func drawKept(w *world, p *planSpec) {
	if c := w.drawPlain(p).pair.compensation; p.r.percent(70) {
		c.ValidForNs = p.r.between(20*second, 200*second)
	}
}

// stage puts some staged acts, so many at least, among the steps of a plan and of its children.
func stage(w *world, p *planSpec, r *random, least int) {
	for _, s := range p.steps {
		if s.kind == stepChild && r.percent(70) {
			stage(w, s.child, r, 1)
		}
	}
	for range least + r.below(3) {
		a := drawDelivery(w, p, r)
		at := len(p.steps)
		if r.percent(90) {
			at = r.below(at + 1)
		}
		p.steps = append(p.steps[:at:at],
			append([]step{{kind: stepAct, action: a}}, p.steps[at:]...)...)
		p.actions = append(p.actions, a)
		w.workers.specs[aboutOf(p.id, a.id)] = a
	}
}

// drawDelivery draws a staged act: what its provider promises, and how often it is sent.
func drawDelivery(w *world, p *planSpec, r *random) *actionSpec {
	id := fmt.Sprintf("s%d", len(p.actions))
	a := &actionSpec{plan: p, id: id, key: ledger.Key(tenant, p.id, id, ledger.PurposeDo),
		lied: r.percent(2)}
	named := []*pb.Binding{{Name: "fk", Expression: "meta.forward_key"},
		{Name: "id", Expression: "input.id"}, {Name: "why", Expression: "plan.reason"}}
	if besides(w) {
		named = append(named, beside...)
	}
	d := &pb.CompensationRegistered{Capability: "do." + id, Bindings: named,
		Attempts: uint32(1 + r.below(4)), TimeoutNs: r.between(second, 6*second),
		JitterPercent: uint32(pick(r, 0, 0, 50)), UnservedAfterNs: w.unservedAfter(id)}
	d.BackoffNs = r.between(200*millisecond, 3*second)
	if r.percent(30) {
		d.BackoffNs = r.between(20*second, 60*second)
	}
	switch n := r.below(100); {
	case n < 35:
		d.DedupeNs = r.between(2*second, 30*second)
	case n < 55:
		d.DedupeNs = 30 * minute
	}
	if r.percent(50) {
		d.Probe = &pb.Probe{Call: &pb.Call{Capability: "find." + id, Bindings: named,
			TimeoutNs: 2 * second, Attempts: uint32(1 + r.below(3)), BackoffNs: second}}
	}
	if r.percent(25) {
		d.Stop = `error.code == "protected"`
	}
	w.erasing.seal(d)
	f := &pb.ForwardRegistered{Capability: d.Capability, Class: pb.Class_CLASS_IRREVERSIBLE,
		Deliver: d, Branch: r.percent(20),
		// a slow worker, one that works on it, and a copy on its way
		SettleNs: 2*d.TimeoutNs + 15*second + 20*second + clocksDiffer + slipsMax}
	c := &pb.CompensationRegistered{}
	if r.percent(15) {
		c.Triggers = []*pb.Trigger{{Name: "own", Condition: conditions[r.below(len(conditions))],
			Scope: scope(r)}}
	}
	a.pair = pairSpec{forward: f, compensation: c, input: fmt.Appendf(nil, `{"id":%q}`, id)}
	return a
}

// stages registers a staged act, and goes on. Some agents say that it happened all the same.
func (a *agent) stages(s *actionSpec, pair []*pb.Record) {
	onward := a.next
	if s.lied {
		onward = func() { a.append(a.next, completed(s, "theirs")) }
	}
	a.append(onward, pair...)
}

// committed lets someone meddle with what is delivered, now and then, soon after the commit.
func (w *world) committed(p *planSpec) {
	r := w.deliveries.r
	if p.parent != nil || w.options.Alone || !r.percent(50) {
		return
	}
	after := r.between(0, 2*second)
	if r.percent(50) {
		after = r.between(0, 90*second)
	}
	n, tree := r.below(100), p.tree()
	act := tree[r.below(len(tree))]
	part := r.percent(30)
	w.after(after, func() {
		if w.healed {
			return
		}
		record := &pb.Record{Plan: p.id}
		switch {
		case n < 40:
			k := &pb.CompensationRequested{Reason: "wrong", Actor: "ann"}
			if part {
				k.FromAction = p.actions[0].id
			}
			record.Kind = &pb.Record_CompensationRequested{CompensationRequested: k}
		case n < 60:
			w.deliveries.stopped[p.id] = true
			record.Plan += deliverySuffix
			record.Kind = &pb.Record_CancelRequested{CancelRequested: &pb.CancelRequested{Reason: "stop",
				Actor: "ann"}}
		case n < 75:
			w.verdict(act.plan.id, act.id)
			return
		case n < 82:
			w.verdict(act.plan.id+deliverySuffix, act.id)
			return
		case n < 90:
			record.Plan += deliverySuffix
			record.Kind = &pb.Record_CompensationRequested{CompensationRequested: &pb.CompensationRequested{
				Reason: "wrong", Actor: "ann"}}
		default:
			record.Kind = &pb.Record_PlanErased{PlanErased: &pb.PlanErased{Reason: "asked for",
				Actor: "ann", Force: part}}
			if w.erasing == nil {
				return
			}
		}
		w.tell(operator("ann"), record)
	})
}

// tree is all that a plan and its children are going to do.
func (p *planSpec) tree() []*actionSpec {
	list := p.actions[:len(p.actions):len(p.actions)]
	for _, s := range p.steps {
		if s.kind == stepChild {
			list = append(list, s.child.tree()...)
		}
	}
	return list
}

// judgedStaged notes a verdict that may stop what is delivered.
func judgedStaged(w *world, plan, action string) {
	if s := w.workers.spec(plan, action); s != nil && s.staged() {
		w.deliveries.stopped[w.check.rootOf(s.plan).id] = true
	}
}

// sendsAgain notes that the owner of a delivery wants it sent, whatever came of it before.
func sendsAgain(w *world, plan, action string) {
	if s := w.workers.spec(plan, action); s != nil && s.staged() {
		w.deliveries.again[s.key]++
	}
}

// removes is what an owner does who says that it is done: what was delivered stays.
func (w *world) removes(plan, action string) {
	if s := w.workers.spec(plan, action); s != nil && !strings.HasSuffix(plan, deliverySuffix) {
		w.provider.remove(s)
	}
}

// mayCopy reports whether the network makes a copy of a command: what makes one of a delivery whose
// provider knows no keys makes the act twice, here as anywhere.
func mayCopy(w *world, c api.Command) bool {
	s := w.workers.spec(c.Plan, c.Action)
	return !c.Delivers || s != nil && s.pair.forward.Deliver.DedupeNs > 0
}

// leaves has whoever serves a delivery go away once they have taken it, now and then: what follows
// if they do not answer waits for others.
func (x *workers) leaves(c api.Command) {
	r := x.w.deliveries.r
	if c.Delivers && x.w.faults.Has(FaultNoWorker) && !x.w.healed && r.percent(40) {
		x.unserved[c.Capability] = x.w.now + r.between(5*second, 150*second)
	}
}

// knows reports whether the provider has made an act under this key, and remembers it: for as long
// as it has promised from its sending on, and as long as that may take.
func (p *provider) knows(c api.Command, a *actionSpec) bool {
	k := p.keys[c.Key]
	if !c.Delivers || a == nil || k == nil {
		return false
	}
	dedupe := a.pair.forward.Deliver.DedupeNs
	return dedupe > 0 && p.w.now-k.lastNs < dedupe+a.pair.forward.SettleNs
}

// deliver makes a staged act, once more if it does not know the key.
func (p *provider) deliver(c api.Command, a *actionSpec) *api.Reply {
	reply := &api.Reply{Status: api.StatusDone, Worker: "w1", Output: []byte(`{"ok":true}`)}
	if a == nil || p.knows(c, a) {
		p.w.say("provider", "knows key %.6s already", c.Key)
		return reply
	}
	p.w.check.delivers(c, a)
	p.keys[c.Key] = &keyed{lastNs: p.w.now}
	e := p.make(a, len(p.forward[a.key]) > 0)
	reply.ExternalRef = e.ref
	return reply
}

// rootOf is the plan by whose commit that of a plan is decided. An open child that its owner has
// left as it is, by halting the undo of its parent, goes on by itself.
func (c *checker) rootOf(p *planSpec) *planSpec {
	for ; p.parent != nil && c.audit != nil; p = p.parent {
		up, _ := c.audit.ledger.Plan(p.parent.id)
		if up.State == ledger.StateResolved && c.undoOf(up, "plan:"+p.id) == "owed" {
			break
		}
	}
	return p
}

// delivers: an act is made once its root is committed, at most as often as its owner has wanted it
// (E4), and not after what was staged after it (I38).
func (c *checker) delivers(command api.Command, a *actionSpec) {
	if c.audit == nil || c.broken {
		return
	}
	root := c.rootOf(a.plan).id
	if p, _ := c.audit.ledger.Plan(root); p.State != ledger.StateCommitted {
		c.fail("E4", 0, "%s of plan %s is made, and plan %s is %q", a.id, a.plan.id, root, p.State)
	}
	d := a.pair.forward.Deliver
	timely := d.DedupeNs > 0 || d.Probe != nil // it hangs on clocks
	made := len(c.w.provider.forward[a.key])
	if made > c.w.deliveries.again[a.key] && !(timely && c.clocksWrong()) {
		c.fail("E4", 0, "%s of plan %s is made once more, by attempt %d under key %.6s", a.id, a.plan.id,
			command.Attempt, command.Key)
	}
	p, _ := c.audit.ledger.Plan(command.Plan)
	for _, later := range p.Actions { // the first is the last of its plan
		if later.ID == a.id {
			return
		}
		s := c.w.workers.spec(command.Plan, later.ID)
		if s == nil || len(c.w.provider.forward[s.key]) == 0 || c.w.deliveries.again[a.key] > 0 ||
			c.undoOf(p, a.id) != "dispatched" {
			continue
		}
		c.fail("I38", 0, "%s of plan %s is made, and %s was made before it", a.id, a.plan.id, s.id)
	}
}

func (c *checker) undoOf(p audit.Plan, action string) string {
	for _, a := range p.Actions {
		if a.ID == action {
			return a.Undo
		}
	}
	return ""
}

// counted follows a record about what is staged.
func (s *auditor) counted(c *checker, at uint64, r *pb.Record) {
	spec := c.w.workers.spec(r.Plan, r.Action)
	if spec == nil || !spec.staged() || strings.Contains(r.Action, "~") {
		return
	}
	seen := c.w.options.Seen
	if !strings.HasSuffix(r.Plan, deliverySuffix) {
		if r.GetCompensationSkipped() != nil {
			seen.delivery("dropped")
		}
		return
	}
	switch k := r.Kind.(type) {
	case *pb.Record_CompensationDispatched:
		if k.CompensationDispatched.Attempt > 1 {
			seen.delivery("sent again")
		}
	case *pb.Record_CompensationSkipped:
		seen.delivery("stopped")
	case *pb.Record_ActionQuarantined:
		seen.delivery("its owner's")
	case *pb.Record_ProbeAnswered:
		seen.delivery("found " + word(k.ProbeAnswered.Presence.String(), "PRESENCE_"))
	case *pb.Record_CompensationSucceeded:
		seen.delivery("delivered")
		if k.CompensationSucceeded.Probed {
			seen.delivery("delivered, as a probe says")
		}
		if len(c.w.provider.forward[spec.key]) == 0 && !c.broken {
			c.fail("E4", at, "%s of plan %s is delivered, and was not made", r.Action, r.Plan)
		}
	}
}

// checkDeliveries holds what became of the staged acts of a plan against the provider (E4).
func (c *checker) checkDeliveries(v api.Plan) {
	delivery, _ := c.audit.ledger.Plan(planOf(v.Plan) + deliverySuffix)
	p, _ := c.audit.ledger.Plan(v.Plan)
	for _, a := range p.Actions {
		s := c.w.workers.spec(v.Plan, a.ID)
		if s == nil || !s.staged() || strings.Contains(a.ID, "~") {
			continue
		}
		top := c.rootOf(s.plan)
		root, _ := c.audit.ledger.Plan(top.id)
		_, undone := c.audit.ledger.Plan(root.ID + "~1")
		made := len(c.w.provider.forward[s.key])
		how := c.undoOf(delivery, a.ID)
		switch {
		case v.Plan == planOf(v.Plan):
			held := a.Undo == "retired" && root.State == ledger.StateCommitted
			leftAsItWas := top.parent != nil && how == "" // it was committed before, for its root
			if held != (how != "") && !(leftAsItWas && made == 0) {
				c.fail("E4", 0, "%s of plan %s is %s, its root %s, and it is %q in the plan that delivers it",
					a.ID, v.Plan, a.Undo, root.State, how)
			}
			if undone && how == "compensated" {
				c.fail("E4", 0, "%s of plan %s is delivered, and is not its owner's: plan %s undoes it", a.ID,
					v.Plan, root.ID+"~1")
			}
		case !strings.HasSuffix(v.Plan, deliverySuffix):
		case a.Undo == "compensated" && made == 0:
			c.fail("E4", 0, "%s of plan %s is delivered, and was not made", a.ID, v.Plan)
		case a.Undo == "skipped" && made > 0 && !c.clocksWrong() && c.w.deliveries.again[s.key] == 0:
			c.fail("E4", 0, "%s of plan %s was dropped, and was made", a.ID, v.Plan)
		case a.Undo == "skipped" && !undone && !c.w.deliveries.stopped[root.ID]:
			c.fail("E4", 0, "%s of plan %s was dropped, and no one has stopped it", a.ID, v.Plan)
		}
	}
}

// undoShown is the undo of an action as people read it: of a staged act what becomes of that.
func (s *auditor) undoShown(c *checker, plan string, a audit.Action) string {
	spec, delivers := c.w.workers.spec(plan, a.ID), strings.HasSuffix(plan, deliverySuffix)
	entry := strings.HasPrefix(a.ID, "plan:")
	switch {
	case !entry && strings.Contains(a.ID, "~"): // a duty
		return a.Undo
	case !delivers && (plan != planOf(plan) || spec == nil || !spec.staged()):
		return a.Undo
	case a.Undo == "compensated":
		return ledger.StateDelivered
	case a.Undo == "skipped":
		return "dropped"
	case delivers:
		return a.Undo
	case a.Undo == "held":
		return "staged"
	}
	delivery, _ := s.ledger.Plan(plan + deliverySuffix)
	switch how := c.undoOf(delivery, a.ID); how {
	case "":
		return a.Undo
	case "compensated", "skipped", "quarantined", "resolved", "retired":
		return s.undoShown(c, delivery.ID, audit.Action{ID: a.ID, Undo: how})
	default:
		if delivery.State == ledger.StateResolved { // its owner said halt
			return how
		}
	}
	return ledger.StateDelivering
}
