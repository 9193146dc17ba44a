package sim

import (
	"github.com/sagenbaum/sagenbaum/executor/view"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// governance is the control stream of a world: what its tenant may do, which changes while plans
// run, and which each host hears of at a time of its own.
type governance struct {
	r     *random // nil: nothing is ever said
	last  *pb.TenantChanged
	count uint64
}

// newGovernance says something of the tenant in one world of four.
func newGovernance(seed uint64) governance {
	if r := newRandom(seed, streamTenant); r.percent(25) {
		return governance{r: r}
	}
	return governance{}
}

// begin says what the tenant may do at first, and schedules what changes.
func (g *governance) begin(w *world) {
	if g.r == nil {
		return
	}
	if g.r.percent(70) {
		g.change(w)
	}
	for range 1 + g.r.below(5) {
		w.after(g.r.between(0, loadNs), func() { g.change(w) })
	}
	w.after(g.r.between(loadNs, healNs), func() { g.change(w) })
}

// change says something else, which hosts hear of, one after the other.
func (g *governance) change(w *world) {
	r := g.r
	g.count++
	is := &pb.TenantChanged{Revision: g.count, By: "ana", Limits: &pb.TenantLimits{}}
	if r.percent(30) {
		is.Suspended, is.Reason = true, "not paid"
	}
	if r.percent(40) {
		is.Limits.OpenPlans = uint64(1 + r.below(4))
	}
	if r.percent(40) {
		is.Limits.Facts = uint64(1 + r.below(4))
	}
	if r.percent(40) {
		is.Limits.Records = uint64(1 + r.below(12))
	}
	if r.percent(40) {
		is.Limits.HeldConditions = uint64(1 + r.below(6))
	}
	is.RequireNames = r.percent(20)
	if due := newRandom(w.options.Seed, streamMoves+g.count); due.percent(40) {
		is.Limits.DefaultDeadline = uint64(5 + due.below(60))
	}
	g.last = is
	w.say("control", "revision %d: suspended %v, %v", is.Revision, is.Suspended, is.Limits)
	for _, h := range w.hosts {
		h.in(r.between(0, 3*second), func() { h.govern(is) })
	}
}

// govern tells a host what the tenant may do.
func (h *host) govern(is *pb.TenantChanged) {
	if h.session != nil && is.Revision > h.governed {
		h.governed = is.Revision
		h.session.Govern(is)
		h.turn()
	}
}

// beginMoves has deadlines moved in one world of three: by operators, and by agents, of whose
// records a copy may come late.
func beginMoves(w *world) {
	r := newRandom(w.options.Seed, streamMoves)
	if !r.percent(33) {
		return
	}
	for range 3 + r.below(12) {
		w.after(r.between(second, loadNs+40*second), func() { move(w, r) })
	}
}

// move gives a plan another deadline, which may have passed by then.
func move(w *world, r *random) {
	if w.healed || len(w.agents) == 0 {
		return
	}
	a := w.agents[r.below(len(w.agents))]
	_, set, ok := a.deadline()
	k := &pb.DeadlineMoved{DeadlineNs: w.now + r.between(-second, 60*second), Follows: set,
		Reason: "it takes another while"}
	record := func() *pb.Record {
		return &pb.Record{Plan: a.p.id, Kind: &pb.Record_DeadlineMoved{DeadlineMoved: k}}
	}
	if r.percent(40) {
		if k.Actor = "ann"; r.percent(50) {
			k.Follows = 0
		}
		w.tell(operator("ann"), record())
		return
	}
	if a.gone || !a.began || !ok {
		return
	}
	a.append(nil, record())
	if r.percent(40) {
		w.after(r.between(millisecond, 20*second), func() {
			if !a.gone && !w.healed {
				a.append(nil, record())
			}
		})
	}
}

// deadline is that of the agent's plan, 0 for none, and the sequence of what has set it, as an
// executor says.
func (a *agent) deadline() (ns int64, set uint64, ok bool) {
	if a.cut() {
		return 0, 0, false
	}
	for _, h := range a.w.hosts {
		if h.holding() && h.cursor() >= a.stored {
			ns, set, _ = view.Live(h.state, h.kv, tenant).Deadline(a.p.id)
			return ns, set, set != 0
		}
	}
	return 0, 0, false
}
