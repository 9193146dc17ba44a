package host

import (
	"sync"
	"time"
)

// jumpMax is how far the wall clock may run ahead of the monotonic clock before
// the guard holds clock leases (design: late is allowed, early is not).
const jumpMax = 5 * time.Second

// anchorEvery is how often the guard takes an undisturbed pair of clocks as its
// new anchor, so that slow corrections never add up to a jump.
const anchorEvery = time.Minute

// Clock gives the epoch of decisions and guards it against a wall clock that jumps
// ahead, as far as it has seen the time pass. It is shared by the tenants of a host, and
// by the hosts of a process that runs one after the other: what it knows is the process's.
type Clock struct {
	mu   sync.Mutex
	wall func() time.Time     // without monotonic part
	mono func() time.Duration // since any fixed instant

	anchorWall time.Time
	anchorMono time.Duration
}

// NewClock is the clock of the machine, taken as right from now on.
func NewClock() *Clock {
	start := time.Now()
	return newClock(
		func() time.Time { return time.Now().Round(0) },
		func() time.Duration { return time.Since(start) },
	)
}

func newClock(wall func() time.Time, mono func() time.Duration) *Clock {
	return &Clock{wall: wall, mono: mono, anchorWall: wall(), anchorMono: mono()}
}

// epoch returns the instant to decide at, and by how much the wall clock is
// ahead of where the monotonic clock says it should be; held is true while that
// is too far. While held, the epoch follows the monotonic clock.
func (c *Clock) epoch() (now time.Time, ahead time.Duration, held bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, mono := c.wall(), c.mono()
	expected := c.anchorWall.Add(mono - c.anchorMono)
	ahead = wall.Sub(expected)
	if ahead > jumpMax {
		return expected, ahead, true
	}
	if mono-c.anchorMono > anchorEvery {
		c.anchorWall, c.anchorMono = wall, mono
	}
	return wall, ahead, false
}

// now is the instant of epoch alone.
func (c *Clock) now() time.Time {
	now, _, _ := c.epoch()
	return now
}

// confirm takes the wall clock as right: an operator has said so.
func (c *Clock) confirm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.anchorWall, c.anchorMono = c.wall(), c.mono()
}
