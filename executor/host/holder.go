package host

import (
	"context"
	"errors"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// holderEvent says whether this host has the tenant's lease.
type holderEvent struct {
	held    bool
	current string // who has it
}

// keepLease asks for the tenant's lease and renews it until ctx ends, and tells
// the actor when that changes. It runs on a goroutine of the session.
func (a *actor) keepLease(ctx context.Context, events chan<- holderEvent) {
	holders, me := a.host.holders, a.host.cfg.Holder
	every := holders.TTL() / holderPollFactor
	var lease jetstream.Lease
	var renewed time.Time
	held, told := false, holderEvent{current: "?"}
	for {
		event := holderEvent{}
		if held {
			next, err := holders.Renew(ctx, lease)
			switch {
			case err == nil:
				lease, renewed = next, time.Now()
			case errors.Is(err, jetstream.ErrLeaseLost), time.Since(renewed) > holders.TTL()-every:
				held = false // it cannot be renewed in time: stop before another begins
			}
		} else {
			asked := time.Now()
			next, ok, current, err := holders.Acquire(ctx, a.tenant, me)
			if err == nil && ok {
				lease, held, renewed = next, true, asked
			}
			event.current = current
		}
		event.held = held
		if held {
			event.current = me
		}
		if event != told {
			select {
			case events <- event:
				told = event
			case <-ctx.Done():
			}
		}
		if !sleep(ctx, every) {
			break
		}
	}
	if held {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = holders.Release(ctx, lease) // it runs out by itself otherwise
	}
}

func (a *actor) leaseEvent(e holderEvent) {
	if e.held {
		a.wantsTerm = true
		return
	}
	a.wantsTerm = false
	a.stepDown()
	if e.current != "" {
		a.setMode(executor.ModeStandby, "held by "+e.current)
	}
}

// claim begins a term by an append that only one host can win, once the fold
// has reached the end of the stream as it was when the lease came.
func (a *actor) claim() {
	if !a.wantsTerm || a.cursor() < a.attached || a.term != 0 {
		return
	}
	a.term = a.state.Meta().Term + 1
	a.append(ledger.Source{Tenant: a.tenant, Class: ledger.ClassExecutor, Term: true}, []*pb.Record{{
		Term: a.term,
		Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: a.host.cfg.Holder, FoldVersion: executor.FoldVersion}},
	}}, true)
}

// applyTerm takes up or gives up the tenant as the ledger says: the term counts
// from the place where its record was read back.
func (a *actor) applyTerm() {
	meta := a.state.Meta()
	switch {
	case a.holding && meta.Term != a.term:
		a.log.Warn("fenced by a newer term", "term", meta.Term, "holder", meta.Holder)
		a.stepDown()
		a.setMode(executor.ModeStandby, "held by "+meta.Holder)
	case !a.holding && a.term != 0 && meta.Term == a.term && meta.Holder == a.host.cfg.Holder:
		a.holding, a.fence = true, meta.TermSequence
		a.dispatch, a.pages = newDispatcher(a.host.actuator, a.host.clock.now), a.newPager()
		a.show(a.dispatch)
		a.setMode(executor.ModeHolding, "")
		a.log.Info("holding", "term", a.term, "held", meta.Held, "unwinding", meta.Unwinding)
		for _, c := range a.state.InFlight() {
			a.dispatch.resend(c) // unanswered before: the same keys again
		}
		a.pages.add(a.state.Unpaged())
	case !a.holding && a.term != 0 && meta.Term >= a.term:
		a.term = 0 // another host won this term
	}
}

// stepDown stops deciding and dispatching at once.
func (a *actor) stepDown() {
	if a.dispatch != nil {
		a.dispatch.stop()
		a.pages.stop()
		a.dispatch, a.pages = nil, nil
		a.show(nil)
	}
	a.holding, a.term, a.fence = false, 0, 0
	a.answers = nil
}

// guarded shows the clock guard as it comes and goes.
func (a *actor) guarded(ahead time.Duration, held bool) {
	switch {
	case held && a.currentMode() == executor.ModeHolding:
		a.setMode(executor.ModeGuard, "the wall clock is "+ahead.Round(time.Millisecond).String()+" ahead of the monotonic clock: no deadline fires until they agree or an operator confirms")
		a.log.Error("clock guard: deadlines are held", "ahead", ahead)
	case !held && a.currentMode() == executor.ModeGuard:
		a.setMode(executor.ModeHolding, "")
		a.log.Info("clock guard: the clocks agree again")
	}
}

func (a *actor) currentMode() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mode
}

func (a *actor) setMode(mode, problem string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mode, a.problem = mode, problem
}

// show gives queries the dispatcher to look at.
func (a *actor) show(d *dispatcher) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shown = d
}
