package console

import "time"

// Bounds of the console; each names what it bounds.
const (
	streamsMax     = 256                    // pages that follow the fold at once
	streamsUser    = 64                     // of them, of one user
	streamsReaders = 64                     // of them, from one address without a sign-in
	streamPause    = 200 * time.Millisecond // between two events of one page
	streamBeat     = 15 * time.Second       // after which a silent stream says that it is alive
	streamWrite    = 10 * time.Second       // for one write to a stream; who is slower is dropped
	requestTime    = 30 * time.Second       // for one request that is no stream
	headerTime     = 5 * time.Second        // for the head of a request
	idleTime       = 2 * time.Minute        // of a connection between requests
	formBytesMax   = 64 << 10               // of a form
	headerBytesMax = 32 << 10               // of the head of a request
	pageRows       = 50                     // of a list
	ledgerRows     = 25                     // commits of one page of the ledger
	recordsListed  = 12                     // records of one commit in such a page
	recordsShown   = 50                     // of one commit on its own page
	attemptsShown  = 1000                   // attempts of undos in a timeline
	childDepth     = 3                      // of child plans inside a plan's page
	childrenShown  = 12                     // of them on one page
	confirmAhead   = time.Minute            // that a page asks for a confirmation early
	sessionsListed = 200                    // on the page of sessions
	actTime        = 15 * time.Second       // for an operator's record to be stored and folded
	ratesKept      = 120                    // looks at the counters that the rates come from
	ratesEvery     = 5 * time.Second        // between them
)
