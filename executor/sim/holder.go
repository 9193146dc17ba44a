package sim

import (
	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// lease is who holds the tenant, as the hosts are told. It is advice: terms are
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
	l.owner, l.until, h.safeNs = h, w.now+leaseTTL, w.now+leaseTTL-leaseTTL/20
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
	h.run(h.session, func() {
		if h.machine != nil && !h.holding() {
			h.machine.Lead(true, h.name)
			h.turn()
		}
	})
}

func (h *host) leaseGone() {
	h.wants, h.safeNs = false, 0
	h.run(h.session, func() {
		if h.machine != nil {
			h.machine.Lead(false, "")
			h.turn()
		}
	})
}

// down stops sending. When another term has begun, the host asks for its lease again.
func (h *host) down(d turn.Down) {
	h.stepDown()
	if !d.Doubt {
		return
	}
	h.w.say(h.name, "is fenced")
	h.wants = false
	h.in(int64(turn.RetryMin), func() { h.w.rule.ask(h) })
}

// stepDown forgets what is on its way.
func (h *host) stepDown() { h.flights, h.pages, h.erases, h.erasing = nil, nil, nil, false }

// holding reports whether the host holds the tenant.
func (h *host) holding() bool { return h.machine != nil && h.machine.Holding() }

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

// send takes a command on its way.
func (h *host) send(s turn.Sending) {
	if f, _ := h.flights.Take(s, h.clock.instant().MonoNs); f != nil {
		h.try(f)
	}
}

// try sends a copy of the command, if it may leave.
func (h *host) try(f *turn.Flight) {
	may, verdict := h.flights.MaySend(f, h.clock.instant().EpochNs)
	h.follow(f, verdict)
	if !may {
		return
	}
	h.w.check.sent(h, f.Command)
	session, flights := h.session, h.flights
	done := func(fate turn.Fate, reply *api.Reply) {
		if h.flights != flights { // its term has ended
			return
		}
		r := turn.Result{Fate: fate}
		if reply != nil {
			r.Reply = *reply
		}
		h.follow(f, flights.Result(f, r, h.clock.instant()))
		// the fold counts the time itself
		if fate == turn.NoWorker && h.w.chance(h.w.early, FaultUnserved, 10) {
			h.w.sayFault(FaultUnserved, h.name, "says too early that no worker takes the %s of %s %s",
				f.Attempt.Purpose, f.Attempt.Plan, f.Attempt.Action)
			h.machine.Answer(executor.Answer{
				Plan: f.Attempt.Plan, Number: f.Command.Number, Purpose: f.Attempt.Purpose,
				Attempt:  f.Attempt.Number,
				Unserved: true, Reached: f.Reached,
			})
			h.in(0, h.turn)
		}
	}
	if f.Command.Actuator == ledger.ActuatorMemory {
		done(turn.Replied, &api.Reply{Status: api.StatusDone, Worker: "memory"})
		return
	}
	h.w.workers.take(f.Command, func(fate turn.Fate, reply *api.Reply) {
		h.run(session, func() { done(fate, reply) })
	})
}

// follow does what follows from the result of a sending.
func (h *host) follow(f *turn.Flight, v turn.Verdict) {
	flights := h.flights
	if v.Next != nil {
		if h.w.chance(h.w.haste, FaultPartition, 15) { // nor does it reach the workers
			h.w.cutOff(h)
			h.w.workers.away = max(h.w.workers.away, h.w.now+3*second)
		}
		h.try(v.Next)
		h.dies(inARun)
		if h.w.chance(h.w.strike, FaultPause, 5) {
			h.w.pauseHost(h)
		}
	}
	if v.Run != nil {
		h.in(int64(turn.RunHoldMax), func() {
			if h.flights == flights {
				h.hear(flights.HandOver(v.Run))
			}
		})
	}
	if v.Again {
		h.in(v.InNs, func() {
			if h.flights == flights {
				h.try(f)
			}
		})
	}
	h.hear(v.Answers)
}

// hear hands answers to the machine.
func (h *host) hear(answers []executor.Answer) {
	if len(answers) > 0 {
		h.machine.Answer(answers...)
		h.in(0, h.turn)
	}
}

// mayRun reports whether a command may leave that does not count yet.
func (h *host) mayRun() bool {
	may := h.w.now < h.safeNs && h.w.stream.termAt(h.heard) <= h.machine.Term()
	if !may {
		h.w.options.Seen.run("kept back")
	}
	return may
}

// settle ends what the ledger has settled: pages that were taken or answered, and keys
// that are gone.
func (h *host) settle(r turn.Ready) {
	for _, t := range r.Taken {
		h.pages.Recorded(turn.PageKey{About: t.About, Kind: t.Kind})
	}
	for _, p := range r.Closed {
		h.pages.Recorded(turn.KeyOf(p.Page))
	}
	for _, e := range r.Erased {
		if e.Destroyed {
			h.erases.Recorded(e.Plan)
		}
	}
}

// page takes pages on their way to their hooks.
func (h *host) page(pages []executor.Page) {
	for _, p := range pages {
		if l, _ := h.pages.Add(p, false); l != nil {
			h.round(l)
		}
	}
}

// round publishes a page that no one has taken, for all of its hooks.
func (h *host) round(l *turn.Letter) {
	pages := h.pages
	waits := func() bool { return h.pages == pages && pages.Waits(l) }
	r := pages.Round(l, h.w.now)
	h.in(r.InNs, func() {
		if waits() {
			h.round(l)
		}
	})
	for _, hook := range r.Hooks {
		h.in(h.w.net.between(millisecond, 200*millisecond), func() {
			switch {
			case !waits():
			case h.w.chance(h.w.net, FaultPage, 50):
				h.w.sayFault(FaultPage, h.name, "the hook does not take page %s about %s %s", l.Page.Kind,
					l.Page.Plan, l.Page.Action)
			case pages.Take(l, hook):
				h.w.paged(l.Page)
				h.turn()
			}
		})
	}
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
