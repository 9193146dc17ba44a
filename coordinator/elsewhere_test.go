package coordinator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// A plan that another process has taken over and committed is not undone.

// TestAForwardEndsByItselfWhereItsPlanIsCommittedElsewhere: only what it says settles the commit.
func TestAForwardEndsByItselfWhereItsPlanIsCommittedElsewhere(t *testing.T) {
	for _, state := range []string{ledger.StateCommitting, ledger.StateCommitted} {
		in(t, func(t *testing.T) {
			e := &executor{script: []api.OutcomeAnswer{{State: ledger.StateOpen}}}
			p := begin(t, start(t, memory(), e), PlanSpec{})
			if _, err := p.Do(t.Context(), write("a"), func(ctx context.Context, call Call) (Outcome, error) {
				e.say(api.OutcomeAnswer{State: state})
				e.back()
				if elapse(5 * time.Minute); ctx.Err() != nil {
					return Outcome{}, context.Cause(ctx)
				}
				return happens(ctx, call)
			}); err != nil {
				t.Errorf("%s: %v", state, err)
			}
			_, err := p.Do(t.Context(), write("b"), never(t))
			if !errors.Is(err, ErrSuperseded) || errors.Is(err, ErrUnwinding) {
				t.Errorf("%s: the next call returns %v", state, err)
			}
		})
	}
}

// TestAForwardIsInterruptedWhereACommitElsewhereIsUndone.
func TestAForwardIsInterruptedWhereACommitElsewhereIsUndone(t *testing.T) {
	in(t, func(t *testing.T) {
		e, took := &executor{script: []api.OutcomeAnswer{{State: ledger.StateCommitting}}}, time.Duration(0)
		p := begin(t, start(t, memory(), e), PlanSpec{})
		time.AfterFunc(time.Minute, func() { e.say(api.OutcomeAnswer{State: ledger.StateUnwinding}) })
		_, err := p.Do(t.Context(), write("a"), waits(time.Now(), &took))
		if wantIs(t, err, ErrUnwinding); took < time.Minute || took > 75*time.Second {
			t.Errorf("interrupted after %v", took)
		}
	})
}

// TestWhatIsNotCalledYetSaysThatItsPlanIsCommittedElsewhere: an executor is asked before a forward
// starts late, while its verdict is waited for, and while a plan goes back to a savepoint.
func TestWhatIsNotCalledYetSaysThatItsPlanIsCommittedElsewhere(t *testing.T) {
	for name, call := range map[string]func(context.Context, *testing.T, *Plan) error{
		"late": func(ctx context.Context, t *testing.T, p *Plan) error {
			p.c.accepted = true
			_, err := p.Do(ctx, write("a"), never(t))
			return err
		},
		"verdict": func(ctx context.Context, t *testing.T, p *Plan) error {
			_, err := p.Do(ctx, reviewed("a"), never(t))
			return err
		},
		"savepoint": func(ctx context.Context, _ *testing.T, p *Plan) error { return p.UnwindTo(ctx, "s1", "x") },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				e := &executor{script: []api.OutcomeAnswer{{State: ledger.StateCommitted}}}
				p := begin(t, start(t, memory(), e), PlanSpec{})
				mustSet(t, p, "s1")
				if err := call(t.Context(), t, p); !errors.Is(err, ErrSuperseded) || errors.Is(err, ErrUnwinding) ||
					errors.Is(err, ErrUnwound) {
					t.Error(err)
				}
			})
		})
	}
}

// TestAPlanWhoseCommitWaitsIsNotSaidToBeCommitted, before it is.
func TestAPlanWhoseCommitWaitsIsNotSaidToBeCommitted(t *testing.T) {
	for name, learn := range map[string]func(context.Context, *Plan) error{
		"Commit": func(ctx context.Context, p *Plan) error { return p.Commit(ctx) },
		"Wait":   func(ctx context.Context, p *Plan) error { _, err := p.Wait(ctx); return err },
	} {
		in(t, func(t *testing.T) {
			e := &executor{script: []api.OutcomeAnswer{{State: ledger.StateCommitting, Doubts: []api.Doubt{{Owner: true}}}}}
			p := begin(t, start(t, memory(), e), PlanSpec{})
			wantIs(t, p.Commit(t.Context()), ErrCommitWaits)
			wantShut(t, p, "plan committing (its commit waits: Commit again, Fail or Cancel)")
			e.say(api.OutcomeAnswer{State: ledger.StateCommitted})
			if err := learn(t.Context(), p); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			wantShut(t, p, "plan committed")
			wantIs(t, p.Fail(t.Context(), "too late"), ErrClosed)
		})
	}
}

// wantShut wants a plan to take no action, and to say why.
func wantShut(t *testing.T, p *Plan, why string) {
	t.Helper()
	_, err := p.Do(t.Context(), write("b"), never(t))
	if wantIs(t, err, ErrClosed); !strings.Contains(err.Error(), ": "+why+": ") {
		t.Error(err)
	}
}

// TestAnActionWithoutAWordIsNotSaidToBeOfAProcessThatHasEnded: its forward may run still, where its plan
// was resumed from a process that is alive.
func TestAnActionWithoutAWordIsNotSaidToBeOfAProcessThatHasEnded(t *testing.T) {
	unknown := &Recorded{Action: "slow", Outcome: api.OutcomeUnknown}
	if text := unknown.Error(); text != "action slow: its process has not said what happened (as recorded)" {
		t.Error(text)
	}
}
