package door

import "time"

// Limits and defaults of the door.
const (
	// BodyMax is the largest request, in bytes. A record has room for less.
	BodyMax = 256 << 10

	// CallsMax is how many requests one door works on at once; further ones are refused.
	CallsMax = 4096

	// WritersMax is how many writers of all agents one door knows at once. Those that have done
	// nothing for a while make room.
	WritersMax = 4096

	// BlobsMax is how many blobs are stored and read at once: each takes a chunk in memory.
	BlobsMax = 64

	// StreamsMax is how many streams of events are open at once.
	StreamsMax = 1024

	// Each is one part of so many that one agent, source or supervisor has of all these at most, and a
	// tenant twice as much: of what others leave.
	Each = 4

	// WaitMax is the longest that a request may wait, and WaitDefault how long it does where it
	// does not say.
	WaitMax     = 60 * time.Second
	WaitDefault = 20 * time.Second

	// IdleAfter is how long a plan that no one asks about is kept in memory.
	IdleAfter = 10 * time.Minute

	// givenMax is how many ids of one source or supervisor a door remembers, and givenByMax of how
	// many of these.
	givenMax   = 512
	givenByMax = 256

	// writerDefault is the writer of requests that name none.
	writerDefault = "door"

	blobRate    = 32 << 10               // bytes a second that a blob moves at least
	workMax     = 30 * time.Second       // that a request works, beside its wait
	confirmMax  = 20 * time.Second       // for an executor, before a pair is given up
	contractFor = time.Second            // that a published contract is used, once it was read
	askMax      = 10 * time.Second       // that a question to an executor takes
	askPause    = 50 * time.Millisecond  // before it is asked again
	closeMax    = 2 * time.Second        // that the end of a writer may take
	sweepEvery  = 30 * time.Second       //
	pulseEvery  = 15 * time.Second       // of a stream of events in which nothing happens
	followMin   = 200 * time.Millisecond // between two looks at a plan that is followed
	batch       = 100                    // of a list, where it does not say
	batchMax    = 1000
)
