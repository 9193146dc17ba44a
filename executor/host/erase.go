package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sagenbaum/sagenbaum/executor/host/ask"
	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/executor/host/proof"
	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/host/vault"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// The erasure of a tenant. What is to be done is stored first, in a stream of no tenant, under
// the signature of the tenant's own key. From then on no host attaches to the tenant: each
// destroys what it has of it, removes what is at the server, and whoever is first to have done
// so says that it is done. Every step may be done again, so a host that is killed goes on at
// its next start. The name is never used again.

// errErased ends a session whose tenant was erased, or is to be. errErasing ends one to look.
var (
	errErased  = errors.New("the tenant was erased")
	errErasing = errors.New("another host erases the tenant")
)

// erasure is that of a tenant, as the server has it.
type erasure struct {
	api.TenantErasure
	sequence uint64
	asked    []*erasureAsked // by operators who wait until it is done
}

type erasureAsked = ask.Handed[api.TenantErasureQuery, api.TenantErasureAnswer]

// eraseSoon has the session end, to look whether the tenant was erased.
func (a *actor) eraseSoon() {
	select {
	case a.erasing <- struct{}{}:
	default:
	}
}

// ErasureOf returns what is stored of the erasure of a tenant, also of one that this host does
// not serve; nil: it was not erased.
func (h *Host) ErasureOf(ctx context.Context, tenant string) (json.RawMessage, error) {
	value, _, err := h.erasureStored(ctx, tenant)
	return value, err
}

// beginErasure stores that the tenant is to be erased, and ends the session.
func (a *actor) beginErasure(r *erasureAsked) error {
	q := r.Query
	refuse := func(format string, args ...any) error {
		r.Answer(api.TenantErasureAnswer{}, fmt.Errorf(format, args...))
		return nil
	}
	m := a.state.Meta()
	switch {
	case !a.holding():
		return refuse("this host does not hold the tenant now; ask again")
	case q.Tenant != a.tenant:
		return refuse("request.tenant is %q, and the tenant is %q: nothing is erased", q.Tenant,
			a.tenant)
	case ledger.IsBlank(q.Reason):
		return refuse("request.reason: an erasure needs a reason")
	case !ledger.ValidToken(q.Actor):
		return refuse("request.actor is %q: an erasure needs the name of the person who asks for it",
			q.Actor)
	case !q.Force && a.board.Last() > a.cursor():
		return refuse("records come in that are not folded yet; ask again, or force it")
	case !q.Force && m.Open+m.Unwinding+m.Quarantined > 0:
		r.Answer(api.TenantErasureAnswer{Refused: fmt.Sprintf("%d plans are open, %d unwind and %d "+
			"wait for their owner: what they owe would never be undone", m.Open, m.Unwinding,
			m.Quarantined)}, nil)
		return nil
	}
	e := &erasure{TenantErasure: api.TenantErasure{
		Tenant: a.tenant, Actor: q.Actor, Reason: ledger.Text(q.Reason),
		AtNs:   a.host.clock.now().UnixNano(),
		Holder: a.host.cfg.Holder, Forced: m.Open+m.Unwinding+m.Quarantined > 0,
		Kid: a.keys.ID(),
	}}
	if err := a.write(true); err != nil { // what is signed is on the disk
		return err
	}
	if err := a.proof.Erase(&e.TenantErasure); err != nil {
		return refuse("cannot sign the erasure: %v", err)
	}
	ctx, cancel := context.WithTimeout(a.life, appendTimeout)
	defer cancel()
	if err := a.sayErasure(ctx, e); err != nil {
		return refuse("cannot store the erasure: %v", err)
	}
	e.asked = append(e.asked, r)
	a.erasure, a.torn = e, true
	conn, subject := a.host.cfg.Conn, api.QuerySubject(a.tenant, ask.VerbErased)
	if err := conn.PublishRequest(subject, conn.NewInbox(), nil); err != nil {
		a.log.Debug("other hosts are not told; they find out", "error", err)
	}
	return errErased
}

// sayErasure stores what is known of an erasure.
func (a *actor) sayErasure(ctx context.Context, e *erasure) error {
	value, err := json.Marshal(e.TenantErasure)
	if err != nil {
		return err
	}
	_, err = a.host.erasures.Put(ctx, a.tenant, value, e.sequence)
	return err
}

// findErasure returns errErased where the tenant was erased, or is to be.
func (a *actor) findErasure(ctx context.Context) error {
	value, sequence, err := a.host.erasureStored(ctx, a.tenant)
	switch {
	case err != nil:
		return err
	case value == nil:
		return nil
	}
	found := &erasure{sequence: sequence}
	if err := json.Unmarshal(value, &found.TenantErasure); err != nil {
		return fmt.Errorf("cannot read the erasure of tenant %s: %w", a.tenant, err)
	}
	if a.erasure != nil {
		found.asked = a.erasure.asked
	}
	a.erasure = found
	return errErased
}

// erase erases the tenant, for as long as it takes, and answers for it until ctx ends.
func (a *actor) erase(ctx context.Context) {
	if a.erasure.Done == nil {
		a.log.Warn("the tenant is erased", "actor", a.erasure.Actor, "reason", a.erasure.Reason)
	}
	for delay := retryDelayMin; ; delay = min(delay*2, retryDelayMax) {
		a.board.Erased(&a.erasure.TenantErasure)
		a.opened.Do(a.host.attaching.Done)
		err := a.eraseOnce(ctx)
		if err == nil {
			break
		}
		a.log.Error("the tenant is not erased yet; it is tried again", "error", err, "in", delay)
		if !pause.For(ctx, delay) {
			const text = "the host has stopped before the tenant was erased; it goes on when it starts"
			a.answerErasure(errors.New(text))
			return
		}
	}
	a.board.Erased(&a.erasure.TenantErasure)
	a.answerErasure(nil)
	for {
		select {
		case r := <-a.desk.Requests():
			if r.Erase == nil { // it was handed over before the erasure was known
				r.Refuse(errErased)
				continue
			}
			a.erasure.asked = append(a.erasure.asked, r.Erase)
			a.answerErasure(nil)
		case <-a.erasing:
		case <-ctx.Done():
			return
		}
	}
}

func (a *actor) answerErasure(problem error) {
	for _, r := range a.erasure.asked {
		r.Answer(api.TenantErasureAnswer{Erasure: &a.erasure.TenantErasure}, problem)
	}
	a.erasure.asked = nil
}

// eraseOnce does what is left to do. The key comes first of what is destroyed: after it nothing
// that is sealed can be opened, whatever else is left.
func (a *actor) eraseOnce(ctx context.Context) error {
	for _, step := range [...]struct {
		name string
		do   func(context.Context) error
	}{
		{"mark", a.markErased},
		{"key", a.eraseKey},
		{"streams", func(ctx context.Context) error { return a.host.erasures.Remove(ctx, a.tenant) }},
		{"rows", a.eraseRows},
		{"snapshots", a.host.copies.Renew},
		{"tiles", func(context.Context) error {
			return os.RemoveAll(filepath.Join(a.host.tilesRoot(), a.tenant))
		}},
		{"record", a.recordErased},
		{"mark of the end", a.markErased},
		{"signing keys", func(context.Context) error {
			return proof.DropKeys(a.host.keysRoot(), a.tenant)
		}},
	} {
		if a.host.cfg.erasing != nil {
			if err := a.host.cfg.erasing(step.name); err != nil {
				return err
			}
		}
		once, done := context.WithTimeout(ctx, attachTimeout)
		err := step.do(once)
		done()
		if err != nil {
			return fmt.Errorf("cannot erase the %s: %w", step.name, err)
		}
	}
	return nil
}

// eraseKey destroys this host's copy of the tenant's key, in memory and on the disk.
func (a *actor) eraseKey(context.Context) error {
	a.keys.Erase()
	folder := a.host.tenantKeys
	if folder == nil && a.host.cfg.TenantKeysDir != "" {
		var err error
		if folder, err = vault.OpenFolder(a.host.cfg.TenantKeysDir); err != nil {
			return err
		}
	}
	if folder == nil {
		return nil
	}
	return folder.Destroy(a.tenant)
}

// eraseRows erases the state, also that of a store that was broken once and kept aside.
func (a *actor) eraseRows(ctx context.Context) error {
	if err := a.kv.Erase(ctx); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(filepath.Join(a.host.cfg.Dir, store.BrokenFolder)),
		store.DropManifests(filepath.Join(a.host.cfg.Dir, "state")))
}

// recordErased says that it is done, unless another host was first. It is signed where this
// host has the key that has signed the beginning.
func (a *actor) recordErased(ctx context.Context) error {
	if err := a.findErasure(ctx); !errors.Is(err, errErased) {
		return errors.Join(err, errors.New("what was said of it is not there"))
	}
	if a.erasure.Done != nil {
		return nil
	}
	e := &erasure{TenantErasure: a.erasure.TenantErasure, sequence: a.erasure.sequence,
		asked: a.erasure.asked}
	e.Done = &api.Done{AtNs: a.host.clock.now().UnixNano(), Host: a.host.cfg.Holder}
	signed, err := proof.SignErasure(a.host.keysRoot(), &e.TenantErasure)
	if err != nil {
		return err
	}
	if err := a.sayErasure(ctx, e); err != nil {
		return err
	}
	a.log.Warn("the tenant was erased", "actor", e.Actor, "reason", e.Reason, "signed", signed)
	a.erasure = e
	return nil
}
