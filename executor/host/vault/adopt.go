package vault

import (
	"context"
	"crypto/hmac"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
)

// How a host comes by the key of a tenant. The store of the keys of plans has the id of the
// one key that the tenant has; the key itself is in the folders of hosts. The first host that
// needs one makes it, and others are given it.

// marker is what the store has of the tenant's key.
type marker struct {
	ID string `json:"kid"`

	// Whole: no key of a plan is wrapped under the master key any more.
	Whole bool `json:"whole,omitempty"`
}

// Asked is what a host asks the others for: the key of a tenant.
type Asked struct {
	ID    string `json:"kid"`
	Made  bool   `json:"made,omitempty"` // it has made the key just now, and tells so
	Proof []byte `json:"proof"`          // that who asks has the master key
}

// keyless is why a host without a master key does not have the key of a plan. Where there is none
// in the store, or it was destroyed, that is for good, as no master key would open it; one that is
// there may be opened by the next host.
func (k *Keyring) keyless(ctx context.Context, plan string) error {
	store, err := k.made(ctx)
	if err == nil {
		_, err = store.Get(ctx, plan)
	}
	if Gone(err) {
		return fmt.Errorf("%w: %w of plan %s", errNoMasterKey, err, plan)
	}
	return errNoMasterKey
}

// made is attached where the store is there; jetstream.ErrNoKey where it would be made.
func (k *Keyring) made(ctx context.Context) (KeyStore, error) {
	if k.HasStore != nil {
		has, err := k.HasStore(ctx)
		switch {
		case err != nil:
			return nil, err
		case !has:
			return nil, jetstream.ErrNoKey
		}
	}
	return k.attached(ctx)
}

// Given is the answer: the key, wrapped under the master key.
type Given struct {
	Wrapped []byte `json:"wrapped"`
}

// opened returns the store and the tenant's key, which it makes, or asks others for, the
// first time.
func (k *Keyring) opened(ctx context.Context) (KeyStore, TenantKey, error) {
	k.mu.Lock()
	store, own := k.store, k.own
	k.mu.Unlock()
	if store != nil && own != nil {
		return store, *own, nil
	}
	if len(k.Master) == 0 {
		return nil, TenantKey{}, errNoMasterKey
	}
	k.opening.Lock()
	defer k.opening.Unlock()
	k.mu.Lock()
	own, failed, until := k.own, k.failed, k.until
	k.mu.Unlock()
	if own == nil && failed != nil && time.Now().Before(until) {
		return nil, TenantKey{}, failed
	}
	store, err := k.attach(ctx)
	if err != nil || own != nil {
		return store, *orNone(own), err
	}
	key, err := k.adopt(ctx, store)
	if err != nil {
		k.Log.Warn("the key of the tenant cannot be used", "error", err)
		err = withheld{err}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil && k.erased {
		err = ErrTenantErased
	}
	if k.failed, k.until = err, time.Now().Add(openPause); err == nil {
		k.own = &key
	}
	return store, key, err
}

// withheld is why a host does not have the key of a tenant. It may name paths of the host, and
// other tenants.
type withheld struct{ error }

func (w withheld) Unwrap() error { return w.error }

// Told is an error of a Keyring as agents are told it.
func Told(err error) error {
	if errors.As(err, new(withheld)) {
		return errors.New("this host cannot use the key of the tenant now; its log says why")
	}
	return err
}

func orNone(key *TenantKey) *TenantKey {
	if key == nil {
		return new(TenantKey)
	}
	return key
}

// adopt finds the tenant's key: in the folder, at another host, or, where the tenant has none
// yet, by making it. A key is in the folder before the store names it, and nothing is wrapped
// under it before that.
func (k *Keyring) adopt(ctx context.Context, store KeyStore) (TenantKey, error) {
	for range 3 { // another host may be faster
		said, _, err := k.said(ctx, store)
		none := errors.Is(err, jetstream.ErrNoKey)
		if err != nil && !none {
			return TenantKey{}, err
		}
		key, proposed, err := k.Folder.open(k.Tenant, k.Master)
		missing := errors.Is(err, ErrNoTenantKey)
		switch {
		case err != nil && !missing:
			return TenantKey{}, err
		case missing && !none:
			return k.fetch(ctx, said.ID)
		case missing:
			if key, err = k.propose(ctx, store); err != nil {
				return TenantKey{}, err
			}
			proposed = true
		case !none && key.ID == said.ID && !proposed:
			return key, nil
		case !none && key.ID != said.ID && proposed: // never used: the other host's is
			if err := k.Folder.Destroy(k.Tenant); err != nil {
				return TenantKey{}, err
			}
			continue
		case !none && key.ID != said.ID:
			return TenantKey{}, k.otherKey(key.ID, said.ID)
		}
		if none {
			err := k.say(ctx, store, marker{ID: key.ID}, 0)
			if errors.Is(err, ledger.ErrConflict) {
				continue
			}
			if err != nil {
				return TenantKey{}, err
			}
		}
		if proposed {
			err = k.Folder.put(k.Tenant, key, k.Master, false)
		}
		if err == nil && k.Announce != nil {
			k.Announce(k.asking(key.ID, true))
		}
		return key, err
	}
	return TenantKey{}, fmt.Errorf("cannot find out which key tenant %s has: others write it",
		k.Tenant)
}

// propose makes a key, unless there are keys of plans that this master key does not open.
func (k *Keyring) propose(ctx context.Context, store KeyStore) (TenantKey, error) {
	for entry, err := range store.All(ctx) {
		if err != nil {
			return TenantKey{}, err
		}
		var w wrapped
		if json.Unmarshal(entry.Value, &w) != nil || w.Key == nil {
			continue
		}
		if _, err := unwrap(k.Master, w.Key, k.boundPlan(entry.Plan, w.Agent, "")); err != nil {
			return TenantKey{}, ledger.Refuse("master key", fmt.Sprintf("%s does not open the keys of "+
				"plans that tenant %s has", MasterKeyID(k.Master), k.Tenant),
				"the master key under which they were wrapped")
		}
		break // one is enough
	}
	key, err := newTenantKey()
	if err != nil {
		return key, err
	}
	k.Log.Info("the tenant gets a key of its own", "kid", key.ID, "folder", k.Folder.Dir())
	return key, k.Folder.put(k.Tenant, key, k.Master, true)
}

// fetch asks the other hosts for the key.
func (k *Keyring) fetch(ctx context.Context, id string) (TenantKey, error) {
	if k.Fetch != nil {
		for given := range k.Fetch(ctx, k.asking(id, false)) {
			plain, err := unwrap(k.Master, given.Wrapped, boundTenant(k.Tenant, id))
			if err != nil {
				continue
			}
			key := TenantKey{id, plain}
			k.Log.Info("another host gave the tenant's key", "kid", id, "folder", k.Folder.Dir())
			return key, k.Folder.put(k.Tenant, key, k.Master, false)
		}
	}
	return TenantKey{}, fmt.Errorf("%w in %s: the key %s of tenant %s, and no other host gave it",
		ErrNoTenantKey, k.Folder.Dir(), id, k.Tenant)
}

// asking is what hosts are asked for, or told of, with an answer to a reply subject.
func (k *Keyring) asking(id string, made bool) func(reply string) Asked {
	return func(reply string) Asked {
		return Asked{ID: id, Made: made, Proof: mayAsk(k.Master, k.Tenant, id, reply)}
	}
}

// Give answers another host that asks for the tenant's key; ok is false where this one has
// none to give, or who asks has not shown that it has the master key.
func (k *Keyring) Give(asked Asked, reply string) (given Given, ok bool) {
	k.mu.Lock()
	own := k.own
	k.mu.Unlock()
	if len(k.Master) == 0 || !hmac.Equal(asked.Proof, mayAsk(k.Master, k.Tenant, asked.ID, reply)) {
		return given, false
	}
	if own == nil && asked.Made {
		k.nudge()
	}
	if own == nil || own.ID != asked.ID || asked.Made {
		return given, false
	}
	box, err := wrap(k.Master, own.key, boundTenant(k.Tenant, own.ID))
	return Given{box}, err == nil
}

// Problem says why this host, if it were started now, could not open what is sealed: an undo that
// takes it would wait. Empty: it could, the tenant has no key yet, or it is not known.
func (k *Keyring) Problem(ctx context.Context) string {
	store, err := k.made(ctx)
	if err != nil {
		return ""
	}
	said, _, err := k.said(ctx, store)
	if err != nil {
		return ""
	}
	if len(k.Master) == 0 {
		return errNoMasterKey.Error()
	}
	key, _, err := k.Folder.open(k.Tenant, k.Master)
	if err == nil && key.ID != said.ID {
		err = k.otherKey(key.ID, said.ID)
	}
	if err == nil {
		err = k.Folder.onDisk(k.Master)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// otherKey refuses a file with a key that the tenant does not have.
func (k *Keyring) otherKey(has, is string) error {
	return ledger.Refuse("tenant keys", fmt.Sprintf("%s has the key %s for tenant %s, whose key is %s",
		k.Folder.Dir(), has, k.Tenant, is),
		"the file of the key "+is+", or none, so that another host gives it")
}

func (k *Keyring) said(ctx context.Context, store KeyStore) (m marker, sequence uint64, err error) {
	value, sequence, err := store.Tenant(ctx)
	if err == nil && (json.Unmarshal(value, &m) != nil || m.ID == "") {
		err = fmt.Errorf("what the store says of the key of tenant %s is not readable", k.Tenant)
	}
	return m, sequence, err
}

func (k *Keyring) say(ctx context.Context, store KeyStore, m marker, after uint64) error {
	value, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return store.SetTenant(ctx, value, after)
}

// Migrate wraps the keys of plans that are wrapped under the master key, as versions before
// this one did, under the tenant's, once, and then whenever another is met, until ctx ends. It
// makes no store where there is none.
func (k *Keyring) Migrate(ctx context.Context) {
	if len(k.Master) == 0 {
		return
	}
	for delay := turn.RetryMin; ; delay = min(delay*2, turn.RetryMax) {
		n, err := k.migrate(ctx)
		switch {
		case ctx.Err() != nil, errors.Is(err, ErrTenantErased):
			return
		case err == nil:
			if n > 0 {
				k.Log.Info("keys of plans were wrapped under the tenant's key", "keys", n)
			}
			select {
			case <-k.again:
			case <-ctx.Done():
				return
			}
			delay = turn.RetryMin
			continue
		}
		k.Log.Warn("keys of plans are wrapped under the master key still; it is tried again", "error",
			err, "in", delay)
		if !pause.For(ctx, delay) {
			return
		}
	}
}

// migrate is one pass, and returns how many keys it has wrapped again.
func (k *Keyring) migrate(ctx context.Context) (n int, err error) {
	if k.HasStore != nil {
		if there, err := k.HasStore(ctx); err != nil || !there {
			return 0, err
		}
	}
	store, own, err := k.opened(ctx)
	if err != nil {
		return 0, err
	}
	said, sequence, err := k.said(ctx, store)
	if err != nil {
		return 0, err
	}
	select {
	case <-k.again:
	default:
		if said.Whole {
			return 0, nil
		}
	}
	for entry, err := range store.All(ctx) {
		if err != nil {
			return n, err
		}
		var w wrapped
		if json.Unmarshal(entry.Value, &w) != nil || w.ID != "" || w.Key == nil {
			continue
		}
		key, err := k.unwrap(entry.Plan, entry.Value, own)
		if err != nil {
			k.Log.Error("the key of a plan cannot be wrapped again", "plan", entry.Plan, "error", err)
			continue
		}
		value, err := k.wrap(entry.Plan, key, own)
		if err != nil {
			return n, err
		}
		if err := store.Replace(ctx, entry, value); err != nil {
			return n, err
		}
		n++
	}
	select { // of unwrap, here
	case <-k.again:
	default:
	}
	if said.Whole {
		return n, nil
	}
	said.Whole = true
	return n, k.say(ctx, store, said, sequence)
}
