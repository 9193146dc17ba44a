package audit_test

import (
	"time"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// heldForgeries are about conditions that are held after the commit.
var heldForgeries = []forgery{
	{"a plan that is undone as idle, whose agent writes", "I16", func(s *scribe) {
		s.agent(opened(0, idles))
		s.now += 50 * second
		s.agent(pair("a")...)
		s.begin(2) // its holder knows of that
		s.now += 59 * second
		s.forge(fired(idles.Name, idles.Condition, 1, s.at("plan_opened", "")))
	}, false},
	{"a plan that is undone as idle, of which a part is at work", "I16", func(s *scribe) {
		s.agent(opened(0, idles))
		s.openChild()
		s.now += 50 * second
		s.child(pair("a")...)
		s.begin(2)
		s.now += 59 * second
		s.forge(fired(idles.Name, idles.Condition, 1, s.at("plan_opened", "")))
	}, false},
	{"a condition that did not ask for it fires after the commit", "I15", func(s *scribe) {
		s.since("own", false)
		s.write(sensor, asserted("b", "1"))
		s.forge(s.firesOn("b", "own"))
	}, false},
	{"a condition fires when its undo window has closed", "I20", func(s *scribe) {
		s.since("held", true)
		s.now += 120 * second
		s.write(sensor, asserted("b", "1"))
		s.forge(s.firesOn("b", "held"))
	}, false},
	{"a condition fires for a committed plan that is undone", "I5", func(s *scribe) {
		s.since("held", true)
		s.write(sensor, asserted("b", "1"))
		s.decide()
		s.forge(s.firesOn("b", "held"))
	}, false},
	{"a condition fires beside a child plan that is undone", "I15", func(s *scribe) {
		s.since("held", true, func() {
			s.openChild()
			s.child(pair("c")...)
			s.child(&pb.Record{Action: "c", Kind: &pb.Record_ForwardFailed{ForwardFailed: &pb.ForwardFailed{}}},
				planFailed())
			s.decide()
		})
		s.child(completed("c"))
		s.decideTo("compensation_dispatched")
		s.write(sensor, asserted("b", "1"))
		s.forge(s.firesOn("b", "held"))
	}, false},
	{"a condition fires that turned true after another one of its tree", "I12", func(s *scribe) {
		s.since("held", true, func() {
			s.openChild()
			s.child(append(pair("c", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
				c.ValidForNs = int64(time.Minute)
				c.Triggers = []*pb.Trigger{{Name: "held", Condition: `facts["c"] == 1`, AfterCommit: true}}
			}), completed("c"), planCommitted())...)
		})
		s.write(sensor, asserted("c", "1"))
		s.write(sensor, asserted("b", "1"))
		s.forge(s.firesOn("b", "held"))
	}, false},
	{"a part that no condition after the commit reaches is undone", "I19", func(s *scribe) {
		s.lazy = true
		s.since("held", true)
		s.write(sensor, asserted("b", "1"))
		s.decide()
		a := s.dispatch("a", keyOf("a"), 1)
		a.Plan = "p~1"
		s.forge(a)
	}, false},
	{"a condition that turned true after the commit and is not acted upon", "I13", func(s *scribe) {
		s.since("held", true)
		s.write(sensor, asserted("b", "1"))
	}, true},
}

// idles undoes a plan whose agent writes nothing for a minute.
var idles = &pb.Trigger{Name: "idle", Scope: pb.Scope_SCOPE_PLAN,
	Condition: `elapsed(plan.active_at, duration("1m"))`}
