package audit_test

import (
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// stagedForgeries are ledgers in which a staged act is delivered otherwise than it may be.
var stagedForgeries = []forgery{
	{"a staged act is sent while its plan unwinds", "I38", func(s *scribe) {
		s.staged("a", "m")
		s.agent(planFailed())
		s.decideTo("unwind_started")
		s.forge(s.delivers("m", 1))
	}, false},
}

// staged opens a plan with an action, and with some that are staged.
func (s *scribe) staged(action string, ids ...string) {
	s.t.Helper()
	s.rules = ledger.StagedSince
	s.begin(2)
	s.agent(opened(0))
	s.agent(append(pair(action), completed(action))...)
	for _, id := range ids {
		s.agent(pair(id, isStaged)...)
	}
}

// isStaged makes a pair one of a staged act.
func isStaged(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
	f.Class, f.Deliver = pb.Class_CLASS_IRREVERSIBLE, &pb.CompensationRegistered{Capability: f.Capability}
	c.Capability, c.Attempts, c.BackoffNs = "", 0, 0
}

// delivers is the dispatch of a staged act.
func (s *scribe) delivers(id string, attempt uint32) *pb.Record {
	r := s.dispatch(id, ledger.Key("t", "p", id, ledger.PurposeDo), attempt)
	r.GetCompensationDispatched().Capability = "do." + id
	r.GetCompensationDispatched().HasForwardOutput = false
	return r
}
