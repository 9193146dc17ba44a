package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
)

// TestAnOperatorReportsAnEffect of an action in doubt, which has happened from then on.
func TestAnOperatorReportsAnEffect(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.0.0.1:0")
	ctx := t.Context()
	agent, err := coordinator.New(coordinator.Config{Conn: cmdtest.Dial(t, s.URL), Tenant: "default", Agent: "tester",
		Contracts: []contract.Contract{{Capability: "card.charge", Class: contract.Compensable,
			Inverse: &contract.Inverse{Call: "card.refund", With: map[string]any{"id": "=output.id"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := agent.Begin(ctx, coordinator.PlanSpec{ID: "p1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Do(ctx, coordinator.Action{ID: "a", Capability: "card.charge"},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{}, errors.New("no answer")
		}); err == nil {
		t.Fatal("it is not in doubt")
	}
	second, err := agent.Begin(ctx, coordinator.PlanSpec{ID: "p2", SecondApprover: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.Do(ctx, coordinator.Action{ID: "a", Capability: "card.charge"},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{}, errors.New("no answer")
		}); err == nil {
		t.Fatal("it is not in doubt")
	}
	if err := agent.Close(ctx); err != nil {
		t.Fatal(err)
	}
	show := func() string { return s.Ask(t, "default", "plan", "show", "p1", "-o", "json").Stdout }
	if got := show(); !strings.Contains(got, "it has no probe, and nothing else can be asked whether it has happened") {
		t.Errorf("%s", got)
	}
	report := []string{"plan", "report", "p1", "1", "--present", "--ref", "ch_9", "--output", `{"id":"ch_9"}`,
		"--reason", "seen in the dashboard", "--actor", "ana"}
	r := s.Ask(t, "default", report...)
	r.Wants(t, "report", cli.ExitGood)
	if !strings.Contains(r.Stdout, "the effect of action a of plan p1 is there, as ana says") {
		t.Errorf("%s", r.Stdout)
	}
	if got := show(); !strings.Contains(got, `"outcome": "completed"`) {
		t.Errorf("%s", got)
	}
	s.Ask(t, "default", report...).Wants(t, "once more", cli.ExitGood)
	s.Ask(t, "default", "plan", "report", "p1", "z", "--present", "--reason", "x").Wants(t, "no such action",
		cli.ExitFailed, "z")
	for _, c := range []struct {
		actor, want string
		code        int
	}{
		{"ana", "waits for a second operator to report the same as ana", cli.ExitLook},
		{"bob", "is there, as bob says", cli.ExitGood},
	} {
		r := s.Ask(t, "default", "plan", "report", "p2", "a", "--present", "--ref", "ch_3", "--reason", "seen", "--actor",
			c.actor)
		if r.Wants(t, c.actor, c.code); !strings.Contains(r.Stdout, c.want) {
			t.Errorf("%s: %s", c.actor, r.Stdout)
		}
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}
