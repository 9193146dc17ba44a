package ledger_test

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// TestAPlanThatIsUnderWayHasNotEnded: a delivery neither.
func TestAPlanThatIsUnderWayHasNotEnded(t *testing.T) {
	for state, want := range map[string]bool{
		"": false, ledger.StateOpen: false, ledger.StateCommitting: false,
		ledger.StateUnwinding: false, ledger.StateDelivering: false,
		ledger.StateCommitted: true, ledger.StateCompensated: true, ledger.StateDelivered: true,
		ledger.StateQuarantined: true, ledger.StateFailed: true, ledger.StateResolved: true,
	} {
		if ledger.HasEnded(state) != want {
			t.Errorf("%q has ended: %v", state, !want)
		}
	}
}
