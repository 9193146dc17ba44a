package coordinator

import (
	"context"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestAVerdictCountsUntilItsCallerIsThere: an action that was allowed, and whose caller comes later, is
// blocked until then, also where the notice of that is lost. So is one that needs no verdict.
func TestAVerdictCountsUntilItsCallerIsThere(t *testing.T) {
	for how, declared := range map[string]Action{"notice": reviewed("a"), "answer": reviewed("a"),
		"no review": write("a")} {
		t.Run(how, func(t *testing.T) {
			in(t, func(t *testing.T) {
				store, e := memory(), &executor{}
				e.say(api.OutcomeAnswer{State: ledger.StateOpen, Verdict: "allow"})
				p := begin(t, start(t, store, e), PlanSpec{})
				caller, done := make(chan struct{}), make(chan error, 1)
				go func() {
					_, err := DoFor(t.Context(), p, declared, caller, never(t))
					done <- err
				}()
				elapse(time.Minute)
				if how == "notice" {
					e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, Action: "a", Verdict: "block",
						Reason: "policy 7", By: "compliance"})
				} else {
					e.say(api.OutcomeAnswer{State: ledger.StateOpen, Verdict: "block", VerdictReason: "policy 7",
						VerdictBy: "compliance"})
					caller <- struct{}{}
				}
				wantIs(t, <-done, ErrBlocked)
				elapse(LingerMax)
				if code := find(t, store, "forward_failed/a").GetForwardFailed().Code; code != "blocked" {
					t.Errorf("code %s", code)
				}
			})
		})
	}
}

// TestAnActionIsCalledOnceItsCallerIsThere, and one whose plan ends before is not.
func TestAnActionIsCalledOnceItsCallerIsThere(t *testing.T) {
	in(t, func(t *testing.T) {
		p := begin(t, start(t, memory(), &executor{}), PlanSpec{})
		caller, done := make(chan struct{}), make(chan error, 2)
		do := func(id string, forward Forward) {
			_, err := DoFor(t.Context(), p, write(id), caller, forward)
			done <- err
		}
		go do("a", happens)
		caller <- struct{}{}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		go do("b", never(t))
		elapse(time.Minute)
		if err := p.Fail(context.Background(), "no more"); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err == nil {
			t.Error("called, and its plan has failed")
		}
	})
}
