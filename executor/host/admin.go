package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
)

// errRefold ends a session whose state was dropped on request: the next one folds.
var errRefold = errors.New("the state was dropped")

// request is what an operator asks of a tenant's actor.
type request struct {
	ctx      context.Context // ends when nobody waits for the answer any more
	verb     string
	repair   executor.RepairQuery
	rotation executor.RotationQuery
	answer   chan any // buffered 1
}

// ledgerConfig is how this host opens a tenant's stream.
func (h *Host) ledgerConfig(tenant string) jetstream.Config {
	return jetstream.Config{
		Conn: h.cfg.Conn, Tenant: tenant, MaxBytes: h.cfg.MaxBytes, Replicas: h.cfg.Replicas,
		AcceptLossyBroker: h.cfg.AcceptLossyBroker, DurableServer: h.cfg.DurableServer, System: h.cfg.System,
	}
}

// serveAdmin takes what operators ask of a tenant on ledger.AdminSubject, each on a
// goroutine that ends with its answer.
func (h *Host) serveAdmin(a *actor) (*nats.Subscription, error) {
	prefix := ledger.AdminSubject(a.tenant, "")
	sub, err := h.cfg.Conn.Subscribe(prefix+">", func(m *nats.Msg) {
		verb := strings.TrimPrefix(m.Subject, prefix)
		if a.silent() || !a.asking.enter() {
			return
		}
		go func() {
			defer a.asking.leave()
			body, err := json.Marshal(a.administer(verb, m.Data))
			if err != nil {
				panic("host: cannot encode an answer: " + err.Error())
			}
			if err := m.Respond(body); err != nil && !errors.Is(err, nats.ErrMsgNoReply) {
				a.log.Warn("answer not sent", "verb", verb, "error", err)
			}
		}()
	})
	if err != nil {
		return nil, fmt.Errorf("cannot subscribe to what operators ask: %w", err)
	}
	return sub, nil
}

// serveKeys gives agents the keys of their plans.
func (h *Host) serveKeys(a *actor) (*nats.Subscription, error) {
	prefix := ledger.KeySubject(a.tenant, "")
	return h.serveAside(a, prefix+"*", "key", func(m *nats.Msg) any {
		agent := strings.TrimPrefix(m.Subject, prefix)
		return decoded(m.Data, func(q ledger.KeyQuery) any { return a.askKey(agent, q) })
	})
}

// serveReveal shows operators what was sealed.
func (h *Host) serveReveal(a *actor) (*nats.Subscription, error) {
	return h.serveAside(a, ledger.RevealSubject(a.tenant), "reveal", func(m *nats.Msg) any { return decoded(m.Data, a.askReveal) })
}

// serveAside answers what is asked on a subject of its own, each on a goroutine that ends
// with its answer.
func (h *Host) serveAside(a *actor, subject, verb string, answer func(*nats.Msg) any) (*nats.Subscription, error) {
	sub, err := h.cfg.Conn.Subscribe(subject, func(m *nats.Msg) {
		if a.silent() || !a.asking.enter() {
			return
		}
		go func() {
			defer a.asking.leave()
			body, err := json.Marshal(answer(m))
			if err != nil {
				panic("host: cannot encode an answer: " + err.Error())
			}
			if err := m.Respond(body); err != nil && !errors.Is(err, nats.ErrMsgNoReply) {
				a.log.Warn("answer not sent", "verb", verb, "error", err)
			}
		}()
	})
	if err != nil {
		return nil, fmt.Errorf("cannot subscribe to %s: %w", subject, err)
	}
	return sub, nil
}

func (a *actor) administer(verb string, data []byte) any {
	ctx, cancel := context.WithTimeout(context.Background(), rebuildMax)
	defer cancel()
	go func() { // ends with the answer, or ends it with the host
		select {
		case <-a.asking.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	r := request{ctx: ctx, verb: verb, answer: make(chan any, 1)}
	switch verb {
	case "ledger.scrub":
		return a.askScrub(ctx)
	case "ledger.export":
		return decoded(data, a.askExport)
	case "rebuild", "ledger.sign":
	case "ledger.repair":
		if err := json.Unmarshal(data, &r.repair); err != nil {
			return executor.ErrorAnswer{Error: "the request is not JSON: " + err.Error()}
		}
	case "key.rotate":
		if err := json.Unmarshal(data, &r.rotation); err != nil {
			return executor.ErrorAnswer{Error: "the request is not JSON: " + err.Error()}
		}
	default:
		return executor.ErrorAnswer{Error: "unknown request " + verb}
	}
	select {
	case a.requests <- r:
	case <-ctx.Done():
		return executor.ErrorAnswer{Error: "the tenant is at something else; ask again"}
	}
	select {
	case answer := <-r.answer:
		return answer
	case <-ctx.Done():
		return executor.ErrorAnswer{Error: "the host has stopped before it was done; look at sagenbaum status"}
	}
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
		r.answer <- executor.ErrorAnswer{Error: "nothing is to be repaired: the tenant is not halted (sagenbaum ledger scrub looks for damage)"}
		return nil
	}
}

// dropState forgets the folded state; the ledger is folded again from its beginning.
func (a *actor) dropState(r request) error {
	if a.state == nil {
		r.answer <- executor.ErrorAnswer{Error: "the ledger was not open yet; there is nothing to fold"}
		return nil
	}
	applied := a.state.Meta().GetApplied().GetSequence()
	if err := a.kv.wipe(); err != nil {
		r.answer <- executor.ErrorAnswer{Error: "cannot drop the state: " + err.Error()}
		return nil
	}
	a.log.Warn("state dropped on request; folding the ledger again", "applied", applied)
	a.fresh = true
	r.answer <- executor.DroppedAnswer{Applied: applied}
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
			r.answer <- executor.ErrorAnswer{Error: "the tenant is halted by " + halted.Guard + ": " + halted.Problem}
		case r.verb == "rebuild":
			r.answer <- executor.ErrorAnswer{Error: "the tenant is halted by " + halted.Guard + ", which its state has no part in: " + halted.Problem}
		default:
			return a.repairRequested(ctx, r, halted)
		}
	case <-look.Done():
		if ctx.Err() == nil && a.otherStream(ctx) {
			a.log.Info("the stream was made anew; attaching again")
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
	for _, serve := range [...]func(*actor) (*nats.Subscription, error){h.serveQueries, h.serveAdmin, h.serveKeys, h.serveReveal} {
		sub, err := serve(a)
		if err != nil {
			return silence, err
		}
		subs = append(subs, sub)
	}
	return silence, nil
}
