package audit_test

import (
	"testing"

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
