package coordinator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/internal/pause"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// A forward from its start to its end. The executor counts on three things when it
// decides that a forward can no longer land: a forward starts soon after its pair was
// stored, or while its plan is known to be open; it is given up when its timeout is over;
// and it is given up at the end of its grace once its plan unwinds.

// execute runs the forward of a registered action, after its verdict and once a caller is there.
func (a *action) execute(ctx context.Context, caller <-chan struct{},
	forward Forward) (json.RawMessage, error) {
	var err error
	if a.reviewTimeout > 0 {
		err = a.review(ctx)
	}
	if err == nil {
		err = a.awaitCaller(ctx, caller)
	}
	if err == nil {
		err = a.stillOpen(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot start action %q: %w", a.call.Action, err)
	}
	if ctx, err = a.start(ctx); err != nil {
		return nil, fmt.Errorf("cannot start action %q: %w", a.call.Action, err)
	}
	outcome, err := a.run(ctx, forward)
	if err != nil {
		if why := context.Cause(ctx); errors.Is(why, ErrUnheard) && !errors.Is(err, ErrUnheard) {
			err = fmt.Errorf("%w: %w", why, err)
		}
		return nil, a.finishFailed(err)
	}
	return a.finishCompleted(outcome)
}

// start claims a registered action for its forward: of several calls with one ID
// one runs it. The plan may have ended, and ctx too, while the pair was stored.
func (a *action) start(ctx context.Context) (context.Context, error) {
	p := a.plan
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ended() != nil:
		return nil, p.ended()
	case a.barred != nil:
		return nil, a.barred
	case a.givenUp != nil:
		return nil, a.givenUp
	case a.state != actionRegistered:
		return nil, ledger.Refuse("action.id", fmt.Sprintf("%q has run already", a.call.Action),
			"an id of its own for each action")
	case p.unwinding() != nil:
		return nil, errors.Join(p.unwound, a.giveUp())
	case ctx.Err() != nil:
		return nil, ctx.Err() // may be called again
	}
	if err := a.bar(); err != nil {
		return nil, err
	}
	if err := a.doubted(a.tooLate(time.Now())); err != nil {
		return nil, errors.Join(err, a.giveUpFor(err, ledger.Text(err.Error())))
	}
	ctx, cancel := a.bounded(ctx)
	stop := a.watch()
	a.cancel = func(cause error) { cancel(cause); stop() }
	a.state = actionRunning
	p.running++
	p.noteStored(a.pair)
	return ctx, nil
}

// givesUp is when the caller of a forward gives it up whatever happens; zero: never. It
// counts from the registration, or from when the plan was last known to be open where the
// forward is called long after it.
func (a *action) givesUp() time.Time {
	from := a.queued
	if (a.waited() || a.doubt != nil) && !a.open.IsZero() {
		from = a.open
	}
	if a.contract.Timeout == 0 {
		return time.Time{}
	}
	return from.Add(a.contract.Timeout)
}

// waited reports whether the forward may be called long after its registration: its
// verdict came first.
func (a *action) waited() bool { return a.reviewTimeout > 0 }

func (a *action) grace() time.Duration { return cmp.Or(a.contract.Grace, ledger.GraceDefault) }

// tooLate says why an action must not be started any more, or nil.
func (a *action) tooLate(now time.Time) error {
	p := a.plan
	if err := passed(p); err != nil {
		return err
	}
	if until := a.givesUp(); !until.IsZero() && !now.Before(until) {
		return fmt.Errorf("%w: its timeout of %v was over before its forward could be called",
			ErrNotStarted, a.contract.Timeout)
	}
	return nil
}

// bounded is ctx with an end at the timeout of the forward, and at the end of its grace
// after the plan's deadline: the notice of the unwind may be lost. Called with mu held, and so is
// what it returns.
func (a *action) bounded(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	release := context.CancelFunc(func() {})
	if until := a.givesUp(); !until.IsZero() {
		ctx, release = context.WithDeadline(ctx, until)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	a.due, a.expire = nil, func() {
		a.plan.mu.Lock()
		a.overdue = true
		a.plan.mu.Unlock()
		cancel(context.DeadlineExceeded)
	}
	a.endBy(a.plan.deadline)
	return ctx, func(cause error) {
		if cancel(cause); a.due != nil {
			a.due.Stop()
		}
		release()
	}
}

// endBy has a forward that runs end a grace after its plan's deadline; the zero time: it has none.
func (a *action) endBy(deadline time.Time) {
	switch left := time.Until(deadline.Add(a.grace())); {
	case deadline.IsZero():
	case a.due == nil:
		a.due = time.AfterFunc(left, a.expire)
	default:
		a.due.Reset(left)
	}
}

// stillOpen asks an executor whether the pair of an action was taken, where that is not
// known, and whether the plan is open, if its unwind may have begun and ended since.
func (a *action) stillOpen(ctx context.Context) error {
	p := a.plan
	lookDue(ctx, p)
	p.mu.Lock()
	ask := time.Since(a.queued) > min(startSlack, a.grace()/2)
	if a.waited() {
		ask = a.verdict != nil && !a.verdict.blocks() // otherwise start says why it must not run
	}
	ask = ask || p.c.accepted || p.asked && !p.confirmed
	sequence := a.pair.seq
	if a.doubt != nil {
		sequence = 0 // an earlier process has stored it
	}
	p.mu.Unlock()
	if !ask || p.c.bus == nil {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, p.c.confirmTimeout)
	defer cancel()
	for bounded.Err() == nil {
		asked := time.Now()
		query := api.OutcomeQuery{Plan: p.id, Sequence: cmp.Or(sequence, p.Stored()),
			Action: a.call.Action}
		answer, err := p.ask(bounded, query)
		switch {
		case errors.Is(err, ErrConnectionClosed):
			return err
		case err != nil || time.Since(asked) > startSlack:
			pause.For(bounded, askDelay)
		case a.refuses(answer, &err):
			return err
		case a.wentWith(answer):
			return nil // start says it
		case answer.State == ledger.StateOpen:
			p.rule(verdictOf(a.call.Action, answer)) // its notice may be lost
			p.mu.Lock()
			a.open, p.confirmed = asked, true
			p.mu.Unlock()
			return nil
		default:
			hearEnd(p, answer)
			return nil // start says it
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err := fmt.Errorf("%w: %v after its registration no executor says that the plan is still open",
		ErrNotStarted, time.Since(a.queued).Round(time.Millisecond))
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.state != actionRegistered {
		return nil // start says why
	}
	err = a.doubted(err)
	return errors.Join(err, a.giveUpFor(err, ledger.Text(err.Error())))
}

// watch has an executor asked now and then whether the plan of a running forward is
// still open: the notice of its unwind may be lost, with the host that was about to send
// it. A forward whose plan no executor has confirmed for half of settle, and at least for its
// grace, is interrupted: the plan may be undone where this process is cut off from. Where
// something else bounds the forward, or refuses it afterwards, nothing is asked. Called with
// mu held.
func (a *action) watch() (stop func()) {
	p := a.plan
	if p.c.bus == nil || a.contract.Timeout > 0 || a.contract.Late == pb.Late_LATE_REFUSED {
		return func() {}
	}
	settle := cmp.Or(a.contract.Settle, ledger.SettleDefault)
	if a.contract.Late == pb.Late_LATE_NEVER {
		settle = 0
	}
	limit := max(cmp.Or(a.contract.AloneGrace(), ledger.GraceDefault), settle/2, 2*watchMin)
	interval, began := min(limit/2, watchMax), time.Now()
	var asks, ends *time.Timer
	asks = time.AfterFunc(interval, func() {
		next := interval
		if !p.missed() {
			next = min(interval, askDelayMax)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if a.state == actionRunning {
			asks.Reset(next)
		}
	})
	ends = time.AfterFunc(limit, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if a.state != actionRunning || p.unwound != nil {
			return // its grace ends it
		}
		if left := limit - min(time.Since(began), time.Since(p.heard)); left > 0 {
			ends.Reset(left)
			return
		}
		a.cancel(fmt.Errorf("%w for %v", ErrUnheard, limit))
	})
	return func() { asks.Stop(); ends.Stop() }
}

// missed asks whether the plan of running forwards is still open. If it is not, their
// grace is over. It reports whether an executor has said so, or nothing needs to know.
func (p *Plan) missed() (answered bool) {
	ctx, cancel := context.WithTimeout(context.Background(), p.c.confirmTimeout)
	defer cancel()
	for delay := askDelay; p.needsWord(); delay = min(2*delay, askDelayMax) {
		asked := time.Now()
		answer, err := p.ask(ctx, api.OutcomeQuery{Plan: p.id, Sequence: p.Stored()})
		switch {
		case err == nil:
			p.heardAt(asked, answer)
			return true
		case ctx.Err() != nil, errors.Is(err, ErrConnectionClosed):
			return false
		}
		pause.For(ctx, delay)
	}
	return true
}

// needsWord reports whether forwards run whose plan is open, as far as known.
func (p *Plan) needsWord() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running > 0 && p.unwound == nil
}

// heardAt takes what an executor that was asked at an instant says of the plan.
func (p *Plan) heardAt(asked time.Time, answer api.OutcomeAnswer) {
	if answer.Writer != "" && !p.c.isWriter(answer) {
		p.supersede()
	}
	undone := answer.State != ledger.StateOpen && hearEnd(p, answer)
	p.mu.Lock()
	defer p.mu.Unlock()
	if undone {
		p.interrupt(p.unwound, p.reached(answer.FromAction), true)
	} else if asked.After(p.heard) {
		p.heard = asked
	}
}

// run calls the forward. A panic goes on after it is recorded, with its stack.
func (a *action) run(ctx context.Context, forward Forward) (outcome Outcome, err error) {
	returned := false
	defer func() {
		if !returned {
			a.vanished()
		}
	}()
	call := a.call
	call.Number, call.Sequence = a.number, a.pair.seq
	outcome, err = forward(ctx, call)
	returned = true
	return outcome, err
}

// vanished records a forward that did not return. The process may be about to
// end, so it waits a moment for the record; without it the action is in doubt
// just the same.
func (a *action) vanished() {
	p := a.plan
	record := a.outcome()
	record.Kind = &pb.Record_ForwardInDoubt{ForwardInDoubt: &pb.ForwardInDoubt{
		Code: codePanic, Message: "the forward panicked or ended its goroutine",
	}}
	if _, err := a.finish(record); err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), ForwardGrace)
	defer cancel()
	if err := p.flush(ctx, false); err != nil {
		p.c.logger.Warn("outcome not known to be stored", "tenant", p.c.tenant, "plan", p.id, "action",
			a.call.Action, "error", err)
	}
}

// settleForwards waits for the running forwards after a number: for their grace, and at
// most ForwardGrace more once they are interrupted. Called with mu held, which it gives
// up while it waits.
func (p *Plan) settleForwards(ctx context.Context, cause error, after int) {
	running := p.interrupt(cause, func(a *action) bool { return a.number > after }, false)
	if len(running) == 0 {
		return
	}
	wait := time.Duration(0)
	for _, a := range running {
		wait = max(wait, a.grace()+ForwardGrace)
	}
	p.mu.Unlock()
	defer p.mu.Lock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for _, a := range running {
		select {
		case <-a.finished:
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		}
	}
}
