package contract

import "time"

// Limits and defaults of a contract; those of package ledger hold too.
const (
	// LiftMax is how many fields a contract may lift.
	LiftMax = 64

	// FileSizeMax is how many bytes a file of contracts may have.
	FileSizeMax = 1 << 20
)

const (
	attemptsDefault   = 5
	backoffDefault    = time.Second
	backoffMaxDefault = time.Minute
	jitterDefault     = 20 // percent
	timeoutDefault    = 30 * time.Second

	askAttemptsDefault = 3 // of a question: before, probe, verify

	reviewTimeoutDefault = 10 * time.Minute

	warnPart = 10             // a window is announced in the last tenth of it,
	warnMax  = 24 * time.Hour // but no earlier than a day before its end
)
