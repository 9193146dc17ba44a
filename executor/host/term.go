package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/page"
	"github.com/sagenbaum/sagenbaum/executor/host/vault"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// leaseEvent has the machine know whether this host has the tenant's lock.
func (a *actor) leaseEvent(e holderEvent) {
	if !e.held && e.current == "" && a.board.Mode() == api.ModeHolding {
		a.log.Warn("the lease is lost: nothing is decided or sent until this host has it again")
	}
	if e.held && a.board.Mode() == api.ModeStandby {
		a.board.Enter(api.ModeStandby, "") // no other host answers any more
	}
	a.session.Lead(e.held, e.current)
}

// outbound is what a host sends with while it holds a tenant. It belongs to the goroutine of
// the tenant's loop.
type outbound struct {
	replies  io.Closer // the subscription to the replies of workers and owners
	dispatch *dispatcher
	pages    *page.Pager
	eraser   *vault.Eraser
}

// holding reports whether this host holds the tenant.
func (a *actor) holding() bool { return a.session != nil && a.session.Holding() }

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
	case held && a.board.Mode() == api.ModeHolding:
		a.board.Enter(api.ModeGuard, "the wall clock is "+ahead.Round(time.Millisecond).String()+
			" ahead of the monotonic clock: no deadline fires until they agree or an operator confirms")
		a.log.Error("clock guard: deadlines are held", "ahead", ahead)
		a.out.pages.Tell(page.ClockGuard(a.tenant, a.host.cfg.Holder, ahead))
	case !held && a.board.Mode() == api.ModeGuard:
		a.board.Enter(api.ModeHolding, "")
		a.log.Info("clock guard: the clocks agree again")
		a.out.pages.Withdraw(api.Page{Kind: api.PageClockGuard})
	}
}

// noteTerm looks up when the term began that the state is in.
func (a *actor) noteTerm(ctx context.Context) error {
	sequence := a.state.Meta().TermSequence
	if sequence == 0 {
		return nil
	}
	ns, err := termBegan(ctx, a.store, sequence)
	if err == nil {
		a.board.TermBegan(ns)
	}
	return err
}

// termBegan is the stamp of a term that was folded. A stream that ends before it has lost its tail
// since it was looked at, as where another server leads it now.
func termBegan(ctx context.Context, store ledger.Store, sequence uint64) (ns int64, err error) {
	m, err := store.Get(ctx, sequence)
	var refused *ledger.Refused
	if errors.As(err, &refused) {
		return 0, &ledger.Halted{Guard: "G2", Sequence: sequence, Problem: fmt.Sprintf(
			"the term at %d was folded, and the stream has lost its tail: %s", sequence, refused.Problem)}
	}
	return m.StampNs, err
}

// staleTerm is what a worker answers to a command of a term that has ended.
const staleTerm = "stale_term"

// noteStale says that a worker refused this host's commands. Its records show that
// another host has begun a term; what it appends about the answer is void there.
func (a *actor) noteStale(answers []executor.Answer) {
	for _, answer := range answers {
		if answer.Reply != nil && answer.Reply.Code == staleTerm {
			a.log.Warn("a worker refused a command of an ended term", "plan", answer.Plan, "action",
				answer.Number, "attempt", answer.Attempt, "term", a.session.Term(), "message",
				answer.Reply.Message)
		}
	}
}
