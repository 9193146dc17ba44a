package main

import (
	"strings"
	"testing"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/ledger"
)

// Every kind of record is one line that says what is in it; what is nested stands
// in braces, and an instant is a time.
func TestTailSaysWhatIsInARecord(t *testing.T) {
	const noon = 1_780_315_200_000_000_000 // 2026-06-01 12:00:00Z
	for _, c := range []struct {
		record *pb.Record
		want   string
	}{
		{&pb.Record{Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{ParentPlan: "p0",
			OnUndoFailure: pb.OnUndoFailure_ON_UNDO_FAILURE_CONTINUE, SecondApprover: true,
			Trace: []byte("00-4bf92f-00f067-01")}}},
			"parent_plan=p0 trace=00-4bf92f-00f067-01 on_undo_failure=continue second_approver=true"},
		{&pb.Record{Kind: &pb.Record_CompensationRegistered{CompensationRegistered: &pb.CompensationRegistered{
			Capability: "room.free", ValidForNs: 7_200_000_000_000, ValidUntilNs: noon,
			Verify: &pb.Verify{Call: &pb.Call{Capability: "room.look", Attempts: 2}, Ok: "verify.gone"},
			OnLate: pb.OnLate_ON_LATE_QUARANTINE, Agent: &pb.AgentTask{Tools: []string{"a", "b"}},
			WarnNs: 1_000_000_000,
		}}}, `capability=room.free valid_for=2h0m0s verify={call={capability=room.look attempts=2} ok=verify.gone} on_late=quarantine agent={tools=a,b} valid_until=2026-06-01T12:00:00Z warn=1s`},
		{&pb.Record{Kind: &pb.Record_CompensationFailed{CompensationFailed: &pb.CompensationFailed{Attempt: 2,
			InDoubt: true, Timing: &pb.Timing{QueuedNs: 1_500_000, WorkNs: 2_000_000}}}},
			"attempt=2 in_doubt=true timing={queued=1.5ms work=2ms}"},
		{&pb.Record{Kind: &pb.Record_ProbeAsked{ProbeAsked: &pb.ProbeAsked{Attempt: 1,
			Question: pb.Question_QUESTION_VERIFY, Done: &pb.CompensationSucceeded{Worker: "hotel"}}}},
			"attempt=1 question=verify done={worker=hotel}"},
		{&pb.Record{Kind: &pb.Record_ProbeAnswered{ProbeAnswered: &pb.ProbeAnswered{Presence: pb.Presence_PRESENCE_DUPLICATE,
			ExternalRef: "pi_2", Question: pb.Question_QUESTION_EFFECT}}},
			"presence=duplicate external_ref=pi_2 question=effect"},
		{&pb.Record{Kind: &pb.Record_Resolved{Resolved: &pb.Resolved{Outcome: pb.Resolution_RESOLUTION_SKIPPED,
			Reason: "only a mail", Halt: true}}},
			`outcome=skipped reason="only a mail" halt=true`},
		{&pb.Record{Kind: &pb.Record_PlanRewound{PlanRewound: &pb.PlanRewound{Savepoint: "paid"}}}, "savepoint=paid"},
		{&pb.Record{Kind: &pb.Record_UndoWindowClosing{UndoWindowClosing: &pb.UndoWindowClosing{ClosesNs: noon}}},
			"closes=2026-06-01T12:00:00Z"},
		{&pb.Record{Kind: &pb.Record_OwnerPaged{OwnerPaged: &pb.OwnerPaged{Hook: "default", Kind: "quarantined"}}},
			"hook=default kind=quarantined"},
		{&pb.Record{Kind: &pb.Record_UnwindRequested{UnwindRequested: &pb.UnwindRequested{ToSavepoint: "paid",
			Reason: evil}}}, "to_savepoint=paid reason="},
	} {
		got := ledger.Essence(c.record, nil)
		if got != c.want && !(strings.HasSuffix(c.want, "reason=") && strings.HasPrefix(got, c.want)) {
			t.Errorf("the record is shown as\n%s\nwant\n%s", got, c.want)
		}
		checkPrintable(t, "tail", cli.Printable(got))
	}
}
