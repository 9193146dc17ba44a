package audit_test

import (
	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// groundForgeries are ledgers in which nothing is rewritten, and a holder says of an action that it is
// its owner's, of a plan what it has left, or of itself which rules it knows.
var groundForgeries = []forgery{
	{"given to its owner before it was tried, and undone after what it came after", "I23", func(s *scribe) {
		o := opened(0)
		o.GetPlanOpened().OnUndoFailure = pb.OnUndoFailure_ON_UNDO_FAILURE_CONTINUE
		s.agent(o)
		s.agent(append(pair("a"), completed("a"))...)
		s.agent(append(pair("b"), completed("b"))...)
		s.agent(planFailed())
		s.decideTo("unwind_started")
		s.forge(s.quarantined("b", s.at("unwind_started", ""), "busy"))
		s.decide()
		s.write(ops, &pb.Record{Plan: "p", Action: "b", Kind: &pb.Record_RetryRequested{
			RetryRequested: &pb.RetryRequested{Actor: "ops", Reason: "now"}}})
	}, false},
	{"given up with attempts left", "I23", func(s *scribe) {
		s.agent(opened(0))
		s.agent(append(pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) { c.Attempts = 50 }),
			completed("a"))...)
		s.agent(planFailed())
		s.decideTo("compensation_dispatched")
		f := s.about("a", s.at("compensation_dispatched", "a"))
		f.Kind = &pb.Record_CompensationFailed{CompensationFailed: &pb.CompensationFailed{Attempt: 1, Code: "x"}}
		s.forge(f)
		s.forge(s.quarantined("a", s.at("compensation_failed", "a"), "gave up"))
	}, false},
	{"an end that hides what is owed, after a record that changes nothing", "I23", func(s *scribe) {
		s.fails = true
		s.plan("a", "b")
		s.agent(planFailed())
		s.decideTo("action_quarantined")
		next := s.state.Decide(executor.Input{EpochNs: s.now, SizeMax: 60 << 10})
		for _, r := range next {
			if k := r.GetPlanEnded(); k != nil {
				k.Outstanding = nil
			}
		}
		s.agent(&pb.Record{Kind: &pb.Record_SavepointSet{SavepointSet: &pb.SavepointSet{Number: 1, Name: "late"}}})
		s.write(holder, next...)
	}, false},
	{"an unwind that says another part, after a record that changes nothing", "I21", func(s *scribe) {
		s.blocked()
		decide := func() []*pb.Record {
			return s.state.Decide(executor.Input{EpochNs: s.now, SizeMax: 60 << 10})[:1]
		}
		s.write(holder, decide()...)
		started := decide()
		started[0].GetUnwindStarted().FromAction = "a"
		s.agent(&pb.Record{Kind: &pb.Record_SavepointSet{SavepointSet: &pb.SavepointSet{Number: 1, Name: "late"}}})
		s.write(holder, started...)
	}, false},
	{"a term of a holder that knows fewer rules", "I26", func(s *scribe) {
		s.rules = executor.FoldVersion
		s.begin(2)
		s.rules = ledger.SeenSince
		s.begin(3)
	}, false},
}

// quarantined is what gives an action to its owner.
func (s *scribe) quarantined(action string, cause *pb.Address, reason string) *pb.Record {
	r := s.about(action, cause)
	r.Kind = &pb.Record_ActionQuarantined{ActionQuarantined: &pb.ActionQuarantined{Reason: reason}}
	return r
}
