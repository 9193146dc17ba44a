package coordinator

import "time"

// Limits and defaults of the coordinator.
const (
	// LingerMax is how long an outcome waits for a commit to share before it
	// gets one of its own.
	LingerMax = time.Millisecond

	// CallsMax is how many calls of one Coordinator may wait for the ledger at
	// once; further ones wait for a place, and nothing of theirs is queued.
	CallsMax = 4096

	// ContractsMax is how many contracts one Coordinator takes.
	ContractsMax = 4096

	// LiftMax is how many fields a contract may lift.
	LiftMax = 64

	// ForwardGrace is how long Fail and Cancel wait for the forwards that they
	// interrupt, so that what became of them is known before the unwind starts.
	ForwardGrace = time.Second

	appendTimeoutDefault  = 10 * time.Second
	confirmTimeoutDefault = 5 * time.Second

	attemptsDefault   = 5
	backoffDefault    = time.Second
	backoffMaxDefault = time.Minute
	timeoutDefault    = 30 * time.Second

	appendAttemptMax = 2 * time.Second       // one try of an append
	retryDelayMin    = 5 * time.Millisecond  // between tries, doubling
	retryDelayMax    = time.Second           //
	askDelay         = 50 * time.Millisecond // between questions to an executor that is not there
	askWaitMax       = 2 * time.Second       // how long the executor may keep one question
	askSlack         = time.Second           // what its answer may take beyond that

	expressionsMax = 1024 // checked expressions that are remembered
)

// commitOverhead is what a commit has beside its records: min_reader, below 2^14.
const commitOverhead = 3
