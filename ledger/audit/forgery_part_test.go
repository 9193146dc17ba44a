package audit_test

import (
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// partForgeries are of holders that undo what is not to be undone: what the undo of a part leaves
// out, and what is undone already.
var partForgeries = []forgery{
	{"what the undo of a part leaves out is undone when its forward completes", "I6", func(s *scribe) {
		s.rules = ledger.LeftOutSince - 1
		s.begin(2)
		term := len(s.log) - 1
		open := opened(0)
		open.GetPlanOpened().DoubtAtCommit = pb.DoubtAtCommit_DOUBT_AT_COMMIT_ACCEPT
		s.agent(open)
		s.agent(append(pair("a", inWindow), completed("a"))...)
		s.agent(append(pair("b", inWindow, func(f *pb.ForwardRegistered, _ *pb.CompensationRegistered) {
			f.Branch = true
		}), inDoubt("b"))...)
		s.agent(planCommitted())
		s.decide()
		s.write(ops, &pb.Record{Plan: "p", Kind: &pb.Record_CompensationRequested{
			CompensationRequested: &pb.CompensationRequested{FromAction: "a", Reason: "wrong", Actor: "ops"}}})
		s.decide()
		s.agent(completed("b"))
		s.decide()
		s.claims(term, ledger.LeftOutSince)
	}, false},
	{"a retirement by an agent that knows of no rewinding", "I24", func(s *scribe) {
		s.rules = ledger.RewindsSince - 1
		s.begin(2)
		term := len(s.log) - 1
		s.agent(opened(0))
		s.agent(append(pair("a"), completed("a"))...)
		s.agent(&pb.Record{Kind: &pb.Record_SavepointSet{SavepointSet: &pb.SavepointSet{Name: "s", Number: 1}}})
		s.write(ops, &pb.Record{Plan: "p", Kind: &pb.Record_CompensationRequested{
			CompensationRequested: &pb.CompensationRequested{ToSavepoint: "s", Reason: "wrong", Actor: "ops"}}})
		s.decide()
		s.agent(planCommitted())
		s.decide()
		s.claims(term, ledger.RewindsSince)
	}, false},
	{"an effect that is undone by its name is undone again for its caller's doubt", "I6", func(s *scribe) {
		term := s.sees(ledger.SeenSince - 1)
		s.turns(1)
		s.agent(inDoubt("a"))
		s.turns(1)
		s.claims(term, ledger.SeenSince)
	}, false},
	{"an effect that was found is skipped as its agent says that its forward has failed", "I22", func(s *scribe) {
		term := s.sees(ledger.ThereSince - 1)
		s.agent(&pb.Record{Action: "a", Kind: &pb.Record_ForwardFailed{ForwardFailed: &pb.ForwardFailed{Code: "no"}}})
		s.turns(1)
		s.claims(term, ledger.ThereSince)
	}, false},
}

// sees has the probe find the effect of an action in doubt by name, in a plan that is undone under
// the rules of a version. It returns the number of its term's message.
func (s *scribe) sees(rules uint32) (term int) {
	s.rules = rules
	s.begin(2)
	term = len(s.log) - 1
	s.agent(append([]*pb.Record{opened(0)}, doubtful("a", true)...)...)
	s.agent(planFailed())
	s.turns(1)
	s.now += int64(time.Hour) // its forward can land no more
	s.turns(1)
	found := s.absent("a", 1)
	found.GetProbeAnswered().Presence = pb.Presence_PRESENCE_PRESENT
	found.GetProbeAnswered().ExternalRef = "x7"
	s.forge(found)
	return term
}

// inWindow has an action undone within an hour.
func inWindow(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
	c.ValidForNs = int64(time.Hour)
}

// claims has the holder of a term say that it follows other rules than it did.
func (s *scribe) claims(term int, rules uint32) {
	s.t.Helper()
	entries, err := ledger.Decode("t", s.log[term])
	if err != nil {
		s.t.Fatal(err)
	}
	r := entries[0].Record
	r.GetTermStarted().FoldVersion = rules
	data, err := ledger.EncodeCommit([]*pb.Record{r})
	if err != nil {
		s.t.Fatal(err)
	}
	s.log[term].Data = data
}
