package sim

import (
	"cmp"
	"fmt"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// agent is the coordinator of one plan, as package coordinator behaves: a pair is
// acknowledged before its forward is called.
type agent struct {
	w          *world
	p          *planSpec
	at         int
	began      bool
	gone       bool
	as         string          // the agent that it is of; empty: the one that opened the plan
	writer     string          // in its records; empty: the process that opened the plan
	replaced   bool            // it has heard that another process has resumed the plan
	resumed    bool            // it is that process
	failed     map[string]bool // of the actions, as that process has read
	stubborn   bool            // it goes on although its plan has ended
	told       string
	parts      uint32 // of its plan, that were undone, as far as it has heard
	stalled    bool   // it would go on if its plan did
	out        int    // forwards under way
	calls      []*call
	stored     uint64 // its last commit that is known to be stored
	idle       func()
	carried    []*pb.Record // outcomes that go with the next commit
	cutUntil   int64        // it does not reach the server until then
	deadlineNs int64        // of its plan, as it has heard last; 0: as declared
	// actions that wait for a verdict; "": there is none in time
	waiting map[string]func(verdict string)
}

// begin lets an agent start its plan.
func (w *world) begin(p *planSpec) *agent {
	a := &agent{w: w, p: p, stubborn: p.r.percent(50) && w.faults.Has(FaultLateAgent)}
	w.agents = append(w.agents, a)
	w.after(p.startNs, a.open)
	w.secondOf(a)
	w.adoptionOf(a)
	return a
}

func (a *agent) name() string { return "agent " + a.p.id }

// agent is whose process it is.
func (a *agent) agent() string { return cmp.Or(a.as, a.p.agent) }

// append writes records of the agent's plan; then happens once they are stored.
func (a *agent) append(then func(), records ...*pb.Record) {
	records = append(a.carried, records...)
	a.carried = nil
	for _, r := range records {
		r.Plan, r.Writer = a.p.id, a.writer
	}
	source := ledger.Source{Tenant: tenant, Class: ledger.ClassAgent, Plan: a.p.id,
		Name: a.agent()}
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		panic("sim: " + err.Error())
	}
	a.w.persistOf(a, a.name(), source, data, records, a.p.r, func() bool { return a.gone },
		func(sequence uint64, _ bool) {
			a.stored = max(a.stored, sequence)
			if !a.gone && then != nil {
				then()
			}
		})
}

// open opens the plan, now and then in one commit with its first pair.
func (a *agent) open() {
	if a.gone || a.w.healed {
		return
	}
	a.began = true
	record := &pb.Record{Kind: &pb.Record_PlanOpened{PlanOpened: a.p.opened}}
	if besides(a.w) {
		record.Payload = &pb.Payload{Input: fmt.Appendf(nil, `{"plan":%q,"k":"%d"}`, a.p.id, a.p.n%5)}
	}
	if a.as != "" { // the agent that had its parent may have opened it: package coordinator waits, too
		a.append(a.whenTaken, record)
		return
	}
	if a.p.r.percent(40) && len(a.p.steps) > 0 && a.p.steps[0].kind == stepAct {
		a.carried = append(a.carried, record)
		a.next()
		return
	}
	a.append(a.next, record)
}

// next takes the next step of the plan.
func (a *agent) next() {
	if a.gone || a.replaced || a.at == len(a.p.steps) || a.told != "" && !a.stubborn {
		a.stalled = a.told != ""
		return
	}
	if a.told != "" {
		a.w.strikes(FaultLateAgent)
	}
	s := a.p.steps[a.at]
	a.at++
	switch s.kind {
	case stepAct:
		a.act(s.action)
	case stepWait:
		a.w.after(s.waitNs, a.next)
	case stepSave:
		a.append(a.next,
			&pb.Record{Kind: &pb.Record_SavepointSet{SavepointSet: &pb.SavepointSet{Name: s.name,
				Number: s.number}}})
	case stepBack:
		a.append(func() { a.w.after(a.p.r.between(second, 10*second), a.next) },
			&pb.Record{Kind: &pb.Record_UnwindRequested{UnwindRequested: &pb.UnwindRequested{
				ToSavepoint: s.name, Reason: "another way", Number: s.number}}})
	case stepChild:
		a.child(s.child)
	case stepVanish:
		a.w.strikes(FaultVanish)
		a.w.sayFault(FaultVanish, a.name(), "is gone for ever")
		a.gone = true
	default:
		a.end(s.kind)
	}
}

// child runs a child plan beside its parent; the parent waits for it at its commit.
func (a *agent) child(p *planSpec) {
	p.startNs = p.r.between(0, second)
	if p.opened.DeadlineNs == 0 && p.r.percent(20) {
		p.opened.DeadlineNs = a.w.now + p.r.between(5*second, 60*second)
	}
	c := a.w.begin(p)
	c.writer, c.as = a.writer, a.as // of the same process
	a.w.after(p.r.between(0, 5*second), a.next)
}

// end ends the plan. A commit waits for what is under way, if the agent is careful.
func (a *agent) end(kind stepKind) {
	if a.out > 0 && kind == stepCommit && !a.stubborn {
		a.idle = func() { a.end(kind) }
		return
	}
	r := &pb.Record{}
	switch kind {
	case stepCommit:
		r.Kind = &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{Parts: a.parts}}
	case stepFail:
		r.Kind = &pb.Record_PlanFailed{PlanFailed: &pb.PlanFailed{Reason: "a step failed"}}
	case stepCancel:
		r.Kind = &pb.Record_PlanCancelled{PlanCancelled: &pb.PlanCancelled{Reason: "not wanted"}}
	default:
		panic(fmt.Sprintf("sim: no end %d", kind))
	}
	onward := a.next
	if kind == stepCommit && a.w.settings.stages {
		onward = func() {
			a.w.committed(a.p)
			a.next()
		}
	}
	a.append(onward, r)
}

// act registers an action and calls its forward.
func (a *agent) act(s *actionSpec) {
	if a.failed[s.id] {
		a.next()
		return
	}
	pair := []*pb.Record{
		{Action: s.id, Kind: &pb.Record_ForwardRegistered{ForwardRegistered: s.pair.forward},
			Payload: &pb.Payload{Input: s.pair.input}},
		{Action: s.id,
			Kind:    &pb.Record_CompensationRegistered{CompensationRegistered: s.pair.compensation},
			Payload: &pb.Payload{Before: s.pair.image}},
	}
	if s.staged() {
		a.stages(s, pair)
		return
	}
	if s.once { // reported after the fact: the effect is there already
		ref, ok := a.w.provider.do(s, false)
		if !ok {
			a.next()
			return
		}
		s.acknowledged = true
		pair = append(pair, completed(s, ref))
		// all in one commit
		if a.at < len(a.p.steps) && a.p.steps[a.at].kind == stepCommit && a.out == 0 {
			a.at++
			pair = append(pair,
				&pb.Record{Kind: &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{Parts: a.parts}}})
		}
		a.append(a.next, pair...)
		return
	}
	queuedNs := a.w.now
	a.append(func() {
		s.acknowledged = true
		a.out++
		if s.pair.forward.Review {
			a.awaitVerdict(s, queuedNs)
		} else {
			a.w.after(a.p.r.between(millisecond, 20*millisecond), func() { a.forward(s, queuedNs) })
		}
		if s.detached {
			a.next()
		}
	}, pair...)
}

// awaitVerdict calls the forward of an action once a supervisor has allowed it. One that is not
// allowed, or not in time, has not happened.
func (a *agent) awaitVerdict(s *actionSpec, queuedNs int64) {
	if a.waiting == nil {
		a.waiting = map[string]func(string){}
	}
	a.waiting[s.id] = func(verdict string) {
		delete(a.waiting, s.id)
		if verdict == "allow" {
			a.forward(s, queuedNs)
		} else {
			a.outcome(s, failed(s))
		}
	}
	a.w.after(s.reviewNs, func() {
		if decide := a.waiting[s.id]; decide != nil {
			decide("")
		}
	})
}

func completed(s *actionSpec, ref string) *pb.Record {
	r := &pb.Record{Action: s.id, Payload: &pb.Payload{Output: fmt.Appendf(nil, `{"ref":%q}`, ref)},
		Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{ExternalRef: ref,
			Lifted: []byte(`{"n":2}`), OutputIncomplete: s.large}}}
	if s.large && s.lost {
		r.Payload = nil
	}
	return r
}

func failed(s *actionSpec) *pb.Record {
	return &pb.Record{Action: s.id,
		Kind: &pb.Record_ForwardFailed{ForwardFailed: &pb.ForwardFailed{Code: "refused", Message: "no"}}}
}

func inDoubt(s *actionSpec) *pb.Record {
	return &pb.Record{Action: s.id,
		Kind: &pb.Record_ForwardInDoubt{ForwardInDoubt: &pb.ForwardInDoubt{Message: "timeout"}}}
}

// outcome reports what came of a forward, at once or with the next commit.
func (a *agent) outcome(s *actionSpec, r *pb.Record) {
	a.out--
	if idle := a.idle; a.out == 0 && idle != nil {
		a.idle = nil
		defer idle()
	}
	onward := a.next
	if s.detached {
		onward = func() {}
	}
	switch {
	case a.gone:
	case s.mute && s.luck == luckTwice && a.w.confessions != nil:
		within := cmp.Or(s.lateNs, 300*second)
		a.w.after(a.w.confessions.between(second, within), func() { a.late(s, r) })
		onward()
	case s.mute:
		onward()
	case s.lateNs != 0 && s.luck == luckGood:
		a.w.after(s.lateNs, func() { a.late(s, r) })
		onward()
	case !s.detached && a.p.r.percent(30) && a.at < len(a.p.steps) &&
		a.p.steps[a.at].kind == stepAct && (a.told == "" || a.stubborn):
		a.carried = append(a.carried, r)
		onward()
	default:
		a.append(onward, r)
	}
}

// late reports an outcome long after.
func (a *agent) late(_ *actionSpec, r *pb.Record) {
	if !a.gone {
		a.append(nil, r)
	}
}

// notify tells agents what became of their plans; a notice may be lost.
func (w *world) notify(notices []executor.Notice) {
	for _, n := range notices {
		if w.net.percent(10) {
			continue
		}
		for _, a := range w.agents {
			if decide := a.waiting[n.Action]; a.p.id == n.Plan && n.Verdict != "" && decide != nil {
				w.after(w.net.between(millisecond, 50*millisecond), func() { a.judged(n) })
			}
			if a.p.id == n.Plan && n.Presence == "present" && w.denials != nil && w.denials.percent(70) {
				w.after(w.denials.between(millisecond, 20*second), func() { a.denies(n.Action) })
			}
			if a.p.id == n.Plan && n.Verdict == "" && n.Presence == "" {
				w.after(w.net.between(millisecond, 50*millisecond), func() { a.hears(n) })
			}
		}
	}
}

// judged hears of a verdict on an action that waits for one.
func (a *agent) judged(n executor.Notice) {
	if decide := a.waiting[n.Action]; decide != nil && !a.cut() {
		decide(n.Verdict)
	}
}

func (a *agent) hears(n executor.Notice) {
	switch {
	case a.cut():
		return
	case n.DueNs != 0:
		a.deadlineNs = n.DueNs
		return
	case n.HandedTo != "":
		a.replaced = a.replaced || !a.resumed || n.HandedTo != a.as
		return
	case n.Writer != "":
		a.replaced = a.replaced || n.Writer != a.writer
		return
	case n.State == ledger.StateOpen && (n.Savepoint != "" || n.FromAction != ""):
		a.parts = max(a.parts, n.Parts)
		if a.told = ""; a.stalled {
			a.stalled = false
			a.next()
		}
		return
	}
	a.told = n.State
	a.interrupt()
}

// drawHeld has conditions of some actions held after the commit, with an undo window.
func (w *world) drawHeld(r *random, c *pb.CompensationRegistered) {
	if !w.settings.holds || c.Capability == "" || r.percent(30) {
		return
	}
	if c.ValidForNs == 0 && c.ValidUntilNs == 0 {
		c.ValidForNs = r.between(10*second, 120*second)
	}
	for _, t := range c.Triggers {
		t.AfterCommit = r.percent(50)
	}
	t := heldTrigger(r)
	t.Scope = scope(r)
	c.Triggers = append(c.Triggers, t)
}

// heldTrigger is a condition that is held after the commit, and often true only then.
func heldTrigger(r *random) *pb.Trigger {
	condition := pick(r, conditions[r.below(len(conditions))],
		`plan.status == "committed" && `+conditions[r.below(len(conditions))],
		`plan.status == "committed" && facts["k0"].n > 5`, `facts["k1"].n == 9`,
		`plan.status == "committed" && after(plan.opened_at + duration("50s"))`,
		`after(plan.opened_at + duration("70s"))`,
		`after(timestamp("2027-01-15T08:01:30Z"))`)
	return &pb.Trigger{Name: "held", Condition: condition, AfterCommit: true}
}
