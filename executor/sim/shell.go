package sim

import (
	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// shell is what a host's session does to the world: the turn.Effects of a host, which may die
// between two of them.
type shell struct{ *host }

// Inputs reads the clocks, and what the notary has to say.
func (s shell) Inputs(decides bool) (turn.Instant, []*pb.Record) {
	if !decides {
		return s.clock.instant(), nil
	}
	proof := s.proof()
	return s.clock.instant(), proof
}

// Open makes what the host sends with.
func (s shell) Open(out *turn.Outbound) error {
	s.w.say(s.name, "holds term %d", s.session.Term())
	s.erasing = false
	out.Flights.MayRun = s.mayRun
	out.Pages.EscalateNs = 15 * minute
	senders := outbound{host: s.host, out: out}
	out.Dispatcher, out.Pager, out.Eraser = senders, senders, senders
	return nil
}

// Close stops sending. When another term has begun, the host asks for its lease again.
func (s shell) Close(d turn.Down) {
	s.erasing = false
	if !d.Doubt {
		return
	}
	h := s.host
	h.w.say(h.name, "is fenced")
	h.wants = false
	h.in(int64(turn.RetryMin), func() { h.w.rule.ask(h) })
}

// Confirm takes the clock as right.
func (s shell) Confirm() {
	s.confirms = true
	s.clock.confirm()
}

// Forget does nothing: a host of this world keeps no keys.
func (s shell) Forget(string) {}

// Begin sees a command before it is held or sent.
func (s shell) Begin(c executor.Command) executor.Command {
	if c.Behind != "" {
		s.w.options.Seen.run("held")
		s.w.hasty(c)
		s.w.say(s.name, "holds %s of %s %s until after %s", c.Capability, c.Plan, c.Action, c.Behind)
	}
	return c
}

// Folded is for those who ask, and no one does.
func (s shell) Folded() {}

// Tell tells agents.
func (s shell) Tell(notices []executor.Notice, tells bool) {
	s.w.check.confirms(s.host)
	if tells {
		s.w.notify(notices)
	}
}

// Append sends an append. The tries of one commit are one commit on its way.
func (s shell) Append(a turn.Append) {
	before, behind := "decided, not appended", "appended, reply not heard"
	if a.Claim {
		before, behind = "lease taken, term not claimed", "term claimed, not heard"
	}
	s.dies(before)
	s.publish(a)
	s.dies(behind)
}

// Wake sets the timer to the next instant that matters.
func (s shell) Wake(wakes bool, inNs int64) {
	h := s.host
	h.wakes++
	if !wakes {
		return
	}
	n := h.wakes
	h.in(inNs, func() {
		if h.wakes == n {
			h.turn()
		}
	})
}

// publish sends an append.
func (h *host) publish(a turn.Append) {
	if h.commit == nil || h.commit.append.ID != a.ID {
		h.commit = &commit{from: h.name, host: h, append: a.Append}
		if a.Claim {
			h.w.say(h.name, "claims term %d", h.session.Term())
		}
	}
	c, attachment := h.commit, h.attachment
	try := func() {
		h.w.try(c, func(sequence uint64, err error) {
			h.run(attachment, func() { h.acknowledged(c, sequence, err) })
		})
	}
	if a.AfterNs == 0 {
		try()
		return
	}
	h.in(a.AfterNs, try)
}

// outbound is what a host sends with during one term: its turn.Dispatcher, turn.Pager and
// turn.Eraser. Worlds have one goroutine, so there is nothing to lock.
type outbound struct {
	*host
	out *turn.Outbound
}

func (o outbound) Lock()   {}
func (o outbound) Unlock() {}

// lasts reports whether the term is still the host's.
func (o outbound) lasts() bool { return o.session != nil && o.session.Outbound() == o.out }

// Send sends a copy of a command, if it may leave.
func (o outbound) Send(f *turn.Flight) {
	h := o.host
	may, verdict := o.out.Flights.MaySend(f, h.clock.instant().EpochNs)
	o.follow(f, verdict)
	if !may {
		return
	}
	h.w.check.sent(h, f.Command)
	attachment := h.attachment
	done := func(fate turn.Fate, reply *api.Reply) {
		if !o.lasts() {
			return
		}
		r := turn.Result{Fate: fate}
		if reply != nil {
			r.Reply = *reply
		}
		o.follow(f, o.out.Flights.Result(f, r, h.clock.instant()))
		// the fold counts the time itself
		if fate == turn.NoWorker && h.w.chance(h.w.early, FaultUnserved, 10) {
			h.w.sayFault(FaultUnserved, h.name, "says too early that no worker takes the %s of %s %s",
				f.Attempt.Purpose, f.Attempt.Plan, f.Attempt.Action)
			h.session.Answer(executor.Answer{
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
		h.run(attachment, func() { done(fate, reply) })
	})
}

// Drop counts what was called back when it had left already.
func (o outbound) Drop(f *turn.Flight) {
	if f.Command.Behind != "" {
		o.w.options.Seen.run("called back on its way")
	}
}

// follow does what follows from the result of a sending.
func (o outbound) follow(f *turn.Flight, v turn.Verdict) {
	h := o.host
	if v.Next != nil {
		if h.w.chance(h.w.haste, FaultPartition, 15) { // nor does it reach the workers
			h.w.cutOff(h)
			h.w.workers.away = max(h.w.workers.away, h.w.now+3*second)
		}
		o.Send(v.Next)
		h.dies(inARun)
		if h.w.chance(h.w.strike, FaultPause, 5) {
			h.w.pauseHost(h)
		}
	}
	if v.Run != nil {
		h.in(int64(turn.RunHoldMax), func() {
			if o.lasts() {
				h.hear(o.out.Flights.HandOver(v.Run))
			}
		})
	}
	if v.Again {
		h.in(v.InNs, func() {
			if o.lasts() {
				o.Send(f)
			}
		})
	}
	h.hear(v.Answers)
}

// hear hands answers to the machine.
func (h *host) hear(answers []executor.Answer) {
	if len(answers) > 0 {
		h.session.Answer(answers...)
		h.in(0, h.turn)
	}
}

// mayRun reports whether a command may leave that does not count yet.
func (h *host) mayRun() bool {
	may := h.w.now < h.safeNs && h.w.stream.termAt(h.heard) <= h.session.Term()
	if !may {
		h.w.options.Seen.run("kept back")
	}
	return may
}

// Page publishes a page that no one has taken, for all of its hooks.
func (o outbound) Page(l *turn.Delivery) {
	h := o.host
	waits := func() bool { return o.lasts() && o.out.Pages.Waits(l) }
	r := o.out.Pages.Round(l, h.w.now)
	h.in(r.InNs, func() {
		if waits() {
			o.Page(l)
		}
	})
	for _, hook := range r.Hooks {
		h.in(h.w.net.between(millisecond, 200*millisecond), func() {
			switch {
			case !waits():
			case h.w.chance(h.w.net, FaultPage, 50):
				h.w.sayFault(FaultPage, h.name, "the hook does not take page %s about %s %s", l.Page.Kind,
					l.Page.Plan, l.Page.Action)
			case o.out.Pages.Take(l, hook):
				h.w.paged(l.Page)
				h.turn()
			}
		})
	}
}

// Unpage does nothing: a round looks whether its page still waits.
func (o outbound) Unpage(*turn.Delivery) {}

// Destroy has the store destroy the next key, one at a time.
func (o outbound) Destroy() { o.destroy(0) }

// destroy destroys the next key after some ns. It may fail, before the key is gone or after it.
func (o outbound) destroy(delay int64) {
	h, e, erases := o.host, o.w.erasing, &o.out.Erasures
	plan, more := erases.Next()
	if !more || h.erasing {
		return
	}
	h.erasing = true
	h.in(delay+e.r.between(0, 2*second), func() {
		if !o.lasts() {
			return
		}
		fails, gone := e.r.percent(30) && !h.w.healed, e.r.percent(50)
		if !fails || gone {
			e.keys[plan] = true
			h.w.say(h.name, "the key of plan %s is destroyed", plan)
		}
		erases.Result(plan, !fails)
		h.erasing = false
		if fails {
			o.destroy(second)
			return
		}
		o.destroy(0)
		h.turn()
	})
}
