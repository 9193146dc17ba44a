package coordinator_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/ledger/testenv/served"
)

// TestATenantThatIsNotThereIsNamed: records that no stream takes wait for one, and their caller is
// told so. They may be stored yet, as once the tenant is added.
func TestATenantThatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	_, conn := served.NATS(t)
	c, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: "elsewhere", Agent: "a1",
		AppendTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // what no stream takes is given up
		_ = c.Close(ctx)
	})
	p, err := c.Begin(t.Context(), coordinator.PlanSpec{})
	if err != nil {
		t.Fatal(err)
	}
	bounded, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	err = p.Flush(bounded)
	for !errors.Is(err, coordinator.ErrNoLedger) && bounded.Err() == nil {
		err = p.Flush(bounded) // on a busy machine, no answer may have come in the time of one
	}
	if !errors.Is(err, coordinator.ErrNoLedger) || !errors.Is(err, coordinator.ErrInDoubt) ||
		errors.Is(err, coordinator.ErrBusy) || !strings.Contains(err.Error(), "tenant elsewhere: it has no ledger") ||
		!strings.Contains(err.Error(), "before the server is reloaded once more") {
		t.Error(err)
	}
}
