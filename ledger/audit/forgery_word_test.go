package audit_test

import (
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// wordForgeries are ledgers in which a holder takes the word of someone who had no say.
var wordForgeries = []forgery{
	{"a failure against the report of the worker that was given the undo", "I18", func(s *scribe) {
		s.secret = []byte("of a host")
		s.plan("a")
		s.agent(planFailed())
		s.turns(1)
		s.write(workerW, &pb.Record{Plan: "p", Action: "a", Kind: &pb.Record_CompensationReported{
			CompensationReported: &pb.CompensationReported{Attempt: 1, Key: keyOf("a"), Answer: pb.Answer_ANSWER_DONE,
				Token: ledger.ReportToken(s.secret, "t", "p", "a", keyOf("a"), 1)}}})
		s.forge(checkpointOf(1, 32)) // the holder has read on
		r := s.about("a", s.at("compensation_dispatched", "a"))
		r.Kind = &pb.Record_CompensationFailed{CompensationFailed: &pb.CompensationFailed{Attempt: 1}}
		s.forge(r)
	}, false},
	{"a retirement by the word of a process whose resume came too late", "I24", func(s *scribe) {
		s.rules = ledger.FollowsSince
		s.begin(2)
		s.plan("a")
		resume := func(writer string, follows uint64) {
			s.agent(&pb.Record{Writer: writer, Kind: &pb.Record_PlanResumed{PlanResumed: &pb.PlanResumed{
				Follows: follows}}})
		}
		first := s.at("plan_opened", "").Sequence
		resume("w2", first)
		resume("w3", s.at("plan_resumed", "").Sequence)
		resume("w2", first) // a copy, stored late
		commit := planCommitted()
		commit.Writer = "w2"
		s.agent(commit)
		s.forge(&pb.Record{Cause: s.at("plan_committed", ""),
			Kind: &pb.Record_HeldSetRetired{HeldSetRetired: &pb.HeldSetRetired{Count: 1}}})
	}, false},
}
