package store

import "time"

// Bounds of the store; each names what it bounds.
const (
	RoomMin  = 1 << 20                // bytes free on the state store's disk, or writes wait
	roomPoll = 500 * time.Millisecond // how often a full disk is looked at
	// folded since the last snapshot of the state, then the next one is taken
	snapshotRecords = 100_000
	snapshotEvery   = 10 * time.Minute     // or after this, if anything was folded
	snapshotPoll    = 10 * time.Second     // how often a host looks whether it is time
	SnapshotsKept   = 2                    //
	snapshotRest    = 4                    // times as long as one took, until the next
	paceBytes       = 256 << 10            // of rows that a snapshot reads at once: about 1 ms of work
	pacePause       = 4 * time.Millisecond // after each of them
)
