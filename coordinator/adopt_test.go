package coordinator_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestAProcessThatHadResumedAPlanIsToldWhoHasIt, and which operator has handed it over: what it hears
// may be an earlier word, so that it asks an executor.
func TestAProcessThatHadResumedAPlanIsToldWhoHasIt(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{quick()}})
	ctx, ran := t.Context(), 0
	if err := l.begin(coordinator.PlanSpec{ID: "job"}).Flush(ctx); err != nil {
		t.Fatal(err)
	}
	again := l.another(t)
	p, err := again.Resume(ctx, "job")
	if err != nil {
		t.Fatal(err)
	}
	l.append(ledger.Source{Tenant: "default", Class: ledger.ClassOperator, Name: "ops"}, &pb.Record{Plan: "job",
		Kind: &pb.Record_PlanAdopted{PlanAdopted: &pb.PlanAdopted{Agent: "a2", Reason: "it hangs", Actor: "ops"}}})
	l.eventually("it hears of it", func() bool { return coordinator.Superseded(p) })
	_, err = p.Do(ctx, writes("a", "x"), counted(&ran, nil))
	var handed *coordinator.HandedOver
	if !errors.As(err, &handed) || *handed != (coordinator.HandedOver{Plan: "job", Agent: "a2", By: "ops",
		Reason: "it hangs"}) || ran != 0 {
		t.Errorf("%v, %d forwards", err, ran)
	}
	for _, c := range []func() error{
		func() error { _, err := l.another(t).Resume(ctx, "job"); return err },
		func() error { _, err := l.another(t).Recall(ctx, "job"); return err },
		func() error { _, err := l.another(t).Past(ctx, "job", 0); return err },
	} {
		if err := c(); !errors.As(err, &handed) || !errors.Is(err, coordinator.ErrSuperseded) || handed.Agent != "a2" {
			t.Errorf("%v", err)
		}
	}
}

// TestAnAdoptedPlanGoesOn with another agent, which knows what is recorded, also what is sealed; the
// one that had it hears of it, registers nothing more, and still says what became of its forwards.
func TestAnAdoptedPlanGoesOn(t *testing.T) {
	t.Parallel()
	secret := quick()
	secret.Sensitive = []string{"input.path"}
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{secret}})
	heir, err := coordinator.New(coordinator.Config{Conn: l.connect("a2"), Tenant: "default", Agent: "a2",
		Contracts: []contract.Contract{secret}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, ran := t.Context(), 0
	p := l.begin(coordinator.PlanSpec{ID: "job"})
	if _, err := p.Do(ctx, writes("a", "x"), counted(&ran, nil)); err != nil {
		t.Fatal(err)
	}
	var refused *coordinator.Refused
	if _, err := heir.Resume(ctx, "job"); !errors.As(err, &refused) || refused.Field != "plan.id" {
		t.Fatalf("before it has the plan: %v", err)
	}
	called, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := p.Do(ctx, writes("b", "y"), func(_ context.Context, call coordinator.Call) (coordinator.Outcome, error) {
			close(called)
			<-goOn
			return coordinator.Outcome{Output: "output of b"}, nil
		})
		done <- err
	}()
	<-called
	l.append(ledger.Source{Tenant: "default", Class: ledger.ClassOperator, Name: "ops"}, &pb.Record{Plan: "job",
		Kind: &pb.Record_PlanAdopted{PlanAdopted: &pb.PlanAdopted{Agent: "a2", Reason: "it hangs", Actor: "ops"}}})
	l.eventually("the first agent hears of it", func() bool { return coordinator.Superseded(p) })
	close(goOn)
	<-done
	if _, err := p.Do(ctx, writes("c", "z"), counted(&ran, nil)); !errors.Is(err, coordinator.ErrSuperseded) ||
		!strings.Contains(err.Error(), "operator ops has handed it to agent a2 (it hangs)") || ran != 1 {
		t.Errorf("the first agent goes on: %v, %d forwards", err, ran)
	}
	l.eventually("what its forward did counts", func() bool {
		for _, a := range l.shown("job").Actions {
			if a.Action == "b" {
				return a.Outcome == "completed"
			}
		}
		return false
	})
	q, err := heir.Resume(ctx, "job")
	if err != nil {
		t.Fatal(err)
	}
	out, err := q.Do(ctx, writes("a", "x"), counted(&ran, nil))
	if err != nil || string(out) != `"output of a"` || ran != 1 {
		t.Errorf("what is recorded is %s, %v, after %d forwards", out, err, ran)
	}
	if _, err := q.Do(ctx, writes("c", "z"), counted(&ran, nil)); err != nil || ran != 2 {
		t.Errorf("the other agent goes on: %v, %d forwards", err, ran)
	}
	if _, err := l.another(t).Resume(ctx, "job"); err == nil {
		t.Error("the first agent resumes it")
	}
	if err := q.Fail(ctx, "enough"); err != nil {
		t.Fatal(err)
	}
	l.eventually("all of it is undone", func() bool {
		return l.shown("job").State == ledger.StateCompensated
	})
	if err := heir.Close(ctx); err != nil {
		t.Error(err)
	}
}
