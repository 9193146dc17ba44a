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
