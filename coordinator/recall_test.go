package coordinator

import (
	"errors"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestAPlanThatOpensWhileItIsRecalledIsOpen: it was unwinding when it was asked for first.
func TestAPlanThatOpensWhileItIsRecalledIsOpen(t *testing.T) {
	in(t, func(t *testing.T) {
		opened, err := (&pb.PlanOpened{Label: "trip"}).MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		var c *Coordinator
		asked := 0
		e := &executor{serve: map[string]func([]byte) any{
			api.HistorySubject(tenant, "a1"): func([]byte) any {
				state := ledger.StateOpen
				if asked++; asked == 1 {
					state = ledger.StateUnwinding
				}
				return api.HistoryAnswer{Agent: "a1", State: state, Opened: opened, Writer: c.writer}
			},
		}}
		c = start(t, memory(), e)
		r, err := c.Recall(t.Context(), "p")
		if err != nil || r.State != ledger.StateOpen {
			t.Fatalf("%+v, %v", r, err)
		}
		if err := r.Plan.Savepoint(t.Context(), "s"); err != nil {
			t.Error(err)
		}
	})
}

// TestAForwardThatWasUndoneIsNotCalledAgain, although nothing is recorded of its outcome.
func TestAForwardThatWasUndoneIsNotCalledAgain(t *testing.T) {
	in(t, func(t *testing.T) {
		opened, err := (&pb.PlanOpened{Label: "trip"}).MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		forward, err := (&pb.ForwardRegistered{Capability: write("a").Capability}).MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		var c *Coordinator
		e := &executor{serve: map[string]func([]byte) any{
			api.HistorySubject(tenant, "a1"): func([]byte) any {
				return api.HistoryAnswer{Agent: "a1", State: ledger.StateOpen, Opened: opened, Writer: c.writer,
					Actions: []api.PastAction{{Number: 1, Action: "a", Forward: forward, Undone: true,
						Outcome: api.OutcomeUnknown}}}
			},
		}}
		c = start(t, memory(), e)
		r, err := c.Recall(t.Context(), "p")
		if err != nil {
			t.Fatal(err)
		}
		declared := write("a")
		declared.Input = nil
		var recorded *Recorded
		if _, err := r.Plan.DoAgain(t.Context(), declared, happens); !errors.As(err, &recorded) || !recorded.Undone {
			t.Errorf("%v", err)
		}
	})
}

// TestWhatAnEarlierProcessMayHaveCalledIsInDoubt, whatever keeps this one from calling it: that it did
// not happen is not said.
func TestWhatAnEarlierProcessMayHaveCalledIsInDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		review  bool
		verdict string // that this process hears of
		want    error
	}{
		"blocked": {true, verdictBlock, ErrBlocked}, "redirected": {true, verdictRedirect, ErrBlocked},
		"no verdict": {true, "", ErrNoVerdict}, "no executor": {false, "", ErrNotStarted},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				opened, err := (&pb.PlanOpened{Label: "trip"}).MarshalVT()
				if err != nil {
					t.Fatal(err)
				}
				forward, err := (&pb.ForwardRegistered{Capability: write("a").Capability, Review: c.review}).MarshalVT()
				if err != nil {
					t.Fatal(err)
				}
				past := api.PastAction{Number: 1, Action: "a", Forward: forward, Outcome: api.OutcomeUnknown}
				if c.review {
					past.Verdict = verdictAllow
				}
				var agent *Coordinator
				e := &executor{serve: map[string]func([]byte) any{
					api.HistorySubject(tenant, "a1"): func([]byte) any {
						return api.HistoryAnswer{Agent: "a1", State: ledger.StateOpen, Opened: opened, Writer: agent.writer,
							Actions: []api.PastAction{past}}
					},
				}}
				store := memory()
				agent = start(t, store, e)
				r, err := agent.Recall(t.Context(), "p")
				if err != nil {
					t.Fatal(err)
				}
				if c.verdict != "" {
					e.notify(t, api.Notice{Plan: "p", State: ledger.StateOpen, Action: "a", Verdict: c.verdict, By: "boss"})
				}
				elapse(startSlack + 1) // its plan may have been undone since
				declared := write("a")
				declared.Input, declared.Review = nil, c.review
				calls := 1
				if c.review {
					calls++ // and it stays what it is
				}
				for range calls {
					var recorded *Recorded
					_, err = r.Plan.DoAgain(t.Context(), declared, never(t))
					if !errors.Is(err, c.want) || !errors.As(err, &recorded) || recorded.Outcome != api.OutcomeInDoubt ||
						c.verdict != "" && recorded.By != "boss" {
						t.Errorf("%v", err)
					}
				}
				elapse(LingerMax)
				wantLines(t, store, "plan_resumed", "forward_in_doubt/a")
			})
		})
	}
}
