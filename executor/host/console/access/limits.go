package access

import "time"

// ConfirmTime is how long a confirmation is good for.
const ConfirmTime = 5 * time.Minute

// SessionTime is the longest that a session lasts.
const SessionTime = 12 * time.Hour

// TokenBytesMin is the length of the shortest token of a user, in bytes.
const TokenBytesMin = 20

// Bounds; each names what it bounds.
const (
	tokenBytesMax = 1 << 10          // of a token that is shown
	hashersMax    = 2                // tokens that are hashed at once
	sessionsMax   = 1000             // the oldest ends when there is one more
	reloadEvery   = time.Second      // between two looks at it
	providerTime  = 10 * time.Second // for one request to the provider
	findEvery     = 5 * time.Second  // between two tries to find it
	beginTime     = 10 * time.Minute // for signing in at the provider
	clockSkew     = time.Minute      // that the provider's clock may be behind
	claimValues   = 1000             // of one claim that are looked at
)
