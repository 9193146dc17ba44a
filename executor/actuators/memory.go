package actuators

import (
	"fmt"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// memoryName is what Memory answers as.
const memoryName = "memory"

// Memory answers for undos in working memory. It changes nothing itself: the fact
// and the success of the undo are one commit of records, which follows its answer.
type Memory struct{}

// Send calls done before it returns.
func (Memory) Send(c api.Command, done func(Result)) {
	reply := api.Reply{Status: api.StatusDone, Worker: memoryName}
	if c.Purpose != ledger.PurposeUndo || ledger.MemoryArguments(c.Capability) == nil {
		reply = api.Reply{
			Status: api.StatusStop, Code: "unknown_capability", Worker: memoryName,
			Message: fmt.Sprintf("working memory has no %s of %s; it has %s and %s", c.Purpose, c.Capability,
				ledger.CapabilityAssert, ledger.CapabilityRetract),
		}
	}
	done(Result{Fate: Replied, Reply: reply})
}
