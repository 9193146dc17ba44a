package sim

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// A second process of an agent. A careful one resumes the plan, as package coordinator
// does, and goes on when the executor takes its word. A careless one writes under the
// plan's id without a word, and calls its forwards: nothing undoes what they do, so the
// plan must not end as if it had not happened.

// secondOf has a second process come for a plan, now and then.
func (w *world) secondOf(a *agent) {
	r := newRandom(w.options.Seed, streamSecond+uint64(len(w.agents)))
	if !w.faults.Has(FaultSecond) || !r.percent(30) {
		return
	}
	w.after(a.p.startNs+r.between(0, 30*second), func() {
		if w.healed || a.stored == 0 {
			return
		}
		w.strikes(FaultSecond)
		if r.percent(50) {
			w.careless(a, r)
			return
		}
		if a.gone = a.gone || r.percent(60); !a.gone { // thought dead, it goes on
			w.sayFault(FaultSecond, a.name(), "goes on beside a second process")
		}
		w.resume(a, r)
	})
}

// resume starts a process that goes on where another one is, once an executor has said whose
// the plan is.
func (w *world) resume(a *agent, r *random) { w.resumeAs(a, a.as, r) }

// resumeAs is resume, by a process of the agent that the plan was handed to.
func (w *world) resumeAs(a *agent, name string, r *random) {
	b := &agent{w: w, p: a.p, at: a.at, began: true, resumed: true, stored: a.stored, as: name,
		writer: fmt.Sprintf("w%d", len(w.agents)+1)}
	w.agents = append(w.agents, b)
	w.claims(b, r)
}

// adoptionOf has an operator hand a plan to another agent, now and then, which goes on with it. The
// one that had it may go on, too, as one that was thought gone.
func (w *world) adoptionOf(a *agent) {
	r := newRandom(w.options.Seed, streamAdopt+uint64(len(w.agents)))
	if !w.faults.Has(FaultSecond) || !r.percent(10) {
		return
	}
	digest := sha256.Sum256(tokenOf(a.p))
	a.p.opened.AttachDigest = digest[:]
	attach := newRandom(w.options.Seed, streamAttach+uint64(len(w.agents)))
	w.after(a.p.startNs+r.between(0, 30*second), func() {
		if w.healed || a.stored == 0 {
			return
		}
		w.strikes(FaultSecond)
		if attach.percent(60) {
			w.after(attach.between(0, 20*second), func() { attaches(w, a) })
		}
		if a.gone = a.gone || r.percent(40); !a.gone {
			w.sayFault(FaultSecond, a.name(), "goes on although its plan is another agent's")
		}
		k := &pb.PlanAdopted{Agent: "heir", Reason: "it is gone", Actor: "ann"}
		if _, _, since, ok := a.asks(); ok && r.percent(60) {
			k.Follows = since
		}
		word := func() {
			w.tell(operator("ann"), &pb.Record{Plan: a.p.id,
				Kind: &pb.Record_PlanAdopted{PlanAdopted: k}})
		}
		word()
		if r.percent(30) {
			w.after(r.between(second, 40*second), func() {
				if !w.healed {
					word()
				}
			})
		}
		w.after(r.between(millisecond, 5*second), func() { w.resumeAs(a, "heir", r) })
	})
}

// tokenOf is what a plan takes child plans of other agents by.
func tokenOf(p *planSpec) []byte { return []byte("the token of plan " + p.id) }

// attaches has the agent that had a plan open a child in it, by the plan's token. It ends by its
// deadline, if the plan takes it.
func attaches(w *world, a *agent) {
	if w.healed || a.p.parent != nil {
		return
	}
	id := a.p.id + "_late"
	w.sayFault(FaultSecond, a.name(), "opens child plan %s in it", id)
	w.tell(ledger.Source{Tenant: tenant, Class: ledger.ClassAgent, Name: a.p.agent, Plan: id},
		&pb.Record{Plan: id, Writer: "late", Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{
			Label: "late", Owner: "ops", ParentPlan: a.p.id, ParentToken: tokenOf(a.p),
			DeadlineNs: w.now + 40*second}}})
}

// claims has a process say that it resumes its plan. A copy of that may come much later, and a
// further process by then have resumed the plan.
func (w *world) claims(b *agent, r *random) {
	_, _, since, ok := b.asks()
	if !ok {
		w.after(second, func() {
			if !b.gone && !w.healed {
				w.claims(b, r)
			}
		})
		return
	}
	word := func() *pb.Record {
		return &pb.Record{Kind: &pb.Record_PlanResumed{PlanResumed: &pb.PlanResumed{Follows: since}}}
	}
	b.append(func() {
		w.after(r.between(millisecond, second), b.whenTaken)
	}, word())
	if r.percent(40) {
		w.after(r.between(second, 60*second), func() {
			if !w.healed {
				w.sayFault(FaultSecond, b.name(), "a copy of what resumed its plan comes late")
				b.append(nil, word())
			}
		})
	}
	if r.percent(25) {
		w.after(r.between(second/2, 20*second), func() {
			if b.gone = b.gone || r.percent(30); !w.healed {
				w.resume(b, r)
			}
		})
	}
}

// whenTaken goes on once an executor has said that the plan is open, and takes the records of this
// process.
func (a *agent) whenTaken() {
	switch state, writer, _, ok := a.asks(); {
	case a.gone || a.w.healed:
	case !ok:
		a.w.after(second, a.whenTaken)
	case writer == a.writer && state == ledger.StateOpen:
		a.readsBack()
		if doubts := a.callsAgain(); len(doubts) > 0 {
			a.append(a.next, doubts...)
			return
		}
		a.next()
	}
}

// readsBack has a process that goes on with a plan know which of its actions have failed: it does
// not call them once more.
func (a *agent) readsBack() {
	a.failed = map[string]bool{}
	for _, h := range a.w.hosts {
		if !h.holding() || h.cursor() < a.stored {
			continue
		}
		for seen := range executor.Live(h.state).Plan(a.p.id).Actions() {
			a.failed[seen.Fixed.Id] = seen.Outcome() == "failed"
		}
		return
	}
}

// callsAgain is what a process says that goes on with a plan whose function calls again what has
// failed, in some worlds, and that does not hear what becomes of it.
func (a *agent) callsAgain() (doubts []*pb.Record) {
	if a.w.options.Seed%5 != 4 {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(a.failed)) {
		if s := a.w.workers.spec(a.p.id, id); s != nil && a.failed[id] {
			doubts = append(doubts, inDoubt(s))
		}
	}
	return doubts
}

// asks is ask, with the process whose records the plan takes, and since when.
func (a *agent) asks() (state, writer string, since uint64, ok bool) {
	if a.cut() {
		return "", "", 0, false
	}
	for _, h := range a.w.hosts {
		if h.holding() && h.cursor() >= a.stored {
			reader := h.reader()
			state, _, _, ok = reader.Outcome(a.p.id)
			return state, reader.Writer(a.p.id), reader.WriterAt(a.p.id), ok
		}
	}
	return "", "", 0, false
}

// careless starts a process that does what the plan does not know of.
func (w *world) careless(a *agent, r *random) {
	// w.agents has none of these: no process that resumes the plan may be called the same
	b := &agent{w: w, p: a.p, began: true, as: a.as, writer: fmt.Sprintf("s%d", len(w.agents)+1)}
	for n := range 1 + r.below(3) {
		stray := w.drawStray(a.p, b.writer, n, r)
		if stray == nil {
			return
		}
		w.after(r.between(0, 10*second), func() { b.strays(stray, r) })
	}
}

// drawStray is an act like one of the plan's, under its id or another one.
func (w *world) drawStray(p *planSpec, writer string, n int, r *random) *actionSpec {
	called := slices.DeleteFunc(slices.Clone(p.actions), (*actionSpec).staged)
	if len(called) == 0 {
		return nil
	}
	like := called[r.below(len(called))]
	id := like.id
	if r.percent(40) {
		id = fmt.Sprintf("x%d", n)
	}
	if len(called) < len(p.actions) && w.deliveries.r.percent(20) {
		id = p.actions[len(p.actions)-1].id // of what is staged
	}
	s := &actionSpec{plan: p, id: id, key: fmt.Sprintf("%s/%s/%d", p.id, writer, n), pair: like.pair}
	s.pair.forward, s.pair.input = proto.CloneOf(like.pair.forward),
		fmt.Appendf(nil, `{"id":%q,"key":"u9","n":%d}`, writer, n)
	s.pair.forward.Branch, s.pair.forward.After = true, nil
	return s
}

// strays registers a stray act, calls it, and reports it, or leaves some of that out.
func (a *agent) strays(s *actionSpec, r *random) {
	pair := []*pb.Record{
		{Action: s.id, Kind: &pb.Record_ForwardRegistered{ForwardRegistered: s.pair.forward},
			Payload: &pb.Payload{Input: s.pair.input}},
		{Action: s.id,
			Kind: &pb.Record_CompensationRegistered{CompensationRegistered: s.pair.compensation}},
	}
	happens := func() {
		if ref, ok := a.w.provider.do(s, false); ok {
			a.w.strays = append(a.w.strays, stray{s, a.agent()})
			if r.percent(70) {
				a.append(nil, completed(s, ref))
			}
		}
	}
	switch n := r.below(10); {
	case a.w.healed:
	case n == 0: // its pair never came
		if ref, ok := a.w.provider.do(s, false); ok {
			a.append(func() { a.w.strays = append(a.w.strays, stray{s, a.agent()}) }, completed(s, ref))
		}
	case n == 1: // half of it did
		a.append(happens, pair[1])
	case n == 2: // it gives the act up again
		a.append(func() { a.append(nil, failed(s)) }, pair...)
	default:
		a.append(happens, pair...)
	}
}

// stray is what a process does that is not its plan's writer, with its agent.
type stray struct {
	*actionSpec
	agent string
}

// checkStrays: a plan of which an agent that has it, or had it, has claimed an act that was refused
// does not end as if it had not happened, unless its owner says so (I31).
func (c *checker) checkStrays(v api.Plan) {
	if v.State != ledger.StateCompensated && v.State != ledger.StateFailed {
		return
	}
	for _, s := range c.w.strays {
		for _, e := range c.w.provider.forward[s.key] {
			if s.plan.id == v.Plan && e.stands && !e.byOwner && had(v, s.agent) {
				c.fail("I31", 0, "plan %s is %s, and %s of %s is there, which a refused record claims", v.Plan,
					v.State, e.ref, s.id)
			}
		}
	}
}

// had reports whether a plan is an agent's, or was before it was handed over.
func had(v api.Plan, agent string) bool {
	return v.Agent == agent ||
		slices.ContainsFunc(v.Adopted, func(h api.Adoption) bool { return h.From == agent })
}
