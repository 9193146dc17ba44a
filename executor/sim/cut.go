package sim

// An agent that does not reach the server for a while. What it appends is in doubt: it is lost, or
// arrives long after. It hears nothing and is answered nothing, interrupts the forwards whose plan
// no executor confirms, and goes on when it is connected again. Meanwhile another process may have
// resumed its plan, or the plan may have been undone.

// cut reports whether an agent does not reach the server now.
func (a *agent) cut() bool { return a.cutUntil > a.w.now && !a.w.healed }

// cutAgent cuts an agent off, one of those that came last more often, and has another process
// resume its plan, now and then.
func (w *world) cutAgent() {
	r := w.cuts
	var running []*agent
	for _, a := range w.agents {
		if a.began && !a.gone && a.stored > 0 && !a.cut() {
			running = append(running, a)
		}
	}
	if len(running) == 0 {
		return
	}
	a := running[r.below(len(running))]
	if r.percent(40) {
		a = running[len(running)-1]
	}
	a.cutUntil = w.now + r.between(second, 40*second)
	w.sayFault(FaultAgentCut, a.name(), "does not reach the server until %d ms",
		(a.cutUntil-epoch0)/millisecond)
	if r.percent(60) {
		w.after(r.between(second/2, 30*second), func() {
			if !w.healed {
				w.say(a.name(), "another process resumes its plan")
				w.resume(a, r)
			}
		})
	}
}

// holdBack is what becomes of one try of an agent that is cut off: lost, or stuck on its way until
// the network is whole again.
func (w *world) holdBack(c *commit) {
	r := w.cuts
	if !r.percent(60) {
		return
	}
	w.after(c.agent.cutUntil-w.now+r.between(0, 8*second), func() {
		if w.stream.mute || w.healed {
			return
		}
		w.sayFault(FaultAgentCut, c.from, "an append that was stuck on its way arrives")
		_, _ = w.stream.arrive(c.append, c.asJSON) // no one waits for its reply
	})
}
