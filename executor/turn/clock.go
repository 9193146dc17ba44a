package turn

// Instant is what the clocks of a host say.
type Instant struct {
	EpochNs int64 // to decide at: the guarded wall clock, unix ns
	MonoNs  int64 // since any fixed instant; never goes back
	Held    bool  // the guard holds what depends on the clock
}

// Clock guards the wall clock against jumps ahead: it holds it against the monotonic
// clock since an anchor, where both were taken as right.
type Clock struct {
	anchorWall, anchorMono int64
}

// NewClock takes both clocks as right, in ns.
func NewClock(wall, mono int64) Clock { return Clock{wall, mono} }

// Confirm takes the wall clock as right: an operator has said so.
func (c *Clock) Confirm(wall, mono int64) { *c = Clock{wall, mono} }

// Read returns the instant to decide at, and by how many ns the wall clock is ahead of
// where the monotonic clock says it should be. While that is more than [JumpMax] the
// instant is held and follows the monotonic clock.
func (c *Clock) Read(wall, mono int64) (now Instant, ahead int64) {
	expected := c.anchorWall + mono - c.anchorMono
	ahead = wall - expected
	if ahead > int64(JumpMax) {
		return Instant{EpochNs: expected, MonoNs: mono, Held: true}, ahead
	}
	if mono-c.anchorMono > int64(AnchorEvery) {
		c.anchorWall, c.anchorMono = wall, mono
	}
	return Instant{EpochNs: wall, MonoNs: mono}, ahead
}

// MayBeAhead is how far, in ns, an epoch may be ahead of the monotonic clock's zero: for
// those who know the true time.
func (c *Clock) MayBeAhead() int64 { return max(c.anchorWall-c.anchorMono, 0) + int64(JumpMax) }
