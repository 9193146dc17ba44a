package main

import (
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/plan"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func TestUnwindOfAnOpenPlan(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	s.trip(t, coordinator.PlanSpec{ID: "p1", Owner: "travel"}, "card.charge", "room.book")
	s.run(t, cli.ExitFailed, "plan unwind nowhere --reason x", "next: sagenbaum plan ls")
	r := s.run(t, cli.ExitGood, "plan unwind p1 --reason 'bad dates' --actor ana --wait")
	says(t, r, "p1 compensated, unwound by ana · record ")
	if plan := s.plan(t, "p1"); plan.Compensated != 2 || !strings.Contains(plan.Reason, "bad dates (ana)") {
		t.Errorf("the plan is %+v", plan)
	}
}

// Back to a savepoint: what came after it is undone, and the plan is open.
func TestUnwindToASavepoint(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	open := s.trip(t, coordinator.PlanSpec{ID: "p1", Owner: "travel"}, "card.charge")
	if err := open.Savepoint(t.Context(), "paid"); err != nil {
		t.Fatal(err)
	}
	report(t, open, "room.book")
	report(t, open, "room.book")
	before := s.kept(t)
	s.run(t, cli.ExitFailed, "plan unwind p1 --to nowhere --reason x",
		`compensation_requested.to_savepoint: plan p1 has no savepoint "nowhere"; it has paid`)
	if s.kept(t) != before {
		t.Error("an unknown savepoint reached the ledger")
	}
	says(t, s.run(t, cli.ExitGood, "plan tree p1"), "├┄ savepoint paid")
	preview := cmdtest.Decoded[api.Preview](t, s.run(t, cli.ExitGood, "plan preview p1 --to paid -o json"))
	if preview.End != ledger.StateOpen || len(preview.Steps) != 2 {
		t.Errorf("the preview is %+v", preview)
	}
	r := s.run(t, cli.ExitGood, "plan unwind p1 --to paid --reason 'wrong room' --actor ana --wait")
	says(t, r, "p1 open again at savepoint paid, unwound by ana")
	plan := s.plan(t, "p1")
	if plan.State != ledger.StateOpen || plan.Actions[0].Undo != "held" || plan.Actions[1].Undo != "compensated" ||
		plan.Actions[2].Undo != "compensated" {
		t.Errorf("the plan is %+v", plan)
	}
	report(t, open, "room.book")
	says(t, s.run(t, cli.ExitGood, "plan unwind p1 --to paid --reason 'wrong again' --wait -o json"), `"state": "open"`,
		`"to": "paid"`)
}

// A committed plan is undone as another, which the command follows.
func TestUnwindOfACommittedPlanFollowsTheOneThatUndoesIt(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	open := s.trip(t, coordinator.PlanSpec{ID: "p1", Owner: "travel"}, "card.charge", "room.book")
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := cmdtest.Decoded[plan.Unwound](t, s.run(t, cli.ExitGood, "plan unwind p1 --reason 'bad release' --wait -o json"))
	if r.Plan != "p1~1" || r.Origin != "p1" || r.State != ledger.StateCompensated {
		t.Errorf("the unwind is %+v", r)
	}
	says(t, s.run(t, cli.ExitGood, "plan tree p1"), "committed", "undone as p1~1")
	says(t, s.run(t, cli.ExitGood, "plan tree p1~1"), "undoes p1", "compensated 2")
	s.run(t, cli.ExitConflict, "plan unwind p1 --reason again", "undone by plan p1~1 already")
}

// TestAPartOfACommittedPlanIsUndoneByItsRoot: the refusal leads to the command that undoes that part
// alone, also from a part of the part.
func TestAPartOfACommittedPlanIsUndoneByItsRoot(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	root := s.trip(t, coordinator.PlanSpec{ID: "p1", Owner: "travel"}, "card.charge")
	part := s.trip(t, coordinator.PlanSpec{ID: "p2", Parent: "p1"}, "room.book")
	inner := s.trip(t, coordinator.PlanSpec{ID: "p3", Parent: "p2"}, "room.book")
	for _, p := range []*coordinator.Plan{inner, part, root} {
		if err := p.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	const next = "sagenbaum plan unwind p1 --action plan:p2"
	for _, id := range []string{"p2", "p3"} {
		s.run(t, cli.ExitConflict, "plan unwind "+id+" --reason no", "is a part of plan p1", next)
		s.run(t, cli.ExitConflict, "undo --plan "+id+" --yes --reason no", next)
	}
	s.run(t, cli.ExitGood, "plan unwind p1 --action plan:p2 --reason no --wait")
	says(t, s.run(t, cli.ExitGood, "plan tree p1~1"), "card.charge", "skipped")
}

// Windows that have closed: nothing happens, and what has become irreversible is
// listed line by line.
func TestUnwindOfACommittedPlanBehindItsWindows(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	contracts := []contract.Contract{{
		Capability: "seat.take", Class: contract.Compensable, ValidFor: time.Millisecond, Warn: time.Millisecond,
		Inverse: &contract.Inverse{Call: "room.free"},
	}}
	agent, err := coordinator.New(coordinator.Config{Conn: s.conn, Tenant: "default", Agent: "rider",
		Contracts: contracts})
	if err != nil {
		t.Fatal(err)
	}
	open, err := agent.Begin(t.Context(), coordinator.PlanSpec{ID: "p1", Owner: "travel"})
	if err != nil {
		t.Fatal(err)
	}
	report(t, open, "seat.take")
	report(t, open, "seat.take")
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.trip(t, coordinator.PlanSpec{ID: "later"}, "mail.send") // the ledger's time moves on with its records
	r := s.run(t, cli.ExitConflict, "plan unwind p1 --reason 'bad release'", "undo windows have closed",
		"next: sagenbaum plan preview p1")
	lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "action 1 of plan p1 (seat.take) at ") ||
		!strings.HasPrefix(lines[1], "action 2 ") {
		t.Errorf("what has become irreversible is %q", lines)
	}
	refused := cmdtest.Decoded[plan.Unwound](t,
		s.run(t, cli.ExitConflict, "plan unwind p1 --reason 'bad release' -o json"))
	if len(refused.Gone) != 2 {
		t.Errorf("in JSON it is %+v", refused)
	}
	says(t, s.run(t, cli.ExitLook, "plan preview p1"), "would be refused", "  action 1 of plan p1 (seat.take) at ")
	says(t, s.run(t, cli.ExitConflict, "undo --plan p1 --reason x --yes", "next: sagenbaum plan preview p1"),
		"not p1: undo windows have closed")
	s.run(t, cli.ExitLook, "undo --last 3 --agent rider --reason x --yes")
	if plan := s.plan(t, "p1"); plan.State != ledger.StateCommitted || plan.UndoneAs != "" {
		t.Errorf("the plan is %s, undone as %q", plan.State, plan.UndoneAs)
	}
	if err := agent.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestUnwindWaitsNoLongerThanItWasTold(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.0.0.1:0")
	cmdtest.UnservedPlan(t, cmdtest.Dial(t, s.URL), "default", "p1")
	r := s.Ask(t, "default", "plan", "unwind", "p1", "--reason", "x", "--wait", "--wait-timeout", "700ms")
	r.Wants(t, "a wait that is too short", cli.ExitLook, "p1 has not ended after 700ms",
		"action 1 room.book: dispatched to room.free", "next: sagenbaum plan tree p1")
	s.End(t).Wants(t, "serve", cli.ExitGood)
}
