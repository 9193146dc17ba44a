package sim

import (
	"cmp"

	"github.com/sagenbaum/sagenbaum/executor/view"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// call is one forward on its way to the provider and back. Its caller may give it up,
// and then says so at most once; the provider goes on, unless the forward happens in
// its caller.
type call struct {
	a    *agent
	s    *actionSpec
	over bool // its outcome was said, or its caller has given it up

	heardNs int64 // when an executor has confirmed its plan, or it began
}

// startSlack is how long a registration may take before its forward is called unasked:
// after that the agent asks whether the plan is open, as package coordinator does.
const startSlack = second

// mayStart reports whether a forward may be called that was registered since: its plan is open
// and its time is not over.
func (a *agent) mayStart(s *actionSpec, queuedNs int64) bool {
	w, timeout := a.w, s.pair.forward.TimeoutNs
	if a.due() || timeout > 0 && w.now >= queuedNs+timeout {
		return false
	}
	if w.now-queuedNs <= startSlack {
		return true
	}
	state, writer, _, ok := a.asks()
	return ok && state == ledger.StateOpen && writer == a.writer
}

// due reports whether the deadline of the plan has passed. It may have been moved, which the agent
// asks when it would stop for it.
func (a *agent) due() bool {
	ns := cmp.Or(a.deadlineNs, a.p.opened.DeadlineNs)
	if ns == 0 || a.w.now < ns {
		return false
	}
	if now, _, ok := a.deadline(); ok {
		a.deadlineNs = now
		return a.w.now >= now
	}
	return true
}

// ask asks the executor for the state of the plan, as of all that the agent has stored.
func (a *agent) ask() (state string, ok bool) {
	w := a.w
	if a.cut() {
		return "", false
	}
	for _, h := range w.hosts { // the executor answers, or no one does
		if h.holding() && h.cursor() >= a.stored {
			state, _, _, ok = view.Live(h.state, h.kv, tenant).Outcome(a.p.id)
			return state, ok
		}
	}
	return "", false
}

// forward calls the provider for an action that was registered since queuedNs. The call
// is not taken back when its agent is gone.
func (a *agent) forward(s *actionSpec, queuedNs int64) {
	w := a.w
	switch {
	case a.mayStart(s, queuedNs):
	case a.resumed: // the process before may have called it
		a.outcome(s, inDoubt(s))
		return
	default:
		a.outcome(s, failed(s))
		return
	}
	c := &call{a: a, s: s, heardNs: w.now}
	a.calls = append(a.calls, c)
	switch f := s.pair.forward; {
	case f.TimeoutNs > 0:
		w.after(queuedNs+f.TimeoutNs-w.now, c.giveUp)
	case f.Late != pb.Late_LATE_REFUSED:
		w.after(c.interval(), c.watch)
	}
	if s.pair.forward.Class == pb.Class_CLASS_EFFECTLESS {
		w.after(s.workNs, func() { c.end(completed(s, "")) })
		return
	}
	switch s.luck {
	case luckFails:
		w.strikes(FaultForward)
		w.after(s.workNs, func() {
			if s.lateNs == 0 {
				c.end(failed(s))
			} else { // it was not refused after all, and that becomes known later
				c.mistaken()
			}
		})
	case luckLost:
		w.strikes(FaultForward)
		w.after(s.workNs+5*second, c.giveUp)
	case luckLands:
		w.strikes(FaultLanding)
		w.after(s.workNs, c.giveUp)
		w.after(s.workNs+s.landNs, c.lands)
	default:
		w.after(s.workNs, c.lands)
	}
}

// end says what came of a forward, unless its caller has given it up.
func (c *call) end(r *pb.Record) {
	if !c.over {
		c.over = true
		c.a.outcome(c.s, r)
	}
}

// interval is how often an agent asks about the plan of a forward that runs without a
// timeout, as package coordinator does.
func (c *call) interval() int64 { return min(c.patience()/2, 15*second) }

// patience is for how long a forward without a timeout runs while no executor confirms its plan:
// it may be undone where its agent is cut off from.
func (c *call) patience() int64 {
	f := c.s.pair.forward
	settle := cmp.Or(f.SettleNs, int64(ledger.SettleDefault))
	if f.Late == pb.Late_LATE_NEVER {
		settle = 0
	}
	return max(graceOf(f), settle/2, second)
}

// watch asks about the plan of a forward: the notice of its unwind may be lost.
func (c *call) watch() {
	if c.over || c.a.gone {
		return
	}
	w := c.a.w
	switch state, ok := c.a.ask(); {
	case ok && state != ledger.StateOpen:
		c.giveUp()
		return
	case ok:
		c.heardNs = w.now
	case w.now-c.heardNs >= c.patience():
		c.giveUp()
		return
	}
	w.after(min(c.interval(), c.heardNs+c.patience()-w.now), c.watch)
}

// giveUp ends the caller's patience: it does not know what comes of it.
func (c *call) giveUp() { c.end(inDoubt(c.s)) }

// local reports whether the forward happens in its caller, and ends with the call.
func (c *call) local() bool { return c.s.pair.forward.Late == pb.Late_LATE_NEVER }

// ended reports whether the forward ended with its call, which is over.
func (c *call) ended() bool { return c.local() && (c.over || c.a.gone) }

// lands is the forward at its provider.
func (c *call) lands() {
	s, w := c.s, c.a.w
	if c.ended() {
		return
	}
	ref, ok := w.provider.do(s, s.luck == luckTwice)
	switch {
	case !ok:
		c.end(failed(s))
	case s.luck == luckSilent:
		w.strikes(FaultForward)
		w.after(5*second, c.giveUp)
		if w.denials != nil && w.denials.percent(70) {
			w.after(5*second+w.denials.between(second, 90*second), func() { c.a.denies(s.id) })
		} else if s.lateNs != 0 {
			w.after(5*second+s.lateNs, func() { c.a.late(s, completed(s, ref)) })
		}
	default:
		c.end(completed(s, ref))
	}
}

// mistaken reports a failure of what has happened, and its completion much later.
func (c *call) mistaken() {
	s := c.s
	if c.ended() {
		return
	}
	ref, ok := c.a.w.provider.do(s, false)
	s.lied = true
	c.end(failed(s))
	if ok {
		c.a.w.after(s.lateNs, func() { c.a.late(s, completed(s, ref)) })
	}
}

// denies reports a failure of what has happened, long after, when it may have been found there.
func (a *agent) denies(id string) {
	if s := a.w.workers.spec(a.p.id, id); s != nil {
		s.lied = true
		a.late(s, failed(s))
	}
}

// interrupt gives up the forwards of a plan that unwinds, after the grace of each.
func (a *agent) interrupt() {
	for _, c := range a.calls {
		a.w.after(graceOf(c.s.pair.forward), c.giveUp)
	}
}

func graceOf(f *pb.ForwardRegistered) int64 { return cmp.Or(f.GraceNs, int64(ledger.GraceDefault)) }

// clocksDiffer is by how much the clocks of hosts and stream differ without a fault:
// whoever says how long a forward takes to land adds that.
const clocksDiffer = 6 * second

// askAfter is how long a doubt about an action lasts before its open plan asks: some plans are open
// for that long, and some end meanwhile.
func (w *world) askAfter(id string) int64 {
	after := [...]int64{200 * millisecond, second, 5 * second, 20 * second, 0}
	return after[(w.options.Seed+uint64(id[len(id)-1]))%uint64(len(after))]
}

// drawLanding draws what the registration says of when a forward may land. Its provider
// keeps that.
func (w *world) drawLanding(r *random, a *actionSpec, f *pb.ForwardRegistered) {
	landsLate, how := r.percent(30), r.below(100)
	a.landNs = r.between(100*millisecond, 25*second)
	if landsLate && w.faults.Has(FaultLanding) && a.luck == luckGood && !a.once {
		a.luck = luckLands
	}
	f.TimeoutNs, f.GraceNs = r.between(a.workNs/2, 2*a.workNs)*int64(r.below(6)/5),
		r.between(50*millisecond, 4*second)*int64(r.below(3)/2)
	f.SettleNs = a.workNs + max(a.landNs, 5*second) + clocksDiffer
	switch {
	case how < 30:
		f.Late = pb.Late_LATE_REFUSED
	case how < 45 && a.luck != luckLands:
		f.Late, f.SettleNs = pb.Late_LATE_NEVER, 0
	}
}

// bindingsOf are those of every undo and question: the effect by its name, by its forward's key
// and by what the provider calls it, and what was there before. In every other world they read
// what is not of the action, too.
func bindingsOf(w *world) []*pb.Binding {
	list := []*pb.Binding{
		{Name: "ref", Expression: "output.ref"}, {Name: "fk", Expression: "meta.forward_key"},
		{Name: "xref", Expression: "meta.external_ref"},
		{Name: "was", Expression: "before.of"}, {Name: "id", Expression: "input.id"},
		{Name: "why", Expression: "plan.reason"},
	}
	if besides(w) {
		list = append(list, beside...)
	}
	return list
}

// besides reports whether undos and deliveries of this world read what is not of their action.
func besides(w *world) bool { return w.options.Seed%2 == 0 }

// beside is that: the first action of the plan, facts, and what the plan was opened with.
var beside = []*pb.Binding{{Name: "first", Expression: `actions["a"].output.ref`},
	{Name: "of", Expression: `actions["b"].external_ref`},
	{Name: "fact", Expression: `facts["k0"].n`}, {Name: "rate", Expression: `facts["k3"]`},
	{Name: "plan", Expression: "plan.input.plan"}}

func (w *world) drawCompensation(r *random, id string,
	f *pb.ForwardRegistered) *pb.CompensationRegistered {
	kind := r.below(100)
	switch {
	case kind < 6:
		f.Class = pb.Class_CLASS_IRREVERSIBLE
		return &pb.CompensationRegistered{}
	case kind < 13:
		f.Class = pb.Class_CLASS_EFFECTLESS
		return &pb.CompensationRegistered{}
	}
	c := &pb.CompensationRegistered{
		Capability: "undo." + id, Bindings: bindingsOf(w), Attempts: uint32(1 + r.below(4)),
		BackoffNs: r.between(200*millisecond, 3*second),
		TimeoutNs: r.between(second, 6*second), JitterPercent: uint32(pick(r, 0, 0, 50)),
		Fidelity: "exact",
	}
	f.Pivot = r.percent(4)
	if r.percent(15) {
		c.Triggers = []*pb.Trigger{{Name: "own", Condition: conditions[r.below(len(conditions))]}}
	}
	if kind < 25 { // undone in working memory
		c.Actuator, c.Capability = ledger.ActuatorMemory, ledger.CapabilityAssert
		c.Bindings = []*pb.Binding{{Name: ledger.ArgumentKey, Expression: "input.key"},
			{Name: ledger.ArgumentValue, Expression: `{"n": 1}`}}
		if r.percent(30) {
			c.Capability, c.Bindings = ledger.CapabilityRetract, c.Bindings[:1]
		}
		return c
	}
	w.drawContract(r, id, c)
	w.erasing.seal(c)
	return c
}

// drawContract adds what a contract may say beside the inverse.
func (w *world) drawContract(r *random, id string, c *pb.CompensationRegistered) {
	call := func(name string) *pb.Call {
		return &pb.Call{Capability: name + "." + id, Bindings: bindingsOf(w), TimeoutNs: 2 * second,
			Attempts: uint32(1 + r.below(3)), BackoffNs: second}
	}
	if r.percent(35) {
		c.Probe = &pb.Probe{Call: call("find")}
		if w.others.percent(40) { // its forward leaves version 1
			c.Unchanged = "probe.version == 1"
			c.Bindings = append(c.Bindings, &pb.Binding{Name: "if_match", Expression: "probe.version"})
		}
	}
	if r.percent(20) {
		c.Verify = &pb.Verify{Call: call("check"), Ok: "verify.gone"}
	}
	if r.percent(25) {
		c.Done, c.Stop = `error.code == "not_found"`, `error.code == "protected"`
	}
	switch n := r.below(100); {
	case n < 25:
		c.OnInDoubt = pb.OnInDoubt_ON_IN_DOUBT_COMPENSATE
	case n < 35:
		c.OnInDoubt = pb.OnInDoubt_ON_IN_DOUBT_QUARANTINE
	case c.Probe != nil && n < 60:
		c.OnInDoubt = pb.OnInDoubt_ON_IN_DOUBT_PROBE
	}
	if r.percent(20) {
		c.OnLate = pb.OnLate_ON_LATE_QUARANTINE
	}
	forgets := int64(0)
	if c.Probe != nil && r.percent(40) {
		forgets = r.between(8*second, 20*second)
	}
	if w.faults.Has(FaultForgetful) {
		c.DedupeNs = forgets
	}
	if r.percent(12) {
		c.ValidForNs = r.between(15*second, 90*second)
	}
	if r.percent(5) {
		c.ValidUntilNs = epoch0 + r.between(30*second, 140*second)
	}
	c.Approve = r.percent(4)
	c.UnservedAfterNs = w.unservedAfter(id)
	if c.Probe != nil {
		c.AskAfterNs = w.askAfter(id)
	}
	if r.percent(10) {
		c.Page = "oncall"
	}
}

const labelTwice = "twice"

// drawTwice makes a plan whose forwards happen twice, and that is committed before its agent says
// so. Its commit finds too much of them, and an operator has most of such plans undone instead.
// Some wait before they are committed, so that what someone sees of them comes first.
func drawTwice(w *world, n int) *planSpec {
	r := newRandom(w.options.Seed, streamTwice)
	p := drawPlan(n, r)
	p.opened = drawWord(r, labelTwice)
	for range 1 + r.below(2) {
		a := drawProbed(w, p)
		if w.faults.Has(FaultForward) {
			a.luck, a.mute, a.detached, a.lateNs = luckTwice, true, false, 60*second
		}
	}
	if r.percent(50) {
		p.steps = append(p.steps, step{kind: stepWait, waitNs: r.between(5*second, 60*second)})
	}
	p.steps = append(p.steps, step{kind: stepCommit})
	stop := &pb.Record{Plan: p.id, Kind: &pb.Record_CancelRequested{
		CancelRequested: &pb.CancelRequested{Reason: "not twice", Actor: "ann"}}}
	if afterNs := p.startNs + r.between(10*second, 80*second); r.percent(80) && !w.options.Alone {
		w.after(afterNs, func() {
			if !w.healed {
				w.tell(operator("ann"), stop)
			}
		})
	}
	return p
}

// drawLeft makes a plan whose agent hears nothing of its forwards, and goes on without it, or goes
// away: what happened is asked, of few of them at once.
func drawLeft(w *world, n int) *planSpec {
	r := newRandom(w.options.Seed, streamLeft)
	p := drawPlan(n, r)
	p.opened = drawWord(r, "left")
	p.opened.Concurrency = uint32(1 + r.below(2))
	for range 2 + r.below(3) {
		a := drawProbed(w, p)
		if w.faults.Has(FaultForward) {
			a.mute, a.detached, a.luck = true, false, pick(r, luckLost, luckSilent, luckSilent, luckTwice)
		}
	}
	if r.percent(30) {
		p.steps = append(p.steps, step{kind: stepWait, waitNs: r.between(5*second, 120*second)},
			step{kind: pick(r, stepFail, stepCommit)})
	}
	return p
}

// drawProbed adds a plain action to a plan that can be asked whether it has happened.
func drawProbed(w *world, p *planSpec) *actionSpec {
	a := w.drawPlain(p)
	a.pair.compensation.Probe = &pb.Probe{Call: &pb.Call{Capability: "find." + a.id,
		Bindings: bindingsOf(w), TimeoutNs: 2 * second, Attempts: 3, BackoffNs: second}}
	a.pair.compensation.AskAfterNs = w.askAfter(a.id)
	return a
}
