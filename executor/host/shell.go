package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/actuators"
	"github.com/sagenbaum/sagenbaum/executor/host/page"
	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/executor/host/vault"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// shell is what a tenant's session does over NATS, clocks and disks: the turn.Effects of an
// actor. It belongs to the actor's goroutine.
type shell struct{ *actor }

// Inputs reads the clocks, and what the signer of checkpoints wants recorded.
func (s shell) Inputs(decides bool) (turn.Instant, []*pb.Record) {
	now, ahead := s.host.clock.read()
	if !decides {
		return now, nil
	}
	s.guarded(ahead, now.Held)
	return now, s.proof.Records(s.session.Term(), now.EpochNs)
}

// Open opens what this host sends with.
func (s shell) Open(out *turn.Outbound) error {
	a := s.actor
	actuator, err := actuators.NewNATS(actuators.Config{
		Conn: a.host.cfg.Conn, Tenant: a.tenant, Refused: a.workers.Refused,
		Counted: a.workers.Counted,
	})
	if err != nil {
		return err
	}
	cfg, meter, stays := a.host.cfg, a.observer.Meter, a.lead.stays()
	pages := page.New(a.life, &out.Pages, page.Config{
		Tenant: a.tenant, Publisher: actuator, Client: a.host.hooks, Webhooks: cfg.Webhooks,
		Keys: cfg.WebhookKeys, EscalateAfter: cfg.EscalateAfter, Meter: meter, Workers: &a.sends,
		Stays: stays, Log: a.log,
	})
	d := newDispatcher(&out.Flights, actuator, a.host.clock.instant, meter)
	out.Flights.MayRun = s.mayRun(a.session.Term())
	d.heard, d.open, d.stuckAfter = a.workers.Heard, a.openCommand, cfg.StuckAfter
	d.stays = stays
	d.stuck = func(f *flight, since time.Time) { pages.Tell(page.Stuck(f.Command, f.Working, since)) }
	d.unstuck = func(f *flight) { pages.Withdraw(page.Stuck(f.Command, f.Working, time.Now())) }
	a.out = &outbound{replies: actuator, dispatch: d, pages: pages,
		eraser: vault.NewEraser(a.life, &out.Erasures, a.keys, &a.sends, a.log)}
	out.Dispatcher, out.Pager, out.Eraser = d, pages, a.out.eraser
	a.board.Sending(d.waiting)
	a.board.Enter(api.ModeHolding, "")
	meta := a.state.Meta()
	a.log.Info("holding", "term", a.session.Term(), "held", meta.Held, "unwinding", meta.Unwinding)
	return nil
}

// mayRun reports, from any goroutine, whether a command of a term may leave that does not count
// yet: the lock is this host's for sure, and no other term was read.
func (s shell) mayRun(term uint64) func() bool {
	a := s.actor
	return func() bool { return a.termRead.Load() <= term && a.lead.safe() }
}

// Close stops sending at once, and says why.
func (s shell) Close(d turn.Down) {
	a := s.actor
	problem := d.Reason
	if d.By != "" {
		problem = "held by " + d.By
	}
	held := a.out != nil
	a.stepDown()
	if problem != "" || held {
		a.board.Enter(api.ModeStandby, problem)
	}
	if !d.Doubt {
		return
	}
	a.log.Warn("another term has begun: this host does not hold the tenant", "problem", problem)
	a.lead.askAgain()
}

// Confirm takes the wall clock as right.
func (s shell) Confirm() { s.host.clock.confirm() }

// Forget forgets the key of a plan.
func (s shell) Forget(plan string) { s.keys.Forget(plan) }

// Begin begins the span of a command.
func (s shell) Begin(c executor.Command) executor.Command { return s.observer.Send(c) }

// Folded has questions find what was folded.
func (s shell) Folded() { s.actor.board.Folded(s.actor.cursor()) }

// Tell publishes what was folded, to agents and to the questions about the tenant.
func (s shell) Tell(notices []executor.Notice, tells bool) {
	a := s.actor
	if tells {
		s.notify(notices)
	}
	a.board.AnswerOutcomes(notices, a.reader)
	a.progress.At(a.cursor(), a.state.Meta().Records)
	a.board.Feed.Publish(view.PulseOf(a.state.Meta()))
}

// notify tells agents, best effort.
func (s shell) notify(notices []executor.Notice) {
	a := s.actor
	for _, n := range notices {
		a.observer.Told(n)
		body, err := json.Marshal(api.Notice{
			Plan: n.Plan, State: n.State, Reason: n.Reason, Savepoint: n.Savepoint, Writer: n.Writer,
			FromAction: n.FromAction, Parts: n.Parts, Counted: n.Counted, Asked: n.Asked, At: n.At,
			Action: n.Action, Verdict: n.Verdict, By: n.By, UndoneAs: n.UndoneAs,
			Presence: n.Presence, DueNs: n.DueNs, HandedTo: n.HandedTo,
		})
		if err != nil {
			panic("host: cannot encode a notice: " + err.Error())
		}
		subject := api.NoticeSubject(a.tenant, n.Agent, n.Plan)
		if err := a.host.cfg.Conn.PublishRequest(subject, api.NoAnswer, body); err != nil {
			a.log.Debug("notice not sent", "plan", n.Plan, "error", err)
		}
	}
}

// Append appends on a goroutine of its own, which ends with the reply or after
// appendTimeout; its result comes back on acks. A claim waits until what was folded is in the
// tiles, and is held against the leader of a stream that has replicas.
func (s shell) Append(p turn.Append) {
	if a := s.actor; p.Claim && a.stream.Replicas() > 1 {
		a.claim = &p
		return
	}
	s.append(p, nil)
}

// claims appends the claim that waits for the tiles.
func (a *actor) claims() error {
	p := a.claim
	if p == nil {
		return nil
	}
	a.claim = nil
	if err := a.write(true); err != nil {
		return err
	}
	shell{a}.append(*p, a.proof.Claims())
	return nil
}

// append appends, once check, if there is one, has no error.
func (s shell) append(p turn.Append, check func(context.Context) error) {
	a := s.actor
	acks, store, session := a.acks, a.store, a.life
	go func() {
		if p.AfterNs > 0 && !pause.For(session, time.Duration(p.AfterNs)) {
			return
		}
		if check != nil {
			if err := check(session); err != nil {
				acks <- ack{p, 0, unclaimed(err)}
				return
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), appendTimeout)
		defer cancel()
		began := time.Now()
		sequence, err := store.Append(ctx, p.Append)
		a.observer.Meter.Stored(began, err)
		acks <- ack{p, sequence, err}
	}()
}

// unclaimed is why a claim was not sent: a halt, or it is tried again.
func unclaimed(err error) error {
	var halted *ledger.Halted
	if errors.As(err, &halted) {
		return halted
	}
	return fmt.Errorf("%w: what was folded cannot be held against the leader of the stream: %w",
		ledger.ErrBusy, err)
}

// Wake arms the timer of the next step, or stops it.
func (s shell) Wake(wakes bool, inNs int64) {
	if wakes {
		s.wake.Reset(time.Duration(inNs))
	} else {
		s.wake.Stop()
	}
}
