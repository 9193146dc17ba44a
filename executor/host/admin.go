package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/sagenbaum/sagenbaum/executor/host/ask"
	"github.com/sagenbaum/sagenbaum/executor/host/repair"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// errRefold ends a session whose state was dropped on request: the next one folds.
var errRefold = errors.New("the state was dropped")

// ledgerConfig is how this host opens a tenant's stream.
func (h *Host) ledgerConfig(tenant string) jetstream.Config {
	return jetstream.Config{
		Conn: h.cfg.Conn, Tenant: tenant, MaxBytes: h.cfg.MaxBytes, Replicas: h.cfg.Replicas,
		AcceptLossyBroker: h.cfg.AcceptLossyBroker, DurableServer: h.cfg.DurableServer,
		System: h.cfg.System,
	}
}

// requested carries out a request between two turns of a session.
func (a *actor) requested(r ask.Request) error {
	switch {
	case r.Rebuild != nil:
		return a.dropState(r)
	case r.Rotate != nil:
		a.proof.Rotate(r.Rotate.Query, a.holding(), r.Rotate.Answer)
		return nil
	case r.Erase != nil:
		return a.beginErasure(r.Erase)
	case r.Sign != nil:
		r.Sign.Answer(a.proof.Soon(a.holding()), nil)
		return nil
	default:
		const problem = "nothing is to be repaired: the tenant is not halted " +
			"(sagenbaum ledger scrub looks for damage)"
		r.Refuse(errors.New(problem))
		return nil
	}
}

// dropState forgets the folded state; the ledger is folded again from its beginning.
func (a *actor) dropState(r ask.Request) error {
	if a.state == nil {
		r.Refuse(errors.New("the ledger was not open yet; there is nothing to fold"))
		return nil
	}
	applied := a.state.Meta().GetApplied().GetSequence()
	if err := a.kv.Wipe(); err != nil {
		r.Refuse(fmt.Errorf("cannot drop the state: %w", err))
		return nil
	}
	a.log.Warn("state dropped on request; folding the ledger again", "applied", applied)
	a.fresh, a.torn = true, true
	r.Rebuild.Answer(api.DroppedAnswer{Applied: applied}, nil)
	return errRefold
}

// stayHalted keeps a tenant halted until it is repaired, here or by another host,
// or its state is dropped; false: until ctx ends.
func (a *actor) stayHalted(ctx context.Context, halted *ledger.Halted) bool {
	for {
		poll, cancel := context.WithTimeout(ctx, haltPoll)
		again := a.whileHalted(ctx, poll, halted)
		cancel()
		if ctx.Err() != nil || again {
			return again
		}
	}
}

// whileHalted waits for one request, or until poll ends; it reports whether the
// tenant is to attach again.
func (a *actor) whileHalted(ctx, poll context.Context, halted *ledger.Halted) bool {
	select {
	case r := <-a.desk.Requests():
		switch {
		case r.Rebuild != nil && (halted.Guard == "G2" || halted.Guard == "G3"):
			return errors.Is(a.dropState(r), errRefold)
		case r.Rebuild != nil && halted.Guard == "G5":
			r.Refuse(fmt.Errorf("the tenant is halted by G5, and the tiles here have what the state was "+
				"folded from: stop this host, move executor/state and executor/tiles/%s of its data away, "+
				"and start it", a.tenant))
		case r.Repair != nil:
			answer, err := repair.Halted(ctx, a.repairs(), r.Repair.Query, halted)
			r.Repair.Answer(answer, err)
			return err == nil && !answer.DryRun
		case r.Rebuild != nil:
			r.Refuse(fmt.Errorf("the tenant is halted by %s, which its state has no part in: %s",
				halted.Guard, halted.Problem))
		default:
			r.Refuse(fmt.Errorf("the tenant is halted by %s: %s", halted.Guard, halted.Problem))
		}
	case <-a.erasing:
		return true // the next session finds out
	case <-poll.Done():
		if ctx.Err() == nil && a.otherStream(ctx) {
			a.log.Info("the stream was made again; attaching again")
			return true
		}
	}
	return false
}

// otherStream reports whether the stream is another one than the tenant was halted
// on, and ready.
func (a *actor) otherStream(ctx context.Context) bool {
	if a.created == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	old, err := jetstream.Inspect(ctx, a.host.cfg.Conn, a.tenant)
	return err == nil && old.Ready && old.Head.CreatedNs != a.created
}
