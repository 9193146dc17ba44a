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
	placeMax     = 10 * time.Millisecond  // after which a tenant that waits gets the place
	// between two looks at the clock of a turn that evaluates
	lookMax       = time.Millisecond
	callsMax      = 64              // evaluations between them
	readAheadMax  = 512             // messages read and decoded ahead of the fold
	lookEvery     = time.Second     // between looks at the stream's end, while the loop is busy
	progressEvery = 4 * time.Second // how often a long fold is said to go on
	appendTimeout = 5 * time.Second // until an append without reply counts as missed
	// between reads that broke off, and tries of what failed
	retryDelayMin = turn.RetryMin
	retryDelayMax = turn.RetryMax    //
	attachTimeout = 30 * time.Second // for one attempt to open a tenant
	// for one look at the bucket of holders before tenants are opened
	holdersTimeout = 5 * time.Second
	fetchWait      = 2 * time.Second // for another host to give a tenant's key
	// without a worker, or with one that says working, until operators are called
	stuckDefault = 10 * time.Minute
	// between tries of a signature, whatever Config.SignAfter says
	signRetryMin, signRetryMax = 100 * time.Millisecond, 10 * time.Second
	// how often a halted tenant looks whether its stream was made again
	haltPoll       = 5 * time.Second
	inspectTimeout = 5 * time.Second // for one such look

	blobGraceDefault = 24 * time.Hour
	blobEveryDefault = 10 * time.Minute
	blobAgainDefault = 10 * time.Second
)

// BlobBytesDefault is how many bytes the blobs of a tenant may take where no one says another.
const BlobBytesDefault = 8 << 30
