package ask

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Board is what the loop of a tenant shows of itself to the questions beside it, and the
// questions that wait for the loop. The loop writes it. Its methods may be called from any
// goroutine.
type Board struct {
	Feed Feed // what turns touch

	meter  Gauges
	asking asking

	mu        sync.Mutex
	mode      string
	problem   string
	waits     int                // stores whose writes wait for room on their disk
	full      string             // what the last of them waits for
	since     time.Time          // when the first of them began to
	halt      *api.Halt          // in ModeHalted
	erased    *api.TenantErasure // in ModeErased
	sinceNs   int64              // stamp of the term in the ledger; 0: none yet
	elsewhere bool               // another host holds the tenant
	// unanswered: why no answer has come, for as long as a lock lasts, as to which host holds the
	// tenant; empty: one has
	unanswered string
	refusal    string       // why the stream refuses appends now
	records    ledger.Store // nil before it is open
	copies     *tiles.Files
	last       uint64 // last sequence known to be in the stream
	folded     uint64 // last sequence that is folded
	lag        uint64 // commits that the meter shows as known and not folded
	applied    uint64 // last sequence that is folded and written: snapshots show it
	attached   bool   // a session goes on: it folds, and answers what is asked about outcomes
	waiters    []*waiter
	outcomes   outcomes
	waiting    func() []api.Waiting // commands that found no worker; nil: none are sent
	wanted     chan struct{}        // buffered 1: a question waits for the loop
}

// Gauges show the numbers of a board: *observe.Meter.
type Gauges interface {
	Mode(was, is string)
	Lag(was, is uint64)
}

// waiter is a question that waits until a sequence is folded and written.
type waiter struct {
	sequence uint64
	done     chan struct{}
}

// NewBoard is the board of a tenant that starts.
func NewBoard(meter Gauges) *Board {
	b := &Board{meter: meter, asking: asking{gone: make(chan struct{})}, mode: api.ModeStarting,
		wanted: make(chan struct{}, 1), outcomes: outcomes{of: map[string][]*outcome{}}}
	b.meter.Mode("", b.mode)
	return b
}

// Enter enters a mode; problem is why, empty where it needs no reason.
func (b *Board) Enter(mode, problem string) { b.enter(mode, problem, nil) }

// Erased enters ModeErased: nothing of the tenant is shown any more but that.
func (b *Board) Erased(e *api.TenantErasure) {
	b.enter(api.ModeErased, "", nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.erased, b.refusal, b.records, b.copies, b.waiting = e, "", nil, nil, nil
	b.last, b.applied, b.sinceNs = 0, 0, 0
	b.measure()
}

// erasure is that of the tenant; nil: it was not erased.
func (b *Board) erasure() *api.TenantErasure {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.erased
}

// Halt enters ModeHalted for what a guard has found.
func (b *Board) Halt(h *ledger.Halted) {
	b.enter(api.ModeHalted, h.Error(),
		&api.Halt{Guard: h.Guard, Sequence: h.Sequence, Problem: h.Problem})
}

func (b *Board) enter(mode, problem string, halt *api.Halt) {
	b.mu.Lock()
	same := b.mode == mode && b.problem == problem
	was, _ := b.shown()
	b.mode, b.problem, b.halt = mode, problem, halt
	is, _ := b.shown()
	b.meter.Mode(was, is)
	b.mu.Unlock()
	if !same {
		b.Feed.nudge()
	}
}

// Waits notes that writes of a store begin to wait for room on its disk, and then, with nothing,
// that they do not any more: the tenant is degraded meanwhile.
func (b *Board) Waits(problem string) {
	b.mu.Lock()
	was, _ := b.shown()
	switch {
	case problem == "":
		b.waits--
	case b.waits == 0:
		b.since = time.Now()
		fallthrough
	default:
		b.waits, b.full = b.waits+1, problem
	}
	is, _ := b.shown()
	b.meter.Mode(was, is)
	b.mu.Unlock()
	b.Feed.nudge()
}

// Waited is for how long writes of a store have waited for room; 0: none waits.
func (b *Board) Waited() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waits == 0 {
		return 0
	}
	return max(time.Since(b.since), 1)
}

// shown is the mode that others see, and why. The loop enters none while it waits for room.
func (b *Board) shown() (mode, problem string) {
	if b.waits > 0 && b.mode != api.ModeHalted && b.mode != api.ModeErased {
		return api.ModeDegraded, b.full
	}
	if unknown := b.unknown(); unknown != "" {
		return b.mode, unknown
	}
	return b.mode, b.problem
}

// Mode is the mode now.
func (b *Board) Mode() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	mode, _ := b.shown()
	return mode
}

// Health is the mode and what is wrong, also with appends; empty: nothing. held is whether this
// host is known to hold the tenant, or another one, or it was erased: none has to.
func (b *Board) Health() (mode, problem string, held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	mode, problem = b.shown()
	held = mode == api.ModeHolding || mode == api.ModeErased ||
		mode == api.ModeStandby && b.problem != "" && b.elsewhere
	if b.refusal != "" && mode != api.ModeDegraded {
		problem = b.refusal
	}
	return mode, problem, held
}

// TermBegan notes when the term began that the ledger is in, unix ns.
func (b *Board) TermBegan(stampNs int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sinceNs = stampNs
}

// Elsewhere notes whether another host is known to hold the tenant. That host answers, also while
// the tenant is halted or degraded here, or writes wait for room.
func (b *Board) Elsewhere(held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.elsewhere = held
}

// unknown is the problem of a standby that cannot find out which host holds the tenant; empty: it
// is known, or this host is no standby. Whoever calls it has the lock.
func (b *Board) unknown() string {
	if b.unanswered == "" || b.mode != api.ModeStandby {
		return ""
	}
	return "not known which host holds it: " + b.unanswered
}

// holderUnknown is unknown, for whoever has not the lock.
func (b *Board) holderUnknown() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unknown()
}

// Unanswered notes that it is long ago that this host learned which host holds the tenant, and why:
// what it knew then is out of date. Empty: it is not.
func (b *Board) Unanswered(problem string) {
	b.mu.Lock()
	same := b.unanswered == problem
	b.unanswered = problem
	b.mu.Unlock()
	if !same {
		b.Feed.nudge()
	}
}

// Refused notes why the stream refuses appends; empty: it takes them.
func (b *Board) Refused(problem string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refusal = problem
}

// Opened shows the ledger of a session, and its tiles.
func (b *Board) Opened(records ledger.Store, copies *tiles.Files) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records, b.copies = records, copies
}

// Records is the ledger as questions read it; nil before it is open.
func (b *Board) Records() ledger.Store {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.records
}

// Copies are the tiles as questions read them; nil before they are open.
func (b *Board) Copies() *tiles.Files {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.copies
}

// Sending shows what commands wait for, while this host holds the tenant; nil: it does not.
func (b *Board) Sending(waiting func() []api.Waiting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = waiting
}

// Attached notes that a session begins, up to where it finds the ledger folded, and where it
// ends.
func (b *Board) Attached(applied, last uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.folded, b.applied, b.last, b.attached = applied, applied, last, true
	b.measure()
}

// Detached notes that a session has ended: what was folded and not written is forgotten.
func (b *Board) Detached() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.folded, b.attached = b.applied, false
	b.measure()
	b.outcomes.end()
}

// Stored notes that the stream has a sequence.
func (b *Board) Stored(sequence uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = max(b.last, sequence)
	b.measure()
}

// measure shows how many commits are known and not folded, also while the loop folds one.
func (b *Board) measure() {
	is := max(b.last, b.folded) - b.folded
	b.meter.Lag(b.lag, is)
	b.lag = is
}

// Unmeter takes the tenant out of the numbers: the host runs it no more.
func (b *Board) Unmeter() {
	b.mu.Lock()
	defer b.mu.Unlock()
	mode, _ := b.shown()
	b.meter.Mode(mode, "")
	b.meter.Lag(b.lag, 0)
}

// Last is the last sequence known to be in the stream.
func (b *Board) Last() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// Folded notes up to where the ledger is folded.
func (b *Board) Folded(sequence uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.folded, b.last = sequence, max(b.last, sequence)
	b.measure()
}

// Written notes that all that is folded is written, and wakes the questions that waited for
// that.
func (b *Board) Written() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.applied = b.folded
	b.waiters = slices.DeleteFunc(b.waiters, func(w *waiter) bool {
		if w.sequence > b.applied {
			return false
		}
		close(w.done)
		return true
	})
}

// Wanted has a value when a question waits for the loop.
func (b *Board) Wanted() <-chan struct{} { return b.wanted }

// WantsWrite reports whether a question waits for what is folded to be written.
func (b *Board) WantsWrite() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.waiters, func(w *waiter) bool { return w.sequence <= b.folded })
}

// wake has the loop look.
func (b *Board) wake() {
	select {
	case b.wanted <- struct{}{}:
	default:
	}
}

// settleMax is how long a question waits for what is folded to be written. It is written soon
// anyway, so that a loop that does not go on holds up no question.
const settleMax = 250 * time.Millisecond

// settle waits until what is folded now is written, so that a question finds all that anybody
// was told. While writes wait for room it does not: who asks for the hosts waits for less.
func (b *Board) settle() {
	b.mu.Lock()
	folded, full := b.folded, b.waits > 0
	b.mu.Unlock()
	if !full {
		b.Await(folded, settleMax)
	}
}

// Await waits until a sequence is folded and written, and reports whether it is; it gives up
// after limit, and when the host ends.
func (b *Board) Await(sequence uint64, limit time.Duration) bool {
	w := &waiter{sequence: sequence, done: make(chan struct{})}
	b.mu.Lock()
	reached := b.applied >= sequence
	b.mu.Unlock()
	if reached {
		return true
	}
	b.add(w)
	defer b.drop(w)
	return b.wait(w, limit)
}

// unfolded waits for a sequence, and returns what is wrong where it is not folded in time; 0 is
// none to wait for.
func (b *Board) unfolded(sequence uint64, limit time.Duration) error {
	if sequence == 0 || b.Await(sequence, limit) {
		return nil
	}
	return fmt.Errorf("sequence %d is not folded yet", sequence)
}

func (b *Board) wait(w *waiter, limit time.Duration) bool {
	_, gaveUp := within(b, w.done, limit)
	return !gaveUp
}

// within waits for a value; it gives up after limit, and when the host ends.
func within[T any](b *Board, values <-chan T, limit time.Duration) (value T, gaveUp bool) {
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case value = <-values:
		return value, false
	case <-late.C:
	case <-b.asking.gone:
	}
	return value, true
}

// add registers a question; one about a sequence that has been folded by now is answered at
// once.
func (b *Board) add(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.applied >= w.sequence {
		close(w.done)
		return
	}
	b.waiters = append(b.waiters, w)
	if b.folded >= w.sequence {
		b.wake()
	}
}

func (b *Board) drop(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiters = slices.DeleteFunc(b.waiters, func(x *waiter) bool { return x == w })
}

// catchUpMax is how long a question about what is not known waits for the fold.
const catchUpMax = 2 * time.Second

// catchUp waits until all that the ledger has now is folded, and reports whether
// that took a wait and came to its end.
func (b *Board) catchUp() bool {
	records := b.Records()
	if records == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), catchUpMax)
	defer cancel()
	head, err := records.Head(ctx)
	return err == nil && b.Await(head.Last, catchUpMax)
}

// head has a tenant that folds nothing any more (halted, interrupted) not look as if it had
// folded everything.
func (b *Board) head(within time.Duration) {
	if mode := b.Mode(); mode != api.ModeHolding && mode != api.ModeGuard {
		b.Look(within)
	}
}

// LookMax is how long a look at the end of the stream may take.
const LookMax = time.Second

// Look reads the stream's end, if it answers in time.
func (b *Board) Look(within time.Duration) {
	records := b.Records()
	if records == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if head, err := records.Head(ctx); err == nil {
		b.Stored(head.Last)
	}
}

// Bounds of a wait for a halt: alarmPoll is between two looks.
const (
	alarmMax  = 30 * time.Second
	alarmPoll = 5 * time.Millisecond
)

// awaitHalt waits, not for ever, until the tenant is halted: whoever gets the alarm asks for
// a repair next.
func (b *Board) awaitHalt(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, alarmMax)
	defer cancel()
	for pause.For(ctx, alarmPoll) && b.Mode() != api.ModeHalted {
	}
}

// silent reports whether another host holds the tenant, as far as is known: that one answers.
func (b *Board) silent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	stopped := b.mode == api.ModeHalted || b.mode == api.ModeDegraded || b.waits > 0
	return b.mode == api.ModeStandby && b.problem != "" && b.unanswered == "" ||
		stopped && b.elsewhere
}

// unserved are the commands that found no worker yet.
func (b *Board) unserved() []api.Waiting {
	b.mu.Lock()
	waiting := b.waiting
	b.mu.Unlock()
	if waiting == nil {
		return nil
	}
	return waiting()
}
