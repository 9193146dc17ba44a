package sim

import (
	"fmt"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// planSpec is what an agent is going to do, drawn from the plan's own stream.
type planSpec struct {
	n       int
	id      string
	agent   string
	parent  *planSpec
	startNs int64 // after the world's begin, or after its parent's
	opened  *pb.PlanOpened
	steps   []step
	actions []*actionSpec
	r       *random
}

// actionSpec is one action, and what became of it outside.
type actionSpec struct {
	plan     *planSpec
	id       string
	key      string // of the forward
	pair     pairSpec
	luck     luck
	workNs   int64
	detached bool // the agent goes on while its forward is under way
	mute     bool // the agent never says what came of it
	lateNs   int64
	landNs   int64 // luckLands: after its caller gave it up
	lied     bool  // its agent said that it had failed, and it had not
	mistaken bool  // an operator has called what another process made its effect
	once     bool  // reported after the fact, in one commit with its outcome
	large    bool  // its output is too large to be kept as a whole
	lost     bool  // and what its undo reads of it, too
	reviewNs int64 // its agent waits for a verdict, that long

	acknowledged bool
}

type pairSpec struct {
	forward      *pb.ForwardRegistered
	compensation *pb.CompensationRegistered
	input        []byte
	image        []byte // what was there before the forward crossed; nil: no one looked
}

// luck is how a forward goes.
type luck uint8

const (
	luckGood   luck = iota
	luckFails       // the provider refuses: known
	luckLost        // it never arrives, and has no answer
	luckSilent      // it happens, and has no answer
	luckTwice       // it happens twice
	luckLands       // it happens after its caller has given it up
)

type stepKind uint8

const (
	stepAct stepKind = iota
	stepSave
	stepBack
	stepWait
	stepChild
	stepCommit
	stepFail
	stepCancel
	stepVanish
)

type step struct {
	kind   stepKind
	action *actionSpec
	child  *planSpec
	name   string
	number uint32
	waitNs int64
}

// conditions are what plans and actions may wait for: over facts k0..k4, their plan
// and the clock.
var conditions = []string{
	`facts["k0"].n > 7`, `facts["k1"].n == 3`, `facts["k0"].n > facts["k1"].n + 4`,
	`seen("k1") && !("k1" in facts)`,
	`has(facts["k3"].n) && facts["k3"].n > 8`, `facts[?"k4"].orValue({"n": 0}).n > 6`,
	`["k0","k1","k2"].exists(k, facts[k].n == 9)`,
	`elapsed(since("k3"), duration("40s"))`, `elapsed(at("k2"), duration("30s")) && facts["k2"].n > 2`,
	`at_least(3, "k4", duration("60s"))`,
	`seen("k4") && facts["k0"].n == 0`,
	`absent_for("k1", plan.opened_at, duration("50s")) && facts["k3"].n >= 5`,
	`elapsed(plan.active_at, duration("15s")) && facts["k0"].n > 3`, `plan.actions > 6`,
	`facts["u0"].n == 1`, `facts["u1"].n == 1`, `"u2" in facts`,
	`facts["no"].such > 1 + plan.actions`, `facts["k0"].n == facts["k2"].n`,
	`facts.exists("k", k, v, v.n == 9)`, `facts.count("k", k, v, v.n > 6) >= 2`,
	`facts.count("u") >= 2`,
}

func (w *world) openPlans() {
	r := newRandom(w.options.Seed, streamPlan)
	// mostly few: more worlds find more than larger ones
	count := 1 + r.below(3) + r.below(6)*r.below(2)*r.below(2)
	together := r.percent(12) // all at one instant
	for n := range count {
		p := w.draw(n, fmt.Sprintf("p%d", n), nil, 0)
		if together {
			p.opened.DeadlineNs = epoch0 + 60*second
		}
		if r := newRandom(w.options.Seed, streamStaged+1+uint64(n)); w.settings.stages && r.percent(30) {
			stage(w, p, r, 1)
		}
		if w.options.Drop>>n&1 == 0 {
			w.begin(p)
		}
	}
	special := func(is bool, draw func(w *world, n int) *planSpec) {
		if is && count < plansMax && w.options.Drop>>count&1 == 0 {
			w.begin(draw(w, count))
		}
		count++
	}
	special(w.settings.runs, (*world).drawRun)
	special(w.settings.lasts, (*world).drawLast)
	special(w.settings.stages, drawStaged)
	special(w.settings.stages, drawStaged)
	special(w.settings.twice, drawTwice)
	special(w.settings.left, drawLeft)
}

// drawPlan begins a plan, which starts while others do.
func drawPlan(n int, r *random) *planSpec {
	return &planSpec{n: n, id: fmt.Sprintf("p%d", n), agent: fmt.Sprintf("a%d", n%3), r: r,
		startNs: r.between(0, loadNs)}
}

// drawRun makes a plan of actions one after the other whose undos ask for nothing else: they
// may be dispatched ahead.
func (w *world) drawRun(n int) *planSpec {
	r := newRandom(w.options.Seed, streamRun)
	p := drawPlan(n, r)
	p.opened = &pb.PlanOpened{Label: "run", Owner: "ops"}
	if r.percent(30) {
		p.opened.DeadlineNs = epoch0 + p.startNs + r.between(2*second, 30*second)
	}
	if r.percent(20) {
		p.opened.OnUndoFailure = pb.OnUndoFailure_ON_UNDO_FAILURE_CONTINUE
	} else {
		p.opened.OnUndoFailure = pb.OnUndoFailure_ON_UNDO_FAILURE_HALT_UNLESS_LAST
	}
	for range 2 + r.below(6) {
		f := w.drawPlain(p).pair.forward
		f.Branch = f.Branch && r.percent(15)
		if !f.Branch {
			f.After = nil
		}
	}
	if end := r.below(100); end < 60 {
		p.steps = append(p.steps, step{kind: stepFail})
	} else if end < 75 {
		p.steps = append(p.steps, step{kind: stepCancel})
	}
	if r.percent(25) { // one more comes late, after one that may be dispatched ahead by then
		p.steps = append(p.steps, step{kind: stepWait, waitNs: r.between(0, 100*millisecond)})
		before := p.actions[r.below(len(p.actions))].id
		f := w.drawPlain(p).pair.forward
		f.Branch, f.After = true, []string{before}
	}
	return p
}

// drawLast makes a plan with child plans, one after the other, that end with an irreversible act.
// Most are undone before it is: their entries are its owner's before its unwind begins.
func (w *world) drawLast(n int) *planSpec {
	r := newRandom(w.options.Seed, streamLast)
	p := drawPlan(n, r)
	p.opened = drawWord(r, "last")
	w.drawPlain(p).pair.forward.Branch = false
	for range 2 + r.below(2) {
		q := &planSpec{n: n, id: fmt.Sprintf("%s_%d", p.id, len(p.steps)), agent: p.agent,
			parent: p, r: r, opened: drawWord(r, "part")}
		q.opened.ParentPlan = p.id
		if r.percent(70) {
			w.drawPlain(q)
		}
		last := w.drawPlain(q)
		last.pair.forward.Class, last.luck = pb.Class_CLASS_IRREVERSIBLE, luckGood
		last.pair.compensation = &pb.CompensationRegistered{}
		q.steps = append(q.steps, step{kind: pick(r, stepFail, stepFail, stepCommit)})
		p.steps = append(p.steps, step{kind: stepChild, child: q},
			step{kind: stepWait, waitNs: r.between(second, 20*second)})
	}
	p.steps = append(p.steps, step{kind: stepFail})
	return p
}

// drawWord is the opening of a plan, more often one that its last act does not stop.
func drawWord(r *random, label string) *pb.PlanOpened {
	last := pb.OnUndoFailure_ON_UNDO_FAILURE_HALT_UNLESS_LAST
	return &pb.PlanOpened{Label: label, Owner: "ops", OnUndoFailure: pick(r, last, last, last, last,
		pb.OnUndoFailure_ON_UNDO_FAILURE_CONTINUE, pb.OnUndoFailure_ON_UNDO_FAILURE_HALT)}
}

// drawPlain adds an action to a plan whose undo asks for nothing else.
func (w *world) drawPlain(p *planSpec) *actionSpec {
	r, a := p.r, w.drawAction(p)
	a.pair.forward.Class, a.pair.forward.Pivot = pb.Class_CLASS_COMPENSABLE, false
	a.pair.compensation = &pb.CompensationRegistered{
		Capability: "undo." + a.id, Bindings: bindingsOf(w), Attempts: uint32(1 + r.below(3)),
		BackoffNs: r.between(200*millisecond, 3*second), TimeoutNs: r.between(second, 6*second),
		Fidelity: "exact", UnservedAfterNs: w.unservedAfter(a.id),
	}
	switch n := r.below(100); {
	case n < 10: // it closes about when the unwind begins
		a.pair.compensation.ValidForNs = r.between(second/2, 4*second)
	case n < 20:
		a.pair.compensation.ValidForNs = r.between(5*second, 60*second)
	}
	if a.workNs = r.between(20*millisecond, second); r.percent(85) {
		a.luck, a.mute, a.detached = 0, false, false
	}
	p.actions = append(p.actions, a)
	p.steps = append(p.steps, step{kind: stepAct, action: a})
	w.workers.specs[aboutOf(p.id, a.id)] = a
	return a
}

// draw makes a plan, and what is part of it, from a stream of its own.
func (w *world) draw(n int, id string, parent *planSpec, depth int) *planSpec {
	r := newRandom(w.options.Seed, streamPlan+1+uint64(n))
	if parent != nil {
		r = parent.r
	}
	p := &planSpec{n: n, id: id, agent: fmt.Sprintf("a%d", n%3), parent: parent, r: r,
		startNs: r.between(0, loadNs)}
	o := &pb.PlanOpened{Label: "load", Owner: "ops"}
	if r.percent(35) {
		o.DeadlineNs = epoch0 + p.startNs + r.between(2*second, 90*second)
	}
	for i := range r.below(3) {
		if r.percent(60) {
			o.Triggers = append(o.Triggers,
				&pb.Trigger{Name: fmt.Sprintf("t%d", i), Condition: conditions[r.below(len(conditions))]})
		}
	}
	if r.percent(20) {
		o.Concurrency = uint32(1 + r.below(2))
	}
	if n := r.below(100); n < 20 {
		o.OnUndoFailure = pb.OnUndoFailure_ON_UNDO_FAILURE_CONTINUE
	} else if n < 35 {
		o.OnUndoFailure = pb.OnUndoFailure_ON_UNDO_FAILURE_HALT
	} else if n < 90 {
		o.OnUndoFailure = pb.OnUndoFailure_ON_UNDO_FAILURE_HALT_UNLESS_LAST
	}
	o.SecondApprover = r.percent(8)
	if parent != nil {
		o.ParentPlan, o.DeadlineNs = parent.id, 0
		if len(parent.actions) > 0 && r.percent(40) {
			o.ParentAction = parent.actions[r.below(len(parent.actions))].id
		}
	}
	p.opened = o
	held := newRandom(w.options.Seed, streamHeld-1-uint64(n))
	if w.settings.holds && parent == nil && held.percent(50) {
		o.Triggers = append(o.Triggers, heldTrigger(held))
	}
	idle := newRandom(w.options.Seed, streamIdle+uint64(n))
	if parent != nil && w.options.Seed%5 == 3 && idle.percent(60) { // it goes with the child's commit
		o.Triggers = append(o.Triggers, &pb.Trigger{Name: "idle",
			Condition: `elapsed(plan.active_at, duration("4s"))`})
	}
	w.drawSteps(p, depth)
	if parent == nil && newRandom(w.options.Seed, streamDoubt+uint64(n)).percent(25) {
		o.DoubtAtCommit = pb.DoubtAtCommit_DOUBT_AT_COMMIT_ACCEPT
	}
	return p
}

// drawSteps decides the course of a plan, up to its end.
func (w *world) drawSteps(p *planSpec, depth int) {
	r := p.r
	count := 1 + r.below(3)
	switch {
	case depth > 0:
	case r.percent(8):
		count = 4 + r.below(9)
	case r.percent(20):
		count = 1 + r.below(5)
	}
	wait := func() {
		if r.percent(40) {
			p.steps = append(p.steps, step{kind: stepWait, waitNs: r.between(100*millisecond, 5*second)})
		}
	}
	var saved []string
	var backs uint32
	for range count {
		a := w.drawAction(p)
		p.actions = append(p.actions, a)
		p.steps = append(p.steps, step{kind: stepAct, action: a})
		w.workers.specs[aboutOf(p.id, a.id)] = a
		wait()
		if r.percent(12) {
			saved = append(saved, fmt.Sprintf("s%d", len(saved)+1))
			p.steps = append(p.steps,
				step{kind: stepSave, name: saved[len(saved)-1], number: uint32(len(saved))})
		}
		if len(saved) > 0 && r.percent(20) {
			backs++
			p.steps = append(p.steps, step{kind: stepBack, name: saved[r.below(len(saved))], number: backs})
		}
		if depth < 2 && r.percent(7) {
			child := w.draw(p.n, fmt.Sprintf("%s_%d", p.id, len(p.steps)), p, depth+1)
			p.steps = append(p.steps, step{kind: stepChild, child: child})
			wait()
		}
	}
	switch n := r.below(100); {
	case n < 35:
		p.steps = append(p.steps, step{kind: stepCommit})
	case n < 75:
		p.steps = append(p.steps, step{kind: stepFail})
	case n < 85:
		p.steps = append(p.steps, step{kind: stepCancel})
	}
	// drawn after all else: leaving the fault out changes nothing before
	if at := r.below(len(p.steps) + 1); r.percent(25) && w.faults.Has(FaultVanish) {
		p.steps = append(p.steps[:at:at], step{kind: stepVanish})
	}
}

func (w *world) drawAction(p *planSpec) *actionSpec {
	r := p.r
	id := string(rune('a' + len(p.actions)))
	a := &actionSpec{plan: p, id: id, key: ledger.Key(tenant, p.id, id, ledger.PurposeDo)}
	a.workNs = r.between(20*millisecond, 2*second)
	if r.percent(10) {
		a.workNs = r.between(2*second, 40*second)
	}
	a.detached, a.once = r.percent(20), r.percent(6)
	luckOf, how := r.percent(25), pick(r, luckFails, luckLost, luckSilent, luckTwice, luckFails)
	if luckOf && w.faults.Has(FaultForward) {
		a.luck = how
	}
	mute := r.percent(50)
	// a probe is asked only of what no one has told
	a.mute = r.percent(6) || mute && a.luck == luckTwice
	if r.percent(10) {
		a.lateNs = r.between(second, 60*second)
	}
	f := &pb.ForwardRegistered{Capability: "do." + id, Class: pb.Class_CLASS_COMPENSABLE,
		EffectCrossed: a.once, Lifted: []byte(`{"n":3}`)}
	if n := len(p.actions); n > 0 && r.percent(30) {
		f.Branch = true
		for _, earlier := range p.actions {
			if r.percent(40) {
				f.After = append(f.After, earlier.id)
			}
		}
	}
	w.drawLanding(r, a, f)
	kept := newRandom(w.options.Seed, streamKept+uint64(p.n*16+len(p.actions)))
	a.large, a.lost = kept.percent(10), kept.percent(40)
	c := w.drawCompensation(r, id, f)
	drawScopes(newRandom(w.options.Seed, streamScope+uint64(p.n*16+len(p.actions))), c)
	w.drawHeld(newRandom(w.options.Seed, streamHeld+uint64(p.n*16+len(p.actions))), c)
	told := c.Capability != "" && c.Actuator != ledger.ActuatorMemory
	if f.Late == pb.Late_LATE_REFUSED && !told { // no one who could refuse it
		f.Late = pb.Late_LATE_UNSPECIFIED
	}
	a.pair = pairSpec{forward: f, compensation: c, input: fmt.Appendf(nil, `{"id":%q,"key":"u%d"}`, id,
		r.below(3))}
	if w.settings.reviews && !a.once {
		w.drawReview(newRandom(w.options.Seed, streamReview+uint64(p.n*16+len(p.actions))), a)
	}
	if len(p.actions)%2 == 0 {
		a.pair.image = fmt.Appendf(nil, `{"n":%d,"of":%q}`, len(p.actions), p.id)
	}
	return a
}

// drawReview has some actions wait for a verdict, for a shorter or a longer time than it takes.
func (w *world) drawReview(r *random, a *actionSpec) {
	if r.percent(30) {
		a.pair.forward.Review = true
		a.reviewNs = r.between(second, 40*second)
	}
}

// drawScopes says what the conditions of an action undo, where they say it, and gives some
// actions one more.
func drawScopes(r *random, c *pb.CompensationRegistered) {
	if c.Capability != "" && r.percent(12) {
		c.Triggers = append(c.Triggers,
			&pb.Trigger{Name: "more", Condition: conditions[r.below(len(conditions))]})
	}
	for _, t := range c.Triggers {
		t.Scope = scope(r)
	}
}

// scope is what a condition or a verdict undoes, more often an action than a plan.
func scope(r *random) pb.Scope {
	return pick(r, pb.Scope_SCOPE_UNSPECIFIED, pb.Scope_SCOPE_ACTION, pb.Scope_SCOPE_ACTION,
		pb.Scope_SCOPE_PLAN)
}
