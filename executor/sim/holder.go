package sim

import (
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// lease names the holder of the tenant, as the hosts are told. It is advice: terms are
// decided in the stream.
type lease struct {
	w     *world
	owner *host
	until int64
	ended bool
}

const (
	leaseTTL  = 6 * second
	leasePoll = 2 * second
)

// begin lets every host ask for the lease, again and again.
func (l *lease) begin(w *world) {
	l.w = w
	for _, h := range w.hosts {
		w.after(w.net.between(0, leasePoll), func() { l.poll(h) })
	}
}

func (l *lease) poll(h *host) {
	if l.ended {
		return
	}
	if h.up && h.halted == nil && !h.paused {
		l.ask(h)
	}
	l.w.after(leasePoll, func() { l.poll(h) })
}

// ask renews or takes the lease. With rivals, it sometimes says yes to two, or is
// lost by its owner.
func (l *lease) ask(h *host) {
	w := l.w
	free := l.owner == nil || l.owner == h || l.until <= w.now
	switch {
	case h.cut:
		if h.wants && l.until <= w.now { // it cannot renew: it stops before another begins
			h.leaseGone()
		}
		return
	case len(w.hosts) > 1 && w.chance(w.net, FaultRivals, 4):
		w.sayFault(FaultRivals, h.name, "is told that it holds the tenant")
	case !free:
		if h.wants {
			h.leaseGone()
		}
		return
	case h.wants && w.chance(w.net, FaultRivals, 2):
		w.sayFault(FaultRivals, h.name, "is told that it has lost the tenant")
		h.leaseGone()
		return
	}
	if l.owner, h.safeNs = h, l.until; !l.ended {
		l.until, h.safeNs = w.now+leaseTTL, w.now+leaseTTL-leaseTTL/20
	}
	if !h.wants {
		h.wants = true
		w.say(h.name, "has the lease")
	}
	h.leads()
}

// settle gives the lease to one host for good, at the end.
func (l *lease) settle(h *host) {
	l.ended, l.owner, l.until = true, h, l.w.now+endNs
	for _, other := range l.w.hosts {
		if other != h && other.wants {
			other.leaseGone()
		}
	}
	h.wants, h.safeNs = true, l.until
	h.leads()
}

// leads tells the host's machine that it has the lease.
func (h *host) leads() {
	h.run(h.attachment, func() {
		if h.session != nil && !h.holding() {
			h.session.Lead(true, h.name)
			h.turn()
		}
	})
}

func (h *host) leaseGone() {
	h.wants, h.safeNs = false, 0
	h.run(h.attachment, func() {
		if h.session != nil {
			h.session.Lead(false, "")
			h.turn()
		}
	})
}

// holding reports whether the host holds the tenant.
func (h *host) holding() bool { return h.session != nil && h.session.Holding() }

func (h *host) cursor() uint64 { return h.state.Meta().GetApplied().GetSequence() }

// halt ends all that the host does: the stream is not what it was.
func (h *host) halt(halted *ledger.Halted) {
	h.endSession()
	h.halted = halted
	h.w.halt(h.name, halted)
	h.keepHalt(halted)
}

// die ends the process; its supervisor starts it again.
func (h *host) die() {
	h.forget()
	h.endSession()
	h.up, h.paused, h.backlog, h.wants, h.safeNs = false, false, nil, false, 0
	h.w.after(h.w.strike.between(100*millisecond, 8*second), func() {
		if !h.up {
			h.w.say(h.name, "starts")
			h.start()
		}
	})
}

// aboutOf names an action of a plan.
func aboutOf(plan, action string) turn.About { return turn.About{Plan: plan, Action: action} }

// attemptOf names one attempt of an undo, or of a question about it.
func attemptOf(plan, action, purpose string, n uint32) turn.Attempt {
	return turn.Attempt{About: aboutOf(plan, action), Purpose: purpose, Number: n}
}

// clock is a host's clocks, under their guard.
type clock struct {
	w      *world
	offset int64 // of the wall clock from the truth
	guard  turn.Clock
}

func (c *clock) wall() int64 { return c.w.now + c.offset }

func (c *clock) begin() { c.confirm() }

func (c *clock) confirm() { c.guard.Confirm(c.wall(), c.w.now) }

// instant is what the clocks say.
func (c *clock) instant() turn.Instant {
	now, _ := c.guard.Read(c.wall(), c.w.now)
	return now
}
