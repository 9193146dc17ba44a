package triggers

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// The package imports nothing that knows of records, and says again what the format of records says.
func TestWhatTheFormatOfRecordsSaysAsWell(t *testing.T) {
	if textMax != ledger.ExpressionMax || keyMax != ledger.FactKeyMax || outputMax != ledger.CommitSizeMax {
		t.Errorf("limits %d, %d and %d; the format has %d, %d and %d",
			textMax, keyMax, outputMax, ledger.ExpressionMax, ledger.FactKeyMax, ledger.CommitSizeMax)
	}
	if openPlan != ledger.StateOpen {
		t.Errorf("an open plan is %q, in the format %q", openPlan, ledger.StateOpen)
	}
}
