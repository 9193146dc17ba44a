package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// bundle is a run of one plan's records that go into one commit: a pair is one
// bundle and never split. seq and err are set before done is closed.
type bundle struct {
	plan    string
	records []*pb.Record
	size    int     // set by put
	prev    *bundle // the plan's bundle before; cleared when this one leaves the queue

	// urgent: a call waits for it. Otherwise it may linger until due. Both are
	// guarded by committer.mu, as are queued and holdsPlace.
	urgent     bool
	due        time.Time
	queued     bool
	holdsPlace bool // gives back a place for calls when it is settled

	done chan struct{}
	seq  uint64
	err  error
}

func newBundle(plan string, records ...*pb.Record) *bundle {
	return &bundle{plan: plan, records: records, done: make(chan struct{})}
}

// settled reports whether the bundle's fate is known, and failed whether it was
// not stored (or may not have been, when the coordinator closed).
func (b *bundle) settled() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// before reports whether a bundle was stored before a sequence; 0: before it is asked.
func (b *bundle) before(sequence uint64) bool {
	return sequence == 0 || b.settled() && b.err == nil && b.seq < sequence
}

func (b *bundle) failed() bool { return b.settled() && b.err != nil }

// committer appends what the plans of one coordinator queue. One goroutine, run,
// owns the append in flight: it starts in New and ends when stop has been called
// and the queue is empty, or when its ctx ends.
type committer struct {
	store  Appender
	tenant string
	agent  string
	writer string // in every record
	logger *slog.Logger
	places chan struct{}   // one element per call that waits
	lost   <-chan struct{} // closed when no call works any more; nil: never

	replaced func(error) // told once that the ledger lacks what it has acknowledged

	// fenced: only one plan is queued, and the first append claims its subject. Each
	// further one is stored only where last is still the last of it. run owns last.
	fenced bool
	last   uint64
	broken error // the ledger is not the one of before: nothing is appended any more

	mu      sync.Mutex
	latest  acked // the append that was acknowledged last
	queue   []*bundle
	urgent  int // bundles in the queue that a call waits for
	stopped bool
	trouble error         // of the append in flight, nil when it goes well
	giveUp  func()        // ends the try in flight; harmless when it is over
	wake    chan struct{} // capacity 1: the queue or stopped has changed
	ended   chan struct{} // closed when run has returned
}

// acked is an append that was acknowledged. The zero acked is none.
type acked struct {
	plan     string // one of those that it has records of
	sequence uint64
	data     []byte
}

func newCommitter(store Appender, tenant, agent, writer string, logger *slog.Logger) *committer {
	return &committer{
		store: store, tenant: tenant, agent: agent, writer: writer, logger: logger,
		places: make(chan struct{}, CallsMax), replaced: func(error) {},
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
	}
}

// enter takes a place for a call that will wait; leave or the settling of its
// bundle gives it back. Nothing is queued when it fails.
func (c *committer) enter(ctx context.Context, timeout time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case c.places <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case c.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("%d calls wait for the ledger: %w", CallsMax, ErrBusy)
	}
}

func (c *committer) leave() { <-c.places }

// taking says that nothing more is taken, or nil.
func (c *committer) taking() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return closed("coordinator")
	}
	return nil
}

// put queues bundles side by side, in order. It never blocks.
func (c *committer) put(bundles ...*bundle) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return closed("coordinator")
	}
	for _, b := range bundles {
		b.queued, b.size = true, 0
		for _, r := range b.records {
			r.Writer = c.writer
			b.size += ledger.RecordSize(r)
		}
		if b.urgent {
			c.urgent++
		}
	}
	c.queue = append(c.queue, bundles...)
	c.notify()
	return nil
}

// hurry makes a lingering bundle go with the next commit.
func (c *committer) hurry(b *bundle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.queued && !b.urgent {
		b.urgent = true
		c.urgent++
		c.notify()
	}
}

// stop makes run return once the queue is empty; put refuses from now on.
func (c *committer) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	c.notify()
}

// doubt is the error of a call that waits no longer, and why the append in flight is not known.
func (c *committer) doubt(ended error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.trouble == nil:
		return fmt.Errorf("%w: %w", ErrInDoubt, ended)
	case errors.Is(c.trouble, jetstream.ErrNoStream):
		return fmt.Errorf("%w: %w: tenant %s: %w", ErrInDoubt, ended, c.tenant, ErrNoLedger)
	default: // as a text: ErrBusy would say that nothing is queued
		return fmt.Errorf("%w: %w: %v", ErrInDoubt, ended, c.trouble)
	}
}

func (c *committer) setTrouble(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trouble = err
}

// notify is called with mu held.
func (c *committer) notify() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run is the committer's goroutine.
func (c *committer) run(ctx context.Context) {
	defer close(c.ended)
	for {
		c.gather()
		batch, wait, more := c.cut(time.Now())
		switch {
		case len(batch) > 0:
			seq, err := c.commit(ctx, batch)
			c.settle(batch, seq, err)
		case !more:
			return
		default:
			c.sleep(ctx, wait)
		}
		if ctx.Err() != nil {
			c.abandon(ctx)
			return
		}
	}
}

// gather lets the callers that the last commit released queue what they do next,
// so that they share a commit instead of the first one taking an fsync alone.
// It gives up the processor, never waits, and stops when no one has come.
func (c *committer) gather() {
	for have := c.urgentNow(); have > 0; {
		runtime.Gosched()
		now := c.urgentNow()
		if now == have {
			return
		}
		have = now
	}
}

func (c *committer) urgentNow() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.urgent
}

// sleep waits for a change of the queue, at most d (0: without limit).
func (c *committer) sleep(ctx context.Context, d time.Duration) {
	var due <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-c.wake:
	case <-due:
	case <-ctx.Done():
	}
}

// cut takes the next commit from the head of the queue: as many bundles as fit.
// An empty batch means to wait (for a change or that long), or to end when more
// is false. Bundles after a failed one of their plan fail with it: a later
// record must not be stored without an earlier one.
func (c *committer) cut(now time.Time) (batch []*bundle, wait time.Duration, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return nil, 0, !c.stopped
	}
	if first := c.queue[0]; c.urgent == 0 && !c.stopped && first.due.After(now) {
		return nil, first.due.Sub(now), true
	}
	n, size, count := 0, commitOverhead, 0
	for _, b := range c.queue {
		if size+b.size > ledger.CommitSizeMax || count+len(b.records) > ledger.CommitLenMax {
			break
		}
		n++
		c.unqueue(b)
		if prev := b.prev; prev != nil && prev.failed() {
			c.close(b, 0, prev.err)
			continue
		}
		size, count = size+b.size, count+len(b.records)
		batch = append(batch, b)
	}
	rest := copy(c.queue, c.queue[n:])
	clear(c.queue[rest:])
	c.queue = c.queue[:rest]
	if len(batch) == 0 && rest > 0 {
		c.notify() // all were after a failed one: look again at once
	}
	return batch, 0, true
}

// unqueue and close are called with mu held.
func (c *committer) unqueue(b *bundle) {
	b.queued = false
	if b.urgent {
		c.urgent--
	}
}

func (c *committer) close(b *bundle, seq uint64, err error) {
	b.seq, b.err, b.prev = seq, err, nil
	close(b.done)
	if b.holdsPlace {
		b.holdsPlace = false
		c.leave()
	}
}

// settle tells the callers of a batch what became of it.
func (c *committer) settle(batch []*bundle, seq uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range batch {
		c.close(b, seq, err)
	}
}

// abandon settles what is left when the coordinator was closed by force.
func (c *committer) abandon(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	for _, b := range c.queue {
		c.unqueue(b)
		c.close(b, 0, fmt.Errorf("%w: %w", closed("coordinator"), context.Cause(ctx)))
	}
	c.queue = nil
}

// commit appends a batch and returns when its fate is known: stored, refused, or
// in doubt because ctx ended. Until then it tries the same bytes with the same ID.
func (c *committer) commit(ctx context.Context, batch []*bundle) (uint64, error) {
	if c.broken != nil {
		return 0, c.broken
	}
	var records []*pb.Record
	for _, b := range batch {
		records = append(records, b.records...)
	}
	// One subject for all plans: the server keeps each subject that there was in its memory.
	plan := ledger.ManyPlans
	if c.fenced {
		plan = batch[0].plan
	}
	source := ledger.Source{Tenant: c.tenant, Class: ledger.ClassAgent, Name: c.agent, Plan: plan}
	a, err := jetstream.NewAppend(source, records...)
	if err != nil {
		return 0, err
	}
	if c.fenced && c.last > 0 {
		a.FenceSubject, a.Fence = a.Subject, c.last
	}
	defer c.setTrouble(nil)
	doubt, lost := false, c.lost
	for delay := retryDelayMin; ; delay = min(2*delay, retryDelayMax) {
		seq, err := c.try(ctx, a)
		switch {
		case err == nil && seq <= c.last: // appends of one process come one after the other
			c.broken = &replaced{c.tenant, c.last, seq}
			c.replaced(c.broken)
			return 0, fmt.Errorf("%w: %w", ErrInDoubt, c.broken)
		case err == nil:
			c.last = seq
			c.acknowledged(acked{batch[0].plan, seq, a.Data})
			return seq, nil
		case errors.Is(err, ErrConnectionClosed) && doubt:
			return 0, fmt.Errorf("%w: %w", ErrInDoubt, err)
		case errors.Is(err, ErrConnectionClosed):
			return 0, err
		case errors.Is(err, ErrBusy):
		case c.fenced && errors.Is(err, ledger.ErrConflict):
			return 0, superseded(doubt)
		case isRefused(err) && !doubt, errors.Is(err, ledger.ErrConflict) && !doubt:
			return 0, err
		default:
			// A refusal of this try says nothing about an earlier one in doubt.
			doubt = true
		}
		c.setTrouble(err)
		c.logger.Warn("append not known", "tenant", c.tenant, "plan", plan, "id", a.ID, "error", err)
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-lost:
			timer.Stop()
			lost = nil // an appender of its own may have another connection
		case <-ctx.Done():
			timer.Stop()
			return 0, fmt.Errorf("%w: %w", ErrInDoubt, context.Cause(ctx))
		}
	}
}

func (c *committer) acknowledged(s acked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest = s
}

// newest is the append that was acknowledged last.
func (c *committer) newest() acked {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest
}

func (c *committer) try(ctx context.Context, a ledger.Append) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, appendAttemptMax)
	defer cancel()
	c.mu.Lock()
	c.giveUp = cancel
	c.mu.Unlock()
	return c.store.Append(ctx, a)
}

// again ends the try in flight, if there is one: its reply was lost with the
// connection. It is in doubt, and goes out again at once with the same ID.
func (c *committer) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.giveUp != nil {
		c.giveUp()
	}
}
