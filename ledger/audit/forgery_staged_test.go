package audit_test

import (
	"slices"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// stagedForgeries are ledgers in which a staged act is delivered otherwise than it may be.
var stagedForgeries = []forgery{
	{"a staged act is sent while its plan unwinds", "I38", func(s *scribe) {
		s.staged("a", "m")
		s.agent(planFailed())
		s.decideTo("unwind_started")
		s.forge(s.delivers("p", "m", 1, s.at("unwind_started", "")))
	}, false},
	{"a staged act is sent after its delivery was stopped", "I38", func(s *scribe) {
		s.committed("a", "m")
		s.lazy = true
		s.decideTo("compensation_dispatched")
		s.write(ops, &pb.Record{Plan: "p~0", Kind: &pb.Record_CancelRequested{
			CancelRequested: &pb.CancelRequested{Reason: "stop", Actor: "ops"}}})
		s.failed("m", 1, false)
		s.forge(s.delivers("p~0", "m", 2, s.at("compensation_dispatched", "m")))
	}, false},
	{"what may have been made is dropped", "I22", func(s *scribe) {
		s.kept = 3600 * second
		s.committed("a", "m")
		s.unanswered("m", 1)
		s.write(ops, &pb.Record{Plan: "p~0", Kind: &pb.Record_CancelRequested{
			CancelRequested: &pb.CancelRequested{Reason: "stop", Actor: "ops"}}})
		r := s.about("m", s.at("plan_committed", ""))
		r.Plan, r.Kind = "p~0", &pb.Record_CompensationSkipped{CompensationSkipped: &pb.CompensationSkipped{
			Reason: "staged, and dropped"}}
		s.forge(r)
	}, false},
	{"the second is sent before the first", "I21", func(s *scribe) {
		s.committed("a", "m", "n")
		s.forge(s.delivers("p~0", "n", 1, s.at("plan_committed", "")))
	}, false},
	{"a staged act is sent again, and no one knows of the first time", "I19", func(s *scribe) {
		s.committed("a", "m")
		s.unanswered("m", 1)
		s.forge(s.delivers("p~0", "m", 2, s.at("plan_committed", "")))
	}, false},
	{"a staged act is sent again when its provider has forgotten the key", "I38", func(s *scribe) {
		s.kept = 90 * second
		s.committed("a", "m")
		s.unanswered("m", 1)
		s.now += 61 * second
		s.forge(s.delivers("p~0", "m", 2, s.at("compensation_dispatched", "m")))
	}, false},
	{"a staged act is sent under the key of an undo", "I19", func(s *scribe) {
		s.committed("a", "m")
		r := s.delivers("p~0", "m", 1, s.at("plan_committed", ""))
		r.GetCompensationDispatched().Key = keyOf("m")
		s.forge(r)
	}, false},
	{"a staged act that was dropped before the commit is sent", "I6", func(s *scribe) {
		s.staged("a", "m", "n")
		s.write(ops, &pb.Record{Plan: "p", Kind: &pb.Record_CompensationRequested{
			CompensationRequested: &pb.CompensationRequested{Reason: "no", Actor: "ops", FromAction: "n"}}})
		s.decide()
		committed := planCommitted()
		committed.GetPlanCommitted().Parts = 1
		s.agent(committed)
		s.forge(s.delivers("p~0", "n", 1, s.at("plan_committed", "")))
	}, false},
	{"a delivery succeeds twice", "I22", func(s *scribe) {
		s.committed("a", "m", "n")
		s.decideTo("compensation_succeeded")
		r := s.about("m", s.at("compensation_dispatched", "m"))
		r.Plan = "p~0"
		r.Kind = &pb.Record_CompensationSucceeded{CompensationSucceeded: &pb.CompensationSucceeded{Attempt: 1}}
		s.forge(r)
	}, false},
	{"a delivery ends compensated", "I22", func(s *scribe) {
		s.committed("a", "m")
		s.decideTo("compensation_succeeded")
		r := ended(pb.PlanEnd_PLAN_END_COMPENSATED)
		r.Plan, r.Cause, r.GetPlanEnded().Compensated = "p~0", s.at("plan_committed", ""), 1
		s.forge(r)
	}, false},
	{"a staged act is sent while the commit waits", "I15", func(s *scribe) {
		s.staged("a")
		s.agent(append(pair("x"), inDoubt("x"))...)
		s.agent(pair("m", s.isStaged)...)
		s.agent(planCommitted())
		s.forge(s.delivers("p", "m", 1, s.at("plan_committed", "")))
	}, false},
	{"an act of a child is sent before one that its root has staged first", "I21", func(s *scribe) {
		s.staged("a", "m")
		s.openChild()
		s.child(pair("n", s.isStaged)...)
		s.child(planCommitted())
		s.agent(planCommitted())
		r := s.delivers("q~0", "n", 1, s.at("plan_committed", ""))
		r.GetCompensationDispatched().Key = ledger.Key("t", "q", "n", ledger.PurposeDo)
		s.forge(&pb.Record{Plan: "q~0", Cause: s.at("plan_committed", ""), Kind: &pb.Record_UnwindStarted{
			UnwindStarted: &pb.UnwindStarted{ParentPlan: "p~0"}}}, r)
	}, false},
	{"a staged act is sent again on an answer that came too early", "I19", func(s *scribe) {
		s.finds = true
		s.committed("a", "m")
		s.unanswered("m", 1)
		asked := s.asked("m", 1)
		asked.Plan, asked.GetProbeAsked().Key = "p~0", ledger.Key("t", "p", "m", ledger.PurposeDo)
		asked.GetProbeAsked().Capability = "look.do.m"
		asked.GetProbeAsked().Question = pb.Question_QUESTION_DELIVERED
		s.forge(asked)
		absent := s.absent("m", 1)
		absent.Plan, absent.GetProbeAnswered().Question = "p~0", pb.Question_QUESTION_DELIVERED
		s.forge(absent)
		s.forge(s.delivers("p~0", "m", 2, s.at("compensation_dispatched", "m")))
	}, false},
	{"what undoes a plan ends as if nothing of it had been delivered", "I22", func(s *scribe) {
		s.committed("a", "m")
		s.decide()
		s.write(ops, &pb.Record{Plan: "p", Kind: &pb.Record_CompensationRequested{
			CompensationRequested: &pb.CompensationRequested{Reason: "no", Actor: "ops"}}})
		s.decide()
		r := ended(pb.PlanEnd_PLAN_END_COMPENSATED)
		r.Plan, r.Cause = "p~1", s.at("unwind_started", "")
		s.forge(r)
	}, false},
	{"a delivery that never goes on", "L1", func(s *scribe) {
		s.committed("a", "m")
	}, true},
}

// committed is staged, and the commit of the plan. Its workers do not answer from then on.
func (s *scribe) committed(action string, ids ...string) {
	s.t.Helper()
	s.staged(action, ids...)
	s.agent(planCommitted())
}

// unanswered is an attempt of a delivery that had no answer.
func (s *scribe) unanswered(id string, attempt uint32) {
	s.t.Helper()
	s.lazy = true
	s.decideTo("compensation_dispatched")
	s.now += 31 * second
	s.failed(id, attempt, true)
}

func (s *scribe) failed(id string, attempt uint32, inDoubt bool) {
	r := s.about(id, s.at("compensation_dispatched", id))
	r.Plan = "p~0"
	r.Kind = &pb.Record_CompensationFailed{CompensationFailed: &pb.CompensationFailed{Attempt: attempt,
		InDoubt: inDoubt}}
	s.forge(r)
}

// staged opens a plan with an action, and with some that are staged.
func (s *scribe) staged(action string, ids ...string) {
	s.t.Helper()
	s.rules = ledger.StagedSince
	s.begin(2)
	s.agent(opened(0))
	s.agent(append(pair(action, func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.ValidForNs = 3600 * second
	}), completed(action))...)
	for _, id := range ids {
		s.agent(pair(id, s.isStaged)...)
	}
}

// isStaged makes a pair one of a staged act.
func (s *scribe) isStaged(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
	f.Class, f.Deliver = pb.Class_CLASS_IRREVERSIBLE, &pb.CompensationRegistered{
		Capability: f.Capability, DedupeNs: s.kept}
	if s.finds {
		f.Deliver.Probe = &pb.Probe{Call: &pb.Call{Capability: "look." + f.Capability}}
	}
	c.Capability, c.Attempts, c.BackoffNs = "", 0, 0
}

// delivers is the dispatch of a staged act.
func (s *scribe) delivers(plan, id string, attempt uint32, cause *pb.Address) *pb.Record {
	r := s.about(id, cause)
	r.Plan = plan
	r.Kind = &pb.Record_CompensationDispatched{CompensationDispatched: &pb.CompensationDispatched{
		Attempt: attempt, Capability: "do." + id, Key: ledger.Key("t", "p", id, ledger.PurposeDo),
		TimeoutNs: 30 * second}}
	return r
}

// TestAnAbsentThatCameTooEarlyIsNotBelieved: until then nothing is wrong, and then only that the act
// is sent again. An answer to a question that was asked late enough has it sent.
func TestAnAbsentThatCameTooEarlyIsNotBelieved(t *testing.T) {
	for _, c := range []struct {
		name    string
		pause   int64 // from the end of the attempt until the question
		accused []string
	}{
		{"too early", 29 * second, []string{"I19.waits"}},
		{"late enough", 30 * second, nil},
	} {
		s := newScribe(t)
		s.finds = true
		s.committed("a", "m")
		s.unanswered("m", 1)
		s.now += c.pause
		asked := s.about("m", s.at("compensation_dispatched", "m"))
		asked.Plan, asked.Kind = "p~0", &pb.Record_ProbeAsked{ProbeAsked: &pb.ProbeAsked{Attempt: 1,
			Capability: "look.do.m", Key: ledger.Key("t", "p", "m", ledger.PurposeDo),
			Question: pb.Question_QUESTION_DELIVERED, TimeoutNs: 30 * second}}
		s.forge(asked)
		absent := s.absent("m", 1)
		absent.Plan, absent.GetProbeAnswered().Question = "p~0", pb.Question_QUESTION_DELIVERED
		s.forge(absent)
		if _, found := s.audited(); len(found) > 0 {
			t.Errorf("%s: before it is sent: %+v", c.name, found)
		}
		s.now += 60 * second
		s.forge(s.delivers("p~0", "m", 2, s.at("compensation_dispatched", "m")))
		var accused []string
		_, found := s.audited()
		for _, v := range found {
			accused = append(accused, v.Clause)
		}
		if !slices.Equal(accused, c.accused) {
			t.Errorf("%s: found %+v, want %v", c.name, found, c.accused)
		}
	}
}

// out is a delivery that has been sent, and of which no one has heard.
func (s *scribe) out() {
	s.committed("a", "m")
	s.lazy = true
	s.decideTo("compensation_dispatched")
}

// unserves ends an attempt of a delivery that no worker has served for so long.
func (s *scribe) unserves(attempt uint32, after int64, inDoubt bool) {
	s.t.Helper()
	s.now += after
	r := s.unserved("m", attempt, inDoubt)
	r.Plan = "p~0"
	s.forge(r)
}

// sendsAgain is a second attempt of a delivery, though it may not be.
func (s *scribe) sendsAgain() {
	s.now += 60 * second
	s.forge(s.delivers("p~0", "m", 2, s.at("compensation_dispatched", "m")))
}

// again has the first attempt fail, and a second one sent when its provider may have forgotten the
// key; that one ends as it is told, and then a worker says of the first one that it is done after all.
func (s *scribe) again(end func()) {
	s.t.Helper()
	s.kept = 90 * second
	s.out()
	s.failed("m", 1, false)
	s.now += 61 * second
	s.decideTo("compensation_dispatched")
	end()
	s.decide()
	s.write(workerW, &pb.Record{Plan: "p~0", Action: "m", Kind: &pb.Record_CompensationReported{
		CompensationReported: &pb.CompensationReported{Attempt: 1, Answer: pb.Answer_ANSWER_DONE,
			Key: ledger.Key("t", "p", "m", ledger.PurposeDo)}}})
	s.decide()
}

// TestADeliveryThatNoWorkerServes was not made: its owner may have it sent again, whatever the provider
// remembers, and it is dropped if it was stopped. One that may have come to a worker is in doubt, and is
// not. What is said late of an attempt before it is for its owner to see, as it is sent no more.
func TestADeliveryThatNoWorkerServes(t *testing.T) {
	const patience = int64(ledger.UnservedDefault)
	again := &pb.Record{Plan: "p~0", Action: "m", Kind: &pb.Record_RetryRequested{
		RetryRequested: &pb.RetryRequested{Reason: "up", Actor: "ops"}}}
	stop := &pb.Record{Plan: "p~0", Kind: &pb.Record_CancelRequested{
		CancelRequested: &pb.CancelRequested{Reason: "stop", Actor: "ops"}}}
	for _, c := range []struct {
		name    string
		write   func(s *scribe)
		state   string // of the delivery
		accused []string
	}{
		{"is its owner's", func(s *scribe) { s.out(); s.unserves(1, patience, false); s.decide() }, "quarantined", nil},
		{"is sent again", func(s *scribe) {
			s.out()
			s.unserves(1, patience, false)
			s.decide()
			s.write(ops, again)
			s.lazy = false
			s.decide()
		}, "delivered", nil},
		{"is dropped if it was stopped", func(s *scribe) {
			s.out()
			s.write(ops, stop)
			s.unserves(1, patience, false)
			s.decide()
		}, "failed", nil},
		{"has been waited for too short a time", func(s *scribe) { s.out(); s.unserves(1, patience-1, false) }, "",
			[]string{"I23.offered"}},
		{"is in doubt", func(s *scribe) { s.out(); s.unserves(1, patience, true); s.decide() }, "quarantined", nil},
		{"is in doubt, and stopped", func(s *scribe) {
			s.out()
			s.write(ops, stop)
			s.unserves(1, patience, true)
			s.decide()
		}, "quarantined", nil},
		{"is sent again unasked", func(s *scribe) { s.out(); s.unserves(1, patience, false); s.sendsAgain() }, "",
			[]string{"I19.waits"}},
		{"is in doubt, and sent again", func(s *scribe) { s.out(); s.unserves(1, patience, true); s.sendsAgain() }, "",
			[]string{"I19.waits"}},
		{"was in doubt before", func(s *scribe) {
			s.kept = 3 * patience
			s.out()
			s.now += 31 * second
			s.failed("m", 1, true)
			s.now += 31 * second
			s.decideTo("compensation_dispatched")
			s.unserves(2, patience, false)
		}, "", []string{"I18.doubt"}},
		{"was given up when the first attempt was done", func(s *scribe) {
			s.again(func() { s.unserves(2, patience, false) })
		}, "quarantined", nil},
		{"was refused when the first attempt was done", func(s *scribe) { s.again(func() { s.failed("m", 2, false) }) },
			"delivered", nil},
	} {
		s := newScribe(t)
		c.write(s)
		l, found := s.audited()
		var accused []string
		for _, v := range found {
			accused = append(accused, v.Clause)
		}
		if !slices.Equal(accused, c.accused) {
			t.Errorf("%s: found %+v, want %v", c.name, found, c.accused)
		}
		if p, _ := l.Plan("p~0"); c.state != "" && p.State != c.state {
			t.Errorf("%s: the delivery is %s, want %s: %+v", c.name, p.State, c.state, p)
		}
	}
}
