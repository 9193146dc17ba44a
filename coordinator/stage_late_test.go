package coordinator

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
)

// TestNothingIsStagedAfterTheDeadline: nothing of it is stored, since the plan is about to be undone.
func TestNothingIsStagedAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := newCoordinator(Config{Appender: memory(), Tenant: tenant, Agent: "a1",
			Contracts: []contract.Contract{{Capability: "mail.send", Class: contract.Irreversible,
				Deliver: &contract.Deliver{Dedupe: time.Hour}}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(t.Context())
		timed, open := begin(t, c, PlanSpec{Deadline: time.Hour}), begin(t, c, PlanSpec{})
		stages := func(p *Plan, id string, want error) {
			t.Helper()
			err := p.Stage(t.Context(), Action{ID: id, Capability: "mail.send"})
			_, stored := StagedCall(p, id)
			if !errors.Is(err, want) || stored == errors.Is(want, ErrUnwinding) {
				t.Errorf("%s: %v, stored: %t; want %v", id, err, stored, want)
			}
		}
		stages(timed, "early", ErrUnconfirmed) // there is no executor to ask
		<-time.After(time.Hour - time.Nanosecond)
		stages(timed, "just", ErrUnconfirmed)
		<-time.After(time.Nanosecond)
		stages(timed, "late", ErrUnwinding)
		stages(open, "open", ErrUnconfirmed)
	})
}
