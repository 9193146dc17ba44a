package console

import "time"

// Bounds of the console; each names what it bounds.
const (
	streamsMax       = 256                    // pages that follow the fold at once
	streamsOperator  = 64                     // of them, of one operator
	streamsReaders   = 64                     // of them, from one address without a sign-in
	triesMost        = 10                     // tokens that one address may show at once
	tryEvery         = 5 * time.Second        // after which it may show one more
	triesMostAll     = 100                    // tokens that all may show at once
	tryEveryAll      = 500 * time.Millisecond // after which there is one more
	triesKept        = 10_000                 // addresses that are remembered for that
	tokenBytesMax    = 1 << 10                // of a token that is shown
	streamPause      = 200 * time.Millisecond // between two events of one page
	streamBeat       = 15 * time.Second       // after which a silent stream says that it is alive
	streamWrite      = 10 * time.Second       // for one write to a stream; who is slower is dropped
	requestTime      = 30 * time.Second       // for one request that is no stream
	headerTime       = 5 * time.Second        // for the head of a request
	idleTime         = 2 * time.Minute        // of a connection between requests
	formBytesMax     = 64 << 10               // of a form
	headerBytesMax   = 32 << 10               // of the head of a request
	sessionTime      = 12 * time.Hour         // after which an operator signs in again
	sessionsMax      = 1000                   // the oldest ends when there is one more
	tokenBytesMin    = 20                     // of an operator's token
	pageRows         = 50                     // of a list
	ledgerRows       = 25                     // commits of one page of the ledger
	recordsListed    = 12                     // records of one commit in such a page
	recordsShown     = 50                     // of one commit on its own page
	stepsShown       = 200                    // actions of one plan that a page shows at once
	attemptsShown    = 1000                   // attempts of undos in a timeline
	childDepth       = 3                      // of child plans inside a plan's page
	childrenShown    = 12                     // of them on one page
	payloadShown     = 8 << 10                // bytes of an input or output that a page shows
	actTime          = 15 * time.Second       // for an operator's record to be stored and folded
	suggestionsShown = 100                    // capabilities offered in a filter
	ratesKept        = 120                    // looks at the counters that the rates come from
	ratesEvery       = 5 * time.Second        // between them
)
