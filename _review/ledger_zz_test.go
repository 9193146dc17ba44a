package ledger_test

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

func TestZZHidden(t *testing.T) {
	held := []*pb.Trigger{{Name: "t", Condition: "true", AfterCommit: true}}
	undo := registration("x1")
	undo.GetCompensationRegistered().Triggers = held // no window
	child := &pb.Record{Plan: "p1", Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{Triggers: held, ParentPlan: "p0"}}}
	for _, records := range [][]*pb.Record{{forward("x1"), undo}, {child}} {
		hidden := message(agentSource, "", encode(t, records...))
		hidden.Data[1] = 1
		for _, e := range ledger.Under(decode(t, hidden), ledger.AfterCommitSince-1) {
			t.Logf("%s: %v", ledger.KindOf(e.Record).Name, e.Err)
		}
	}
	// the same with ask_after that no one knew of
	undo = registration("x1")
	undo.GetCompensationRegistered().AskAfterNs = 5
	hidden := message(agentSource, "", encode(t, forward("x1"), undo))
	hidden.Data[1] = 1
	for _, e := range ledger.Under(decode(t, hidden), ledger.UnchangedSince-1) {
		t.Logf("ask_after %s: %v", ledger.KindOf(e.Record).Name, e.Err)
	}
}
