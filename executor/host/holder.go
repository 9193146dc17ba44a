package host

import (
	"context"
	"errors"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// holderEvent says whether this host has the tenant's lease.
type holderEvent struct {
	held    bool
	current string // who has it
}

// keeper asks for a tenant's lease, and renews it. It belongs to one goroutine.
type keeper struct {
	holders *jetstream.Holders
	tenant  string
	me      string
	lease   jetstream.Lease
	held    bool
	renewed time.Time // before the request that was the last to succeed
	eager   int       // tries that follow each other quickly, after a release was heard
}

// keepLease asks for the tenant's lease and renews it until ctx ends, and tells
// the actor when that changes. It runs on a goroutine of the session.
func (a *actor) keepLease(ctx context.Context, events chan<- holderEvent) {
	k := &keeper{holders: a.host.holders, tenant: a.tenant, me: a.host.cfg.Holder}
	told := holderEvent{current: "?"}
	for ctx.Err() == nil {
		event, pause := k.turn(ctx)
		if event != told {
			select {
			case events <- event:
				told = event
			case <-ctx.Done():
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-a.doubt:
			told = holderEvent{current: "?"}
		case <-a.released:
			if !k.held {
				k.eager = eagerTries
			}
		}
		timer.Stop()
	}
	if k.held {
		a.giveBack(ctx, k)
	}
}

// giveBack ends a lease and tells the hosts that stand by. It is best effort: the
// lease runs out by itself.
func (a *actor) giveBack(ctx context.Context, k *keeper) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	// A renewal that this end has interrupted may be on its way to the bucket still.
	for k.holders.Release(ctx, k.lease) != nil {
		if !pause.For(ctx, eagerPause) {
			return
		}
	}
	// With a reply subject, as every request, on which no one waits.
	conn, subject := a.host.cfg.Conn, api.QuerySubject(a.tenant, verbReleased)
	if conn.PublishRequest(subject, conn.NewInbox(), nil) == nil {
		_ = conn.FlushWithContext(ctx)
	}
}

// verbReleased is said to all hosts of a tenant when its lease was given back.
const verbReleased = "released"

// leaseReleased has this host try to take the lease at once.
func (a *actor) leaseReleased() any {
	select {
	case a.released <- struct{}{}:
	default:
	}
	return struct{}{}
}

// turn asks once, and says what is so now and when to ask again.
func (k *keeper) turn(ctx context.Context) (holderEvent, time.Duration) {
	if k.held {
		return k.renew(ctx)
	}
	ttl := k.holders.TTL()
	every := ttl / holderPollFactor
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, every)
	defer cancel()
	lease, ok, current, err := k.holders.Acquire(ctx, k.tenant, k.me)
	switch {
	case err != nil:
		return holderEvent{current: current.Holder}, every
	case ok:
		k.lease, k.held, k.renewed, k.eager = lease, true, asked, 0
		return holderEvent{held: true, current: k.me}, every
	case k.eager > 0: // the replica that was asked may not have the release yet
		k.eager--
		return holderEvent{current: current.Holder}, eagerPause
	}
	// The lease of a holder that died runs out in this time.
	return holderEvent{current: current.Holder}, min(max(current.Left, ttl/holderLateFactor), every)
}

// renew lets the lease live on. A holder that cannot renew stops before its lease
// has run out for others.
func (k *keeper) renew(ctx context.Context) (holderEvent, time.Duration) {
	ttl := k.holders.TTL()
	every := ttl / holderPollFactor
	safe := k.renewed.Add(ttl - ttl/holderLateFactor)
	asked := time.Now()
	ctx, cancel := context.WithDeadline(ctx, earlier(asked.Add(every), safe))
	defer cancel()
	next, err := k.holders.Renew(ctx, k.lease)
	switch {
	case err == nil:
		k.lease, k.renewed = next, asked
		return holderEvent{held: true, current: k.me}, every
	case errors.Is(err, jetstream.ErrLeaseLost), !time.Now().Before(safe):
		k.held = false
		return holderEvent{}, retryDelayMin
	}
	return holderEvent{held: true, current: k.me}, min(max(time.Until(safe), 0), ttl/holderLateFactor)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// leaseEvent tells the machine whether this host has the tenant's lease.
func (a *actor) leaseEvent(e holderEvent) {
	if !e.held && e.current == "" && a.currentMode() == view.ModeHolding {
		a.log.Warn("the lease is lost: nothing is decided or sent until this host has it again")
	}
	a.machine.Lead(e.held, e.current)
}

// down stops sending at once, and says why.
func (a *actor) down(d turn.Down) {
	problem := d.Reason
	if d.By != "" {
		problem = "held by " + d.By
	}
	held := a.dispatch != nil
	a.stepDown()
	if problem != "" || held {
		a.setMode(view.ModeStandby, problem)
	}
	if !d.Doubt {
		return
	}
	a.log.Warn("another term has begun: this host does not hold the tenant", "problem", problem)
	select {
	case a.doubt <- struct{}{}:
	default:
	}
}

// takeUp opens what this host sends with: its term was read back.
func (a *actor) takeUp() (err error) {
	if a.actuator, err = a.openActuator(); err != nil {
		return err
	}
	a.dispatch, a.pages = newDispatcher(a.actuator, a.host.clock.instant, a.meter), a.newPager()
	a.dispatch.heard = &a.heard
	pages := a.pages // the dispatcher calls from goroutines of its own
	a.dispatch.stuckAfter, a.dispatch.stuck = a.host.cfg.StuckAfter,
		func(f *flight, since time.Time) { pages.tell(stuckPage(f, since)) }
	a.dispatch.unstuck = func(f *flight) { pages.untell(stuckPage(f, time.Now())) }
	a.eraser, a.dispatch.open = a.newEraser(), a.openCommand
	a.show(a.dispatch)
	a.setMode(view.ModeHolding, "")
	meta := a.state.Meta()
	a.log.Info("holding", "term", a.machine.Term(), "held", meta.Held, "unwinding", meta.Unwinding)
	return nil
}

// holding reports whether this host holds the tenant.
func (a *actor) holding() bool { return a.machine != nil && a.machine.Holding() }

// stepDown ends all that is sent with.
func (a *actor) stepDown() {
	if a.actuator != nil {
		if err := a.actuator.Close(); err != nil {
			a.log.Debug("cannot end the subscription to replies", "error", err)
		}
		a.actuator = nil
	}
	if a.dispatch != nil {
		a.dispatch.stop()
		a.pages.stop()
		a.eraser.stop()
		a.dispatch, a.pages, a.eraser = nil, nil, nil
		a.show(nil)
		a.traces.stop()
	}
	a.signing.fenced()
}

// guarded shows the clock guard as it comes and goes.
func (a *actor) guarded(ahead time.Duration, held bool) {
	if a.meter != nil {
		a.meter.of.clockAhead.Set(ahead.Seconds())
	}
	switch {
	case held && a.currentMode() == view.ModeHolding:
		a.setMode(view.ModeGuard, "the wall clock is "+ahead.Round(time.Millisecond).String()+
			" ahead of the monotonic clock: no deadline fires until they agree or an operator confirms")
		a.log.Error("clock guard: deadlines are held", "ahead", ahead)
		a.pages.tell(a.guardPage(ahead))
	case !held && a.currentMode() == view.ModeGuard:
		a.setMode(view.ModeHolding, "")
		a.log.Info("clock guard: the clocks agree again")
		a.pages.untell(api.Page{Kind: api.PageClockGuard})
	}
}

func (a *actor) currentMode() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mode
}

func (a *actor) setMode(mode, problem string) { a.enterMode(mode, problem, nil) }

// setHalted enters ModeHalted for what a guard has found.
func (a *actor) setHalted(h *ledger.Halted) {
	a.enterMode(view.ModeHalted, h.Error(),
		&view.Halt{Guard: h.Guard, Sequence: h.Sequence, Problem: h.Problem})
}

func (a *actor) enterMode(mode, problem string, halt *view.Halt) {
	a.mu.Lock()
	same := a.mode == mode && a.problem == problem
	a.meter.mode(a.mode, mode)
	a.mode, a.problem, a.halt = mode, problem, halt
	a.mu.Unlock()
	if !same {
		a.feed.nudge()
	}
}

// watchHolder lets a halted host leave questions to the host that holds the tenant,
// as long as there is one, until ctx ends: its own copy may be all that is bad.
func (a *actor) watchHolder(ctx context.Context) {
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.elsewhere = false
	}()
	for {
		a.lookForHolder(ctx)
		if !pause.For(ctx, a.host.holders.TTL()/holderPollFactor) {
			return
		}
	}
}

// lookForHolder notes whether another host holds the tenant.
func (a *actor) lookForHolder(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, a.host.holders.TTL()/holderPollFactor)
	defer cancel()
	holder, err := a.host.holders.Holder(ctx, a.tenant)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.elsewhere = err == nil && holder != "" && holder != a.host.cfg.Holder
}

// termBegan notes when the term began that the ledger is in.
func (a *actor) termBegan(stampNs int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sinceNs = stampNs
}

// noteTerm looks up when the term began that the state is in.
func (a *actor) noteTerm(ctx context.Context) error {
	sequence := a.state.Meta().TermSequence
	if sequence == 0 {
		return nil
	}
	m, err := a.store.Get(ctx, sequence)
	if err == nil {
		a.termBegan(m.StampNs)
	}
	return err
}

// staleTerm is what a worker answers to a command of a term that has ended.
const staleTerm = "stale_term"

// noteStale says that a worker refused this host's commands. Its records show that
// another host has begun a term; what it appends about the answer is void there.
func (a *actor) noteStale(answers []executor.Answer) {
	for _, answer := range answers {
		if answer.Reply != nil && answer.Reply.Code == staleTerm {
			a.log.Warn("a worker refused a command of an ended term", "plan", answer.Plan, "action",
				answer.Number, "attempt", answer.Attempt, "term", a.machine.Term(), "message",
				answer.Reply.Message)
		}
	}
}

// show gives queries the dispatcher to look at.
func (a *actor) show(d *dispatcher) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shown = d
}
