package host

import (
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/turn"
)

// Clock gives the epoch of decisions and guards it against a wall clock that jumps
// ahead, as far as it has seen the time pass: a turn.Clock over the machine's clocks. It
// is shared by the tenants of a host, and by the hosts of a process that runs one after
// the other: what it knows is the process's.
type Clock struct {
	mu    sync.Mutex
	wall  func() time.Time     // without monotonic part
	mono  func() time.Duration // since any fixed instant
	guard turn.Clock
}

// NewClock is the clock of the machine, taken as right from now on.
func NewClock() *Clock {
	start := time.Now()
	return ClockOf(
		func() time.Time { return time.Now().Round(0) },
		func() time.Duration { return time.Since(start) },
	)
}

// ClockOf is a clock over others than the machine's: wall is without a monotonic part, and mono
// counts from any fixed instant.
func ClockOf(wall func() time.Time, mono func() time.Duration) *Clock {
	return &Clock{wall: wall, mono: mono, guard: turn.NewClock(wall().UnixNano(), int64(mono()))}
}

// read returns what the clocks say, and by how much the wall clock is ahead of where the
// monotonic clock says it should be.
func (c *Clock) read() (now turn.Instant, ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, ns := c.guard.Read(c.wall().UnixNano(), int64(c.mono()))
	return now, time.Duration(ns)
}

// instant is read without the distance.
func (c *Clock) instant() turn.Instant {
	now, _ := c.read()
	return now
}

// now is the instant to decide at.
func (c *Clock) now() time.Time { return time.Unix(0, c.instant().EpochNs) }

// confirm takes the wall clock as right: an operator has said so.
func (c *Clock) confirm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.guard.Confirm(c.wall().UnixNano(), int64(c.mono()))
}
