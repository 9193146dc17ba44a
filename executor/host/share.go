package host

import (
	"runtime"
	"sync/atomic"
	"time"
)

// share divides the processors among the tenants of a host. A tenant that works a
// lot takes a place for it, and there is one place fewer than processors: a tenant
// that does little, and the connections, find a processor whatever the others do.
type share struct {
	places  chan struct{} // those that wait for one are served in order
	waiting atomic.Int32
}

func newShare() *share {
	return &share{places: make(chan struct{}, max(runtime.GOMAXPROCS(0)-1, 1))}
}

// processorUse is how one tenant uses the share. It belongs to the tenant's goroutine.
type processorUse struct {
	share *share
	now   func() time.Duration // since any fixed instant
	done  <-chan struct{}      // the session has ended

	free  time.Duration // that it may work without a place
	since time.Duration // start of what is not accounted yet
	ended time.Duration // end of the last turn
	place bool

	calls, every uint          // evaluations since the last look at the clock, and to the next
	looked       time.Duration // when that was
}

// interrupted is what a turn panics with when its session has ended: it may have
// hours of costly conditions before it. What it has folded is folded again.
type interrupted struct{}

func newProcessorUse(s *share) *processorUse {
	start := time.Now()
	now := func() time.Duration { return time.Since(start) }
	return &processorUse{share: s, now: now, free: freeMax}
}

// begin starts a turn. A tenant that works less than one part in freeShare of the
// time never needs a place.
func (s *processorUse) begin(done <-chan struct{}) {
	s.done, s.since = done, s.now()
	s.free = min(s.free+(s.since-s.ended)/freeShare, freeMax)
}

// between is called between the evaluations of a turn. It looks at the clock before
// each costly one, and about twice in lookMax between the others.
func (s *processorUse) between(costly bool) {
	if costly {
		s.step()
		return
	}
	if s.calls++; s.calls < s.every {
		return
	}
	before := s.looked
	s.step()
	switch took := s.looked - before; {
	case took > lookMax:
		s.every /= 2
	case took < lookMax/4 && s.every < callsMax:
		s.every = max(2*s.every, 1)
	}
}

// step takes a place when the free time is used up, and lets others have it after a
// while. It panics with interrupted when the session has ended.
func (s *processorUse) step() {
	now := s.now()
	s.calls, s.looked = 0, now
	switch {
	case !s.place && now-s.since > s.free:
		s.free = 0
		s.take()
	case s.place && now-s.since > placeMax && s.share.waiting.Load() > 0:
		s.leave()
		s.take()
	}
	select {
	case <-s.done:
		panic(interrupted{})
	default:
	}
}

func (s *processorUse) take() {
	s.share.waiting.Add(1)
	defer s.share.waiting.Add(-1)
	select {
	case s.share.places <- struct{}{}:
		s.place, s.since = true, s.now()
	case <-s.done:
		panic(interrupted{})
	}
}

func (s *processorUse) leave() {
	if s.place {
		s.place = false
		<-s.share.places
	}
}

// end ends a turn, however it ended.
func (s *processorUse) end() {
	s.ended = s.now()
	if !s.place {
		s.free = max(s.free-(s.ended-s.since), 0)
	}
	s.leave()
}
