package main

import (
	"context"
	"errors"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/quarantine"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestACommitThatWaitsIsShownAndAnswered: what it waits for is on every list where its
// owner looks, the answers that fit count, and the others say what would be right.
func TestACommitThatWaitsIsShownAndAnswered(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	p := s.trip(t, coordinator.PlanSpec{ID: "p1", Owner: "travel"}, "card.charge")
	_, err := p.Do(t.Context(), coordinator.Action{Capability: "safe.open"},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{}, context.DeadlineExceeded
		})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if err := p.Commit(t.Context()); !errors.Is(err, coordinator.ErrCommitWaits) {
		t.Fatal(err)
	}
	const waits = "its owner's word, before the plan is committed"
	says(t, s.run(t, cli.ExitLook, "plan show p1"), "committing", waits)
	says(t, s.run(t, cli.ExitGood, "plan why p1"), "committing", "waits for "+waits, "the commit waits for its owner")
	says(t, s.run(t, cli.ExitGood, "plan ls --state committing"), "p1")
	says(t, s.run(t, cli.ExitGood, "plan preview p1"), "safe.shut")
	says(t, s.Ask(t, "default", "quarantine", "ls"), "p1", "safe.open")
	shown := s.run(t, cli.ExitLook, "quarantine show p1 2 -o json")
	for _, answer := range cmdtest.Decoded[quarantine.Obligation](t, shown).Answers {
		fits := answer.Answer != cli.AnswerLost && answer.Answer != cli.AnswerRetry // it has no probe
		if offered := answer.Command != ""; offered != fits {
			t.Errorf("quarantine show offers %+v", answer)
		}
	}
	s.run(t, cli.ExitConflict, "quarantine resolve p1 2 --as lost --evidence t --reason x --actor ana", "want accepted")
	says(t, s.run(t, cli.ExitGood, "quarantine resolve p1 2 --as accepted --evidence t --reason looked --actor ana"),
		"plan now committed")
	if plan := s.plan(t, "p1"); plan.State != ledger.StateCommitted || plan.Quarantined != 0 {
		t.Errorf("%+v", plan)
	}
	if listed := cmdtest.Decoded[api.PlansAnswer](t,
		s.run(t, cli.ExitGood, "quarantine ls -o json")); len(listed.Plans) != 0 {
		t.Errorf("%+v", listed)
	}
}
