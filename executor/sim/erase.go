package sim

import (
	"github.com/sagenbaum/sagenbaum/executor/view"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Some worlds erase plans: registrations there take sealed values, operators ask for
// erasures, and a store of keys outside of the ledger has them destroyed, late, or says
// nothing when it has. All of it is drawn from a stream of its own.

// erasing is what a world has for that; nil: nothing is erased in it.
type erasing struct {
	r    *random
	keys map[string]bool // plans whose key is gone
}

func newErasing(seed uint64) *erasing {
	r := newRandom(seed, streamErasing)
	if !r.percent(15) {
		return nil
	}
	return &erasing{r: r, keys: map[string]bool{}}
}

// seal marks a registration whose calls take sealed values.
func (e *erasing) seal(c *pb.CompensationRegistered) {
	if e != nil {
		c.Sealed = e.r.percent(60)
	}
}

// begin lets operators ask for erasures.
func (e *erasing) begin(w *world) {
	if e == nil {
		return
	}
	for range 1 + e.r.below(6) {
		w.after(e.r.between(second, healNs), func() { e.ask(w) })
	}
}

func (e *erasing) ask(w *world) {
	if len(w.agents) == 0 {
		return
	}
	a := w.agents[e.r.below(len(w.agents))]
	plan := a.p.id
	if e.r.percent(20) {
		plan += "~1"
	}
	k := &pb.PlanErased{Reason: "asked for", Actor: "eve", Force: e.r.percent(50)}
	if a.began {
		w.persist("operator eve", operator("eve"),
			[]*pb.Record{{Plan: plan, Kind: &pb.Record_PlanErased{PlanErased: k}}}, e.r, nil,
			func(uint64, bool) {})
	}
}

// checkPages: when nothing is under way any more, every page that was asked for was taken,
// and a record says so, or its owner has answered (L1).
func (c *checker) checkPages(h *host) {
	for _, p := range h.state.Unpaged() {
		c.fail("L1", 0, "page %s about %s %s was asked for, and no record says that it was taken", p.Kind,
			p.Plan, p.Action)
	}
}

// checkErasures: when nothing is under way any more, whatever was to be erased is, and
// nothing else (L1).
func (c *checker) checkErasures(h *host) {
	for _, plan := range h.state.Unerased() {
		c.fail("L1", 0, "the key of plan %s was to be destroyed, and no one says that it is gone", plan)
	}
	e := c.w.erasing
	if e == nil {
		return
	}
	reader := h.reader()
	views, _ := reader.Plans(view.Filter{Limit: 1000})
	for _, shown := range views {
		if erased := shown.Erasure != nil; erased != e.keys[shown.Plan] {
			c.fail("I18", 0, "plan %s erased: %v, its key gone: %v", shown.Plan, erased, e.keys[shown.Plan])
		}
	}
}
