package coordinator_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestAnAgentMovesItsDeadline earlier and later, and its plan ends where it was moved to; what it
// may not move says why.
func TestAnAgentMovesItsDeadline(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}})
	p := l.begin(coordinator.PlanSpec{Deadline: time.Hour})
	l.do(p, "a")
	ctx := t.Context()
	wantField := func(err error, field string) {
		t.Helper()
		var refused *coordinator.Refused
		if !errors.As(err, &refused) || refused.Field != field {
			t.Errorf("%v, want a refusal of %s", err, field)
		}
	}
	wantField(p.MoveDeadline(ctx, time.Now().Add(time.Hour), ""), "deadline_moved.reason")
	wantField(p.MoveDeadline(ctx, time.Now().Add(time.Hour), " \n"), "deadline_moved.reason")
	wantField(p.MoveDeadline(ctx, time.Time{}, "x"), "deadline")
	wantField(p.MoveDeadline(ctx, time.Now().Add(-time.Minute), "x"), "deadline")
	moved := time.Now().Add(2 * time.Hour)
	if err := p.MoveDeadline(ctx, moved, "it takes longer"); err != nil {
		t.Fatal(err)
	}
	shown := l.shown(p.ID())
	if shown.DeadlineNs != moved.UnixNano() || shown.DeadlineMoved == nil ||
		shown.DeadlineMoved.Reason != "it takes longer" {
		t.Errorf("%d, %+v", shown.DeadlineNs, shown.DeadlineMoved)
	}
	_, seen := coordinator.DeadlineOf(p)
	l.append(ledger.Source{Tenant: "default", Class: ledger.ClassOperator, Name: "ops"}, &pb.Record{Plan: p.ID(),
		Kind: &pb.Record_DeadlineMoved{DeadlineMoved: &pb.DeadlineMoved{DeadlineNs: time.Now().Add(3 * time.Hour).UnixNano(),
			Reason: "a holiday", Actor: "ops"}}})
	l.do(p, "b")
	wantField(coordinator.MoveDeadlineAfter(ctx, p, 1, time.Now().Add(4*time.Hour), "it was not seen"), "deadline")
	again := time.Now().Add(4 * time.Hour)
	l.eventually("a process that has heard of the deadline", func() bool {
		_, set := coordinator.DeadlineOf(p)
		return set > seen
	})
	_, seen = coordinator.DeadlineOf(p)
	for range 2 {
		if err := coordinator.MoveDeadlineAfter(ctx, p, seen, again, "a copy moves nothing"); err != nil {
			t.Fatal(err)
		}
	}
	if at, set := coordinator.DeadlineOf(p); !at.Equal(again) || set <= seen ||
		l.shown(p.ID()).DeadlineMoved.Reason != "a copy moves nothing" {
		t.Errorf("%v, set at %d", at, set)
	}
	if err := p.MoveDeadline(ctx, time.Now().Add(500*time.Millisecond), "it is done"); err != nil {
		t.Fatal(err)
	}
	l.eventually("a plan that its deadline has ended", func() bool {
		return l.shown(p.ID()).State == ledger.StateCompensated
	})
	if err := p.MoveDeadline(ctx, time.Now().Add(time.Hour), "too late"); !errors.Is(err, coordinator.ErrUnwinding) &&
		!strings.Contains(err.Error(), "not moved any more") {
		t.Errorf("%v", err)
	}
}

// TestAProcessThatResumesAPlanKnowsItsDeadline: it was moved meanwhile.
func TestAProcessThatResumesAPlanKnowsItsDeadline(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}})
	p := l.begin(coordinator.PlanSpec{Deadline: time.Second})
	l.do(p, "a")
	if err := p.MoveDeadline(t.Context(), time.Now().Add(time.Hour), "it takes longer"); err != nil {
		t.Fatal(err)
	}
	q, err := l.another(t).Resume(t.Context(), p.ID())
	if err != nil {
		t.Fatal(err)
	}
	l.eventually("an instant after the first deadline", func() bool {
		return time.Now().UnixNano() > q.Opened().DeadlineNs
	})
	l.do(q, "b")
	var answer api.OutcomeAnswer
	if l.ask("plan.outcome", api.OutcomeQuery{Plan: p.ID()}, &answer); answer.State != ledger.StateOpen {
		t.Errorf("%+v", answer)
	}
}
