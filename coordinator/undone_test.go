package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/replay"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// blocks has an action and what came after it undone, and returns when the plan is open again.
func (l *live) blocks(plan, action string) {
	l.t.Helper()
	l.rule(plan, action, pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK)
	l.parts(plan, 1)
}

// parts returns when so many parts of a plan are undone.
func (l *live) parts(plan string, n int) {
	l.t.Helper()
	for answer := (api.OutcomeAnswer{}); len(answer.Undone) < n; {
		l.ask("plan.outcome", api.OutcomeQuery{Plan: plan}, &answer)
		select {
		case <-l.t.Context().Done():
			l.t.Fatal(l.t.Context().Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// wantGone holds that an action is told as undone.
func wantGone(t *testing.T, action string, err error) {
	t.Helper()
	var recorded *coordinator.Recorded
	if !errors.As(err, &recorded) || recorded.Action != action || !recorded.Undone ||
		!errors.Is(err, coordinator.ErrPartUndone) {
		t.Errorf("action %s: %v", action, err)
	}
}

// TestAnAgentThatComesBackIsToldWhatIsUndone: no call says of an undone action that its effect is
// there, and none calls its forward again.
func TestAnAgentThatComesBackIsToldWhatIsUndone(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}})
	p := l.begin(coordinator.PlanSpec{ID: "trip"})
	for _, id := range []string{"a", "b", "c"} {
		l.do(p, id)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.blocks("trip", "b")
	process := l.another(t)
	q, err := process.Resume(t.Context(), "trip")
	if err != nil {
		t.Fatal(err)
	}
	for _, past := range q.Recorded() {
		if past.Undone != (past.Action != "a") {
			t.Errorf("%+v", past)
		}
	}
	past, err := process.Past(t.Context(), "trip", 0)
	if err != nil || past.State != ledger.StateOpen || len(past.Actions) != 3 {
		t.Errorf("%+v, %v", past, err)
	}
	for _, a := range past.Actions {
		if want := map[bool]string{true: "compensated", false: "held"}[a.Undone]; a.Undone != (a.Action != "a") ||
			a.Undo != want || a.Outcome != api.OutcomeCompleted || a.Capability != "file.write" {
			t.Errorf("%+v", a)
		}
	}
	again := func(id string) (declared coordinator.Action) {
		return coordinator.Action{ID: id, Capability: "file.write", Input: map[string]string{"path": id}}
	}
	if _, err := q.Do(t.Context(), again("a"), nothing); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"b", "c"} {
		_, err := q.Do(t.Context(), again(id), nothing)
		wantGone(t, id, err)
		_, err = q.DoAgain(t.Context(), again(id), nothing)
		wantGone(t, id, err)
		wantGone(t, id, q.Report(t.Context(), again(id), coordinator.Outcome{}))
	}
	l.do(q, "d")
	// A part that this process sees itself.
	if err := q.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.rule("trip", "a", pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK)
	l.parts("trip", 2)
	for { // the news may come while a call is under way, which is that of what is gone then
		var part *coordinator.PartUndone
		_, err := q.Do(t.Context(), again("a"), nothing)
		if errors.As(err, &part) {
			break
		}
		if err != nil && !errors.Is(err, coordinator.ErrUnwinding) && !errors.Is(err, coordinator.ErrPartUndone) {
			t.Fatal(err)
		}
	}
	_, err = q.Do(t.Context(), again("a"), nothing)
	wantGone(t, "a", err)
	if err := q.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestARunThatComesBackIsToldWhatIsUndone: Do returns it where the action was called, what was
// undone needs no call, and the end of the function counts as it does in its first life.
func TestARunThatComesBackIsToldWhatIsUndone(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	for name, failing := range map[string]bool{"fails": true, "goes-on": false} {
		w := newTour(l)
		ctx, cancel := bounded(t)
		defer cancel()
		first := l.process()
		firstCtx, lose := context.WithCancel(ctx)
		err := first.Run(firstCtx, config(name), func(ctx context.Context, p *replay.Plan) error {
			for _, id := range []string{"a", "b", "c"} {
				if err := w.act(ctx, p, id); err != nil {
					return err
				}
			}
			waitCommitted(t, l, name, 3)
			l.blocks(name, "b")
			return first.lose(lose)
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		err = l.process().Run(ctx, config(name), func(ctx context.Context, p *replay.Plan) error {
			if err := w.act(ctx, p, "a"); err != nil {
				t.Error(err)
			}
			gone := w.act(ctx, p, "b")
			wantGone(t, "b", gone)
			if failing {
				return gone
			}
			return w.act(ctx, p, "instead")
		})
		switch {
		case failing:
			wantUnwound(t, err, "compensated")
			if got := w.undoneText(); got != "c1 b1 a1" && got != "c b a" {
				t.Errorf("undone %s", got)
			}
		case err != nil:
			t.Error(err)
		case w.ranText() != "a b c instead":
			t.Errorf("forwards ran %s", w.ranText())
		}
	}
}

// TestAnOperatorsUndoIsTold, of a part and back to a savepoint, and savepoints go with what is undone.
func TestAnOperatorsUndoIsTold(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}})
	p := l.begin(coordinator.PlanSpec{ID: "trip"})
	for _, id := range []string{"a", "b", "c"} {
		if err := p.Savepoint(t.Context(), "before-"+id); err != nil {
			t.Fatal(err)
		}
		l.do(p, id)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	told := func(request *pb.CompensationRequested) (part *coordinator.PartUndone) {
		t.Helper()
		request.Actor = "ann"
		l.append(ledger.Source{Class: ledger.ClassOperator, Name: "ann"}, &pb.Record{Plan: "trip",
			Kind: &pb.Record_CompensationRequested{CompensationRequested: request}})
		for n := 0; ; n++ {
			err := p.Savepoint(t.Context(), fmt.Sprintf("%s-%d", request.Reason, n))
			if errors.As(err, &part) {
				return part
			}
			if err != nil && !errors.Is(err, coordinator.ErrUnwinding) {
				t.Fatal(err)
			}
			select {
			case <-t.Context().Done():
				t.Fatal("it is not told")
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	if part := told(&pb.CompensationRequested{Reason: "one", FromAction: "b"}); part.Action != "b" {
		t.Errorf("%+v", part)
	}
	var refused *ledger.Refused
	if err := p.UnwindTo(t.Context(), "before-c", "x"); !errors.As(err, &refused) {
		t.Errorf("back to a savepoint that is gone: %v", err)
	}
	l.do(p, "d")
	part := told(&pb.CompensationRequested{Reason: "two", ToSavepoint: "before-b"})
	if part.Savepoint != "before-b" || part.Action != "" || part.Reason == "" {
		t.Errorf("%+v", part)
	}
	if err := p.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	if got := l.undoneActions(); got != "c b d" {
		t.Errorf("undone %s", got)
	}
}
