package turn

import "time"

// Bounds of a turn and pauses between tries. Each names what it bounds.
const (
	MessagesMax   = 2048     // messages folded in one turn
	BytesMax      = 4 << 20  // bytes folded in one turn, and kept unwritten
	CommitSizeMax = 60 << 10 // bytes of decisions in one commit
	// from the first fold that is not written to its write: to the second copy, to the rows
	CopyEvery  = 25 * time.Millisecond
	WriteEvery = 100 * time.Millisecond
	MissesMax  = 3                     // appends in a row without a reply: the server is mute
	RetryMin   = 50 * time.Millisecond // before an append in doubt goes out again; doubles
	RetryMax   = 2 * time.Second       // at most; also before a refused append goes out again
	GuardPoll  = time.Second           // between two looks while the clock guard holds
	// ClaimPause is the time between a claim that another host's term has beaten and the
	// next, unless the fold has come to that term.
	ClaimPause = time.Second

	// before a command that found no worker is sent again; doubles
	WorkerWaitMin = 100 * time.Millisecond
	WorkerWaitMax = 5 * time.Second // at most
	// otherVersionTries is how many tries go between two doublings where a worker of another version
	// had the command: with five of them for each right one, 32 tries in 12 s fail once in 300.
	otherVersionTries = 8
	// before a worker that said "working" is asked again, at least
	WorkingMin = time.Second
	// that a worker may put off one answer; then the attempt counts as unanswered
	WorkingMax = 24 * time.Hour
	// RunMax bounds the dispatches that are recorded behind another one, and RunHoldMax is for how
	// long the answer of one of them waits for the next.
	RunMax     = 15
	RunHoldMax = 20 * time.Millisecond
	// UnservedSeen is for how long a process looks itself before it says that no worker
	// takes a command: after a restart of everything, workers may need a while.
	UnservedSeen = time.Minute

	PageQueueMax = 10_000  // pages of one hook that wait in memory; the state has the rest
	PageQueueMin = 100     // of one hook that do so however many wait for other hooks
	PagesMax     = 100_000 // of all hooks, but for PageQueueMax of each
	PagedMax     = 512     // taken pages that one decision records
	// between publications of a page that no one takes; as long as it is old
	RoundMin = time.Second
	RoundMax = 15 * time.Minute

	// JumpMax is how far the wall clock may run ahead of the monotonic clock before the
	// guard holds clock leases: late is allowed, early is not.
	JumpMax = 5 * time.Second
	// AnchorEvery is how often the guard takes an undisturbed pair of clocks as its new
	// anchor, so that slow corrections never add up to a jump.
	AnchorEvery = time.Minute
)
