package host

import (
	"context"
	"errors"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// errRefold ends a session whose state was dropped on request: the next one folds.
var errRefold = errors.New("the state was dropped")

// request is what an operator asks of a tenant's actor.
type request struct {
	ctx      context.Context // ends when no one waits for the answer any more
	verb     string
	repair   view.RepairQuery
	rotation view.RotationQuery
	answer   chan any // buffered 1
}

// ledgerConfig is how this host opens a tenant's stream.
func (h *Host) ledgerConfig(tenant string) jetstream.Config {
	return jetstream.Config{
		Conn: h.cfg.Conn, Tenant: tenant, MaxBytes: h.cfg.MaxBytes, Replicas: h.cfg.Replicas,
		AcceptLossyBroker: h.cfg.AcceptLossyBroker, DurableServer: h.cfg.DurableServer,
		System: h.cfg.System,
	}
}

// serveAdmin takes what operators ask of a tenant on api.AdminSubject.
func (h *Host) serveAdmin(a *actor) (*nats.Subscription, error) {
	prefix := api.AdminSubject(a.tenant, "")
	return h.serveSubject(a, prefix+">", func(subject string) (string, verb) {
		name := strings.TrimPrefix(subject, prefix)
		return name, adminVerb(name)
	})
}

// serveKeys gives agents the keys of their plans.
func (h *Host) serveKeys(a *actor) (*nats.Subscription, error) {
	prefix := api.KeySubject(a.tenant, "")
	return h.serveSubject(a, prefix+"*", func(subject string) (string, verb) {
		agent := strings.TrimPrefix(subject, prefix)
		ask := func(a *actor, q api.KeyQuery) any { return a.askKey(agent, q) }
		return "key", slow(taking(ask))
	})
}

// serveReveal shows operators what was sealed.
func (h *Host) serveReveal(a *actor) (*nats.Subscription, error) {
	return h.serveSubject(a, api.RevealSubject(a.tenant), func(string) (string, verb) {
		return "reveal", slow(taking((*actor).askReveal))
	})
}

// requested carries out a request between two turns of a session.
func (a *actor) requested(r request) error {
	switch r.verb {
	case "rebuild":
		return a.dropState(r)
	case "key.rotate":
		a.rotateKey(r)
		return nil
	case "ledger.sign":
		r.answer <- a.signSoon()
		return nil
	default:
		r.answer <- view.ErrorAnswer{Error: "nothing is to be repaired: the tenant is not halted (sagenbaum ledger scrub looks for damage)"}
		return nil
	}
}

// dropState forgets the folded state; the ledger is folded again from its beginning.
func (a *actor) dropState(r request) error {
	if a.state == nil {
		r.answer <- view.ErrorAnswer{Error: "the ledger was not open yet; there is nothing to fold"}
		return nil
	}
	applied := a.state.Meta().GetApplied().GetSequence()
	if err := a.kv.Wipe(); err != nil {
		r.answer <- view.ErrorAnswer{Error: "cannot drop the state: " + err.Error()}
		return nil
	}
	a.log.Warn("state dropped on request; folding the ledger again", "applied", applied)
	a.fresh = true
	r.answer <- view.DroppedAnswer{Applied: applied}
	return errRefold
}

// stayHalted keeps a tenant halted until it is repaired, here or by another host,
// or its state is dropped; false: until ctx ends.
func (a *actor) stayHalted(ctx context.Context, halted *ledger.Halted) bool {
	for {
		look, cancel := context.WithTimeout(ctx, haltPoll)
		again := a.whileHalted(ctx, look, halted)
		cancel()
		if ctx.Err() != nil || again {
			return again
		}
	}
}

// whileHalted waits for one request, or until look ends; it reports whether the
// tenant is to attach again.
func (a *actor) whileHalted(ctx, look context.Context, halted *ledger.Halted) bool {
	select {
	case r := <-a.requests:
		switch {
		case r.verb == "rebuild" && (halted.Guard == "G2" || halted.Guard == "G3"):
			return errors.Is(a.dropState(r), errRefold)
		case r.verb == "key.rotate", r.verb == "ledger.sign":
			r.answer <- view.ErrorAnswer{Error: "the tenant is halted by " + halted.Guard + ": " +
				halted.Problem}
		case r.verb == "rebuild":
			r.answer <- view.ErrorAnswer{Error: "the tenant is halted by " + halted.Guard +
				", which its state has no part in: " + halted.Problem}
		default:
			return a.repairRequested(ctx, r, halted)
		}
	case <-look.Done():
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
	ctx, cancel := context.WithTimeout(ctx, archiveTimeout)
	defer cancel()
	old, err := jetstream.Inspect(ctx, a.host.cfg.Conn, a.tenant)
	return err == nil && old.Ready && old.Head.CreatedNs != a.created
}

// serveAll answers all that is asked about a tenant, until silence is called.
func (h *Host) serveAll(a *actor) (silence func(), err error) {
	var subs []*nats.Subscription
	silence = func() {
		for _, sub := range subs {
			_ = sub.Unsubscribe()
		}
		a.asking.close()
	}
	for _, serve := range [...]func(*actor) (*nats.Subscription, error){h.serveQueries, h.serveAdmin,
		h.serveKeys, h.serveReveal} {
		sub, err := serve(a)
		if err != nil {
			return silence, err
		}
		subs = append(subs, sub)
	}
	return silence, nil
}
