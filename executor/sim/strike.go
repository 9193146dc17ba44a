package sim

import (
	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// faultsBegin draws when the faults strike that come by themselves.
func (w *world) faultsBegin() {
	for _, s := range []struct {
		fault  Fault
		most   int
		strike func(*host)
	}{
		{FaultDedupe, 4, func(*host) { w.forgetIDs() }},
		{FaultBusy, 2, func(*host) { w.busyFor(w.strike.between(100*millisecond, 3*second)) }},
		{FaultNoRoom, 1, func(*host) { w.fullFor(w.strike.between(second, 10*second)) }},
		{FaultMute, 1, func(*host) { w.muteStream() }},
		{FaultSkew, 4, func(*host) { w.skewStream() }},
		{FaultCrash, 3, w.crash},
		{FaultPowerCut, 2, w.cutPower},
		{FaultStateLost, 1, w.loseState},
		{FaultPause, 3, w.pauseHost},
		{FaultPartition, 2, w.cutOff},
		{FaultClockForward, 2, w.clockForward},
		{FaultClockBack, 2, w.clockBack},
		{FaultNoWorker, 2, func(*host) { w.noWorker() }},
		{FaultUnserved, 4, func(*host) { w.unserve() }},
		{FaultLostRecord, 1, func(*host) { w.loseRecord() }},
		{FaultLostTail, 1, func(*host) { w.loseTail() }},
		{FaultChangedRecord, 1, func(*host) { w.changeRecord() }},
		{FaultRotten, 1, w.rot},
		{FaultAgentCut, 6, func(*host) { w.cutAgent() }},
	} {
		if !w.faults.Has(s.fault) {
			continue
		}
		r := newRandom(w.options.Seed, 500+uint64(s.fault)) // its own: leaving one out changes no other
		for range 1 + r.below(s.most) {
			at, n := r.between(second, healNs*9/10), r.below(len(w.hosts))
			w.after(at, func() {
				if h := w.hosts[n]; !w.healed && !w.check.broken && h.up && h.halted == nil {
					w.strikes(s.fault)
					s.strike(h)
				}
			})
		}
	}
}

func (w *world) forgetIDs() {
	w.sayFault(FaultDedupe, "stream", "forgets the ids of commits")
	w.stream.memory.Forget()
}

func (w *world) busyFor(d int64) {
	w.sayFault(FaultBusy, "stream", "is busy")
	w.stream.busy = true
	w.after(d, func() { w.stream.busy = false })
}

func (w *world) fullFor(d int64) {
	w.sayFault(FaultNoRoom, "stream", "has no room")
	w.stream.noRoom = true
	w.after(d, func() { w.stream.noRoom = false })
}

// muteStream lets the stream fall silent until someone restarts it.
func (w *world) muteStream() {
	w.sayFault(FaultMute, "stream", "is mute after a write error")
	w.stream.mute = true
	w.after(30*second, w.restartStream) // its operator, if no host is there to notice
}

// restartStream ends the muteness, and every session with it.
func (w *world) restartStream() {
	if !w.stream.mute {
		return
	}
	w.stream.mute = false
	w.say("stream", "is started again")
	w.endSessions()
}

// endSessions makes every host attach again, as after a restart of the server.
func (w *world) endSessions() {
	for _, h := range w.hosts {
		if h.up && h.halted == nil && h.state != nil {
			h.paused = false
			h.backlog = nil
			h.interrupt()
		}
	}
}

func (w *world) skewStream() {
	s := w.strike.between(-40*second, 20*second)
	w.sayFault(FaultSkew, "stream", "clock is %d ms off", s/millisecond)
	w.stream.skew = s
}

func (w *world) crash(h *host) {
	w.point("host: between turns")
	w.sayFault(FaultCrash, h.name, "dies")
	h.die()
}

func (w *world) cutPower(h *host) {
	w.sayFault(FaultPowerCut, h.name, "loses power, and what was not synced")
	lost := w.strike.below(101)
	h.kv.Crash(lost)
	h.copy.cutPower(lost)
	h.die()
}

func (w *world) loseState(h *host) {
	w.sayFault(FaultStateLost, h.name, "dies and loses its state")
	h.kv.Wipe()
	h.die()
}

// pauseHost keeps a host from running: it does not see that another takes over.
func (w *world) pauseHost(h *host) {
	if h.paused {
		return
	}
	w.sayFault(FaultPause, h.name, "does not run")
	h.paused = true
	attachment := h.attachment
	w.after(w.strike.between(500*millisecond, 40*second), func() { h.resume(attachment) })
}

func (h *host) resume(attachment uint64) {
	if !h.up || h.attachment != attachment || !h.paused {
		return
	}
	h.w.say(h.name, "goes on")
	h.paused = false
	backlog := h.backlog
	h.backlog = nil
	for _, f := range backlog {
		f()
	}
}

func (w *world) cutOff(h *host) {
	w.sayFault(FaultPartition, h.name, "does not reach the stream")
	h.cut = true
	w.after(w.strike.between(second, 30*second), func() { h.cut = false })
}

func (w *world) clockForward(h *host) {
	h.clock.offset = w.strike.between(second, 90*second)
	w.sayFault(FaultClockForward, h.name, "clock jumps %d ms ahead", h.clock.offset/millisecond)
	if w.strike.percent(30) {
		w.after(w.strike.between(second, 20*second), func() {
			w.tell(operator("ann"),
				&pb.Record{Kind: &pb.Record_ClockConfirmed{ClockConfirmed: &pb.ClockConfirmed{Actor: "ann",
					Reason: "seen", WallNs: h.clock.wall()}}})
		})
	}
	if w.strike.percent(50) {
		w.after(w.strike.between(second, 40*second), func() { h.clock.offset = 0 })
	}
}

func (w *world) clockBack(h *host) {
	h.clock.offset = -w.strike.between(second, 15*second)
	w.sayFault(FaultClockBack, h.name, "clock jumps back %d ms", -h.clock.offset/millisecond)
}

func (w *world) noWorker() {
	w.workers.away = w.now + w.strike.between(second, 70*second)
	w.sayFault(FaultNoWorker, "worker", "no one serves until %d ms",
		(w.workers.away-epoch0)/millisecond)
}

// unserve ends the service of one capability for a while, and lets the owner of what is
// on its way to it answer at some time.
func (w *world) unserve() {
	var flying []executor.Command
	for _, h := range w.hosts {
		if h.session == nil || h.session.Outbound() == nil {
			continue
		}
		for _, f := range h.session.Outbound().Flights.All() {
			flying = append(flying, f.Command)
		}
	}
	capability := pick(w.early, "undo", "find", "check") + "." + pick(w.early, "a", "b", "c", "d")
	if len(flying) > 0 {
		capability = flying[w.early.below(len(flying))].Capability
	}
	w.workers.unserved[capability] = w.now + w.early.between(10*second, 100*second)
	w.sayFault(FaultUnserved, "worker", "no one serves %s until %d ms", capability,
		(w.workers.unserved[capability]-epoch0)/millisecond)
}

// unservedAfter is what the contract of an action allows, and not the default: a world
// does not last for an hour.
func (w *world) unservedAfter(id string) int64 {
	if !w.faults.Has(FaultUnserved) {
		return 0
	}
	return int64(5+7*(id[len(id)-1]%5)) * second
}

// impatient lets an owner answer for a command that no one takes.
func (w *world) impatient(c executor.Command) {
	if w.options.Alone || w.healed || w.impatience[aboutOf(c.Plan, c.Action)] || !w.early.percent(30) {
		return
	}
	w.impatience[aboutOf(c.Plan, c.Action)] = true
	w.after(w.early.between(0, 30*second), func() {
		if !w.healed {
			w.answer(c.Plan, c.Action, pick(w.early, "ann", "bob"))
		}
	})
}

// hasty lets an owner answer for what is recorded ahead before its turn comes.
func (w *world) hasty(c executor.Command) {
	of := aboutOf(c.Plan, c.Action)
	if w.options.Alone || w.healed || w.impatience[of] || !w.haste.percent(6) {
		return
	}
	w.impatience[of] = true
	w.after(w.haste.between(0, 30*millisecond), func() {
		if !w.healed {
			w.answer(c.Plan, c.Action, pick(w.haste, "ann", "bob"))
		}
	})
}

// loseRecord restarts the stream without one record that was stored.
func (w *world) loseRecord() {
	last := w.stream.last()
	if last == 0 {
		return
	}
	lost := 1 + uint64(w.strike.below(int(last)))
	w.sayFault(FaultLostRecord, "stream", "comes back without record %d", lost)
	w.check.tampered(FaultLostRecord, lost)
	w.stream.memory.Drop(lost)
	w.endSessions()
}

// loseTail restarts the stream without its end.
func (w *world) loseTail() {
	last := w.stream.last()
	if last < 2 {
		return
	}
	kept := last - 1 - uint64(w.strike.below(int(min(last-1, 10))))
	w.sayFault(FaultLostTail, "stream", "comes back with %d of %d records", kept, last)
	w.check.tampered(FaultLostTail, kept+1)
	w.stream.memory.Truncate(kept)
	w.endSessions()
}

// changeRecord restarts the stream with another record where a host has folded one
// last: what guard G2 is for.
func (w *world) changeRecord() {
	for _, h := range w.hosts {
		if h.state == nil || h.cursor() == 0 {
			continue
		}
		at := h.cursor()
		w.sayFault(FaultChangedRecord, "stream", "comes back with another record %d", at)
		w.check.tampered(FaultChangedRecord, at)
		w.stream.memory.Corrupt(at, func(m *ledger.Message) { m.Data[len(m.Data)-1] ^= 4 })
		w.endSessions()
		return
	}
}

// heal ends all faults: from here on everything must come to its end.
func (w *world) heal() {
	w.say("world", "heals")
	w.stream.busy, w.stream.noRoom, w.stream.skew = false, false, 0
	w.workers.away = 0
	clear(w.workers.unserved)
	w.restartStream()
	for _, h := range w.hosts {
		h.cut, h.clock.offset = false, 0
		if h.paused {
			h.resume(h.attachment)
		}
	}
	w.healed = true
	w.after(15*second, func() {
		w.tell(operator("ann"),
			&pb.Record{Kind: &pb.Record_ClockConfirmed{ClockConfirmed: &pb.ClockConfirmed{Actor: "ann",
				Reason: "right again", WallNs: w.now}}})
	})
	w.after(20*second, func() {
		for _, h := range w.hosts {
			if h.up && h.halted == nil {
				w.rule.settle(h)
				break
			}
		}
	})
	if !w.options.Alone && newRandom(w.options.Seed, streamEnd).percent(70) {
		for n := range int64(12) {
			w.after(30*second+n*minute, w.settleAll)
		}
	}
}
