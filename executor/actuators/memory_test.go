package actuators

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
)

func TestWorkingMemoryAnswersForItsOwnCapabilitiesOnly(t *testing.T) {
	for _, c := range []struct {
		purpose, capability, status string
	}{
		{ledger.PurposeUndo, ledger.CapabilityAssert, ledger.StatusDone},
		{ledger.PurposeUndo, ledger.CapabilityRetract, ledger.StatusDone},
		{ledger.PurposeUndo, "git.branch.delete", ledger.StatusStop},
		{ledger.PurposeProbe, ledger.CapabilityAssert, ledger.StatusStop},
	} {
		calls := 0
		Memory{}.Send(ledger.Command{Purpose: c.purpose, Capability: c.capability}, func(r Result) {
			calls++
			if r.Fate != Replied || r.Reply.Status != c.status || r.Reply.Worker != memoryName {
				t.Errorf("%s %s: %+v", c.purpose, c.capability, r)
			}
			if c.status == ledger.StatusStop && !strings.Contains(r.Reply.Message, ledger.CapabilityRetract) {
				t.Errorf("it does not say what there is: %q", r.Reply.Message)
			}
		})
		if calls != 1 {
			t.Errorf("answered %d times", calls)
		}
	}
}
