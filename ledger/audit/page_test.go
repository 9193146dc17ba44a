package audit_test

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestAPageIsTakenUnderItsKind: that of what it is about, which the audit knows by itself.
func TestAPageIsTakenUnderItsKind(t *testing.T) {
	foreign := func(id string) []*pb.Record { // of another process, so that they are refused
		records := pair(id)
		for _, r := range records {
			r.Writer = "w2"
		}
		return records
	}
	ledgers := map[string]func(s *scribe) *pb.Record{
		api.PageCommitWaits: func(s *scribe) *pb.Record {
			s.agent(append(append([]*pb.Record{opened(0)}, doubtful("a", false)...), inDoubt("a"), planCommitted())...)
			s.decide()
			return s.about("a", s.at("commit_waits", "a"))
		},
		api.PageActClaimed: func(s *scribe) *pb.Record {
			s.agent(append([]*pb.Record{opened(0)}, append(pair("a"), completed("a"))...)...)
			s.agent(foreign("b")...)
			return &pb.Record{Cause: s.at("forward_registered", "b")}
		},
		api.PageVerdictWanted: func(s *scribe) *pb.Record {
			s.rules = ledger.VerdictWantedSince
			s.begin(2)
			s.agent(append([]*pb.Record{opened(0)}, reviewed("a")...)...)
			return s.about("a", s.at("forward_registered", "a"))
		},
		api.PageQuarantined: func(s *scribe) *pb.Record {
			s.fails = true
			s.agent(append([]*pb.Record{opened(0)}, append(pair("a"), completed("a"), planFailed())...)...)
			s.decide()
			return s.about("a", s.at("action_quarantined", "a"))
		},
	}
	for want, write := range ledgers {
		for kind := range ledgers {
			s := newScribe(t)
			r := write(s)
			r.Kind = &pb.Record_OwnerPaged{OwnerPaged: &pb.OwnerPaged{Hook: "default", Kind: kind}}
			s.forge(r)
			_, violations := s.audited()
			if taken := len(violations) == 0; taken != (kind == want) {
				t.Errorf("a page %s is taken as %s: %v", want, kind, violations)
			}
		}
	}
}

// judge gives a verdict on an action.
func (s *scribe) judge(action string, outcome pb.VerdictOutcome) {
	s.t.Helper()
	s.write(ledger.Source{Tenant: "t", Class: ledger.ClassVerdict, Name: "law"}, &pb.Record{
		Plan: "p", Action: action,
		Kind: &pb.Record_VerdictGiven{VerdictGiven: &pb.VerdictGiven{Outcome: outcome}}})
}

// reviewed is a pair whose forward waits for a verdict.
func reviewed(id string) []*pb.Record {
	records := pair(id)
	records[0].GetForwardRegistered().Review = true
	return records
}

// TestAPageOfAVerdictIsOpenWhileItIsWaitedFor: no hook can have taken one of an action that has its
// verdict, or did not wait for any.
func TestAPageOfAVerdictIsOpenWhileItIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		more  func(s *scribe)
		taken bool
	}{
		"nothing more":      {func(*scribe) {}, true},
		"a verdict":         {func(s *scribe) { s.judge("a", pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW) }, false},
		"an outcome":        {func(s *scribe) { s.agent(completed("a")) }, false},
		"its plan unwinds":  {func(s *scribe) { s.agent(planFailed()); s.decide() }, false},
		"another's verdict": {func(s *scribe) { s.judge("b", pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK) }, true},
	} {
		s := newScribe(t)
		s.rules = ledger.VerdictWantedSince
		s.begin(2)
		s.agent(append(append([]*pb.Record{opened(0)}, reviewed("a")...), pair("b")...)...)
		r := s.about("a", s.at("forward_registered", "a"))
		c.more(s)
		s.begin(3) // what comes after it knows of that, and has lost no race
		r.Kind = &pb.Record_OwnerPaged{OwnerPaged: &pb.OwnerPaged{Hook: "default", Kind: api.PageVerdictWanted}}
		s.forge(r)
		if _, violations := s.audited(); (len(violations) == 0) != c.taken {
			t.Errorf("%s: %v", name, violations)
		}
	}
	s := newScribe(t) // no one waits for one
	s.rules = ledger.VerdictWantedSince
	s.begin(2)
	s.agent(append([]*pb.Record{opened(0)}, pair("a")...)...)
	r := s.about("a", s.at("forward_registered", "a"))
	r.Kind = &pb.Record_OwnerPaged{OwnerPaged: &pb.OwnerPaged{Hook: "default", Kind: api.PageVerdictWanted}}
	s.forge(r)
	if _, violations := s.audited(); len(violations) == 0 {
		t.Error("a page of an action that waits for no verdict was taken")
	}
}
