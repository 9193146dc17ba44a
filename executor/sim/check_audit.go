package sim

import (
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// auditor is the fold of package audit beside that of the hosts. It shares nothing with
// them: what becomes of each record, and what all of them mean, must be the same (I7).
type auditor struct {
	ledger  *audit.Ledger
	entries [][]audit.Entry // by sequence - 1
}

func newAuditor(programs *triggers.Cache) *auditor {
	return &auditor{ledger: audit.NewWith(tenant, programs)}
}

func (s *auditor) report(c *checker, v audit.Violation) {
	about := ""
	if v.Plan != "" {
		about = "plan " + v.Plan + " " + v.Action + ": "
	}
	c.fail(v.Rule, v.Address.GetSequence(), "audit: %s%s", about, v.Problem)
}

var auditVerdicts = [...]string{audit.Effective, audit.Repeated, audit.Refused, audit.Void}

// end compares what the whole ledger means.
func (s *auditor) end(c *checker, h *host) {
	for _, v := range s.ledger.End() {
		s.report(c, v)
	}
	meta := h.state.Meta()
	if s.ledger.Now() != meta.TimeNs || s.ledger.Term() != meta.Term ||
		s.ledger.Held() != int(meta.Held) {
		c.fail("I24", 0, "the audit has time %d, term %d, %d held, and the executor %d, %d, %d",
			s.ledger.Now(), s.ledger.Term(), s.ledger.Held(), meta.TimeNs, meta.Term, meta.Held)
	}
	if s.ledger.HeldConditions() != meta.Conditions {
		c.fail("I24", 0, "the audit has %d conditions, and the executor %d", s.ledger.HeldConditions(),
			meta.Conditions)
	}
	reader := h.reader()
	plans := s.ledger.Plans()
	for _, p := range plans {
		s.plan(c, reader, p)
	}
	if views, _ := reader.Plans(api.Filter{Limit: 1000}); len(views) != len(plans) {
		c.fail("I24", 0, "the audit has %d plans, and the executor %d", len(plans), len(views))
	}
	s.facts(c, reader)
}

// facts compares working memory, key by key.
func (s *auditor) facts(c *checker, reader *view.Reader) {
	views, _, err := reader.Facts(api.FactsQuery{Limit: 1000})
	if err != nil {
		c.fail("I10", 0, "cannot list the facts: %v", err)
		return
	}
	facts := s.ledger.Facts()
	if len(views) != len(facts) {
		c.fail("I10", 0, "the audit has %d facts, and the executor %d", len(facts), len(views))
		return
	}
	for i, f := range facts {
		v := views[i]
		if v.Key != f.Key || (v.State == api.FactEvicted) != f.Evicted || !f.Evicted &&
			string(v.Value) != f.Value {
			c.fail("I10", 0,
				"fact %s is %q, evicted=%v, for the audit, and %s %q, %s, for the executor", f.Key,
				f.Value, f.Evicted, v.Key, v.Value, v.State)
		}
	}
}

// add folds a message as soon as it is stored, and holds what counts of it against the
// provider's world.
func (s *auditor) add(c *checker, m *stored) {
	for _, v := range s.ledger.AddDecoded(m.message, m.entries) {
		s.report(c, v)
	}
	entries := s.ledger.Entries()
	s.entries = append(s.entries, entries)
	for i, e := range m.entries {
		if i < len(entries) && entries[i].Verdict == audit.Effective {
			s.counts(c, e)
		}
	}
}

// counts follows a record that counts.
func (s *auditor) counts(c *checker, e ledger.Entry) {
	r, at := e.Record, e.Address.Sequence
	s.counted(c, at, r)
	switch k := r.Kind.(type) {
	case *pb.Record_CompensationDispatched:
		d := k.CompensationDispatched
		if d.Behind != nil {
			c.w.options.Seen.run("recorded")
		}
		c.calls[attemptOf(r.Plan, r.Action, ledger.PurposeUndo, d.Attempt)] = callCheck{at, d.Key}
	case *pb.Record_ProbeAsked:
		purpose := api.PurposeProbe
		if k.ProbeAsked.Question == pb.Question_QUESTION_VERIFY {
			purpose = api.PurposeVerify
		}
		c.calls[attemptOf(r.Plan, r.Action, purpose, k.ProbeAsked.Attempt)] = callCheck{at,
			k.ProbeAsked.Key}
		if p, _ := s.ledger.Plan(r.Plan); p.State == ledger.StateOpen {
			c.asked[aboutOf(r.Plan, r.Action)] = true
			c.w.options.Seen.commit("asked while open")
		}
	case *pb.Record_EffectReported:
		s.told(c, r.Plan, k.EffectReported)
	case *pb.Record_ProbeAnswered:
		s.foundOpenly(c, r, k.ProbeAnswered)
	case *pb.Record_CompensationSucceeded:
		c.undone(at, r, k.CompensationSucceeded)
	case *pb.Record_LeaseFired:
		root, _, _ := strings.Cut(r.Plan, "_")
		p, _ := s.ledger.Plan(r.Plan)
		if _, undone := s.ledger.Plan(root + "~1"); undone && p.State == ledger.StateCommitted {
			c.w.options.Seen.commit("undone for a condition")
		}
	case *pb.Record_UnwindStarted:
		c.ofPart(k.UnwindStarted.FromAction, "part")
	case *pb.Record_PlanRewound:
		c.ofPart(k.PlanRewound.FromAction, "goes on")
	case *pb.Record_ForwardCompleted:
		if k.ForwardCompleted.OutputIncomplete && len(r.Payload.GetOutput()) == 0 {
			c.w.options.Seen.commit("lost")
		}
		s.foundTooMuch(c, r)
	case *pb.Record_ForwardInDoubt:
		if c.failed[aboutOf(r.Plan, r.Action)] {
			c.w.options.Seen.commit("in doubt though failed")
		}
	case *pb.Record_ForwardFailed:
		c.failed[aboutOf(r.Plan, r.Action)] = true
		for _, f := range s.ledger.Effects(r.Plan) {
			if f.Action == r.Action && f.Found && f.Outcome == "in_doubt" {
				c.w.options.Seen.commit("failed though found")
			}
		}
	case *pb.Record_PlanCommitted:
		if p, _ := s.ledger.Plan(r.Plan); p.State == ledger.StateCommitting {
			c.waiting[r.Plan] = true
			c.w.options.Seen.commit("waits")
		}
	case *pb.Record_HeldSetRetired:
		switch {
		case c.waiting[r.Plan]:
			c.w.options.Seen.commit("settled")
		case len(k.HeldSetRetired.InDoubt) > 0:
			c.w.options.Seen.commit("accepts")
		}
		delete(c.waiting, r.Plan)
	}
}

// told notes what an operator has reported.
func (s *auditor) told(c *checker, plan string, k *pb.EffectReported) {
	p, _ := s.ledger.Plan(plan)
	committed := p.State == ledger.StateCommitted
	if c.w.provider.told(k, committed); committed && len(k.Duplicates) > 0 {
		c.w.options.Seen.commit("extra though committed")
	}
}

// ofPart notes what is of a part of a plan: what came after an action.
func (c *checker) ofPart(from, what string) {
	if from != "" {
		c.w.options.Seen.commit(what)
	}
}

// foundTooMuch notes a completion after which the commit waits for the action still.
func (s *auditor) foundTooMuch(c *checker, r *pb.Record) {
	p, _ := s.ledger.Plan(r.Plan)
	for _, a := range p.Actions {
		if a.ID == r.Action && a.Undo == "quarantined" && p.State == ledger.StateCommitting {
			c.w.options.Seen.commit("completed though found too much")
		}
	}
}

// foundOpenly notes what became of a question that an open plan has asked: it was answered while
// the plan was open, or an end that began meanwhile has asked again.
func (s *auditor) foundOpenly(c *checker, r *pb.Record, k *pb.ProbeAnswered) {
	about := aboutOf(r.Plan, r.Action)
	if !c.asked[about] {
		return
	}
	delete(c.asked, about)
	if k.Presence == pb.Presence_PRESENCE_DUPLICATE { // the extra one is undone at once
		c.w.options.Seen.commit("duplicate of an open plan")
		return
	}
	how := strings.ToLower(strings.TrimPrefix(k.Presence.String(), "PRESENCE_"))
	switch p, _ := s.ledger.Plan(r.Plan); p.State {
	case ledger.StateOpen:
		c.w.options.Seen.commit(how + " while open")
	case ledger.StateUnwinding, ledger.StateCommitting:
		c.w.options.Seen.commit("asked again")
	}
}

// undone: the effect of an undo that succeeded is gone (E2). One that a probe has found
// gone may come all the same, and what another process has made is its owner's (I31). An owner
// who has called a doubtful effect there, when it was to be committed, is believed (I36).
func (c *checker) undone(at uint64, r *pb.Record, k *pb.CompensationSucceeded) {
	spec := c.w.workers.spec(r.Plan, r.Action)
	if spec == nil || c.clocksWrong() {
		return
	}
	for _, f := range c.audit.ledger.Effects(r.Plan) {
		unsure := f.Outcome != "completed"
		if f.Action != r.Action || f.Claimed || unsure && (k.Probed || f.Answered) {
			continue
		}
		for _, e := range c.w.provider.forward[spec.key] {
			if e.stands && !e.extra && !e.renamed {
				c.fail("E2", at, "the undo of %s of plan %s succeeded, and %s is there", r.Action,
					r.Plan, e.ref)
			}
		}
	}
}

// judged compares what becomes of one record.
func (s *auditor) judged(c *checker, e ledger.Entry, result executor.Result) {
	other := s.entries[e.Address.Sequence-1][e.Address.Index]
	if want := auditVerdicts[result.Verdict]; other.Verdict != want {
		c.fail("I7", e.Address.Sequence,
			"record %d, %s of plan %s, is %s for the audit (%s %s) and %s for the executor (%s)",
			e.Address.Index, other.Kind, other.Plan, other.Verdict, other.Clause, other.Reason,
			want, result.Reason)
	}
}

func (s *auditor) plan(c *checker, reader *view.Reader, p audit.Plan) {
	shown, ok := reader.Plan(p.ID)
	if !ok || shown.State != p.State || len(shown.Actions) != len(p.Actions) ||
		!slices.Equal(shown.Orphans, p.Orphans) {
		c.fail("I24", 0,
			"plan %s is %s with %d actions and orphans %q for the audit, and %s, %d, %q for the "+
				"executor",
			p.ID, p.State, len(p.Actions), p.Orphans, shown.State, len(shown.Actions), shown.Orphans)
		return
	}
	for i, a := range p.Actions {
		v := shown.Actions[i]
		got := audit.Action{ID: v.Action, Outcome: v.Outcome, Undo: v.Undo, Attempt: v.Attempt,
			Key: v.Key}
		if a.Undo = s.undoShown(c, p.ID, a); got != a {
			c.fail("I24", 0, "action %d of plan %s is %+v for the audit, and %+v for the executor",
				i+1, p.ID, a, got)
		}
	}
}
