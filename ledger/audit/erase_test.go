package audit_test

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

func erased(force bool) *pb.Record {
	return &pb.Record{Plan: "p", Kind: &pb.Record_PlanErased{PlanErased: &pb.PlanErased{Reason: "ticket 1",
		Actor: "ana", Force: force}}}
}

func keyGone(cause *pb.Address) *pb.Record {
	return &pb.Record{Cause: cause, Kind: &pb.Record_PlanErased{PlanErased: &pb.PlanErased{Destroyed: true}}}
}

// sealedPlan is a plan with one action whose undo takes a sealed value.
func (s *scribe) sealedPlan() {
	s.t.Helper()
	s.agent(opened(0))
	records := append(pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Sealed, c.Bindings = true, []*pb.Binding{{Name: "card", Expression: "input.card"}}
	}), completed("a"))
	card := seal.Seal(seal.Key{1}, seal.Place{Tenant: "t", Plan: "p", Action: "a", Field: "input.card"},
		[]byte(`"4000"`))
	records[0].Payload = &pb.Payload{Input: append(append([]byte(`{"card":`), card...), '}')}
	s.agent(records...)
}

// TestErasuresAreReportedAndNothingElseChanges: the records verify with the key and
// without it, and the report says what is not proven any more.
func TestErasuresAreReportedAndNothingElseChanges(t *testing.T) {
	s := newScribe(t)
	s.sealedPlan()
	s.write(ops, erased(false)) // refused: it is open
	s.agent(planFailed())
	s.decide()
	s.write(ops, erased(false))
	l, found := s.audited()
	e := l.Plans()[0].Erasure
	if len(found) > 0 || e == nil || e.Plan != "p" || e.Reason != "ticket 1" || e.Actor != "ana" ||
		e.Destroyed != nil || e.Sealed != 2 {
		t.Fatalf("%+v, %+v", e, found)
	}
	s.forge(keyGone(e.Erased))
	l, found = s.audited()
	if p := l.Plans()[0]; len(append(found, l.End()...)) > 0 || p.Erasure.Destroyed == nil ||
		p.State != ledger.StateCompensated {
		t.Fatalf("%+v, %+v, %+v", p.Erasure, found, p)
	}
}

// TestForgedErasuresAreFound: a key that is said to be gone and nobody asked for it, the
// word for it twice, and an undo that was sent with what nobody could open.
func TestForgedErasuresAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		rule  string
		write func(s *scribe)
	}{
		"a key that nobody asked to destroy": {"I6", func(s *scribe) { s.forge(keyGone(s.at("plan_opened", ""))) }},
		"the word for it twice": {"I5", func(s *scribe) {
			s.write(ops, erased(true))
			at := s.at("plan_erased", "")
			s.forge(keyGone(at))
			s.now++
			s.forge(keyGone(at))
		}},
		"an undo that takes what was erased": {"I20", func(s *scribe) {
			s.write(ops, erased(true))
			s.agent(planFailed())
			r := fired("plan.failed", failedText, 1, s.at("plan_failed", ""))
			r.GetLeaseFired().Readings = []*pb.Reading{{Name: "plan.status", Value: []byte(`"failed"`)}}
			s.forge(r)
			s.forge(&pb.Record{Cause: s.at("lease_fired", ""),
				Kind: &pb.Record_UnwindStarted{UnwindStarted: &pb.UnwindStarted{Reason: "no"}}})
			s.forge(s.dispatch("a", keyOf("a"), 1))
		}},
	} {
		s := newScribe(t)
		s.sealedPlan()
		c.write(s)
		if _, found := s.audited(); len(found) != 1 || found[0].Rule != c.rule {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
