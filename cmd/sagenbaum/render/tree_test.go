package render

import (
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func TestTheTreeShowsEverythingOnceAndInOrder(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) int64 { return now.Add(d).UnixNano() }
	child := api.Plan{Plan: "c1", State: "committed", Label: "the hotel", Actions: []api.Action{
		{Number: 1, Action: "1", Capability: "hotel.book", Class: "compensable", Outcome: "completed", Undo: "held",
			Fidelity: "semantic"},
	}}
	plan := api.Plan{
		Plan: "p1", Label: "to the sea", State: "unwinding", ToSavepoint: "paid", Reason: "wrong dates (ana)",
		Parent: "p0", Owner: "travel",
		OnUndoFailure: "continue", SecondApprover: true, Held: 5,
		Savepoints: []api.Savepoint{{Name: "begun"}, {Name: "paid", Actions: 2}, {Name: "last", Actions: 7}},
		Actions: []api.Action{
			{Number: 1, Action: "1", Capability: "card.charge", Class: "compensable", Outcome: "completed",
				Undo: "held", Fidelity: "semantic", ClosesNs: at(2 * time.Hour), Pivot: true},
			{Number: 2, Action: "plan:c1", Child: "c1", Class: "undeclared", Outcome: "unknown", Undo: "held",
				After: []int{1}},
			{Number: 3, Action: "3", Capability: "room.book", Class: "compensable", Outcome: "in_doubt",
				Undo: "dispatched", Asking: "effect", WaitsFor: "an answer of room.look", After: []int{2}},
			{Number: 4, Action: "4", Capability: "mail.send", Class: "irreversible", Outcome: "completed",
				Undo: "quarantined", Note: "irreversible: mail.send has no inverse", Proposal: "done by ana at 9.0.abc",
				After: []int{3}},
			{Number: 5, Action: "5", Capability: "room.book", Class: "compensable", Outcome: "in_doubt",
				Presence: "duplicate", Undo: "compensated", SettledNs: at(-time.Minute), After: []int{2}},
			{Number: 6, Action: "5~1", Capability: "room.book", Class: "compensable", Outcome: "in_doubt",
				Presence: "present", Undo: "owed", DutyOf: "5", ExternalRef: "bk_9", After: []int{5}},
			{Number: 7, Action: "7", Capability: "card.charge", Class: "compensable", Outcome: "completed",
				Undo: "held", ClosesNs: at(-time.Hour), Approve: true, After: []int{6}},
		},
	}
	var out strings.Builder
	WriteTree(&out, cli.Pen{}, cli.Family{Root: plan, Children: map[string]api.Plan{"c1": child}}, now)
	want := `p1  to the sea  unwinding back to savepoint paid, part of p0 (wrong dates (ana))
├┄ savepoint begun
├─ 1 card.charge      completed  ── held, semantic, window closes in 2h00m (pivot)
├─ 2 plan c1          committed  ── held  the hotel
│  └─ 1 hotel.book  completed  ── held, semantic
├┄ savepoint paid
├─ 3 room.book        in doubt   ── dispatched, asking whether it happened
│     waits for an answer of room.look
├─ 4 mail.send        completed  ── quarantined: irreversible: mail.send has no inverse
│     done proposed by ana, waits for a second operator
│     irreversible
├─ 5 room.book        in doubt   ── compensated 11:59:00Z (it was found more than once) (after 2)
├─ 6 (5~1) room.book  in doubt   ── owed (owed once more: bk_9, an effect of 5)
└─ 7 card.charge      completed  ── held, window closed 1h00m ago (asks for the owner's word)
   savepoint last
held 5 · compensated 0 · skipped 0 · quarantined 0 · owner travel · answers take a second operator · goes on around a quarantine
`
	if out.String() != want {
		t.Errorf("the tree is\n%swant\n%s", out.String(), want)
	}
}

// What halts for good is not said to wait: neither the actions that an owner left as
// they are nor a child plan that was settled by hand.
func TestTheTreeOfAResolvedPlanWaitsForNothing(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at := now.Add(-time.Minute).UnixNano()
	plan := api.Plan{Plan: "p1", State: "resolved", EndedNs: at, Actions: []api.Action{
		{Number: 1, Action: "1", Capability: "a.b", Class: "compensable", Outcome: "completed", Undo: "owed",
			WaitsFor: "what came after it"},
		{Number: 2, Action: "plan:c1", Child: "c1", Undo: "resolved", SettledNs: at, After: []int{1}},
		{Number: 3, Action: "3", Capability: "mail.send", Class: "irreversible", Outcome: "completed", Undo: "resolved",
			Resolution: "skipped", ResolvedBy: "ana", SettledNs: at, After: []int{2}},
	}}
	child := api.Plan{Plan: "c1", State: "resolved"}
	var out strings.Builder
	WriteTree(&out, cli.Pen{}, cli.Family{Root: plan, Children: map[string]api.Plan{"c1": child}}, now)
	want := `p1  resolved since 11:59:00Z
├─ 1 a.b        completed  ── owed: left as it is, as its owner said
├─ 2 plan c1    resolved   ── resolved 11:59:00Z
└─ 3 mail.send  completed  ── resolved as skipped by ana 11:59:00Z (irreversible)
held 0 · compensated 0 · skipped 0 · quarantined 0
`
	if out.String() != want {
		t.Errorf("the tree is\n%swant\n%s", out.String(), want)
	}
}

// TestAPlanSaysOfARefusedRecordOnceThatItIs, though its reason says so too.
func TestAPlanSaysOfARefusedRecordOnceThatItIs(t *testing.T) {
	plan := api.Plan{Plan: "p1", State: "open", Refused: []api.Refused{
		{Sequence: 7, Index: 1, Kind: "plan_committed", Subject: "saga.t.agent.a.p1",
			Reason: ledger.Refuse("plan_committed.parts", "1", "2").Error()},
		{Sequence: 8, Kind: "plan_ended", Subject: "saga.t.exec", Reason: "plan p1 is open", Void: true},
	}}
	var out strings.Builder
	WritePlan(&out, cli.Pen{}, cli.Family{Root: plan}, time.Unix(0, 0))
	for _, want := range []string{"refused 7.1 plan_committed on saga.t.agent.a.p1: plan_committed.parts: 1; want 2\n",
		"void 8.0 plan_ended on saga.t.exec: plan p1 is open\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}
