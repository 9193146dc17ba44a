package coordinator_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// invoiced is a capability whose undo reads another action, a fact, and its plan.
func invoiced() contract.Contract {
	return contract.Contract{
		Capability: "invoice.send", Class: contract.Compensable, Late: contract.LateNever,
		Inverse: &contract.Inverse{Call: "invoice.cancel", With: map[string]any{
			"order": `=actions["order"].output`, "ref": `=actions["order"].external_ref`,
			"rate": `=facts["rate/eur"]`, "shop": "=plan.input.shop"}},
	}
}

// TestAnUndoReadsWhatIsBesideItsAction, also of a plan that another process has resumed: what the plan
// was opened with, what an earlier action has returned, and a fact as it was.
func TestAnUndoReadsWhatIsBesideItsAction(t *testing.T) {
	t.Parallel()
	contracts := []contract.Contract{quick(), invoiced()}
	l := newLive(t, coordinator.Config{Contracts: contracts})
	got := make(chan string, 1)
	l.undo("invoice.cancel", func(_ context.Context, c api.Command) (worker.Result, error) {
		got <- string(c.Arguments)
		return worker.Result{}, nil
	})
	rate := func(value string) {
		l.append(ledger.Source{Tenant: "default", Class: ledger.ClassFact, Name: "sensor"}, &pb.Record{
			Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: "rate/eur", Value: []byte(value)}}})
	}
	rate("1.10")
	ran := 0
	spec := coordinator.PlanSpec{ID: "sale", Input: map[string]any{"shop": "north", "currency": "eur"}}
	p := l.begin(spec)
	if _, err := p.Do(t.Context(), writes("order", "x"), counted(&ran, nil)); err != nil {
		t.Fatal(err)
	}
	resumed, err := l.another(t, contracts...).Resume(t.Context(), "sale")
	if err != nil {
		t.Fatal(err)
	}
	if err := resumed.Same(spec); err != nil {
		t.Errorf("the same plan: %v", err)
	}
	other := spec
	other.Input = maps.Clone(spec.Input.(map[string]any))
	other.Input.(map[string]any)["shop"] = "south"
	var refused *ledger.Refused
	if err := resumed.Same(other); !errors.As(err, &refused) || refused.Field != "plan.input" {
		t.Errorf("another input: %v", err)
	}
	if _, err := resumed.Do(t.Context(), coordinator.Action{ID: "invoice", Capability: "invoice.send",
		Input: map[string]string{"of": "order"}}, counted(&ran, nil)); err != nil {
		t.Fatal(err)
	}
	rate("2")
	if err := resumed.Fail(t.Context(), "no"); err != nil && !errors.Is(err, coordinator.ErrUnwound) {
		t.Fatal(err)
	}
	const want = `{"order":"output of order","rate":1.10,"ref":"ref order","shop":"north"}`
	if arguments := <-got; arguments != want {
		t.Errorf("%s, want %s", arguments, want)
	}
	if shown := l.shown("sale"); string(shown.Input) != `{"currency":"eur","shop":"north"}` {
		t.Errorf("shown with input %s", shown.Input)
	}
}

// TestWhatAPlanIsOpenedWithIsBounded: before anything is recorded.
func TestWhatAPlanIsOpenedWithIsBounded(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{quick()}})
	for _, input := range []any{strings.Repeat("x", ledger.PlanInputMax), "\xff", func() {}} {
		_, err := l.agent.Begin(t.Context(), coordinator.PlanSpec{Input: input})
		var refused *ledger.Refused
		if !errors.As(err, &refused) || refused.Field != "plan.input" {
			t.Errorf("%.20v: %v", input, err)
		}
	}
}
