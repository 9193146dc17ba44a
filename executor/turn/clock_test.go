package turn

import (
	"testing"
	"time"
)

func TestTheGuardHoldsAClockThatJumpsAheadAndFollowsTheMonotonicOne(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	wall, mono := start, time.Duration(0)
	c := NewClock(wall.UnixNano(), int64(mono))
	pass := func(w, m time.Duration) { wall, mono = wall.Add(w), mono+m }
	want := func(now time.Time, held bool) {
		t.Helper()
		got, ahead := c.Read(wall.UnixNano(), int64(mono))
		if got.EpochNs != now.UnixNano() || got.Held != held || got.MonoNs != int64(mono) {
			t.Fatalf("%+v (ahead %s), want %s held %v", got, time.Duration(ahead), now, held)
		}
	}
	want(start, false)
	pass(time.Hour, time.Hour)
	want(start.Add(time.Hour), false)
	pass(5*time.Second, 0) // at the bound
	want(start.Add(time.Hour+5*time.Second), false)
	pass(time.Millisecond, 0) // over it
	want(start.Add(time.Hour), true)
	pass(time.Minute, time.Minute)
	want(start.Add(time.Hour+time.Minute), true)
	pass(-5*time.Second-time.Millisecond, 0) // the clocks agree again
	want(start.Add(time.Hour+time.Minute), false)
	pass(10*time.Hour, time.Second)
	want(start.Add(time.Hour+time.Minute+time.Second), true)
	c.Confirm(wall.UnixNano(), int64(mono))
	want(start.Add(11*time.Hour+time.Minute), false)
	pass(-3*time.Hour, time.Second) // backwards is late, which is allowed
	want(start.Add(8*time.Hour+time.Minute), false)
}
