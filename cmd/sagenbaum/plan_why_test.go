package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// rows reads the records of a story as "role kind action: because kind".
func linesOf(why api.Why) (list []string) {
	kind := func(record string) string { name, _, _ := strings.Cut(record, "@"); return name }
	for _, line := range why.Records {
		row := line.Role + " " + line.Kind
		if line.Action != "" {
			row += " " + line.Action
		}
		if line.Because != "" {
			row += " < " + kind(line.Because)
		}
		list = append(list, row)
	}
	return list
}

// TestPlanWhyTellsEveryRecordBehindAnUndo: from what somebody said to what became of
// each action, in the order of the ledger, each under an address that ledger show reads.
func TestPlanWhyTellsEveryRecordBehindAnUndo(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	s.now(func() { s.free = protected })
	plan := s.trip(t, coordinator.PlanSpec{ID: "p1", Owner: "travel"}, "card.charge", "room.book", "card.charge")
	says(t, s.run(t, cli.ExitGood, "plan why p1"), "no lease of it has fired", "plan_opened@",
		"nothing has happened to it since")
	if err := plan.Fail(t.Context(), "no seats"); err != nil {
		t.Fatal(err)
	}
	if end, err := plan.Wait(t.Context()); err != nil || end.State != ledger.StateQuarantined {
		t.Fatalf("%+v, %v", end, err)
	}
	r := s.run(t, cli.ExitGood, "plan why p1")
	says(t, r, "action 1 1 is owed and waits for what came after it: action 2 is quarantined",
		"action 2 2 is quarantined and waits for its owner: room.free failed: stop: the room is protected",
		"records, in the order of the ledger; any of them: sagenbaum ledger show SEQUENCE",
		"the plan was declared failed: no seats", "lease plan.failed turned true", `condition: plan.status == "failed"`,
		`read plan.status = "failed"`,
		"action 3: undone by attempt 1 by worker hotel",
		"quarantined: it waits for its owner: room.free failed: stop: the room is protected",
		"the plan ended quarantined")
	t.Log("\n" + r.Stdout)
	why := cmdtest.Decoded[api.Why](t, s.run(t, cli.ExitGood, "plan why p1 -o json"))
	want := []string{
		"plan plan_opened", "cause plan_failed", "lease lease_fired < plan_failed",
		"decision unwind_started < lease_fired",
		"command compensation_dispatched 3 < unwind_started",
		"outcome compensation_succeeded 3 < compensation_dispatched",
		"command compensation_dispatched 2 < unwind_started", "answer compensation_failed 2 < compensation_dispatched",
		"outcome action_quarantined 2 < compensation_dispatched", "end plan_ended < unwind_started",
	}
	if got := linesOf(why); !slices.Equal(got, want) {
		t.Errorf("the records are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, line := range why.Records {
		says(t, s.run(t, cli.ExitGood, "ledger show "+line.Record), line.Kind)
	}
	one := cmdtest.Decoded[api.Why](t, s.run(t, cli.ExitGood, "plan why p1 2 -o json"))
	if got := strings.Join(linesOf(one), "\n"); !strings.Contains(got,
		"plan forward_registered 2\nplan compensation_registered 2\n") || strings.Contains(got, " 3") ||
		one.Action != "2" || len(one.Waits) != 1 {
		t.Errorf("of action 2: %+v\n%s", one.Waits, got)
	}
	says(t, s.run(t, cli.ExitGood, "plan why p1 2"), "records of action 2, in the order", "because of unwind_started@")
	s.run(t, cli.ExitFailed, "plan why p1 9", `plan p1 has no action "9"; it has 1, 2, 3`, "next: sagenbaum plan tree p1")
	s.run(t, cli.ExitFailed, "plan why nowhere", "there is no plan nowhere", "next: sagenbaum plan ls")
	s.run(t, cli.ExitUsage, "plan why", "next: sagenbaum plan why --help")
	s.run(t, cli.ExitUsage, "ledger show here", "neither a sequence nor an address")
	other := regexp.MustCompile(`-[0-9a-f]{8}$`).ReplaceAllString(why.Records[1].Record, "-00000000")
	s.run(t, cli.ExitFailed, "ledger show "+other, "none of that address")

	s.run(t, cli.ExitGood, "quarantine resolve p1 2 --as done --reason 'freed by hand' --evidence ticket:1 --actor ana")
	if end, err := plan.Wait(t.Context()); err != nil || end.State != ledger.StateResolved {
		t.Fatalf("%+v, %v", end, err)
	}
	says(t, s.run(t, cli.ExitGood, "plan why p1"), "it was resolved as done by ana: freed by hand, evidence ticket:1",
		"the plan ended resolved")
}

// TestPlanWhyTellsRewindsAndTheUndoOfACommittedPlan.
func TestPlanWhyTellsRewindsAndTheUndoOfACommittedPlan(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	plan := s.trip(t, coordinator.PlanSpec{ID: "p1"}, "card.charge")
	if err := plan.Savepoint(t.Context(), "paid"); err != nil {
		t.Fatal(err)
	}
	report(t, plan, "room.book")
	if err := plan.UnwindTo(t.Context(), "paid", "wrong room"); err != nil {
		t.Fatal(err)
	}
	says(t, s.run(t, cli.ExitGood, "plan why p1"), "told to unwind back to savepoint paid: wrong room",
		"the unwind started, back to savepoint paid", "plan_rewound@", "the plan is open again: back at savepoint paid")
	if err := plan.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.run(t, cli.ExitGood, "plan unwind p1 --reason 'bad release' --actor ana --wait")
	for _, id := range []string{"p1", "p1~1"} {
		says(t, s.run(t, cli.ExitGood, "plan why "+id), "an unwind was asked for by ana: bad release",
			"plan p1 was told to unwind by ana", "which undoes the committed plan p1", "compensation_succeeded@",
			"the plan ended compensated: ")
	}
	if err := s.trip(t, coordinator.PlanSpec{ID: "p2"}, "card.charge", "room.book").Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.run(t, cli.ExitGood, "review block p2 2 --by boss --reason 'too dear'")
	for _, id := range []string{"p2", "p2~1"} {
		says(t, s.run(t, cli.ExitGood, "plan why "+id),
			"a verdict on action 2 (room.book) of plan p2 was block by boss: too dear")
	}
}

// TestPlanWhyTellsWhatAProbeFound, and what a fact turned with its value.
func TestPlanWhyTellsWhatAProbeFound(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	s.now(func() { s.seen = 0 })
	plan := s.begin(t, coordinator.PlanSpec{ID: "p1", Triggers: map[string]string{"low": `facts["stock"] < 1`}})
	doubt(t, plan, "room.book")
	if err := plan.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.run(t, cli.ExitGood, "fact put stock 0 --source store")
	if end, err := plan.Wait(t.Context()); err != nil || end.State == ledger.StateOpen {
		t.Fatalf("%+v, %v", end, err)
	}
	says(t, s.run(t, cli.ExitGood, "plan why p1 1"), "fact stock was asserted: 0", `read facts["stock"] = 0 (sequence`,
		"room.look was asked: did the forward happen?", "the effect is absent", "nothing was undone")
}
