package mcp

import "time"

const (
	// ServersMax is how many servers one gateway or worker has.
	ServersMax = 32

	// CallTimeoutDefault is how long one call of a tool may take where its contract does not say.
	CallTimeoutDefault = 2 * time.Minute

	// DeadlineDefault is how long a plan stays open that no one ends.
	DeadlineDefault = 24 * time.Hour

	// SettleDefault is how long a call that was given up may take to land at a server.
	SettleDefault = 10 * time.Second

	// SettleRemote is the same for a server at a URL, which cannot be ended.
	SettleRemote = time.Minute

	// KeyKept is how long a call with a key is known to connections with other plans.
	KeyKept = 24 * time.Hour

	// SessionIdle is after how long without a request a client over HTTP has gone.
	SessionIdle = 30 * time.Minute

	// IdleMax is how long a worker may keep a server that no undo needs.
	IdleMax = 24 * time.Hour

	startPause    = 100 * time.Millisecond // after a start in vain, which doubles
	startPauseMax = 10 * time.Second       // up to this

	startSay = 2 * time.Second // of an attempt that are left to say that it was in vain

	readersMax  = 1024 // compiled expressions that are remembered
	programsMax = 64   // likewise, while a pack is read

	recipeMax = 3 << 10  // bytes of a recipe, which is one argument of the registration
	inputMax  = 12 << 10 // bytes of an input or output in a record; larger texts become digests
	textKept  = 256      // bytes of a text that is always recorded as it is
	errorMax  = 1 << 10  // bytes of a server's error that are recorded

	argumentsBeside = 256     // bytes of the names of the arguments of an undo
	afterBeside     = 4 << 10 // bytes that what a call has left may have more than what was before

	bodyMax = 16 << 20 // bytes of a request over HTTP

	resultsMax = 256     // results of calls with a key that one plan remembers
	resultSize = 1 << 20 // bytes of a result that is remembered

	stoodMax = 64   // plans of clients that have gone that Close looks at again
	leftMax  = 1024 // plans without a client that are remembered

	subscriptionsMax = 1000             // resources of which one client hears when they change
	subscribeWait    = 30 * time.Second // that it waits for a server to take that

	rootsMax  = 32              // roots of a client
	rootsSize = 4 << 10         // bytes of all of them
	rootsWait = 5 * time.Second // that a client may take to say them, and a server to work there

	undosMax = 30          // undos by a client, within
	undoSpan = time.Minute // which an agent that undoes and does again for ever is stopped

	undoAttempts  = 5
	undoUnserved  = 7 * 24 * time.Hour   // that an undo waits for a gateway, worker or host
	connectTime   = 30 * time.Second     // that a server at a URL may take to say who it is
	startTime     = 5 * time.Minute      // likewise, one that is started: it may be installed first
	discoverTime  = 10 * time.Second     // that it may take to answer what it may not know
	streamWait    = 5 * time.Second      // that it may take to say that it has a stream
	closeTime     = 3 * time.Second      // that a server may take to end once its input has
	endTime       = 5 * time.Second      // that calls may take to end once the client has gone
	lockPause     = 2 * time.Millisecond // between tries of the lock of a server
	reachWait     = 10 * time.Second     // that a call waits for the ledger
	lookTime      = 5 * time.Second      // that an executor may take to say what was undone
	deliverWait   = 20 * time.Second     // that a commit waits until what was staged is made
	undoWait      = 2 * time.Minute      // that an undo tool waits
	undoElsewhere = 20 * time.Second     // likewise, for a worker: it may be that none runs
	leaveWait     = 30 * time.Second     // likewise, a gateway whose client has gone
	progressLate  = 5 * time.Second      // that progress may come after its call has ended
	saidWait      = time.Second          // that a result waits for what was said before it
	levelWait     = 2 * time.Second      // that a start waits for a server to take a level of logs
	pageMax       = 100                  // pages of one list of a server
)
