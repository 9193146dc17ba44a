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

	memTableSize = 32 << 20  // bytes of rows until they become a table
	memTablesMax = 4         // that wait to become tables, then writes wait
	level0Max    = 1000      // tables over each other in level 0, then writes wait
	logSyncBytes = 512 << 10 // of the log, then what is older than the last MiB goes to disk
	cacheSize    = 256 << 20 // bytes of blocks of tables
)
