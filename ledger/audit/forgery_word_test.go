package audit_test

import (
	"crypto/sha256"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// wordForgeries are ledgers in which a holder takes the word of someone who had no say.
var wordForgeries = []forgery{
	{"a failure against the report of the worker that was given the undo", "I18", func(s *scribe) {
		s.secret = []byte("of a host")
		s.plan("a")
		s.agent(planFailed())
		s.turns(1)
		s.write(workerW, &pb.Record{Plan: "p", Action: "a", Kind: &pb.Record_CompensationReported{
			CompensationReported: &pb.CompensationReported{Attempt: 1, Key: keyOf("a"), Answer: pb.Answer_ANSWER_DONE,
				Token: ledger.NewReporter(s.secret).Token("t", "p", "a", keyOf("a"), 1)}}})
		s.forge(checkpointOf(1, 32)) // the holder has read on
		r := s.about("a", s.at("compensation_dispatched", "a"))
		r.Kind = &pb.Record_CompensationFailed{CompensationFailed: &pb.CompensationFailed{Attempt: 1}}
		s.forge(r)
	}, false},
	{"a retirement by the word of a process whose resume came too late", "I24", func(s *scribe) {
		s.rules = ledger.FollowsSince
		s.begin(2)
		s.plan("a")
		resume := func(writer string, follows uint64) {
			s.agent(&pb.Record{Writer: writer, Kind: &pb.Record_PlanResumed{PlanResumed: &pb.PlanResumed{
				Follows: follows}}})
		}
		first := s.at("plan_opened", "").Sequence
		resume("w2", first)
		resume("w3", s.at("plan_resumed", "").Sequence)
		resume("w2", first) // a copy, stored late
		commit := planCommitted()
		commit.Writer = "w2"
		s.agent(commit)
		s.forge(&pb.Record{Cause: s.at("plan_committed", ""),
			Kind: &pb.Record_HeldSetRetired{HeldSetRetired: &pb.HeldSetRetired{Count: 1}}})
	}, false},
	{"a retirement by an agent's word, beside an effect that is not its own", "I36", func(s *scribe) {
		term := s.doubled(ledger.SurplusSince - 1)
		s.agent(completed("a"))
		s.decide()
		s.claims(term, ledger.SurplusSince)
	}, false},
	{"a retirement while the world is asked again about what was found too much", "I36", func(s *scribe) {
		term := s.doubled(ledger.SurplusSince - 1)
		s.write(ops, &pb.Record{Plan: "p", Action: "a", Kind: &pb.Record_RetryRequested{
			RetryRequested: &pb.RetryRequested{Actor: "ops"}}})
		s.agent(completed("a"))
		s.decide()
		s.claims(term, ledger.SurplusSince)
	}, false},
	{"an undo of an agent's own effect alone, though a commit found another one", "I22", func(s *scribe) {
		s.doubled(ledger.SurplusSince)
		s.agent(completed("a"))
		s.agent(planFailed())
		s.turns(1)
		s.forge(s.dispatch("a", keyOf("a"), 1))
		s.forge(s.succeeded("a", 1))
		s.forge(&pb.Record{Cause: s.at("unwind_started", ""), Kind: &pb.Record_PlanEnded{PlanEnded: &pb.PlanEnded{
			End: pb.PlanEnd_PLAN_END_COMPENSATED, Compensated: 1}}})
	}, false},
	{"an undo after a report, as if its agent had said that all is done", "I20", func(s *scribe) {
		s.dispatchesReported(ledger.DirtySince, false)
	}, false},
	{"an undo after a report, under an earlier holder, as after a dirty failure", "I17", func(s *scribe) {
		s.dispatchesReported(ledger.DirtySince-1, true)
	}, false},
	{"a retirement by the word of the agent that had the plan before", "I24", func(s *scribe) {
		s.handsOver()
		s.agent(planCommitted())
		s.forge(&pb.Record{Cause: s.at("plan_committed", ""),
			Kind: &pb.Record_HeldSetRetired{HeldSetRetired: &pb.HeldSetRetired{Count: 1}}})
	}, false},
	{"a retirement by the word of a process that has not resumed the plan", "I24", func(s *scribe) {
		s.handsOver()
		commit := planCommitted()
		commit.Plan, commit.Writer = "p", "w2"
		s.write(agentB, commit)
		s.forge(&pb.Record{Cause: s.at("plan_committed", ""),
			Kind: &pb.Record_HeldSetRetired{HeldSetRetired: &pb.HeldSetRetired{Count: 1}}})
	}, false},
	{"a retirement beside an act of the agent that had the plan before", "I24", func(s *scribe) {
		s.handsOver()
		s.agent(pair("b")...) // it goes on
		s.write(agentB, &pb.Record{Plan: "p", Writer: "w2", Kind: &pb.Record_PlanResumed{PlanResumed: &pb.PlanResumed{}}})
		commit := planCommitted()
		commit.Plan, commit.Writer = "p", "w2"
		s.write(agentB, commit)
		s.forge(&pb.Record{Cause: s.at("plan_committed", ""),
			Kind: &pb.Record_HeldSetRetired{HeldSetRetired: &pb.HeldSetRetired{Count: 1}}})
	}, false},
	{"a child plan that goes on by a token which has ended", "I13", func(s *scribe) {
		s.attaches(ledger.AttachEndsSince)
	}, true},
	{"a firing of a child plan by a token which an earlier holder takes", "I11", func(s *scribe) {
		s.attaches(ledger.AttachEndsSince - 1)
		s.forge(&pb.Record{Plan: "q", Cause: s.at("plan_opened", ""),
			Kind: &pb.Record_LeaseFired{LeaseFired: &pb.LeaseFired{Lease: "plan.failed", Condition: failedText}}})
	}, false},
	{"a deadline that fires before it was moved to", "I16", func(s *scribe) {
		s.dueAt10()
		s.movesDeadline(20*second, s.at("plan_opened", "").Sequence)
		s.forge(checkpointOf(1, 32)) // the holder has read on
		s.now += 2 * second
		s.forge(fired("plan.deadline", "after(plan.deadline)", 1, s.at("plan_opened", "")))
	}, false},
	{"a deadline that fires by a move which came too late", "I16", func(s *scribe) {
		s.dueAt10()
		first := s.at("plan_opened", "").Sequence
		s.movesDeadline(20*second, first)
		s.movesDeadline(11*second, first) // another one has moved it since
		s.forge(checkpointOf(1, 32))      // the holder has read on
		s.now += 2 * second
		s.forge(fired("plan.deadline", "after(plan.deadline)", 1, s.at("plan_opened", "")))
	}, false},
	{"a deadline that never fires where it was moved to", "L2", func(s *scribe) {
		s.dueAt10()
		s.movesDeadline(20*second, s.at("plan_opened", "").Sequence)
		s.now += 12 * second
		s.lazy = true
		s.write(sensor, asserted("k", `1`))
	}, true},
}

// doubled has a commit find the effect of an action twice, under the rules of a version. It returns the
// number of its term's message.
func (s *scribe) doubled(rules uint32) (term int) {
	s.rules = rules
	s.begin(2)
	term = len(s.log) - 1
	s.agent(append(append([]*pb.Record{opened(0)}, doubtful("a", true)...), inDoubt("a"), planCommitted())...)
	s.now += int64(time.Hour) // its forward can land no more
	s.turns(1)
	found := s.absent("a", 1)
	k := found.GetProbeAnswered()
	k.Presence, k.ExternalRef, k.Duplicates = pb.Presence_PRESENCE_DUPLICATE, "x7", []string{"x8"}
	s.forge(found)
	s.turns(1)
	return term
}

// dispatchesReported sends the undo of an action whose effect an operator has reported.
func (s *scribe) dispatchesReported(rules uint32, dirty bool) {
	s.rules = rules
	s.begin(2)
	s.plan("b")
	s.agent(pair("a")...)
	s.write(ops, &pb.Record{Plan: "p", Action: "a", Payload: &pb.Payload{Output: []byte(`{"ref":"x7"}`)},
		Kind: &pb.Record_EffectReported{EffectReported: &pb.EffectReported{ExternalRef: "x7", Reason: "seen", Actor: "ops"}}})
	s.agent(planFailed())
	s.decideTo("unwind_started")
	r := s.dispatch("a", keyOf("a"), 1)
	r.GetCompensationDispatched().DirtyFailure = dirty
	s.forge(r)
}

// agentB is the agent that a plan is handed to.
var agentB = ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "bob", Plan: "p"}

// handsOver has an operator hand a plan with one action to another agent.
func (s *scribe) handsOver() {
	s.rules = ledger.AdoptedSince
	s.begin(2)
	s.plan("a")
	s.adopted()
}

func (s *scribe) adopted() {
	s.write(ops, &pb.Record{Plan: "p", Kind: &pb.Record_PlanAdopted{PlanAdopted: &pb.PlanAdopted{Agent: "bob",
		Reason: "gone", Actor: "ops"}}})
}

// attaches has the agent that had a plan open a child in it, by the token of the plan.
func (s *scribe) attaches(rules uint32) {
	token := []byte("the token of plan p")
	digest := sha256.Sum256(token)
	s.rules = rules
	s.begin(2)
	p := opened(0)
	p.GetPlanOpened().AttachDigest = digest[:]
	s.agent(append([]*pb.Record{p}, pair("a")...)...)
	s.adopted()
	q := opened(0)
	q.GetPlanOpened().ParentPlan, q.GetPlanOpened().ParentToken = "p", token
	s.child(q)
}

// dueAt10 is a plan with a deadline 10 s after the start, 9 s after it.
func (s *scribe) dueAt10() {
	s.rules = ledger.MovedSince
	s.begin(2)
	s.agent(opened(start + 10*second))
	s.now = start + 9*second
}

// movesDeadline has an operator move the deadline to so long after the start.
func (s *scribe) movesDeadline(after int64, follows uint64) {
	s.write(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ops"}, &pb.Record{Plan: "p",
		Kind: &pb.Record_DeadlineMoved{DeadlineMoved: &pb.DeadlineMoved{DeadlineNs: start + after, Follows: follows,
			Reason: "it takes longer", Actor: "ops"}}})
}
