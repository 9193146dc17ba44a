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

	// BeforeMax is the largest before-image, in bytes of JSON: it shares a commit with
	// the pair.
	BeforeMax = 32 << 10

	// ForwardGrace is how long Fail and Cancel wait for the forwards that they have
	// interrupted, so that what became of them is known before the unwind starts.
	ForwardGrace = time.Second

	// attachTokenMin is how many bytes a token has at least that no one guesses.
	attachTokenMin = 16

	// startSlack is how long a pair may take to be stored before an executor is asked
	// whether the plan is still open; it is shorter than any sensible grace.
	startSlack = time.Second

	// watchMin and watchMax bound how often an executor is asked about the plan of a
	// forward that runs long; after two intervals at least without an answer the forward
	// is interrupted.
	watchMin, watchMax = 500 * time.Millisecond, 15 * time.Second

	appendTimeoutDefault  = 10 * time.Second
	confirmTimeoutDefault = 5 * time.Second

	reviewTimeoutDefault = 10 * time.Minute

	questionAttemptsDefault = 3 // of a call that says nothing
	questionTimeoutDefault  = 30 * time.Second
	questionBackoffDefault  = time.Second

	appendAttemptMax = 2 * time.Second      // one try of an append
	retryDelayMin    = 5 * time.Millisecond // between tries, doubling
	retryDelayMax    = time.Second          //
	// between questions to an executor that is not there, or cannot say yet
	askDelay = 50 * time.Millisecond
	// where its doubling ends, while a verdict or a rewinding is waited for
	askDelayMax = time.Second
	askWaitMax  = 2 * time.Second // how long the executor may keep one question
	askSlack    = time.Second     // what its answer may take beyond that

	presenceTries   = 10                     // to find out whether a process runs a plan
	presenceMax     = 500 * time.Millisecond // that it may take to say so, each time
	yieldMax        = time.Second            // that a process may take to let a plan go
	historyWait     = 6 * time.Second        // for one page of what is recorded
	historyPage     = 1000                   // actions in one
	handlerAgentMax = 24                     // bytes of an agent's name that has handlers in code

	doubtsNamed    = 8        // actions in the text of a *CommitWaits
	answersMax     = 64       // messages that wait on the reply subject of one question
	answersSizeMax = 16 << 20 // bytes of them
	answersAtOnce  = 1024     // requests of other processes that are worked on
	answersWaiting = 8192     // of them, that wait for it; those beyond are dropped

	expressionsMax = 1024 // checked expressions that are remembered
	contractsPage  = 100  // published contracts in one answer
)

// commitOverhead is what a commit has beside its records: min_reader, below 2^14.
const commitOverhead = 3
