package sim

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// workers carry out commands over the provider. They remember the highest term, as
// package worker does.
type workers struct {
	w        *world
	term     uint64
	away     int64            // no one serves before
	unserved map[string]int64 // by capability: no one serves it before
	working  map[string]bool  // by key: a long undo is under way
	locked   map[string]bool  // by key: it has failed for now, and likely will again
	specs    map[turn.About]*actionSpec
}

func (x *workers) init(w *world) {
	x.w, x.working, x.locked, x.specs = w, map[string]bool{}, map[string]bool{},
		map[turn.About]*actionSpec{}
	x.unserved = map[string]int64{}
}

// originOf is the action that a duty comes from; of any other, itself.
func originOf(action string) string {
	origin, _, _ := strings.Cut(action, "~")
	return origin
}

// planOf is the plan that a plan undoes; of any other, itself.
func planOf(plan string) string {
	origin, _, _ := strings.Cut(plan, "~")
	return origin
}

// spec is the action that a command is about, or nil.
func (x *workers) spec(plan, action string) *actionSpec {
	return x.specs[aboutOf(planOf(plan), originOf(action))]
}

// take carries out a command. done learns what became of this sending, once.
func (x *workers) take(command executor.Command, done func(turn.Fate, *api.Reply)) {
	w, r, c := x.w, x.w.labour, command.Command
	timeout := c.TimeoutMs * millisecond
	if x.away > w.now {
		w.after(10*millisecond, func() { done(turn.NoWorker, nil) })
		return
	}
	if x.unserved[c.Capability] > w.now {
		w.impatient(command)
		w.after(10*millisecond, func() { done(turn.NoWorker, nil) })
		return
	}
	delay, refused := r.between(millisecond, 30*millisecond), new(bool)
	if w.chance(r, FaultDoubledCommand, 15) && mayCopy(w, c) {
		copyAfter := r.between(millisecond, 20*second)
		w.after(copyAfter, func() {
			if *refused {
				return
			}
			w.sayFault(FaultDoubledCommand, "worker", "%s of %s %s comes once more", c.Purpose, c.Plan,
				c.Action)
			x.work(command, refused, func(*api.Reply) {})
		})
	}
	w.forge(c)
	silent := func() { w.after(timeout, func() { done(turn.Silent, nil) }) }
	slow := w.chance(r, FaultSlowWorker, 12)
	if slow {
		delay = r.between(timeout/2, 2*timeout)
		w.impatient(command)
	}
	x.w.check.reached(c)
	x.leaves(c)
	switch {
	case w.chance(r, FaultWorkerDies, 8):
		w.point("worker: before its effect")
		w.sayFault(FaultWorkerDies, "worker", "dies before the %s of %s %s", c.Purpose, c.Plan, c.Action)
		silent()
		return
	case w.chance(r, FaultWorkerDies, 8), c.Delivers && w.chance(w.deliveries.r, FaultWorkerDies, 25):
		w.point("worker: after its effect")
		w.after(delay, func() {
			w.sayFault(FaultWorkerDies, "worker", "dies after the %s of %s %s", c.Purpose, c.Plan, c.Action)
			x.work(command, refused, func(*api.Reply) {})
		})
		silent()
		return
	}
	if delay > timeout {
		w.sayFault(FaultSlowWorker, "worker", "is slow with the %s of %s %s", c.Purpose, c.Plan, c.Action)
		silent()
		w.after(delay, func() { x.work(command, refused, func(*api.Reply) {}) })
		return
	}
	w.after(delay, func() {
		x.work(command, refused, func(reply *api.Reply) {
			w.after(r.between(millisecond, 10*millisecond), func() { done(turn.Replied, reply) })
		})
	})
}

// work is a worker that has the command, or a copy of it. refused says of a delivery that one has
// said that it was not made: no copy of that sending makes it.
func (x *workers) work(command executor.Command, refused *bool, answer func(*api.Reply)) {
	w, r, c := x.w, x.w.labour, command.Command
	if c.Term < x.term {
		answer(&api.Reply{Status: api.StatusFailed, Code: "stale_term",
			Message: "a higher term has spoken", Worker: "w1"})
		return
	}
	x.term = c.Term
	w.provider.readsOthers(c)
	spec := x.spec(c.Plan, c.Action)
	switch c.Purpose {
	case api.PurposeProbe:
		answer(x.probe(c))
	case api.PurposeVerify:
		e := w.provider.find(readTarget(c.Arguments))
		if w.chance(r, FaultFailing, 10) {
			answer(&api.Reply{Status: api.StatusFailed, Code: "unreachable", Worker: "w1"})
			return
		}
		output := `{"gone":true}`
		if e != nil && e.stands {
			output = `{"gone":false}`
		}
		answer(&api.Reply{Status: api.StatusDone, Output: json.RawMessage(output), Worker: "w1"})
	default:
		x.undo(c, spec, refused, answer)
	}
}

// probe says which effects are there.
func (x *workers) probe(c api.Command) *api.Reply {
	w, r := x.w, x.w.labour
	if w.chance(r, FaultFailing, 10) {
		return &api.Reply{Status: api.StatusFailed, Code: "unreachable", Worker: "w1"}
	}
	if w.chance(r, FaultFailing, 10) {
		return &api.Reply{Status: api.StatusDone,
			Output: json.RawMessage(`{"presence":"inconclusive","reason":"two books differ"}`), Worker: "w1"}
	}
	t := readTarget(c.Arguments)
	answer := map[string]any{"presence": "absent"}
	if e := w.provider.byRef[t.External]; e != nil { // of a duty: this effect
		if e.stands {
			answer = map[string]any{"presence": "present", "external_ref": e.ref}
		}
	} else if refs := w.provider.standing(t.ForwardKey); len(refs) == 1 {
		answer = map[string]any{"presence": "present", "external_ref": refs[0]}
	} else if last := glimpsed(w, x.spec(c.Plan, c.Action), refs); last != "" {
		answer = map[string]any{"presence": "present", "external_ref": last}
	} else if len(refs) > 1 {
		answer = map[string]any{"presence": "duplicate", "external_ref": refs}
	}
	if e := w.provider.find(t); e != nil && x.spec(c.Plan, c.Action).compared() {
		answer["version"] = e.version
	}
	output, err := json.Marshal(answer)
	if err != nil {
		panic("sim: " + err.Error())
	}
	w.say("worker", "probe of %s %s: %s", c.Plan, c.Action, output)
	return &api.Reply{Status: api.StatusDone, Output: output, Worker: "w1"}
}

// glimpsed is the one effect that a probe sees of those of a forward that happened twice, now and
// then: the last one. The first is known once the forward says so.
func glimpsed(w *world, s *actionSpec, refs []string) string {
	if len(refs) < 2 || s.plan.opened.Label != labelTwice || !w.confessions.percent(40) {
		return ""
	}
	first := w.provider.byRef[refs[0]]
	first.renamed, first.unseen = true, true
	return refs[len(refs)-1]
}

// undo calls the provider.
func (x *workers) undo(c api.Command, spec *actionSpec, refused *bool, answer func(*api.Reply)) {
	w, r := x.w, x.w.labour
	often := 15
	if x.locked[c.Key] {
		often = 70
	}
	switch {
	case w.chance(r, FaultFailing, often): // it has not asked its provider
		x.locked[c.Key] = true
		*refused = c.Delivers
		w.sayFault(FaultFailing, "worker", "fails the undo of %s %s", c.Plan, c.Action)
		answer(&api.Reply{Status: api.StatusFailed, Code: "locked", Message: "try later", Worker: "w1"})
		return
	case w.chance(r, FaultFailing, 8):
		x.locked[c.Key] = true
		*refused = c.Delivers
		w.sayFault(FaultFailing, "worker", "never will undo %s %s", c.Plan, c.Action)
		answer(&api.Reply{Status: pick(r, api.StatusStop, api.StatusFailed), Code: "protected",
			Message: "never", Worker: "w1"})
		return
	case x.working[c.Key]:
		answer(&api.Reply{Status: api.StatusWorking, UntilMs: (w.now + 5*second) / millisecond,
			Worker: "w1"})
		return
	case w.chance(r, FaultWorking, 25):
		x.long(c, spec, refused)
		answer(&api.Reply{Status: api.StatusWorking, UntilMs: (w.now + 5*second) / millisecond,
			Worker: "w1"})
		return
	}
	answer(x.undone(c, spec))
}

func (x *workers) undone(c api.Command, spec *actionSpec) *api.Reply {
	if c.Delivers {
		return x.delivered(c, spec)
	}
	if e, refused := x.w.provider.refuses(c); refused {
		x.w.say("worker", "the undo of %s %s is refused: %s is version %d", c.Plan, c.Action, e.ref,
			e.version)
		return &api.Reply{Status: api.StatusChanged, Code: "precondition_failed", Worker: "w1",
			Output: fmt.Appendf(nil, `{"version":%d}`, e.version)}
	}
	if found := x.w.provider.undo(c, spec); !found && spec != nil &&
		spec.pair.compensation.Done != "" {
		return &api.Reply{Status: api.StatusFailed, Code: "not_found", Message: "it is gone already",
			Worker: "w1"}
	}
	return &api.Reply{Status: api.StatusDone, Worker: "w1", Output: json.RawMessage(`{"ok":true}`),
		WorkNs: 1e6}
}

// delivered is the answer of a worker that was to deliver; at times it does not know what its
// provider has done.
func (x *workers) delivered(c api.Command, spec *actionSpec) *api.Reply {
	w, doubt := x.w, &api.Reply{Status: api.StatusInDoubt, Code: "bad_gateway", Worker: "w1"}
	lost := w.chance(w.deliveries.r, FaultFailing, 10)
	if lost && w.deliveries.r.percent(50) {
		w.sayFault(FaultFailing, "worker", "does not reach the provider of %s %s", c.Plan, c.Action)
		return doubt
	}
	made := w.provider.deliver(c, spec)
	if lost && made.Status == api.StatusDone {
		w.sayFault(FaultFailing, "worker", "does not hear of %s %s, which is made", c.Plan, c.Action)
		return doubt
	}
	return made
}

// long is an undo of which the worker reports later, by a record of its own.
func (x *workers) long(c api.Command, spec *actionSpec, refused *bool) {
	w, r := x.w, x.w.labour
	x.working[c.Key] = true
	w.sayFault(FaultWorking, "worker", "works on the undo of %s %s", c.Plan, c.Action)
	source := ledger.Source{Tenant: tenant, Class: ledger.ClassWorker, Name: "w1"}
	if r.percent(50) {
		w.persist("worker", source,
			[]*pb.Record{{Plan: c.Plan, Action: c.Action, Kind: &pb.Record_CompensationProgressed{
				CompensationProgressed: &pb.CompensationProgressed{Attempt: c.Attempt, Key: c.Key, Note: "half",
					UntilNs: w.now + 10*second, Token: c.ReportToken}}}}, r, nil, func(uint64, bool) {})
	}
	w.after(r.between(100*millisecond, 15*second), func() {
		delete(x.working, c.Key)
		if w.chance(r, FaultWorkerDies, 30) {
			w.sayFault(FaultWorkerDies, "worker", "dies at work on %s %s", c.Plan, c.Action)
			return
		}
		report := &pb.CompensationReported{Attempt: c.Attempt, Key: c.Key, Answer: pb.Answer_ANSWER_DONE,
			Token: c.ReportToken}
		if w.chance(r, FaultFailing, 20) || *refused {
			report.Answer, report.Code = pick(r, pb.Answer_ANSWER_FAILED, pb.Answer_ANSWER_STOP), "locked"
			*refused = c.Delivers
		} else {
			switch x.undone(c, spec).Status {
			case api.StatusChanged:
				report.Answer, report.Code = pb.Answer_ANSWER_CHANGED, "precondition_failed"
			case api.StatusInDoubt:
				return // no one reports that: it ends with the time of the attempt
			}
		}
		w.persist("worker", source, []*pb.Record{{Plan: c.Plan, Action: c.Action,
			Kind: &pb.Record_CompensationReported{CompensationReported: report}}}, r, nil,
			func(uint64, bool) {
				if report.Answer != pb.Answer_ANSWER_DONE && c.ReportToken != "" &&
					w.chance(w.forger, FaultForged, 50) {
					w.lie(c, c.ReportToken) // the ledger has it in the clear by now
				}
			})
	})
}

// forge has another worker, now and then, say of a command that it was not given that it is done.
// It knows plan, action and key, which is made of them; the token it can only guess.
func (w *world) forge(c api.Command) {
	if c.Purpose != ledger.PurposeUndo || !w.chance(w.forger, FaultForged, 25) {
		return
	}
	guess := pick(w.forger, "", "0123456789abcdef0123456789abcdef",
		ledger.NewReporter([]byte("another")).Token(c.Tenant, c.Plan, c.Action, c.Key, c.Attempt))
	w.after(w.forger.between(0, 10*second), func() {
		if !w.healed {
			w.lie(c, guess)
		}
	})
}

// lie is a worker's record about a command that another one was given.
func (w *world) lie(c api.Command, token string) {
	w.sayFault(FaultForged, "worker w9", "reports the undo of %s %s, which it was not given", c.Plan,
		c.Action)
	record := &pb.Record{Plan: c.Plan, Action: c.Action}
	if w.forger.percent(20) {
		record.Kind = &pb.Record_CompensationProgressed{
			CompensationProgressed: &pb.CompensationProgressed{
				Attempt: c.Attempt, Key: c.Key, Token: token, UntilNs: w.now + 20*minute}}
	} else {
		record.Kind = &pb.Record_CompensationReported{CompensationReported: &pb.CompensationReported{
			Attempt: c.Attempt, Key: c.Key, Token: token, Answer: pb.Answer_ANSWER_DONE}}
	}
	w.persist("worker w9", ledger.Source{Tenant: tenant, Class: ledger.ClassWorker, Name: "w9"},
		[]*pb.Record{record}, w.forger, nil, func(uint64, bool) {})
}
