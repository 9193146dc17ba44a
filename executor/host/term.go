package host

import (
	"context"
	"io"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/actuators"
	"github.com/sagenbaum/sagenbaum/executor/host/page"
	"github.com/sagenbaum/sagenbaum/executor/host/vault"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// leaseEvent has the machine know whether this host has the tenant's lock.
func (a *actor) leaseEvent(e holderEvent) {
	if !e.held && e.current == "" && a.board.Mode() == view.ModeHolding {
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
	held := a.out != nil
	a.stepDown()
	if problem != "" || held {
		a.board.Enter(view.ModeStandby, problem)
	}
	if !d.Doubt {
		return
	}
	a.log.Warn("another term has begun: this host does not hold the tenant", "problem", problem)
	a.lead.askAgain()
}

// outbound is what a host sends with while it holds a tenant. It belongs to the goroutine of
// the tenant's loop.
type outbound struct {
	replies  io.Closer // the subscription to the replies of workers and owners
	dispatch *dispatcher
	pages    *page.Pager
	eraser   *vault.Eraser
}

// takeUp opens what this host sends with: its term was read back.
func (a *actor) takeUp() error {
	actuator, err := actuators.NewNATS(actuators.Config{
		Conn: a.host.cfg.Conn, Tenant: a.tenant, Refused: a.workers.Refused,
		Counted: a.workers.Counted,
	})
	if err != nil {
		return err
	}
	cfg, meter := a.host.cfg, a.observer.Meter
	pages := page.New(a.session, page.Config{
		Tenant: a.tenant, Publisher: actuator, Client: a.host.hooks, Webhooks: cfg.Webhooks,
		Keys: cfg.WebhookKeys, EscalateAfter: cfg.EscalateAfter, Meter: meter, Workers: &a.sends,
		Log: a.log,
	})
	d := newDispatcher(actuator, a.host.clock.instant, meter)
	d.flights.MayRun = a.mayRun(a.machine.Term())
	d.heard, d.open, d.stuckAfter = a.workers.Heard, a.keys.OpenCommand, cfg.StuckAfter
	d.stuck = func(f *flight, since time.Time) { pages.Tell(page.Stuck(f.Command, f.Working, since)) }
	d.unstuck = func(f *flight) { pages.Untell(page.Stuck(f.Command, f.Working, time.Now())) }
	a.out = &outbound{replies: actuator, dispatch: d, pages: pages,
		eraser: vault.NewEraser(a.session, a.keys, &a.sends, a.log)}
	a.board.Sending(d.waiting)
	a.board.Enter(view.ModeHolding, "")
	meta := a.state.Meta()
	a.log.Info("holding", "term", a.machine.Term(), "held", meta.Held, "unwinding", meta.Unwinding)
	return nil
}

// mayRun reports, from any goroutine, whether a command of a term may leave that does not count
// yet: the lock is this host's for sure, and no other term was read.
func (a *actor) mayRun(term uint64) func() bool {
	return func() bool { return a.termRead.Load() <= term && a.lead.safe() }
}

// send has commands, pages and the destruction of keys go on their way: expected says which
// calls wait for an answer, or for their turn, begin is called with each command before it leaves.
func (o *outbound) send(r turn.Ready,
	expected func(plan string, n uint32, purpose string, attempt uint32) bool,
	begin func(executor.Command) executor.Command) {
	o.dispatch.prune(r.Looked, expected)
	for _, e := range r.Erased {
		if e.Destroyed {
			o.eraser.Recorded(e.Plan)
		}
	}
	for _, s := range r.Hold {
		s.Command = begin(s.Command)
		o.dispatch.hold(s)
	}
	for _, s := range r.Send {
		s.Command = begin(s.Command)
		o.dispatch.send(s)
	}
	for _, t := range r.Taken { // before what was asked for since, which has a row
		o.pages.Recorded(turn.PageKey{About: t.About, Kind: t.Kind})
	}
	for _, c := range r.Closed {
		o.pages.Recorded(turn.KeyOf(c.Page))
	}
	o.pages.Add(r.Pages)
	o.eraser.Add(r.Erase)
}

// holding reports whether this host holds the tenant.
func (a *actor) holding() bool { return a.machine != nil && a.machine.Holding() }

// stepDown ends all that is sent with.
func (a *actor) stepDown() {
	if o := a.out; o != nil {
		if err := o.replies.Close(); err != nil {
			a.log.Debug("cannot end the subscription to replies", "error", err)
		}
		o.dispatch.stop()
		o.pages.Stop()
		o.eraser.Stop()
		a.out = nil
		a.board.Sending(nil)
		a.observer.EndTerm()
	}
	a.proof.Fenced()
}

// guarded shows the clock guard as it comes and goes.
func (a *actor) guarded(ahead time.Duration, held bool) {
	a.observer.Meter.ClockAhead(ahead)
	switch {
	case held && a.board.Mode() == view.ModeHolding:
		a.board.Enter(view.ModeGuard, "the wall clock is "+ahead.Round(time.Millisecond).String()+
			" ahead of the monotonic clock: no deadline fires until they agree or an operator confirms")
		a.log.Error("clock guard: deadlines are held", "ahead", ahead)
		a.out.pages.Tell(page.ClockGuard(a.tenant, a.host.cfg.Holder, ahead))
	case !held && a.board.Mode() == view.ModeGuard:
		a.board.Enter(view.ModeHolding, "")
		a.log.Info("clock guard: the clocks agree again")
		a.out.pages.Untell(api.Page{Kind: api.PageClockGuard})
	}
}

// noteTerm looks up when the term began that the state is in.
func (a *actor) noteTerm(ctx context.Context) error {
	sequence := a.state.Meta().TermSequence
	if sequence == 0 {
		return nil
	}
	m, err := a.store.Get(ctx, sequence)
	if err == nil {
		a.board.TermBegan(m.StampNs)
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
