package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// A plan that names itself as its own child, or so many that nobody reads them, is
// shown all the same.
func TestAFamilyIsBounded(t *testing.T) {
	t.Parallel()
	asked := 0
	url := answering(t, map[string]func([]byte) any{"plan.show": func(data []byte) any {
		asked++
		shown := api.Plan{Plan: "p1", State: "open"}
		for n := range 3 * cli.FamilyMax {
			shown.Actions = append(shown.Actions, api.Action{Number: n + 1, Child: fmt.Sprintf("c%d", n)})
		}
		shown.Actions = append(shown.Actions, api.Action{Number: 3*cli.FamilyMax + 1, Child: "p1"})
		return api.PlanAnswer{Plan: shown}
	}})
	r := cmdtest.Run(t, "plan", "tree", "p1", "--server", url)
	if r.Code != cli.ExitGood {
		t.Errorf("plan tree ended with %d", r.Code)
	}
	if asked != cli.FamilyMax+1 {
		t.Errorf("%d plans were asked for, want %d", asked, cli.FamilyMax+1)
	}
}

func TestAChildsTreeStandsInItsParents(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	open := s.trip(t, coordinator.PlanSpec{ID: "p1", Owner: "travel"}, "card.charge")
	child, err := open.Begin(t.Context(), coordinator.PlanSpec{ID: "c1", Label: "the hotel", Owner: "hotels"})
	if err != nil {
		t.Fatal(err)
	}
	report(t, child, "room.book")
	if err := child.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	report(t, open, "mail.send")
	r := s.run(t, cli.ExitGood, "plan tree p1")
	says(t, r, "├─ 2 plan c1        committed", "│  └─ 1 room.book  completed  ── held, exact, window closes in ",
		"the hotel")
	s.now(func() { s.free = protected })
	s.run(t, cli.ExitLook, "plan unwind p1 --reason 'no trip' --wait", "next: sagenbaum doctor --plan p1")
	s.run(t, cli.ExitGood, "quarantine skip p1 3 --reason 'only a mail'", "next: sagenbaum doctor --plan p1")
	entry := s.run(t, cli.ExitLook, "quarantine show p1 number:2")
	says(t, entry, "see         sagenbaum doctor --plan c1")
	if strings.Contains(entry.Stdout, "may have happened") {
		t.Errorf("the entry of a child plan is shown as an action:\n%s", entry.Stdout)
	}
	says(t, s.run(t, cli.ExitLook, "plan tree p1"), "quarantined")
	s.run(t, cli.ExitFailed, "quarantine skip p1 plan:c1 --reason x", "action 2 of p1 is plan c1",
		"next: sagenbaum plan tree c1")
	dump := s.run(t, cli.ExitLook, "doctor --plan p1")
	says(t, dump, "c1 1 room.book  quarantined", "the room is protected")
	s.run(t, cli.ExitGood, "quarantine skip c1 1 --reason 'we keep the room'")
	plan := s.plan(t, "p1")
	for late := time.Now().Add(10 * time.Second); plan.EndedNs == 0 && time.Now().Before(late); {
		plan = s.plan(t, "p1") // the unwind goes on beside us
	}
	if plan.Actions[0].Undo != "compensated" {
		t.Errorf("the plan is %+v", plan)
	}
}
