package host

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
)

// Bounds of what keeps a ledger within its limit.
const (
	boundPoll    = 10 * time.Second // between two looks at a ledger that has a limit
	boundTimeout = 5 * time.Second  // for one look, or one change
	reservePart  = 10               // one part of so many is kept back
)

// bound keeps a ledger within the bytes that its tenant may have. A tenth of them is kept back
// for the holder: agents and sources find the ledger full before. Once the holder finds it full,
// too, it takes nothing of agents and sources any more, and the holder is given what it needs, so
// that what is owed is undone to its end. What is in a ledger never gets less: only a higher limit
// opens it again.
type bound struct {
	limit   atomic.Uint64 // 0: none
	holding atomic.Bool   // this host holds the tenant, and changes the stream
	full    atomic.Bool   // an append of the holder has found no room
	wake    chan struct{} // buffered 1
	seen    atomic.Pointer[jetstream.Room]

	runs context.Context // the session whose goroutine looks; of the tenant's loop

	mu     sync.Mutex
	failed string // the last problem that was logged
}

func newBound() *bound { return &bound{wake: make(chan struct{}, 1)} }

// nudge has the goroutine of the session look.
func (b *bound) nudge() {
	select {
	case b.wake <- struct{}{}:
	default: // it looks soon
	}
}

// hold notes whether this host holds the tenant.
func (b *bound) hold(holds bool) {
	if b.holding.Swap(holds) != holds {
		b.nudge()
	}
}

// met notes that an append of the holder has found no room.
func (b *bound) met() {
	b.full.Store(true)
	b.nudge()
}

// room is what the ledger takes, and the limit of it; 0: it has none, or is not known yet.
func (b *bound) room() (used, most uint64, closed bool) {
	if seen := b.seen.Load(); seen != nil {
		return seen.Used, b.limit.Load(), seen.Closed
	}
	return 0, 0, false
}

// bind keeps the ledger within a limit from now on. Only a ledger that has one, or had, is looked
// at.
func (a *actor) bind(limit uint64) {
	b := a.bound
	b.limit.Store(limit)
	if b.runs != a.life && (limit > 0 || a.stream.Bound() > 0) {
		b.runs = a.life
		session, stream := a.life, a.stream
		a.sends.Go(func() { a.keepBound(session, stream) }) // ends with the session
	}
	b.nudge()
}

func (a *actor) keepBound(session context.Context, stream *jetstream.Store) {
	for {
		select {
		case <-session.Done():
			return
		case <-a.bound.wake:
		case <-time.After(boundPoll):
		}
		a.fit(session, stream)
	}
}

// fit gives the ledger the room that its limit asks for.
func (a *actor) fit(ctx context.Context, stream *jetstream.Store) {
	ctx, cancel := context.WithTimeout(ctx, boundTimeout)
	defer cancel()
	b, limit := a.bound, a.bound.limit.Load()
	full := b.full.Swap(false)
	has, err := stream.Room(ctx)
	want := has
	if err == nil && b.holding.Load() {
		if want = roomFor(limit, has, full); want != has {
			err = stream.Fit(ctx, want)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case ctx.Err() != nil && err == nil:
	case err != nil:
		if full {
			b.full.Store(true) // it is met again
		}
		if b.failed != err.Error() {
			a.log.Warn("the ledger cannot be given the room of its limit", "limit", limit, "error", err)
		}
		b.failed = err.Error()
		return
	case want.Closed && !has.Closed:
		a.log.Warn("the ledger is full: it takes nothing of agents and sources until its limit is "+
			"raised", "limit", limit, "used", has.Used)
	case want != has:
		a.log.Info("the ledger has another room", "limit", limit, "used", has.Used, "most", want.Most)
	}
	b.failed = ""
	b.seen.Store(&want)
}

// roomFor is the room of a ledger with a limit, where it has another one now. full: the holder has
// found no room in it.
func roomFor(limit uint64, has jetstream.Room, full bool) jetstream.Room {
	if limit == 0 {
		if has.Limit == 0 {
			return has // its bound is not ours
		}
		return jetstream.Room{Used: has.Used}
	}
	reserve := limit / reservePart
	open := jetstream.Room{Used: has.Used, Most: limit - reserve, Limit: limit}
	closed := jetstream.Room{Used: has.Used, Most: max(limit, has.Used+reserve), Limit: limit,
		Closed: true}
	switch {
	case has.Limit != limit && has.Used < open.Most: // it is new, or was raised
		return open
	case has.Limit != limit:
		return closed
	case full && has.Most <= has.Used+2*jetstream.MessageSizeMax: // or else a disk is full
		return closed
	case has.Closed: // it never gets less
		return has
	}
	return open
}
