package audit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

const failedText = `plan.status == "failed"`

// forgery is a ledger in which one thing is wrong, and the rule that it breaks.
type forgery struct {
	name, rule string
	write      func(s *scribe)
	end        bool // found when nothing is under way any more
}

// forgeries are ledgers in which one thing is wrong, by the rule that it breaks.
var forgeries = append([]forgery{
	{"a gap", "I1", func(s *scribe) { s.plan("a"); s.log[2].Sequence++ }, false},
	{"a checkpoint of more than there is", "I2", func(s *scribe) { s.plan("a"); s.forge(checkpointOf(99, 32)) }, false},
	{"a checkpoint with half a root", "I2", func(s *scribe) { s.plan("a"); s.forge(checkpointOf(1, 16)) }, false},
	{"a rotation from later on", "I2", func(s *scribe) { s.plan("a"); s.forge(rotation(s.t, 99, 1, 2, 1)) }, false},
	{"a rotation that another key has signed", "I2",
		func(s *scribe) { s.plan("a"); s.forge(rotation(s.t, 1, 1, 2, 3)) }, false},
	{"a rotation of a key that was rotated before", "I2", func(s *scribe) {
		s.plan("a")
		s.forge(rotation(s.t, 1, 1, 2, 1))
		s.forge(rotation(s.t, 1, 1, 3, 1))
	}, false},
	{"a rotation of a key that has signed nothing", "I2", func(s *scribe) {
		s.plan("a")
		s.forge(checkpointOf(1, 32))
		s.forge(rotation(s.t, 1, 1, 2, 1))
	}, false},
	{"a record that a holder may not write", "I4",
		func(s *scribe) { s.plan("a"); s.forge(&pb.Record{Plan: "p", Kind: planFailed().Kind}) }, false},
	{"a reference to a record that is not there", "I6", func(s *scribe) {
		s.plan("a")
		s.agent(planFailed())
		s.turns(1)
		r := s.dispatch("a", keyOf("a"), 1)
		r.Cause = &pb.Address{Sequence: 99, Leaf: r.About.Leaf}
		s.forge(r)
	}, false},
	{"a reference to another tenant's record", "I6", func(s *scribe) {
		other := newScribe(s.t)
		other.agent(opened(5))
		other.agent(pair("a")...)
		s.plan("a")
		s.agent(planFailed())
		s.lazy = true
		r := s.about("a", nil)
		r.Kind, r.About = &pb.Record_ActionQuarantined{ActionQuarantined: &pb.ActionQuarantined{}},
			other.at("forward_registered", "a")
		s.forge(r)
	}, false},
	{"an answer to a record that was not refused", "I6", func(s *scribe) {
		s.plan("a")
		s.forge(&pb.Record{Kind: &pb.Record_RecordRefused{RecordRefused: &pb.RecordRefused{Sequence: 2}}})
	}, false},
	{"another value brought back", "I10", func(s *scribe) {
		s.write(sensor, asserted("k", `1`))
		s.forge(&pb.Record{Kind: &pb.Record_FactEvicted{FactEvicted: &pb.FactEvicted{Key: "k",
			Fact: s.at("fact_asserted", "")}}})
		evicted := s.at("fact_evicted", "")
		s.forge(&pb.Record{Cause: evicted, Kind: &pb.Record_FactReingested{FactReingested: &pb.FactReingested{
			Key: "k", Fact: s.at("fact_asserted", ""), Evicted: evicted, Value: []byte(`2`)}}})
	}, false},
	{"a question that comes too early", "I29", func(s *scribe) {
		s.agent(append([]*pb.Record{opened(0)}, doubtful("a", true)...)...)
		s.agent(planFailed())
		s.turns(1)
		s.forge(s.asked("a", 1))
	}, false},
	{"a second question that comes too early", "I29", func(s *scribe) {
		s.agent(append(append([]*pb.Record{opened(0)}, doubtful("a", true)...), inDoubt("a"))...)
		s.agent(planFailed())
		s.turns(1)
		s.forge(s.absent("a", 1))
		s.now += 29 * second
		s.forge(s.asked("a", 2))
	}, false},
	{"a blind undo that comes too early", "I29", func(s *scribe) {
		s.agent(append(append([]*pb.Record{opened(0)}, doubtful("a", false)...), inDoubt("a"))...)
		s.agent(planFailed())
		s.turns(1)
		s.now += 29 * second
		r := s.dispatch("a", keyOf("a"), 1)
		k := r.GetCompensationDispatched()
		k.BlindCleanup, k.DirtyFailure, k.HasForwardOutput = true, true, false
		s.forge(r)
	}, false},
	{"an owner who is asked too early", "I29", func(s *scribe) {
		s.agent(append([]*pb.Record{opened(0)}, pair("a", func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			f.Class, c.Capability = pb.Class_CLASS_IRREVERSIBLE, ""
		})...)...)
		s.agent(planFailed())
		s.turns(1)
		r := s.about("a", s.at("unwind_started", ""))
		r.Kind = &pb.Record_ActionQuarantined{ActionQuarantined: &pb.ActionQuarantined{Reason: "irreversible"}}
		s.forge(r)
	}, false},
	{"a skip for what was found too early", "I22", func(s *scribe) {
		s.agent(append(append([]*pb.Record{opened(0)}, doubtful("a", true)...), inDoubt("a"))...)
		s.agent(planFailed())
		s.turns(1)
		s.forge(s.absent("a", 1))
		r := s.about("a", s.at("unwind_started", ""))
		r.Kind = &pb.Record_CompensationSkipped{CompensationSkipped: &pb.CompensationSkipped{Reason: "the probe found no effect"}}
		s.forge(r)
	}, false},
	{"an undo of something else", "I30", func(s *scribe) {
		s.argued("a", `{"ref":2,"was":7,"who":"p"}`)
	}, false},
	{"an undo without what was there before", "I30", func(s *scribe) {
		s.argued("a", `{"ref":1,"was":null,"who":"p"}`)
	}, false},
	{"an undo with more than its bindings", "I30", func(s *scribe) {
		s.argued("a", `{"ref":1,"was":7,"who":"p","force":true}`)
	}, false},
	{"an undo of something else, behind what others wrote", "I30", func(s *scribe) {
		s.agent(append(append([]*pb.Record{opened(0)}, boundPair("a")...), completed("a"))...)
		s.agent(planFailed())
		s.write(sensor, asserted("k", `1`))
		s.write(sensor, asserted("k", `2`))
		s.altered("a", `{"ref":2,"was":7,"who":"p"}`)
	}, false},
	{"a question about something else", "I30", func(s *scribe) {
		s.agent(append(append([]*pb.Record{opened(0)}, probedBy("a", "meta.forward_key")...), inDoubt("a"))...)
		s.agent(planFailed())
		s.altered("a", `{"key":"another"}`)
	}, false},
	{"an undo of what is not of the part that is undone", "I19", func(s *scribe) {
		s.lazy = true
		s.blocked()
		s.decide()
		s.forge(s.dispatch("a", keyOf("a"), 1))
	}, false},
	{"an unwind that says another part", "I21", func(s *scribe) {
		s.blocked()
		decide := func() []*pb.Record {
			return s.state.Decide(executor.Input{EpochNs: s.now, SizeMax: 60 << 10})[:1]
		}
		s.write(holder, decide()...)
		started := decide()
		started[0].GetUnwindStarted().FromAction = "a"
		s.write(holder, started...)
	}, false},
	{"a commit that does not know of a part that was undone", "I24", func(s *scribe) {
		s.blocked()
		s.decide()
		s.agent(planCommitted())
		s.forge(&pb.Record{Plan: "p", Cause: s.at("plan_committed", ""), Kind: &pb.Record_HeldSetRetired{
			HeldSetRetired: &pb.HeldSetRetired{Count: 1}}})
	}, false},
	{"a committed plan that is undone for nothing", "I6", func(s *scribe) {
		s.plan("a", "b")
		s.agent(planCommitted())
		s.decide()
		s.forge(&pb.Record{Plan: "p~1", Cause: s.at("plan_committed", ""), Kind: &pb.Record_UnwindStarted{
			UnwindStarted: &pb.UnwindStarted{Reason: "because"}}})
	}, false},
	{"a part of a committed plan that no verdict reaches is undone", "I19", func(s *scribe) {
		s.lazy = true
		s.reached()
		s.decide()
		a := s.dispatch("a", keyOf("a"), 1)
		a.Plan = "p~1"
		s.forge(a)
	}, false},
	{"a verdict on a committed plan that undoes nothing", "I13", (*scribe).reached, true},
	{"an undo that is given up while a worker may take it", "I23", func(s *scribe) {
		s.unwinding(3)
		s.now += int64(ledger.UnservedDefault) - 1
		s.forge(s.unserved("b", 1, false))
	}, false},
	{"an undo that is given up without the doubt that there is", "I18", func(s *scribe) {
		s.unwinding(3)
		s.write(workerW, &pb.Record{Plan: "p", Action: "b", Kind: &pb.Record_CompensationProgressed{
			CompensationProgressed: &pb.CompensationProgressed{Attempt: 1, Key: keyOf("b"), UntilNs: s.now + second}}})
		s.forge(checkpointOf(1, 32)) // the holder has read on
		s.now += 2 * int64(ledger.UnservedDefault)
		s.forge(s.unserved("b", 1, false))
	}, false},
	{"a question that is given up while a worker may take it", "I23", func(s *scribe) {
		s.agent(append(append([]*pb.Record{opened(0)}, doubtful("a", true)...), inDoubt("a"))...)
		s.agent(planFailed())
		s.turns(1)
		r := s.absent("a", 1)
		k := r.GetProbeAnswered()
		k.Presence, k.Unserved = pb.Presence_PRESENCE_UNSPECIFIED, true
		s.now += int64(ledger.UnservedDefault) - 1
		s.forge(r)
	}, false},
	{"a question that nobody has answered, and an answer", "I20", func(s *scribe) {
		s.agent(append(append([]*pb.Record{opened(0)}, doubtful("a", true)...), inDoubt("a"))...)
		s.agent(planFailed())
		s.turns(1)
		r := s.absent("a", 1)
		r.GetProbeAnswered().Unserved = true
		s.now += 2 * int64(ledger.UnservedDefault)
		s.forge(r)
	}, false},
	{"an undo that is done twice behind its owner's answer", "I22", func(s *scribe) {
		s.unwinding(3)
		s.lazy = true
		s.write(ops, &pb.Record{Plan: "p", Action: "b", Kind: &pb.Record_Resolved{Resolved: &pb.Resolved{
			Outcome: pb.Resolution_RESOLUTION_SKIPPED, Reason: "r", Actor: "ann"}}})
		s.forge(s.succeeded("b", 1))
		again := s.succeeded("b", 1)
		again.GetCompensationSucceeded().Worker = "w2"
		s.forge(again)
	}, false},
	{"a dispatch of what its owner has answered for", "I19", func(s *scribe) {
		s.unwinding(3)
		s.lazy = true
		s.write(ops, &pb.Record{Plan: "p", Action: "b", Kind: &pb.Record_Resolved{Resolved: &pb.Resolved{
			Outcome: pb.Resolution_RESOLUTION_SKIPPED, Reason: "r", Actor: "ann"}}})
		s.forge(s.dispatch("b", keyOf("b"), 2))
	}, false},
	{"a firing without its cause", "I11", func(s *scribe) {
		s.plan("a")
		s.forge(fired("plan.failed", failedText, 1,
			nil))
	}, false},
	{"a firing of another condition", "I11", func(s *scribe) {
		s.plan("a")
		s.agent(planFailed())
		s.forge(fired("plan.failed", "true", 1, s.at("plan_failed", "")))
	}, false},
	{"a firing that tells of another value", "I11", func(s *scribe) {
		s.agent(opened(0, &pb.Trigger{Name: "low", Condition: `facts["stock"] < 3`}))
		s.write(sensor, asserted("stock", `2`))
		r := fired("low", `facts["stock"] < 3`, 1, s.at("fact_asserted", ""))
		r.GetLeaseFired().Readings = []*pb.Reading{{Name: `facts["stock"]`, Value: []byte(`1`),
			Sequence: s.at("fact_asserted", "").Sequence}}
		s.forge(r)
	}, false},
	{"a firing on the clock that tells of a value that nobody asserted", "I11", func(s *scribe) {
		text := `facts["stock"] < 3 && elapsed(plan.opened_at, duration("1s"))`
		s.agent(opened(0, &pb.Trigger{Name: "low", Condition: text}))
		s.write(sensor, asserted("stock", `2`))
		s.now += 2 * second
		r := fired("low", text, 1, s.at("plan_opened", ""))
		r.GetLeaseFired().Readings = []*pb.Reading{{Name: `facts["stock"]`, Value: []byte(`1`),
			Sequence: s.at("fact_asserted", "").Sequence}}
		s.forge(r)
	}, false},
	{"an unwind without a firing", "I11", func(s *scribe) {
		s.plan("a")
		s.forge(&pb.Record{Cause: s.at("plan_opened", ""),
			Kind: &pb.Record_UnwindStarted{UnwindStarted: &pb.UnwindStarted{}}})
	}, false},
	{"a firing for a later record", "I12", func(s *scribe) {
		s.agent(opened(0, &pb.Trigger{Name: "low", Condition: `facts["stock"] < 3`}))
		s.write(sensor, asserted("stock", `2`))
		s.write(sensor, asserted("stock", `1`))
		s.forge(fired("low", `facts["stock"] < 3`, 1, s.at("fact_asserted", "")))
	}, false},
	{"a lease that never fired", "I13", func(s *scribe) {
		s.agent(opened(0, &pb.Trigger{Name: "low", Condition: `facts["stock"] < 3`}))
		s.write(sensor, asserted("stock", `2`))
	}, true},
	{"a lease that the unwind of a part forgot", "I13", (*scribe).undoesPart, true},
	{"a second firing", "I14", func(s *scribe) {
		s.plan("a")
		s.agent(planFailed())
		s.forge(fired("plan.failed", failedText, 1, s.at("plan_failed", "")))
		s.now++
		s.forge(fired("plan.failed", failedText, 1, s.at("plan_failed", "")))
	}, false},
	{"an unwind after the commit", "I15", func(s *scribe) {
		s.plan("a")
		s.agent(planCommitted())
		s.decide()
		s.forge(fired("plan.failed", failedText, 1, nil))
	}, false},
	{"an undo of a plan that is open", "I15", func(s *scribe) {
		s.plan("a")
		r := s.about("a", nil)
		r.Kind = &pb.Record_CompensationDispatched{CompensationDispatched: &pb.CompensationDispatched{Attempt: 1,
			Capability: "undo.a", Key: keyOf("a")}}
		s.forge(r)
	}, false},
	{"a deadline that fires early", "I16", func(s *scribe) {
		s.agent(opened(start + 10*second))
		s.now += 9 * second
		s.forge(fired("plan.deadline", "after(plan.deadline)", 1, s.at("plan_opened", "")))
	}, false},
	{"an undo of what has no effect", "I6", func(s *scribe) {
		s.unwindingWith(append(pair("b", func(f *pb.ForwardRegistered,
			_ *pb.CompensationRegistered) {
			f.Class = pb.Class_CLASS_EFFECTLESS
		}), completed("b"))...)
		s.forge(s.dispatch("b", keyOf("b"), 1))
	}, false},
	{"an undo whose stop does not compile", "I6", func(s *scribe) {
		s.unwindingWith(append(pair("b", func(_ *pb.ForwardRegistered,
			c *pb.CompensationRegistered) {
			c.Stop = "outptu"
		}), completed("b"))...)
		s.forge(s.dispatch("b", keyOf("b"), 1))
	}, false},
	{"an undo that came before its forward", "I6", func(s *scribe) {
		p := pair("b")
		s.unwindingWith(p[1], p[0], completed("b"))
		s.forge(s.dispatch("b", keyOf("b"), 1))
	}, false},
	{"a forward that is to be refused by nobody", "I6", func(s *scribe) {
		s.unwindingWith(append(pair("b", func(f *pb.ForwardRegistered,
			_ *pb.CompensationRegistered) {
			f.Late = pb.Late_LATE_REFUSED
		}), completed("b"))...)
		s.forge(s.dispatch("b", keyOf("b"), 1))
	}, false},
	{"an end that forgets a pair that does not compile", "I31", func(s *scribe) {
		s.plan("a")
		s.agent(pair("b", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) { c.Done = "1 +" })...)
		s.agent(planFailed())
		s.turns(1)
		s.forge(s.succeeded("a", 1), ended(pb.PlanEnd_PLAN_END_COMPENSATED))
	}, false},
	{"a firing of a condition that does not compile", "I14", func(s *scribe) {
		s.agent(opened(0, &pb.Trigger{Name: "x", Condition: `facts["k"] = 1`}))
		s.forge(fired("x", `facts["k"] = 1`, 1, s.at("plan_opened", "")))
	}, false},
	{"a retirement of a plan whose opening was refused", "I24", func(s *scribe) {
		s.agent(opened(0, &pb.Trigger{Name: "x", Condition: `facts["k"] = 1`}))
		s.agent(append(pair("a"), completed("a"), planCommitted())...)
		s.forge(&pb.Record{Cause: s.at("plan_opened", ""),
			Kind: &pb.Record_HeldSetRetired{HeldSetRetired: &pb.HeldSetRetired{Count: 1}}})
	}, false},
	{"a firing of a plan whose deadline had passed", "I14", func(s *scribe) {
		s.agent(opened(start - 2*3600*second))
		s.forge(fired("plan.deadline", "after(plan.deadline)", 1, s.at("plan_opened", "")))
	}, false},
	{"an undo with another timeout", "I17", func(s *scribe) {
		s.unwinding(2)
		r := s.dispatch("a", keyOf("a"), 1)
		r.GetCompensationDispatched().TimeoutNs++
		s.forge(r)
	}, false},
	{"an undo that hides the output of its forward", "I17", func(s *scribe) {
		s.unwinding(2)
		r := s.dispatch("a", keyOf("a"), 1)
		r.GetCompensationDispatched().HasForwardOutput = false
		s.forge(r)
	}, false},
	{"a success without its dispatch", "I18", func(s *scribe) {
		s.plan("a")
		s.agent(planFailed())
		s.turns(1)
		s.forge(s.succeeded("a", 2))
	}, false},
	{"a success that no question has found", "I18", func(s *scribe) {
		s.plan("a")
		s.agent(planFailed())
		s.turns(1)
		r := s.succeeded("a", 1)
		r.GetCompensationSucceeded().Probed = true
		s.forge(r)
	}, false},
	{"another key", "I19", func(s *scribe) { s.unwinding(2); s.forge(s.dispatch("a", keyOf("b"), 1)) }, false},
	{"two attempts at once", "I19", func(s *scribe) { s.unwinding(2); s.forge(s.dispatch("b", keyOf("b"), 2)) }, false},
	{"an undo of what never crossed", "I20", func(s *scribe) {
		s.unwinding(1)
		s.forge(s.dispatch("a", keyOf("a"), 1))
	}, false},
	{"the wrong order", "I21", func(s *scribe) { s.unwinding(3); s.forge(s.dispatch("a", keyOf("a"), 1)) }, false},
	{"a skip out of order", "I21", func(s *scribe) {
		s.unwinding(3)
		r := s.about("a", s.at("unwind_started", ""))
		r.Kind = &pb.Record_CompensationSkipped{CompensationSkipped: &pb.CompensationSkipped{}}
		s.forge(r)
	}, false},
	{"a second success", "I22", func(s *scribe) {
		s.plan("a", "b")
		s.agent(planFailed())
		s.turns(1)
		s.forge(s.succeeded("b", 1))
		s.now++
		s.forge(s.succeeded("b", 1))
	}, false},
	{"compensated with an outstanding action", "I22", func(s *scribe) {
		s.plan("a", "b")
		s.agent(planFailed())
		s.turns(1)
		s.forge(s.succeeded("b", 1), ended(pb.PlanEnd_PLAN_END_COMPENSATED))
	}, false},
	{"a skip of what crossed", "I22", func(s *scribe) {
		s.plan("a", "b")
		s.agent(planFailed())
		s.turns(1)
		s.forge(s.succeeded("b", 1))
		r := s.about("a", s.at("unwind_started", ""))
		r.Kind = &pb.Record_CompensationSkipped{CompensationSkipped: &pb.CompensationSkipped{Reason: "no"}}
		s.forge(r)
	}, false},
	{"compensated beside an act that was refused", "I31", func(s *scribe) {
		s.plan("a")
		s.agent(claimed("b")...)
		s.agent(planFailed())
		s.turns(1)
		s.forge(s.succeeded("a", 1), ended(pb.PlanEnd_PLAN_END_COMPENSATED))
	}, false},
	{"failed beside an act that was refused", "I31", func(s *scribe) {
		s.agent(opened(0))
		s.agent(claimed("a")...)
		s.agent(planFailed())
		s.turns(1)
		s.forge(ended(pb.PlanEnd_PLAN_END_FAILED))
	}, false},
	{"a dispatch of what another process has registered", "I6", func(s *scribe) {
		s.plan("a")
		s.agent(claimed("b")...)
		s.agent(planFailed())
		s.turns(1)
		s.forge(s.dispatch("b", keyOf("b"), 1))
	}, false},
	{"an end that hides what is outstanding", "I23", func(s *scribe) {
		s.plan("a", "b")
		s.agent(planFailed())
		s.turns(1)
		f := s.about("b", s.at("compensation_dispatched", "b"))
		f.Kind = &pb.Record_CompensationFailed{CompensationFailed: &pb.CompensationFailed{Attempt: 1, Final: true}}
		q := s.about("b", nil)
		q.Kind = &pb.Record_ActionQuarantined{ActionQuarantined: &pb.ActionQuarantined{Reason: "no"}}
		s.forge(f, q, ended(pb.PlanEnd_PLAN_END_QUARANTINED, "b"))
	}, false},
	{"a retirement of what is held", "I24", func(s *scribe) {
		s.plan("a")
		s.forge(&pb.Record{Kind: &pb.Record_HeldSetRetired{HeldSetRetired: &pb.HeldSetRetired{Count: 1}}})
	}, false},
	{"a retirement that counts too few", "I24", func(s *scribe) {
		s.plan("a", "b")
		s.agent(planCommitted())
		s.forge(&pb.Record{Cause: s.at("plan_committed", ""),
			Kind: &pb.Record_HeldSetRetired{HeldSetRetired: &pb.HeldSetRetired{Count: 1}}})
	}, false},
	{"a retirement of what is in doubt", "I36", func(s *scribe) {
		s.agent(append(append([]*pb.Record{opened(0)}, doubtful("a", true)...), inDoubt("a"), planCommitted())...)
		s.forge(&pb.Record{Cause: s.at("plan_committed", ""),
			Kind: &pb.Record_HeldSetRetired{HeldSetRetired: &pb.HeldSetRetired{Count: 1, InDoubt: []string{"a"}}}})
	}, false},
	{"a retirement after an answer that came too early", "I36", func(s *scribe) {
		s.agent(append(append([]*pb.Record{opened(0)}, doubtful("a", true)...), inDoubt("a"), planCommitted())...)
		r := s.asked("a", 1)
		s.forge(r)
		s.forge(s.absent("a", 1))
		s.forge(&pb.Record{Cause: s.at("plan_committed", ""),
			Kind: &pb.Record_HeldSetRetired{HeldSetRetired: &pb.HeldSetRetired{Count: 1}}})
	}, false},
	{"a retirement beside an act that was refused", "I31", func(s *scribe) {
		s.agent(append(append([]*pb.Record{opened(0)}, doubtful("a", false)...), inDoubt("a"), planCommitted())...)
		s.agent(claimed("b")...)
		s.agent(completed("a"))
		s.forge(&pb.Record{Cause: s.at("plan_committed", ""),
			Kind: &pb.Record_HeldSetRetired{HeldSetRetired: &pb.HeldSetRetired{Count: 1}}})
	}, false},
	{"a retirement while its owner is asked", "I36", func(s *scribe) {
		s.agent(append(append([]*pb.Record{opened(0)}, doubtful("a", false)...), inDoubt("a"), planCommitted())...)
		s.decide()
		s.forge(&pb.Record{Cause: s.at("plan_committed", ""),
			Kind: &pb.Record_HeldSetRetired{HeldSetRetired: &pb.HeldSetRetired{Count: 1, InDoubt: []string{"a"}}}})
	}, false},
	{"a retirement that hides what its plan accepts", "I36", func(s *scribe) {
		first := opened(0)
		first.GetPlanOpened().DoubtAtCommit = pb.DoubtAtCommit_DOUBT_AT_COMMIT_ACCEPT
		s.agent(append(append([]*pb.Record{first}, doubtful("a", false)...), inDoubt("a"), planCommitted())...)
		s.forge(&pb.Record{Cause: s.at("plan_committed", ""),
			Kind: &pb.Record_HeldSetRetired{HeldSetRetired: &pb.HeldSetRetired{Count: 1}}})
	}, false},
	{"a wait for what is known", "I36", func(s *scribe) {
		s.agent(append(append(append([]*pb.Record{opened(0)}, doubtful("a", false)...), inDoubt("a"), completed("a")),
			doubtful("b", false)...)...)
		s.agent(inDoubt("b"), planCommitted())
		r := s.about("a", s.at("plan_committed", ""))
		r.Kind = &pb.Record_CommitWaits{CommitWaits: &pb.CommitWaits{Reason: "no"}}
		s.forge(r)
	}, false},
	{"an owner who is asked too early by a commit", "I29", func(s *scribe) {
		s.agent(append(append([]*pb.Record{opened(0)}, doubtful("a", false)...), planCommitted())...)
		r := s.about("a", s.at("plan_committed", ""))
		r.Kind = &pb.Record_CommitWaits{CommitWaits: &pb.CommitWaits{Reason: "no probe"}}
		s.forge(r)
	}, false},
	{"an undo while a commit waits", "I15", func(s *scribe) {
		s.agent(append(append(append([]*pb.Record{opened(0)}, doubtful("a", false)...), inDoubt("a")),
			planCommitted())...)
		r := s.about("a", s.at("plan_committed", ""))
		r.Kind = &pb.Record_CompensationDispatched{CompensationDispatched: &pb.CompensationDispatched{Attempt: 1,
			Capability: "undo.a", Key: keyOf("a"), BlindCleanup: true}}
		s.forge(r)
	}, false},
	{"a deadline that fires while a commit waits", "I15", func(s *scribe) {
		s.agent(append(append(append([]*pb.Record{opened(start + second)}, doubtful("a", false)...), inDoubt("a")),
			planCommitted())...)
		s.now += 2 * second
		s.forge(fired("plan.deadline", "after(plan.deadline)", 1, s.at("plan_opened", "")))
	}, false},
	{"a commit that waits for nothing", "L1", func(s *scribe) {
		s.agent(append(append(append([]*pb.Record{opened(0)}, doubtful("a", false)...), inDoubt("a")),
			planCommitted())...)
		s.agent(completed("a"))
	}, true},
	{"an undo with null in place of what was not kept", "I37", func(s *scribe) {
		s.agent(opened(0))
		s.agent(append(pair("a", readsRef), incomplete("a"))...)
		s.agent(append(pair("b"), completed("b"))...)
		s.agent(planFailed())
		s.turns(1)
		s.forge(s.succeeded("b", 1))
		r := s.dispatch("a", keyOf("a"), 1)
		r.GetCompensationDispatched().HasForwardOutput = false
		r.Payload = &pb.Payload{Arguments: []byte(`{"ref":null}`)}
		s.forge(r)
	}, false},
	{"a check with null in place of what was not kept", "I37", func(s *scribe) {
		s.agent(opened(0))
		s.agent(append(pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.Verify = &pb.Verify{Ok: "verify.gone", Call: &pb.Call{Capability: "check.a",
				Bindings: []*pb.Binding{{Name: "ref", Expression: "output.ref"}}}}
		}), incomplete("a"))...)
		s.agent(planFailed())
		s.turns(1)
		r := s.about("a", s.at("compensation_dispatched", "a"))
		r.Kind = &pb.Record_ProbeAsked{ProbeAsked: &pb.ProbeAsked{Attempt: 1, Capability: "check.a", Key: keyOf("a"),
			Question:  pb.Question_QUESTION_VERIFY,
			TimeoutNs: 30 * second, Done: &pb.CompensationSucceeded{Attempt: 1}}}
		s.forge(r)
	}, false},
	{"an end that counts too few", "I22", func(s *scribe) {
		s.plan("a")
		s.agent(planFailed())
		s.turns(1)
		s.forge(s.succeeded("a", 1), ended(pb.PlanEnd_PLAN_END_COMPENSATED))
	}, false},
	{"another depth", "I25", func(s *scribe) {
		s.agent(opened(0, &pb.Trigger{Name: "low", Condition: `facts["stock"] < 3`}))
		s.write(sensor, asserted("stock", `2`))
		s.forge(fired("low", `facts["stock"] < 3`, 65, s.at("fact_asserted", "")))
	}, false},
	{"a decision of an older term", "I26", func(s *scribe) {
		s.plan("a")
		s.agent(planFailed())
		s.begin(2)
		r := fired("plan.failed", failedText, 1, s.at("plan_failed", ""))
		r.Term, r.EpochNs = 1, s.now
		s.forge(r)
	}, false},
	{"a term that goes back", "I26", func(s *scribe) { s.begin(3); s.begin(2) }, false},
	{"a message of another tenant", "I27", func(s *scribe) { r := opened(0); r.Plan = "p"; s.write(foreignT, r) },
		false},
	{"a missing undo", "L1", func(s *scribe) {
		s.plan("a",
			"b")
		s.agent(planFailed())
		s.turns(1)
		s.forge(s.succeeded("b", 1))
	}, true},
	{"a firing without its unwind", "L1", func(s *scribe) {
		s.plan("a")
		s.agent(planFailed())
		r := fired("plan.failed", failedText, 1, s.at("plan_failed", ""))
		r.GetLeaseFired().Readings = []*pb.Reading{{Name: "plan.status", Value: []byte(`"failed"`)}}
		s.forge(r)
	}, true},
	{"a deadline that never fires", "L2", func(s *scribe) {
		s.agent(opened(start + second))
		s.now += 2 * second
		s.write(sensor, asserted("k", `1`))
	}, true},
}, slices.Concat(tenantForgeries, wordForgeries, heldForgeries, lastForgeries, groundForgeries,
	partForgeries, stagedForgeries, prefixForgeries)...)

// TestEveryForgeryIsFound: each ledger breaks one rule, and the audit names it and the
// record, or the plan.
func TestEveryForgeryIsFound(t *testing.T) {
	for _, c := range forgeries {
		t.Run(c.name, func(t *testing.T) {
			s := newScribe(t)
			c.write(s)
			l, found := s.audited()
			if c.end {
				if len(found) > 0 {
					t.Fatalf("before the end: %+v", found)
				}
				found = l.End()
			}
			if !slices.ContainsFunc(found,
				func(v audit.Violation) bool { return v.Rule == c.rule && v.Problem != "" }) {
				t.Fatalf("found %+v, want a violation of %s; %+v", found, c.rule, l.Entries())
			}
		})
	}
}

// TestEveryRuleHasItsForgery: what Rules says of this package is shown by a ledger
// that breaks the rule, or by a record that it refuses.
func TestEveryRuleHasItsForgery(t *testing.T) {
	told := map[string]string{
		"I3": "refused", "I5": "refused", // by whom is no matter: nobody acts on it
		"I7": "a newer reader", "I8": "time", "I28": "payloads", // tests of their own
	}
	for _, c := range forgeries {
		told[c.rule] = c.name
	}
	here := map[string]bool{}
	for _, c := range audit.Clauses() {
		rule, _, _ := strings.Cut(c.ID, ".")
		here[rule] = true
	}
	for _, r := range audit.Rules() {
		held := here[r.ID] || r.Here != ""
		if r.Sentence == "" || !held && r.Elsewhere == "" {
			t.Errorf("%s says nothing", r.ID)
		}
		if held && told[r.ID] == "" {
			t.Errorf("no ledger breaks %s", r.ID)
		}
	}
}

// TestRefusedRecordsAreToldWithTheirRule: what anybody but the holder writes against a
// rule changes nothing, and is no violation.
func TestRefusedRecordsAreToldWithTheirRule(t *testing.T) {
	half := pair("b")[:1]
	for _, c := range []struct {
		rule    string
		records []*pb.Record
	}{
		{"I5", []*pb.Record{opened(7)}},
		{"I5", []*pb.Record{{Action: "a", Kind: &pb.Record_ForwardFailed{ForwardFailed: &pb.ForwardFailed{}}}}},
		{"I6", []*pb.Record{completed("nobody")}},
		{"I17", half},
		{"I17", []*pb.Record{pair("b")[1], pair("b")[0]}},
		{"I17", pair("b", bound("input.("))},
		{"I17", pair("b", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) { c.Done = "1" })},
		{"I17", pair("b", func(f *pb.ForwardRegistered,
			_ *pb.CompensationRegistered) {
			f.Late = pb.Late_LATE_REFUSED
		})},
		{"I4", []*pb.Record{{Plan: "q", Kind: opened(0, &pb.Trigger{Name: "x", Condition: "plan.statsu"}).Kind}}},
		{"I4", []*pb.Record{{Plan: "q", Kind: opened(start - 3600*second).Kind}}},
		{"I19", pair("b", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) { c.Key = keyOf("a") })},
	} {
		s := newScribe(t)
		s.plan("a")
		s.agent(c.records...)
		l, found := s.audited()
		entries := l.Entries()
		if e := entries[len(entries)-1]; len(found) > 0 || e.Verdict != audit.Refused ||
			!strings.Contains(fmt.Sprint(entries), c.rule) {
			t.Errorf("%s: %+v, %+v", c.rule, e, found)
		}
	}
	s := newScribe(t)
	s.plan("a")
	s.agent(planFailed())
	s.decide()
	s.agent(planCommitted())
	if l, found := s.audited(); len(found) > 0 || l.Entries()[0].Rule != "I15" {
		t.Errorf("a commit behind the unwind: %+v, %+v", l.Entries(), found)
	}
}

// TestWhatTheUndoDoesNotNeedMayBeMissing: its contract says so, or reads nothing of it.
func TestWhatTheUndoDoesNotNeedMayBeMissing(t *testing.T) {
	for _, expression := range []string{"output.?ref", "has(output.ref) ? output.ref : input.id", "meta.forward_key",
		"plan.label", `meta.blind_cleanup ? output.ref : "x"`} {
		s := newScribe(t)
		s.agent(opened(0))
		s.agent(append(pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.Bindings = []*pb.Binding{{Name: "ref", Expression: expression}}
		}), incomplete("a"))...)
		s.agent(planFailed())
		s.decide()
		l, found := s.audited()
		if found = append(found, l.End()...); len(found) > 0 || l.Plans()[0].State != ledger.StateCompensated {
			t.Errorf("%s: %+v, %+v", expression, l.Plans(), found)
		}
	}
}
