package worker

import (
	"time"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

const (
	// ConcurrencyDefault and ConcurrencyMax bound the handlers that run at once.
	ConcurrencyDefault = 16
	ConcurrencyMax     = 4096

	// OutputMax is the largest output of an undo that is passed on, in bytes; it
	// must fit into a record with everything else. A larger one is left out.
	OutputMax = 32 << 10

	flushMax         = 2 * time.Second      // for answers to leave at the end
	reportDelayMin   = 5 * time.Millisecond // between tries of a report, doubling
	reportDelayMax   = time.Second
	reportAttemptMax = 2 * time.Second
)

// QueueGroup is the NATS queue group of all workers, whatever their language: of
// those that serve a capability, one gets each command.
const QueueGroup = api.WorkersGroup
