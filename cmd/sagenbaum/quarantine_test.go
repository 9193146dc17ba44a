package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/demo"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/plan"
)

// failures are the ways in which a handler raises.
var failures = map[string]func() error{
	"stop":  func() error { return worker.Stop(errors.New("the target is protected")) },
	"fail":  func() error { return errors.New("the network is down") },
	"panic": func() error { panic("a bug in the handler") },
}

// withRaising is a server with the agent of the demonstration, and a worker whose handlers raise.
func withRaising(t *testing.T) (s *cmdtest.Served, conn *nats.Conn, w *worker.Worker,
	agent *coordinator.Coordinator) {
	t.Helper()
	s = cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.0.0.1:0", "--tenant", demo.Tenant)
	conn = cmdtest.Dial(t, s.URL)
	w, err := worker.New(worker.Config{Conn: conn, Tenant: demo.Tenant, Name: "raising"})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range demo.Inverses {
		if err := w.Handle(i.Capability, raising(i.Capability)); err != nil {
			t.Fatal(err)
		}
	}
	agent, err = coordinator.New(coordinator.Config{Conn: conn, Tenant: demo.Tenant, Agent: demo.AgentName,
		Contracts: demo.Contracts()})
	if err != nil {
		t.Fatal(err)
	}
	return s, conn, w, agent
}

// S41-S50: whatever the kind of compensation and however its handler raises, the
// plan ends quarantined and says why, siblings are compensated, and nothing
// moves by itself afterwards.
func TestEveryKindOfCompensationQuarantinesWhenItsHandlerRaises(t *testing.T) {
	t.Parallel()
	s, conn, w, agent := withRaising(t)
	ctx := t.Context()
	plans := []string{"healthy"}
	for n := range demo.Contracts() {
		for how := range failures {
			plans = append(plans, fmt.Sprintf("%s-%d", how, n+1))
		}
	}
	for _, id := range plans {
		failAfterAll(t, agent, id)
	}
	c := &cli.Client{Conn: conn, Tenant: demo.Tenant, Server: s.URL, Timeout: testenv.Patience}
	for _, id := range plans {
		if _, err := plan.AwaitEnd(ctx, c, id, 0, testenv.Patience); err != nil {
			t.Fatal(err)
		}
		plan, err := c.Plan(ctx, id, 0)
		if err != nil {
			t.Fatal(err)
		}
		checkQuarantined(t, id, plan)
	}
	checkNothingMoves(t, s, len(plans)-1)
	if err := errors.Join(agent.Close(ctx), w.Close(ctx)); err != nil {
		t.Error(err)
	}
	s.End(t)
}

// raising fails for the one kind that the plan's id names, as it says there.
func raising(capability string) worker.Handler {
	return func(_ context.Context, c api.Command) (worker.Result, error) {
		how, number, _ := strings.Cut(c.Plan, "-")
		if failure := failures[how]; failure != nil && c.Action == number {
			return worker.Result{}, failure()
		}
		return worker.Result{ExternalRef: capability}, nil
	}
}

// failAfterAll reports one action of every kind and fails the plan.
func failAfterAll(t *testing.T, agent *coordinator.Coordinator, id string) {
	t.Helper()
	plan, err := agent.Begin(t.Context(), coordinator.PlanSpec{ID: id, Owner: "operator1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, contract := range demo.Contracts() {
		if err := plan.Report(t.Context(), coordinator.Action{Capability: contract.Capability},
			coordinator.Outcome{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := plan.Fail(t.Context(), "enough"); err != nil {
		t.Fatal(err)
	}
}

func checkQuarantined(t *testing.T, id string, plan api.Plan) {
	t.Helper()
	how, number, sick := strings.Cut(id, "-")
	if !sick {
		if plan.State != ledger.StateCompensated || plan.Compensated != 5 {
			t.Errorf("the healthy sibling is %s with %d undone", plan.State, plan.Compensated)
		}
		return
	}
	if plan.State != ledger.StateQuarantined || plan.Quarantined != 1 {
		t.Errorf("%s is %s with %d quarantined", id, plan.State, plan.Quarantined)
	}
	why := map[string]string{"stop": "the target is protected", "fail": "the network is down",
		"panic": "a bug in the handler"}[how]
	for _, a := range plan.Actions {
		n := fmt.Sprint(a.Number)
		switch {
		case n == number &&
			(a.Undo != cli.UndoQuarantined || !strings.Contains(a.Note, why) ||
				!strings.Contains(a.Note, a.Compensation)):
			t.Errorf("%s: action %s is %s: %q, want quarantined, naming %s and %q", id, n, a.Undo, a.Note,
				a.Compensation, why)
		case n > number && a.Undo != "compensated":
			t.Errorf("%s: action %s is %s, want compensated: it came after", id, n, a.Undo)
		case n < number && a.Undo == "compensated":
			t.Errorf("%s: action %s was compensated although what came after it was not", id, n)
		}
		if tries := map[string]int{"stop": 1, "fail": demo.Attempts, "panic": demo.Attempts}[how]; n == number &&
			a.Attempt != tries {
			t.Errorf("%s: %d attempts, want %d", id, a.Attempt, tries)
		}
	}
}

// checkNothingMoves restarts the server, which sweeps everything again, and
// wants the same answers as before (S46, S52).
func checkNothingMoves(t *testing.T, s *cmdtest.Served, quarantined int) {
	t.Helper()
	args := []string{"quarantine", "ls", "-o", "json"}
	first := s.Ask(t, demo.Tenant, args...)
	first.Wants(t, "quarantine ls", cli.ExitLook)
	if n := len(cmdtest.Decoded[api.PlansAnswer](t, first).Plans); n != quarantined {
		t.Errorf("%d plans in quarantine, want %d", n, quarantined)
	}
	s.Command.Process.Kill()
	s.Command.Wait()
	again := cmdtest.ServeFor(t, s.Dir, "--listen", strings.TrimPrefix(s.URL, "nats://"), "--tenant", demo.Tenant)
	second := again.Ask(t, demo.Tenant, args...)
	second.Wants(t, "quarantine ls after a restart", cli.ExitLook)
	if first.Stdout != second.Stdout {
		t.Errorf("a restart changed the quarantine from\n%s\nto\n%s", first.Stdout, second.Stdout)
	}
	*s = *again
}

// S50: a kind of action whose inverse nobody serves breaks this test.
func TestEveryContractOfTheDemoHasAnInverseThatIsServed(t *testing.T) {
	for _, contract := range demo.Contracts() {
		inverse(t, contract.Inverse.Call)
	}
	if len(demo.Contracts()) != len(demo.Inverses) {
		t.Errorf("%d contracts for %d inverses", len(demo.Contracts()), len(demo.Inverses))
	}
}
