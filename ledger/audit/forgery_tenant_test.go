package audit_test

import (
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// tenantForgeries are those in which a holder does not heed what its tenant may do.
var tenantForgeries = []forgery{
	{"a plan that goes on in a suspended tenant", "I13", func(s *scribe) {
		s.plan("a")
		s.forge(suspends(2))
		s.agent(pair("b")...)
	}, true},
	{"a plan that begins in a suspended tenant", "I13", func(s *scribe) {
		s.forge(suspends(2))
		s.plan("a")
	}, true},
	{"a plan that an outcome begins in a suspended tenant", "I13", func(s *scribe) {
		s.rules = ledger.BoundedSince
		s.begin(2)
		s.forge(suspends(2))
		s.agent(completed("a"))
	}, true},
	{"a fact that does not fire in a suspended tenant", "I13", func(s *scribe) {
		s.rules = ledger.BoundedSince
		s.begin(2)
		s.agent(opened(0, &pb.Trigger{Name: "k", Condition: `facts["k"] == 1`}))
		s.forge(suspends(2))
		s.write(sensor, asserted("k", `1`))
	}, true},
	{"an undo for a limit that is not reached", "I11", func(s *scribe) {
		s.forge(&pb.Record{Kind: &pb.Record_TenantChanged{TenantChanged: &pb.TenantChanged{Revision: 2, By: "ana",
			Limits: &pb.TenantLimits{OpenPlans: 2, Records: 100}}}})
		s.plan("a")
		s.forge(&pb.Record{Plan: "p", Cause: s.at("plan_opened", ""), Kind: &pb.Record_LeaseFired{
			LeaseFired: &pb.LeaseFired{Lease: "plan.failed", Condition: failedText, Depth: 1}}})
	}, false},
	{"a plan that goes on beyond the conditions that are held", "I13", func(s *scribe) {
		s.agent(opened(0, &pb.Trigger{Name: "k", Condition: `facts["k"] == 1`}))
		s.forge(&pb.Record{Kind: &pb.Record_TenantChanged{TenantChanged: &pb.TenantChanged{Revision: 2, By: "ana",
			Limits: &pb.TenantLimits{HeldConditions: 1}}}})
		s.agent(pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.Triggers = []*pb.Trigger{{Name: "l", Condition: `facts["l"] == 1`}}
		})...)
	}, true},
	{"a refusal for conditions that were given up", "I6", func(s *scribe) {
		s.agent(opened(0, &pb.Trigger{Name: "k", Condition: `facts["k"] == 1`}))
		s.forge(&pb.Record{Kind: &pb.Record_TenantChanged{TenantChanged: &pb.TenantChanged{Revision: 2, By: "ana",
			Limits: &pb.TenantLimits{HeldConditions: 1}}}})
		s.agent(planCommitted())
		s.turns(1)
		one := opened(0, &pb.Trigger{Name: "k", Condition: `facts["k"] == 1`})
		one.Plan = "q"
		s.agent(one)
		s.forge(&pb.Record{Kind: &pb.Record_RecordRefused{RecordRefused: &pb.RecordRefused{
			Sequence: uint64(len(s.log))}}})
	}, false},
	{"a default deadline that never fires", "L2", func(s *scribe) {
		s.rules = ledger.MovedSince
		s.begin(2)
		s.forge(defaultsTo(5))
		s.plan("a")
		s.now += 6 * second
		s.write(sensor, asserted("k", `1`))
	}, true},
	{"a default deadline that fires early", "I16", func(s *scribe) {
		s.rules = ledger.MovedSince
		s.begin(2)
		s.forge(defaultsTo(5))
		s.plan("a")
		s.now += 4 * second
		s.forge(fired("plan.deadline", "after(plan.deadline)", 1, s.at("plan_opened", "")))
	}, false},
}

// defaultsTo has plans that name no deadline end after so many seconds.
func defaultsTo(seconds uint64) *pb.Record {
	return &pb.Record{Kind: &pb.Record_TenantChanged{TenantChanged: &pb.TenantChanged{Revision: 2, By: "ana",
		Limits: &pb.TenantLimits{DefaultDeadline: seconds}}}}
}
