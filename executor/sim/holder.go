package sim

import (
	"cmp"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
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
	l.owner, l.until = h, w.now+leaseTTL
	if !h.wants {
		h.wants = true
		w.say(h.name, "has the lease")
	}
	h.run(h.session, func() {
		if h.state != nil && !h.holding {
			h.turn(false)
		}
	})
}

// settle gives the lease to one host for good, at the end.
func (l *lease) settle(h *host) {
	l.ended, l.owner, l.until = true, h, l.w.now+endNs
	for _, other := range l.w.hosts {
		if other != h && other.wants {
			other.leaseGone()
		}
	}
	h.wants = true
	h.run(h.session, func() { h.turn(false) })
}

func (h *host) leaseGone() {
	h.wants = false
	h.run(h.session, h.stepDown)
}

// claim begins a term by an append that only one host can win, once the fold has
// reached the end of the stream as it was when the session began.
func (h *host) claim() {
	if !h.wants || h.cursor() < h.attached || h.term != 0 {
		return
	}
	h.term = h.state.Meta().Term + 1
	h.w.say(h.name, "claims term %d", h.term)
	h.append([]*pb.Record{{Term: h.term, Kind: &pb.Record_TermStarted{
		TermStarted: &pb.TermStarted{Holder: h.name, FoldVersion: executor.FoldVersion}}}}, true)
	h.dies("term claimed, not heard")
}

// applyTerm takes up or gives up the tenant as the ledger says.
func (h *host) applyTerm() {
	meta := h.state.Meta()
	switch {
	case h.holding && meta.Term != h.term:
		h.w.say(h.name, "is fenced by term %d", meta.Term)
		h.stepDown()
	case !h.holding && h.term != 0 && meta.Term == h.term && meta.Holder == h.name:
		h.holding, h.fence = true, meta.TermSequence
		h.flights, h.letters = map[about]*flight{}, map[pageKey]*letter{}
		h.w.say(h.name, "holds term %d", h.term)
		for _, c := range h.state.InFlight() {
			h.send(c, true)
		}
		h.tend(h.state.Unpaged(), h.state.Unerased())
	case !h.holding && h.term != 0 && meta.Term >= h.term:
		h.term = 0 // another host won this term
	}
}

// stepDown stops deciding and dispatching at once.
func (h *host) stepDown() {
	h.holding, h.term, h.fence = false, 0, 0
	h.flights, h.letters, h.answers, h.taken, h.gone = nil, nil, nil, nil, nil
}

func (h *host) cursor() uint64 { return h.state.Meta().GetApplied().GetSequence() }

// halt ends all that the host does: the stream is not what it was.
func (h *host) halt(halted *ledger.Halted) {
	h.session++
	h.stepDown()
	h.halted, h.state = halted, nil
	h.w.halt(h.name, halted)
}

// die ends the process; its supervisor starts it again.
func (h *host) die() {
	h.session++
	h.stepDown()
	h.up, h.paused, h.state, h.pending, h.backlog, h.wants = false, false, nil, nil, nil, false
	h.w.after(h.w.strike.between(100*millisecond, 8*second), func() {
		if !h.up {
			h.w.say(h.name, "starts")
			h.start()
		}
	})
}

// about is an action of a plan. It has at most one command on its way.
type about struct{ plan, action string }

func (a about) compare(b about) int {
	return cmp.Or(cmp.Compare(a.plan, b.plan), cmp.Compare(a.action, b.action))
}

// callID names one attempt: of an undo, or of a question about it.
type callID struct {
	about
	purpose string
	attempt uint32
}

// flight is one command on its way.
type flight struct {
	id      callID
	command executor.Command
	since   int64
	tries   int
	working bool
	reached bool // a copy may have come to a worker
}

// send takes a command on its way, once per attempt; resent says that an earlier
// term may have sent it.
func (h *host) send(c executor.Command, resent bool) {
	id := callID{about{c.Plan, c.Action}, c.Purpose, c.Attempt}
	if old := h.flights[id.about]; old != nil && old.id == id {
		return
	}
	f := &flight{id: id, command: c, since: h.w.now, reached: resent}
	h.flights[id.about] = f
	h.try(f)
}

// try sends a copy of the command, unless the provider may have forgotten its key.
func (h *host) try(f *flight) {
	if h.flights[f.id.about] != f {
		return
	}
	if now, _ := h.clock.epoch(); f.command.ResendUntilNs != 0 && f.reached && now > f.command.ResendUntilNs {
		h.land(f, nil)
		return
	}
	session := h.session
	h.w.check.sent(h, f.command)
	if f.command.Actuator == ledger.ActuatorMemory {
		h.land(f, &ledger.Reply{Status: ledger.StatusDone, Worker: "memory"})
		return
	}
	h.w.workers.take(f.command, func(fate fate, reply *ledger.Reply) {
		h.run(session, func() { h.answered(f, fate, reply) })
	})
}

// answered handles what became of one sending.
func (h *host) answered(f *flight, fate fate, reply *ledger.Reply) {
	if h.flights[f.id.about] != f {
		if h.holding && f.id.purpose == ledger.PurposeUndo && fate == fateReplied && reply.Status == ledger.StatusDone {
			h.take(f, executor.Answer{Reply: reply}) // its owner was faster
		}
		return
	}
	if fate == fateNoWorker {
		f.tries++
		if now, _ := h.clock.epoch(); f.command.UnservedNs != 0 && now >= f.command.UnservedNs {
			h.take(f, executor.Answer{Unserved: true, Reached: f.reached})
		}
		h.later(f, min(workerWaitMin<<min(f.tries-1, 10), workerWaitMax))
		return
	}
	f.reached = true
	switch {
	case fate == fateSilent && f.working:
		h.later(f, workerWaitMax)
	case fate == fateSilent:
		h.land(f, nil)
	case reply.Status != ledger.StatusWorking:
		h.land(f, reply)
	default:
		f.working, f.tries = true, 0
		h.later(f, max(reply.UntilMs*millisecond-h.w.now, second))
	}
}

func (h *host) later(f *flight, wait int64) { h.in(wait, func() { h.try(f) }) }

// land hands an answer to the turn, nil for silence. The turn comes by itself.
func (h *host) land(f *flight, reply *ledger.Reply) {
	delete(h.flights, f.id.about)
	h.take(f, executor.Answer{Reply: reply})
}

// take gives an answer about a command to the next turn.
func (h *host) take(f *flight, a executor.Answer) {
	a.Plan, a.Number, a.Purpose, a.Attempt = f.id.plan, f.command.Number, f.id.purpose, f.id.attempt
	h.answers = append(h.answers, a)
	h.in(0, func() { h.turn(false) })
}

// ownerSaid drops the command for an action whose owner has answered, if that counts.
func (h *host) ownerSaid(of about) {
	if f := h.flights[of]; f != nil && !h.state.Outstanding(of.plan, f.command.Number, f.id.purpose, f.id.attempt) {
		delete(h.flights, of)
	}
}

func (h *host) forget(id callID) {
	if f := h.flights[id.about]; f != nil && f.id == id {
		delete(h.flights, id.about)
	}
}

// pageKey is what a page is about.
type pageKey struct {
	about
	kind, hook string
}

type letter struct {
	key  pageKey
	page executor.Page
}

// paged says which pages were taken.
func paged(taken []*letter) (list []executor.Paged) {
	for _, l := range taken {
		list = append(list, executor.Paged{Plan: l.page.Plan, Number: l.page.Number, Kind: l.page.Kind, Hook: l.page.Hook})
	}
	return list
}

// page takes pages on their way to their hooks.
func (h *host) page(pages []executor.Page) {
	for _, p := range pages {
		key := pageKey{about{p.Plan, p.Action}, p.Kind, p.Hook}
		if old := h.letters[key]; old != nil && old.page.ID == p.ID {
			continue
		}
		l := &letter{key, p}
		h.letters[key] = l
		h.deliver(key, l)
	}
}

func (h *host) deliver(key pageKey, l *letter) {
	h.in(h.w.net.between(millisecond, 200*millisecond), func() {
		switch {
		case h.letters[key] != l:
		case h.w.chance(h.w.net, FaultPage, 50):
			h.w.sayFault(FaultPage, h.name, "the hook does not take page %s about %s %s", l.page.Kind, l.page.Plan, l.page.Action)
			h.deliver(key, l)
		default:
			h.w.paged(l.page)
			h.taken = append(h.taken, l)
			h.turn(false)
		}
	})
}

// clock is a host's wall clock and the guard over it, as in executor/host.
type clock struct {
	w      *world
	offset int64 // of the wall clock from the truth

	anchorWall, anchorMono int64
}

const (
	jumpMax     = 5 * second
	anchorEvery = minute
)

func (c *clock) wall() int64 { return c.w.now + c.offset }

func (c *clock) begin() { c.confirm() }

func (c *clock) confirm() { c.anchorWall, c.anchorMono = c.wall(), c.w.now }

// epoch is the instant to decide at; held while the wall clock is too far ahead.
func (c *clock) epoch() (now int64, held bool) {
	wall, mono := c.wall(), c.w.now
	expected := c.anchorWall + mono - c.anchorMono
	if wall-expected > jumpMax {
		return expected, true
	}
	if mono-c.anchorMono > anchorEvery {
		c.anchorWall, c.anchorMono = wall, mono
	}
	return wall, false
}
