package ledger_test

import (
	"errors"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestARefusalOfATenantIsFoundInItsReason: what the text says is what was meant.
func TestARefusalOfATenantIsFoundInItsReason(t *testing.T) {
	t.Parallel()
	for _, meant := range []error{
		ledger.OverLimit("shop", ledger.LimitOpenPlans, 10, 10),
		ledger.OverLimit("shop", ledger.LimitRecords, 1, 0),
		ledger.Suspended("shop", &pb.TenantChanged{By: "ana", Reason: "not paid; want money: now; want it"}),
	} {
		var want *ledger.Refused
		if !errors.As(meant, &want) {
			t.Fatal(meant)
		}
		for _, reason := range []string{meant.Error(), want.Error(),
			ledger.ReasonUnopened + ": " + want.Error()[len("refused: "):]} {
			if got := ledger.TenantRefusal(reason); got == nil || *got != *want {
				t.Errorf("%s: %+v", reason, got)
			}
		}
	}
	for _, other := range []string{"", "limits", "limits.facts", "refused: limits.facts: 3 of 3",
		"refused: plan.id: suspended by x; want y", "tenant: late; want z", ledger.ReasonUnopened,
		"the agent said: limits.facts: 3 of 3; want more"} {
		if got := ledger.TenantRefusal(other); got != nil {
			t.Errorf("%s: %+v", other, got)
		}
	}
}
