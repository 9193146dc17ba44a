package host

import (
	"time"

	"github.com/sagenbaum/sagenbaum/executor/turn"
)

// Bounds of the shell; each names what it bounds. Those of a turn are in package turn.
const (
	turnBytesMax = turn.BytesMax          // bytes folded in one turn
	turnTimeMax  = 100 * time.Millisecond // after which a turn folds no further message
	freeMax      = 5 * time.Millisecond   // that a tenant may work without a place, saved up
	freeShare    = 10                     // of which it saves one part in so many of the time
	placeMax     = 10 * time.Millisecond  // after which a place is left to who waits for one
	// between two looks at the clock of a turn that evaluates
	lookMax       = time.Millisecond
	callsMax      = 64              // evaluations between them
	readAheadMax  = 4096            // messages read ahead of the fold
	progressEvery = 4 * time.Second // how often a long fold is said to go on
	// questions that wait for a sequence or a plan's end, per tenant
	waitersMax    = 10_000
	waitMax       = 60 * time.Second // that one question may wait
	appendTimeout = 5 * time.Second  // until an append without reply counts as missed
	// between reads that broke off, and tries of what failed
	retryDelayMin    = turn.RetryMin
	retryDelayMax    = turn.RetryMax    //
	attachTimeout    = 30 * time.Second // for one attempt to open a tenant
	holdersTimeout   = 5 * time.Second  // for one attempt to open the bucket of leases
	holderPollFactor = 3                // a lease is renewed this often within its TTL
	// of its TTL: how long before its end a lease that cannot be renewed is given up, and how often
	// one that is due to end is looked at
	holderLateFactor = 20
	eagerTries       = 20                     // to take a lease that was given back
	eagerPause       = 10 * time.Millisecond  // between them
	pagesAtOnce      = 4                      // pages on their way to one webhook
	pageTimeout      = 10 * time.Second       // for one try to deliver a page
	pageRetryMin     = 100 * time.Millisecond // between tries; doubles
	pageRetryMax     = time.Minute            //
	escalateDefault  = 15 * time.Minute       // until operators get a page that no one takes
	// without a worker, or with one that says working, until operators are called
	stuckDefault = 10 * time.Minute
	// bytes of a webhook's answer that are read, and thrown away
	pageAnswerMax   = 64 << 10
	archiveTimeout  = 5 * time.Second // for one record that is read back
	archiveBytesMax = 4 << 20         // values read back that are kept in memory
	eventsSizeMax   = 512 << 10       // bytes of records in one answer
	eventSizeMin    = 512             // that one event takes beside its value
	rebuildMax      = time.Hour       // for one rebuild
	// after the last checkpoint, then the next one is signed
	checkpointRecords = 1000
	checkpointAfter   = 10 * time.Second // or so long after the first record that none covers
	checkpointRetry   = 10 * time.Second // after one that could not be signed
	witnessRetry      = time.Minute      // after a checkpoint that the witness did not cosign
	witnessTimeout    = 10 * time.Second // for one question to it
	// of one checkpoint, where it names the size that it has seen
	witnessTries     = 3
	witnessAnswerMax = 64 << 10 // bytes of its answer
	// how often a halted tenant looks whether its stream was made again
	haltPoll        = 5 * time.Second
	alarmPoll       = 5 * time.Millisecond // how often a scrub looks whether the tenant is halted
	scrubEvery      = 24 * time.Hour       // from the end of one full pass to the next
	scrubRetry      = time.Minute          // after a pass that could not be finished
	scrubChunk      = 2000                 // messages that a scrub reads at once
	scrubShare      = 20                   // a scrub works one part in so many of the time
	differencesMax  = 20                   // rows that a rebuild names
	changedMax      = 256                  // plans that one change names
	watchesMax      = 256                  // watches that follow one tenant
	refusalLogPause = 10 * time.Second     // between two lines of the log about refused answers
	workerNameShown = 64                   // bytes of a worker's name in such a line
	servedMax       = 1000                 // calls that one question about workers names
	// capabilities of which it is remembered when a worker last answered
	heardMax   = 1000
	scrapesMax = 4 // of the metrics, at once
	// of traces that are open, and undos whose time is taken, per tenant
	spansMax = 10_000
)
