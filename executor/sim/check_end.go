package sim

import (
	"bytes"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// finish holds the end of a run against the rules.
func (w *world) finish() {
	defer func() {
		for _, h := range w.hosts {
			h.kv.Close()
		}
	}()
	c := w.check
	if c.broken || len(c.violations) > 0 {
		c.checkHalted()
		return
	}
	if w.steps >= stepsMax || w.now >= epoch0+endNs {
		c.fail("L1", 0, "after %d steps and %d minutes something still goes on", w.steps,
			(w.now-epoch0)/minute)
		return
	}
	holder := w.holder()
	if holder == nil {
		c.fail("L1", 0, "no one holds the tenant although all faults have ended")
		return
	}
	c.checkAcknowledged()
	c.checkStates()
	c.checkPlans(holder)
	c.checkErasures(holder)
	c.checkPages(holder)
	if c.audit != nil {
		c.audit.end(c, holder)
	}
}

func (w *world) holder() *host {
	for _, h := range w.hosts {
		if h.holding() {
			return h
		}
	}
	return nil
}

// checkHalted: whoever had folded what the stream has lost is halted (G1, G2, L4).
func (c *checker) checkHalted() {
	for _, h := range c.mustHalt {
		if h.halted == nil && h.up && len(c.violations) == 0 {
			c.fail(c.lostBy.guard(), c.lostAt, "%s goes on although the stream came back with %s",
				h.name, c.lostBy)
		}
	}
}

func (f Fault) guard() string {
	switch f {
	case FaultLostRecord:
		return "G1"
	case FaultRotten:
		return "G4"
	default:
		return "G2"
	}
}

// checkAcknowledged: what a writer was told to be stored is in the ledger (E1).
func (c *checker) checkAcknowledged() {
	last := c.w.stream.last()
	for _, a := range c.acks {
		if a.sequence == 0 || a.sequence > last {
			c.fail("E1", a.sequence, "a commit on %s was acknowledged, and is not there", a.subject)
			continue
		}
		if m := c.w.stream.stored[a.sequence-1].message; m.Subject != a.subject ||
			!bytes.Equal(m.Data, a.data) {
			c.fail("E1", a.sequence, "a commit on %s was acknowledged, and another is there",
				a.subject)
		}
	}
}

// refolded: of so many seeds one is folded again from nothing, beside those in which a
// host has gone back.
const refolded = 8

// checkStates: all hosts have the same rows, and so has a fold from nothing (I7, I10).
func (c *checker) checkStates() {
	last := c.w.stream.last()
	for _, h := range c.w.hosts {
		if h.state == nil || h.cursor() != last {
			c.fail("L1", last, "%s has not folded the end of the stream", h.name)
			return
		}
	}
	c.w.mark(last)
	if c.w.options.Seed%refolded != 0 &&
		c.w.faults&Of(FaultPowerCut, FaultStateLost, FaultRivals) == 0 {
		return // one host that only ever went on
	}
	kv := rows.NewMemoryKV()
	s := executor.OpenWith(kv, tenant, c.w.archive, c.w.programs)
	batch := 1 + newRandom(c.w.options.Seed, streamEnd).below(int(last)+1)
	for i := range c.w.stream.stored {
		for _, e := range c.w.stream.stored[i].entries {
			s.Apply(e)
		}
		if (i+1)%batch == 0 {
			s.Flush()
		}
	}
	s.Flush()
	want := rows.Digest(kv)
	for _, h := range c.w.hosts {
		h.flush(true)
		if got := rows.Digest(h.kv); got != want {
			differ := rows.Differences(h.kv, kv, 3)
			c.fail("I7", last, "%s has other rows than a fold of the ledger: %v", h.name, differ)
		}
	}
	c.w.markText(rows.FormatDigest(want))
}

// checkPlans: every deadline that has passed by the clock was answered (L2), no call has no
// answer (L1), and the provider has what the plans say (I15, I29, I36).
func (c *checker) checkPlans(h *host) {
	reader := h.reader()
	now := h.clock.instant().EpochNs
	for after := ""; ; {
		views, next := reader.Plans(api.Filter{After: after, Limit: 1000})
		for _, v := range views {
			if c.w.options.Seen != nil {
				c.w.options.Seen.Ends[v.State]++
			}
			switch {
			case v.State == ledger.StateOpen && v.DeadlineNs != 0 && v.DeadlineNs < now-second:
				c.fail("L2", 0, "the deadline of plan %s has passed, and it is open", v.Plan)
			}
			if c.audit != nil {
				c.checkEffects(v)
				c.checkDeliveries(v)
			}
			c.checkStrays(v)
			c.checkQuestions(h, v.Plan)
		}
		if after = next; next == "" {
			break
		}
	}
	for _, call := range h.state.InFlight() {
		if call.Purpose != "" {
			c.fail("L1", 0, "%s of %s %s has no answer", call.Purpose, call.Plan, call.Action)
		}
	}
}

// checkQuestions: a question that is due is out, unless others of its plan leave it no room (L1).
func (c *checker) checkQuestions(h *host, plan string) {
	p := executor.Live(h.state).Plan(plan)
	for _, n := range p.Row.Asking {
		a := p.Action(n)
		due := a.Row.AskNs != 0 && a.Row.AskNs < h.clock.instant().EpochNs-second
		if due && a.CannotAsk() == "" && p.Row.InFlight < p.Concurrency() {
			c.fail("L1", 0, "whether action %s of plan %s has happened was to be asked at %d, and is not",
				a.Fixed.Id, plan, a.Row.AskNs)
		}
	}
}

// clocksWrong reports whether clocks have gone wrong: what contracts say of time holds
// by clocks that are right.
func (c *checker) clocksWrong() bool {
	return c.w.struck&Of(FaultSkew, FaultClockForward, FaultClockBack) != 0
}

// settleAll lets owners answer, at the end, whatever still waits for them.
func (w *world) settleAll() {
	h := w.holder()
	if h == nil || w.check.broken {
		return
	}
	reader := h.reader()
	plans, _ := reader.Quarantined(api.ListQuery{Limit: 100})
	for _, p := range plans {
		shown, _ := reader.Plan(p.Plan)
		ids := shown.Orphans
		for _, a := range shown.Actions {
			if a.Undo == "quarantined" && a.Child == "" {
				ids = append(ids, a.Action)
			}
		}
		for _, id := range ids {
			outcome := pick(w.people, pb.Resolution_RESOLUTION_LOST, pb.Resolution_RESOLUTION_DONE)
			if shown.State == ledger.StateCommitting ||
				shown.State == ledger.StateCommitted { // nothing of it is being undone
				outcome = pick(w.people, pb.Resolution_RESOLUTION_ACCEPTED,
					pb.Resolution_RESOLUTION_DONE, pb.Resolution_RESOLUTION_SKIPPED)
			}
			if outcome == pb.Resolution_RESOLUTION_DONE {
				w.removes(p.Plan, id)
			}
			for _, name := range []string{"ann", "bob"} {
				w.tell(operator(name), &pb.Record{Plan: p.Plan, Action: id,
					Kind: &pb.Record_Resolved{
						Resolved: &pb.Resolved{Outcome: outcome, Reason: "at the end",
							Evidence: "ticket", Actor: name}}})
			}
		}
	}
}

// checkEffects holds what a plan says of itself against the provider.
func (c *checker) checkEffects(v api.Plan) {
	gone := v.State == ledger.StateCompensated || v.State == ledger.StateFailed
	committed := v.State == ledger.StateCommitted
	for _, f := range c.audit.ledger.Effects(v.Plan) {
		s := c.w.workers.specs[aboutOf(planOf(v.Plan), f.Action)]
		if s == nil || s.lied && !f.Found || c.clocksWrong() { // what was found, no lie takes away
			continue
		}
		known := f.Outcome == "completed"
		for _, e := range c.w.provider.forward[s.key] {
			switch {
			case e.extra && e.told && gone && e.stands && !f.Kept:
				c.fail("I29", 0, "plan %s is %s, and %s of action %s is there, which was reported",
					v.Plan, v.State, e.ref, f.Action)
			case e.extra && e.kept && committed && v.UndoneAs == "" && !e.stands && !e.byOwner:
				c.fail("I15", 0, "plan %s is committed, and %s of action %s was undone, which was "+
					"reported since", v.Plan, e.ref, f.Action)
			case e.extra || e.byOwner || e.unseen:
			case f.Kept && known && !f.Duty && !e.stands:
				c.fail("I15", 0, "plan %s keeps %s of action %s, and it was undone", v.Plan, e.ref,
					f.Action)
			case f.Kept:
			case gone && e.stands:
				c.fail("I29", 0, "plan %s is %s, and %s of action %s is there", v.Plan, v.State,
					e.ref, f.Action)
			case committed && f.Absent && !f.Answered && !known && e.stands && !f.Accepted &&
				!f.Claimed: // by a process that was not let in, which may have made it since
				c.fail("I36", 0, "plan %s is committed without action %s, and %s of it is there",
					v.Plan, f.Action, e.ref)
			case committed && v.UndoneAs == "" && !e.stands && f.Held && known && !f.Duty:
				c.fail("I15", 0, "plan %s is committed, and %s of action %s was undone", v.Plan,
					e.ref, f.Action)
			}
		}
	}
}
