package actuators

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func TestWorkingMemoryAnswersForItsOwnCapabilitiesOnly(t *testing.T) {
	for _, c := range []struct {
		purpose, capability, status string
	}{
		{ledger.PurposeUndo, ledger.CapabilityAssert, api.StatusDone},
		{ledger.PurposeUndo, ledger.CapabilityRetract, api.StatusDone},
		{ledger.PurposeUndo, "git.branch.delete", api.StatusStop},
		{api.PurposeProbe, ledger.CapabilityAssert, api.StatusStop},
	} {
		calls := 0
		Memory{}.Send(api.Command{Purpose: c.purpose, Capability: c.capability}, func(r Result) {
			calls++
			if r.Fate != Replied || r.Reply.Status != c.status || r.Reply.Worker != memoryName {
				t.Errorf("%s %s: %+v", c.purpose, c.capability, r)
			}
			if c.status == api.StatusStop && !strings.Contains(r.Reply.Message, ledger.CapabilityRetract) {
				t.Errorf("it does not say what there is: %q", r.Reply.Message)
			}
		})
		if calls != 1 {
			t.Errorf("answered %d times", calls)
		}
	}
}
