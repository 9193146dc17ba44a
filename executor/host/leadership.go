package host

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor/host/ask"
	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Bounds of leadership.
const (
	renewFactor = 3 // it is renewed this often within its TTL
	// of its TTL: how long before its end a leadership that cannot be renewed is given up, and how
	// often one that is due to end is looked at
	lateFactor = 20
	eagerTries = 20                    // to take one that was given back
	eagerPause = 10 * time.Millisecond // between them
)

// leadership is this host's part in who holds a tenant: it asks for the tenant's lock in the
// holders' bucket, renews it, and gives it back. The bucket decides who tries and never who
// is right: that is for the terms of the ledger. Its methods may be called from any goroutine.
type leadership struct {
	tenant   string
	me       string
	conn     *nats.Conn
	holders  *jetstream.Holders
	board    *ask.Board // of the tenant
	log      *slog.Logger
	doubt    chan struct{} // buffered 1: another term has begun, is the lock still this host's?
	released chan struct{} // buffered 1: another host has given the lock back
	until    atomic.Int64  // since began, ns: until then the lock is this host's for sure
	givenUp  atomic.Uint64 // how often it was, while the tenant's loop may have waited for room
	began    time.Time
	process  string                 // of this host, as api.Host.Process
	unknown  string                 // said of which host has the lock; belongs to keep
	had      atomic.Bool            // this process has had the lock before
	twin     atomic.Pointer[string] // the other process of its name that was told of last
	looking  sync.Mutex
	seen     sighting // where the lock is not asked for, under looking
}

func newLeadership(conn *nats.Conn, tenant, me, process string, board *ask.Board,
	log *slog.Logger) *leadership {
	return &leadership{tenant: tenant, me: me, process: process, conn: conn, board: board, log: log,
		doubt: make(chan struct{}, 1), released: make(chan struct{}, 1), began: time.Now()}
}

// safe reports whether the lock is this host's for sure: it was renewed, and has not run out
// for others.
func (l *leadership) safe() bool { return time.Since(l.began) < time.Duration(l.until.Load()) }

// holderEvent says whether this host has the tenant's lock.
type holderEvent struct {
	held    bool
	current string // the host that has it
}

// keeper asks for a tenant's lock, and renews it. It belongs to one goroutine.
type keeper struct {
	holders *jetstream.Holders
	tenant  string
	me      string
	lease   jetstream.Lease
	held    bool
	renewed time.Time // before the request that was the last to succeed
	eager   int       // tries that follow each other quickly, after a release was heard
	seen    sighting  // of another host's
	problem string    // why there is no news of it; empty: there is
}

// sighting is what the bucket was the last to say of a tenant's lock that it had not said before.
// Where no server leads it, each answers what it has and removes nothing, one this and one that: a
// lock is another host's for as long as it lasts from the first time that it was seen.
type sighting struct {
	holder    string // empty: no one, or not known
	ttl       time.Duration
	at        time.Time                     // before the question that was answered with it
	revisions [jetstream.ReplicasMax]uint64 // of what was seen, the last first
}

// sees takes an answer to a question that was asked at an instant, and reports whether it is news.
func (s *sighting) sees(current jetstream.Standing, asked time.Time) bool {
	if current.Holder != "" {
		if slices.Contains(s.revisions[:], current.Revision) {
			return false
		}
		copy(s.revisions[1:], s.revisions[:])
		s.revisions[0] = current.Revision
	}
	s.holder, s.ttl, s.at = current.Holder, current.TTL, asked
	return true
}

// old reports that what was seen says nothing any more, where locks of this host last for ttl.
func (s *sighting) old(ttl time.Duration) bool { return time.Since(s.at) >= max(s.ttl, ttl) }

// keep asks for the tenant's lock and renews it until ctx ends. Each change is an event.
func (l *leadership) keep(ctx context.Context, events chan<- holderEvent) {
	k := &keeper{holders: l.holders, tenant: l.tenant, me: l.me, seen: sighting{at: time.Now()}}
	told := holderEvent{current: "?"}
	for ctx.Err() == nil {
		event, wait := l.turn(ctx, k)
		if event.held {
			l.had.Store(true)
		}
		l.until.Store(int64(k.safe().Sub(l.began)))
		if event != told {
			select {
			case events <- event:
				told = event
			case <-ctx.Done():
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-l.doubt:
			told = holderEvent{current: "?"}
		case <-l.released:
			if !k.held {
				k.eager = eagerTries
			}
		}
		timer.Stop()
	}
	l.until.Store(0)
	l.board.Elsewhere(false)
	l.board.Unanswered("")
	if k.held {
		l.giveBack(ctx, k)
	}
}

// turn asks for the lock or renews it, while this host can write. One whose writes have waited for
// room as long as a lock lasts gives it up: another host with room goes on. It asks for none until
// it has room, so that hosts that wait do not hand it to each other.
func (l *leadership) turn(ctx context.Context, k *keeper) (holderEvent, time.Duration) {
	ttl, waited := l.holders.TTL(), l.board.Waited()
	if waited == 0 || k.held && waited < ttl {
		event, wait := k.turn(ctx)
		l.known(k)
		return event, wait
	}
	if k.held {
		l.log.Warn("the tenant is given up: writes wait for room", "for", waited)
		k.held = false
		l.until.Store(0)
		l.givenUp.Add(1)
		l.giveBack(ctx, k)
		k.eager = eagerTries
	}
	l.board.Elsewhere(l.elsewhere(ctx))
	if k.eager > 0 { // another host takes it soon, and then this one answers no more
		k.eager--
		return holderEvent{}, ttl / lateFactor
	}
	return holderEvent{}, ttl / renewFactor
}

// known shows which host has the lock, and says when that is not known: a lock that was seen before
// has run out.
func (l *leadership) known(k *keeper) {
	problem := ""
	if !k.held && k.seen.old(l.holders.TTL()) {
		problem = k.problem
	}
	if problem != l.unknown && problem != "" {
		l.log.Warn("it is not known which host holds the tenant", "problem", problem)
	}
	l.unknown = problem
	l.board.Elsewhere(problem == "" && k.seen.holder != "")
	l.board.Unanswered(problem)
}

// stays reports, from any goroutine and from its call on, whether the lock was not given up since.
func (l *leadership) stays() func() bool {
	was := l.givenUp.Load()
	return func() bool { return l.givenUp.Load() == was }
}

// waits notes that writes begin to wait for room, as store.Room.Waits says. Where they do not any
// more, the lock is asked for at once.
func (l *leadership) waits(problem string) {
	l.board.Waits(problem)
	if problem == "" {
		l.askAgain()
	}
}

// giveBack ends the lock and tells the hosts that stand by. It is best effort: the
// lock runs out by itself.
func (l *leadership) giveBack(ctx context.Context, k *keeper) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	// A renewal that this end has interrupted may be on its way to the bucket still.
	for k.holders.Release(ctx, k.lease) != nil {
		if !pause.For(ctx, eagerPause) {
			return
		}
	}
	// With a reply subject, as every request, on which no one waits.
	conn, subject := l.conn, api.QuerySubject(l.tenant, ask.VerbReleased)
	if conn.PublishRequest(subject, conn.NewInbox(), nil) == nil {
		_ = conn.FlushWithContext(ctx)
	}
}

// askAgain has this host find out whether the lock is still its own.
func (l *leadership) askAgain() {
	select {
	case l.doubt <- struct{}{}:
	default:
	}
}

// takeSoon has this host try to take the lock at once.
func (l *leadership) takeSoon() {
	select {
	case l.released <- struct{}{}:
	default:
	}
}

// watch tells a halted host whether another one holds the tenant, until ctx ends; that one
// answers then: this host's own copy may be all that is bad.
func (l *leadership) watch(ctx context.Context, elsewhere func(bool)) {
	defer elsewhere(false)
	for {
		elsewhere(l.elsewhere(ctx))
		if !pause.For(ctx, l.holders.TTL()/renewFactor) {
			return
		}
	}
}

// elsewhere reports whether another host holds the tenant.
func (l *leadership) elsewhere(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, l.holders.TTL()/renewFactor)
	defer cancel()
	asked := time.Now()
	current, err := l.holders.Current(ctx, l.tenant)
	l.looking.Lock()
	defer l.looking.Unlock()
	if err == nil {
		l.seen.sees(current, asked)
	}
	return l.seen.holder != "" && l.seen.holder != l.me && !l.seen.old(l.holders.TTL())
}

// turn asks once, and says what is so now and when to ask again.
func (k *keeper) turn(ctx context.Context) (holderEvent, time.Duration) {
	if k.held {
		return k.renew(ctx)
	}
	ttl := k.holders.TTL()
	every := ttl / renewFactor
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, every)
	defer cancel()
	lease, ok, current, err := k.holders.Acquire(ctx, k.tenant, k.me)
	if ok {
		k.lease, k.held, k.renewed, k.eager = lease, true, asked, 0
		k.seen, k.problem = sighting{at: asked}, ""
		return holderEvent{held: true, current: k.me}, every
	}
	switch {
	case err != nil:
		k.problem = err.Error()
		return holderEvent{current: current.Holder}, every
	case k.seen.sees(current, asked):
		k.problem = ""
	default:
		k.problem = "the lock of " + current.Holder + " has run out, and is still there: no server " +
			"leads JetStream"
		k.holders.Stalled(k.seen.at)
	}
	if k.eager > 0 { // the replica that was asked may not have the release yet
		k.eager--
		return holderEvent{current: current.Holder}, eagerPause
	}
	// The lock of a holder that died runs out in this time.
	return holderEvent{current: current.Holder}, min(max(current.Left, ttl/lateFactor), every)
}

// renew lets the lock live on. A holder that cannot renew stops before its lock
// has run out for others.
func (k *keeper) renew(ctx context.Context) (holderEvent, time.Duration) {
	ttl := k.holders.TTL()
	every := ttl / renewFactor
	safe := k.safe()
	asked := time.Now()
	ctx, cancel := context.WithDeadline(ctx, earlier(asked.Add(every), safe))
	defer cancel()
	next, err := k.holders.Renew(ctx, k.lease)
	switch {
	case err == nil:
		k.lease, k.renewed, k.seen.at = next, asked, asked
		k.problem = ""
		return holderEvent{held: true, current: k.me}, every
	case errors.Is(err, jetstream.ErrLeaseLost), !time.Now().Before(safe):
		k.held = false
		return holderEvent{}, retryDelayMin
	}
	return holderEvent{held: true, current: k.me}, min(max(time.Until(safe), 0), ttl/lateFactor)
}

// safe is the instant at which a lock that is not renewed is given up; zero: it is not held.
func (k *keeper) safe() time.Time {
	if !k.held {
		return time.Time{}
	}
	ttl := k.holders.TTL()
	return k.renewed.Add(ttl - ttl/lateFactor)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
