package ask

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Bounds of watches.
const (
	changedMax = 256 // plans that one change names
	watchesMax = 256 // watches that follow one tenant
)

// Change is what the turns since the last one have touched.
type Change struct {
	Pulse api.Pulse `json:"pulse"`
	Plans []string  `json:"plans"` // that records were about, at most 256
	Facts bool      `json:"facts"` // records were about facts
	All   bool      `json:"all"`   // there were more plans than that
}

// Watch follows the fold of one tenant. What happens while its owner is busy is added
// up, within bounds: a slow owner costs the fold nothing and misses no change.
type Watch struct {
	feed    *Feed
	ready   chan struct{} // buffered 1: there is a change
	mu      sync.Mutex
	pending Change
	seen    map[string]bool // of pending.Plans
}

// Ready has a value when Take has a change.
func (w *Watch) Ready() <-chan struct{} { return w.ready }

// Take returns what has changed since it was called last.
func (w *Watch) Take() Change {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.pending
	w.pending = Change{Pulse: c.Pulse}
	clear(w.seen)
	return c
}

// Close ends the watch. It may be called more than once.
func (w *Watch) Close() {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	w.feed.watches = slices.DeleteFunc(w.feed.watches, func(o *Watch) bool { return o == w })
	w.feed.watched.Store(len(w.feed.watches) > 0)
}

func (w *Watch) add(pulse api.Pulse, plans []string, facts, all bool) {
	w.mu.Lock()
	w.pending.Pulse, w.pending.Facts, w.pending.All = pulse, w.pending.Facts || facts, w.pending.All ||
		all
	for _, plan := range plans {
		switch {
		case w.seen[plan]:
		case len(w.seen) == changedMax:
			w.pending.All = true
		default:
			w.seen[plan] = true
			w.pending.Plans = append(w.pending.Plans, plan)
		}
	}
	w.mu.Unlock()
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// nudge has every watch look again: what is known of the tenant has changed, and not by
// a record.
func (f *Feed) nudge() {
	if !f.watched.Load() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.watches {
		w.mu.Lock()
		pulse := w.pending.Pulse
		w.mu.Unlock()
		w.add(pulse, nil, false, true)
	}
}

// Feed tells watches what the turns of a tenant's loop touch. Touch and Publish are for the
// loop's goroutine; without a watch nothing is noted.
type Feed struct {
	watched atomic.Bool
	plans   []string // of this turn
	facts   bool
	all     bool

	mu      sync.Mutex
	watches []*Watch
}

// Touch notes what a record is about.
func (f *Feed) Touch(r *pb.Record) {
	if r == nil || !f.watched.Load() {
		return
	}
	switch r.Kind.(type) {
	case *pb.Record_FactAsserted, *pb.Record_FactRetracted, *pb.Record_FactEvicted,
		*pb.Record_FactReingested:
		f.facts = true
	}
	switch n := len(f.plans); {
	case r.Plan == "" || n > 0 && f.plans[n-1] == r.Plan:
	case n == changedMax:
		f.all = true
	default:
		f.plans = append(f.plans, r.Plan)
	}
}

// Publish ends a turn, with the counters of the state.
func (f *Feed) Publish(now api.Pulse) {
	if !f.watched.Load() {
		return
	}
	f.mu.Lock()
	for _, w := range f.watches {
		w.add(now, f.plans, f.facts, f.all)
	}
	f.mu.Unlock()
	f.plans, f.facts, f.all = f.plans[:0], false, false
}

// watch begins to follow; nil: watchesMax follow already.
func (f *Feed) watch(pulse api.Pulse) *Watch {
	w := &Watch{feed: f, ready: make(chan struct{}, 1), seen: map[string]bool{}}
	w.pending.Pulse = pulse
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.watches) == watchesMax {
		return nil
	}
	f.watches = append(f.watches, w)
	f.watched.Store(true)
	return w
}
