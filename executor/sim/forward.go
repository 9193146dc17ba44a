package sim

import (
	"cmp"

	"github.com/sagenbaum/sagenbaum/executor"
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
}

// startSlack is how long a registration may take before its forward is called unasked:
// after that the agent asks whether the plan is open, as package coordinator does.
const startSlack = second

// mayStart reports whether a forward may be called that was registered since.
func (a *agent) mayStart(queuedNs int64) bool {
	w := a.w
	if deadline := a.p.opened.DeadlineNs; deadline > 0 && w.now >= deadline {
		return false
	}
	if w.now-queuedNs <= startSlack {
		return true
	}
	state, ok := a.ask()
	return ok && state == ledger.StateOpen
}

// ask asks the executor for the state of the plan, as of all that the agent has stored.
func (a *agent) ask() (state string, ok bool) {
	w := a.w
	for _, h := range w.hosts { // the executor answers, or no one does
		if h.holding() && h.cursor() >= a.stored {
			state, _, _, ok = executor.NewReaderWith(h.kv, tenant, w.archive, w.programs).Outcome(a.p.id)
			return state, ok
		}
	}
	return "", false
}

// forward calls the provider for an action that was registered since queuedNs. The call
// is not taken back when its agent is gone.
func (a *agent) forward(s *actionSpec, queuedNs int64) {
	w := a.w
	if !a.mayStart(queuedNs) {
		a.outcome(s, failed(s))
		return
	}
	c := &call{a: a, s: s}
	a.calls = append(a.calls, c)
	if timeout := s.pair.forward.TimeoutNs; timeout > 0 {
		w.after(queuedNs+timeout-w.now, c.giveUp)
	} else {
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
func (c *call) interval() int64 {
	f := c.s.pair.forward
	settle := f.SettleNs
	if settle == 0 && f.Late != pb.Late_LATE_NEVER {
		settle = int64(ledger.SettleDefault)
	}
	return min(max(second/2, max(settle, graceOf(f))/2), 15*second)
}

// watch asks about the plan of a forward: the notice of its unwind may be lost.
func (c *call) watch() {
	if c.over || c.a.gone {
		return
	}
	if state, ok := c.a.ask(); ok && state != ledger.StateOpen {
		c.giveUp()
		return
	}
	c.a.w.after(c.interval(), c.watch)
}

// giveUp ends the caller's patience: it does not know what comes of it.
func (c *call) giveUp() { c.end(inDoubt(c.s)) }

// local reports whether the forward happens in its caller, and ends with the call.
func (c *call) local() bool { return c.s.pair.forward.Late == pb.Late_LATE_NEVER }

// lands is the forward at its provider.
func (c *call) lands() {
	s, w := c.s, c.a.w
	if c.local() && (c.over || c.a.gone) {
		return
	}
	ref, ok := w.provider.do(s, s.luck == luckTwice)
	switch {
	case !ok:
		c.end(failed(s))
	case s.luck == luckSilent:
		w.strikes(FaultForward)
		w.after(5*second, c.giveUp)
		if s.lateNs != 0 {
			w.after(5*second+s.lateNs, func() { c.a.late(s, completed(s, ref)) })
		}
	default:
		c.end(completed(s, ref))
	}
}

// mistaken reports a failure of what has happened, and its completion much later.
func (c *call) mistaken() {
	s := c.s
	ref, ok := c.a.w.provider.do(s, false)
	s.lied = true
	c.end(failed(s))
	if ok {
		c.a.w.after(s.lateNs, func() { c.a.late(s, completed(s, ref)) })
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
