package ledger_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestAStoryTellsEveryKindOfRecord in words of its own, under its kind and address.
func TestAStoryTellsEveryKindOfRecord(t *testing.T) {
	said := map[string]string{}
	for i, g := range good() {
		at := &pb.Address{Sequence: uint64(i + 1), Leaf: make([]byte, ledger.LeafSize)}
		lines := ledger.Story([]ledger.Told{{Entry: ledger.Entry{Address: at, Source: g.source, StampNs: 5,
			Record: g.record}}})
		kind := ledger.KindOf(g.record).Name
		if len(lines) != 1 || lines[0].Record != fmt.Sprintf("%s@%d.0-00000000", kind, i+1) || lines[0].Text == "" ||
			lines[0].Role == "" || lines[0].By == "" || lines[0].Kind != kind {
			t.Errorf("%s: %+v", kind, lines)
			continue
		}
		if other := said[lines[0].Text]; other != "" {
			t.Errorf("%s is told as %s is: %s", kind, other, lines[0].Text)
		}
		said[lines[0].Text] = kind
	}
}

// TestAStoryIsInTheOrderOfTheLedgerAndNamesCauses: also those within a commit, each record
// once, and what a fold made of it.
func TestAStoryIsInTheOrderOfTheLedgerAndNamesCauses(t *testing.T) {
	at := func(sequence uint64, index uint32) *pb.Address {
		return &pb.Address{Sequence: sequence, Index: index, Leaf: make([]byte, ledger.LeafSize)}
	}
	entry := func(a *pb.Address, r *pb.Record) ledger.Entry {
		return ledger.Entry{Address: a, Source: holderSource, Record: r}
	}
	failed := ledger.Entry{Address: at(4, 0), Source: agentSource,
		Record: &pb.Record{Plan: "p1",
			Kind: &pb.Record_PlanFailed{PlanFailed: &pb.PlanFailed{Reason: strings.Repeat("x", 500)}}}}
	fired := entry(at(6, 0), &pb.Record{Plan: "p1", Cause: at(4, 0),
		Kind: &pb.Record_LeaseFired{LeaseFired: &pb.LeaseFired{
			Lease: "plan.failed", Condition: `plan.status == "failed"`, Depth: 2, Readings: []*pb.Reading{{Name: "plan.status",
				Value: []byte(`"failed"`), Sequence: 4}, {Name: `facts["k"]`}},
		}}})
	started := entry(at(6, 1), &pb.Record{Plan: "p1", Cause: &pb.Address{},
		Kind: &pb.Record_UnwindStarted{UnwindStarted: &pb.UnwindStarted{}}})
	late := entry(at(7, 0), &pb.Record{Plan: "p1", Cause: at(5, 0),
		Kind: &pb.Record_UnwindStarted{UnwindStarted: &pb.UnwindStarted{}}})
	lines := ledger.Story([]ledger.Told{{Entry: late, Void: "plan p1 is unwinding"}, {Entry: started}, {Entry: fired},
		{Entry: failed}, {Entry: fired}, {Entry: ledger.Entry{Address: at(9, 0)}}})
	if len(lines) != 4 {
		t.Fatalf("%+v", lines)
	}
	for i, want := range []struct{ role, because, void string }{
		{ledger.RoleCause, "", ""}, {ledger.RoleLease, "plan_failed@4.0-00000000", ""}, {ledger.RoleDecision,
			"lease_fired@6.0-00000000", ""}, {ledger.RoleDecision, "5.0-00000000", "plan p1 is unwinding"},
	} {
		if l := lines[i]; l.Role != want.role || l.Because != want.because || l.Void != want.void {
			t.Errorf("%d: %+v, want %+v", i, l, want)
		}
	}
	if l := lines[1]; l.Condition != `plan.status == "failed"` ||
		fmt.Sprint(l.Read) != `[{plan.status "failed" 4} {facts["k"]  }]` ||
		l.Text != "lease plan.failed turned true, at depth 2 of a cascade" {
		t.Errorf("%+v", l)
	}
}

// TestADeliveryIsToldInWordsOfItsOwn: nothing of it is called an undo.
func TestADeliveryIsToldInWordsOfItsOwn(t *testing.T) {
	told := func(plan string, r *pb.Record) string {
		r.Plan, r.Action = plan, "mail"
		lines := ledger.Story([]ledger.Told{{Entry: ledger.Entry{Address: &pb.Address{Sequence: 1},
			Source: holderSource, Record: r}}})
		if len(lines) != 1 {
			t.Fatalf("%+v", lines)
		}
		return lines[0].Text
	}
	for want, r := range map[string]*pb.Record{
		"delivered by attempt 2: a question found it by worker w": {Kind: &pb.Record_CompensationSucceeded{
			CompensationSucceeded: &pb.CompensationSucceeded{Attempt: 2, Worker: "w", Probed: true}}},
		"attempt 1 is in doubt: it may have been delivered: timeout": {Kind: &pb.Record_CompensationFailed{
			CompensationFailed: &pb.CompensationFailed{Attempt: 1, InDoubt: true, Code: "timeout"}}},
		"attempt 1 failed for good: stop": {Kind: &pb.Record_CompensationFailed{
			CompensationFailed: &pb.CompensationFailed{Attempt: 1, Final: true, Code: "stop"}}},
		"it is not delivered: staged, and dropped": {Kind: &pb.Record_CompensationSkipped{
			CompensationSkipped: &pb.CompensationSkipped{Reason: "staged, and dropped"}}},
		"its deliveries were stopped by ana: no": {Kind: &pb.Record_CancelRequested{
			CancelRequested: &pb.CancelRequested{Reason: "no", Actor: "ana"}}},
		"the deliveries ended quarantined: 1 delivered, 2 dropped; not delivered: mail": {Kind: &pb.Record_PlanEnded{
			PlanEnded: &pb.PlanEnded{End: pb.PlanEnd_PLAN_END_QUARANTINED, Compensated: 1, Skipped: 2,
				Outstanding: []string{"mail"}}}},
		"mail.send was asked: was it delivered?": {Kind: &pb.Record_ProbeAsked{ProbeAsked: &pb.ProbeAsked{
			Capability: "mail.send", Question: pb.Question_QUESTION_DELIVERED}}},
		"mail.send was staged, to be made once the plan is committed": {Kind: &pb.Record_ForwardRegistered{
			ForwardRegistered: &pb.ForwardRegistered{Capability: "mail.send", Deliver: &pb.CompensationRegistered{}}}},
	} {
		if got := told("p~0", r); got != want {
			t.Errorf("told as %q, want %q", got, want)
		}
	}
	undone := &pb.Record{Kind: &pb.Record_CompensationSucceeded{
		CompensationSucceeded: &pb.CompensationSucceeded{Attempt: 2}}}
	if got := told("p~1", undone); got != "undone by attempt 2" {
		t.Errorf("an undo is told as %q", got)
	}
}

// TestARefusalIsCalledThatOnce, though its reason says so too.
func TestARefusalIsCalledThatOnce(t *testing.T) {
	suspended := ledger.Refuse("tenant", "suspended by ops", "a plan that is open").Error()
	for reason, want := range map[string]string{
		suspended: "the record at 7.1 was refused: tenant: suspended by ops; " +
			"want a plan that is open",
		"plan p1 was never opened": "the record at 7.1 was refused: plan p1 was never opened",
	} {
		r := &pb.Record{Kind: &pb.Record_RecordRefused{RecordRefused: &pb.RecordRefused{Sequence: 7, Index: 1,
			Reason: reason}}}
		lines := ledger.Story([]ledger.Told{{Entry: ledger.Entry{Address: &pb.Address{Sequence: 8},
			Source: holderSource, Record: r}}})
		if len(lines) != 1 || lines[0].Text != want {
			t.Errorf("told as %+v, want %q", lines, want)
		}
	}
}
