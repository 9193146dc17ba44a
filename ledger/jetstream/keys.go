package jetstream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// KeysStreamName is the stream that has the keys of a tenant's plans. It is no part of
// the ledger: what is deleted here is gone, and that is what it is for. No one but hosts
// should be let read it, or publish on "keys.<tenant>.>".
func KeysStreamName(tenant string) string { return "KEYS_" + tenant }

func keySubject(tenant, plan string) string { return "keys." + tenant + "." + plan }

// Errors of Keys.
var (
	// ErrNoKey: the plan never had a key, or the store has lost it.
	ErrNoKey = errors.New("there is no key")
	// ErrKeyDestroyed: the key was destroyed, and none will be made for this plan.
	ErrKeyDestroyed = errors.New("the key was destroyed")
)

// keyDestroyed is in the place of a key that was destroyed.
const keyDestroyed = "destroyed"

// Keys keeps one small value for each plan of a tenant, which its caller has encrypted:
// the store alone opens nothing. It promises that a key that was stored is there after a
// crash, as records are, and that one that was destroyed is overwritten in the store's
// file on every replica, and never comes back. It is safe for concurrent use.
type Keys struct {
	stream js.Stream
	client js.JetStream
	tenant string
}

// OpenKeys finds the store of a tenant, or makes it with as many replicas as a ledger.
func OpenKeys(ctx context.Context, cfg Config) (*Keys, error) {
	if cfg.Conn == nil || !ledger.ValidToken(cfg.Tenant) {
		return nil, ledger.Refuse("conn", "no connection, or no tenant",
			"a connection to NATS and the name of a tenant")
	}
	client, err := js.New(cfg.Conn)
	if err != nil {
		return nil, fmt.Errorf("cannot use the connection: %v", err)
	}
	name := KeysStreamName(cfg.Tenant)
	lookup, done := context.WithTimeout(ctx, lookupWait)
	stream, err := client.Stream(lookup, name)
	done()
	if errors.Is(err, js.ErrStreamNotFound) {
		stream, err = client.CreateStream(ctx, js.StreamConfig{
			Name:        name,
			Description: "Sagenbaum keys of tenant " + cfg.Tenant + ": not a part of its ledger",
			Subjects:    []string{keySubject(cfg.Tenant, "*")}, MaxMsgs: -1, MaxBytes: -1,
			MaxConsumers: -1, MaxMsgsPerSubject: keysPerPlan, MaxMsgSize: keyMessageMax,
			Storage: js.FileStorage, Replicas: max(cfg.Replicas, 1), DenyPurge: true,
			AllowDirect: false,
		})
		if errors.Is(err, js.ErrStreamNameAlreadyInUse) { // another host was faster
			stream, err = client.Stream(ctx, name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the keys of tenant %s: %w", cfg.Tenant, explain(err))
	}
	return &Keys{stream, client, cfg.Tenant}, nil
}

// keyMessageMax bounds one entry, in bytes with its headers.
const keyMessageMax = 4 << 10

// keysPerPlan is how many values of a plan there may be: two while one takes the place of
// another, since the server forgets what is over the limit without overwriting it.
const keysPerPlan = 2

// HasKeys reports whether a tenant has a store of keys, and makes none.
func HasKeys(ctx context.Context, cfg Config) (bool, error) {
	client, err := js.New(cfg.Conn)
	if err != nil {
		return false, fmt.Errorf("cannot use the connection: %v", err)
	}
	ctx, done := context.WithTimeout(ctx, lookupWait)
	defer done()
	_, err = client.Stream(ctx, KeysStreamName(cfg.Tenant))
	if errors.Is(err, js.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot look for the keys of tenant %s: %w", cfg.Tenant, explain(err))
	}
	return true, nil
}

// KeyEntry is one value of the store.
type KeyEntry struct {
	Plan     string
	Sequence uint64
	Value    []byte
}

// All are the values of all plans whose keys were not destroyed, also those that another
// value is about to take the place of.
func (k *Keys) All(ctx context.Context) iter.Seq2[KeyEntry, error] {
	return func(yield func(KeyEntry, error) bool) {
		prefix := keySubject(k.tenant, "")
		for next := uint64(1); ; {
			m, err := k.stream.GetMsg(ctx, next, js.WithGetMsgSubject(keySubject(k.tenant, "*")))
			if errors.Is(err, js.ErrMsgNotFound) {
				return
			}
			if err != nil {
				yield(KeyEntry{}, fmt.Errorf("cannot read the keys of tenant %s: %w", k.tenant, explain(err)))
				return
			}
			plan := strings.TrimPrefix(m.Subject, prefix)
			if ledger.ValidDerived(plan) && string(m.Data) != keyDestroyed &&
				!yield(KeyEntry{plan, m.Sequence, m.Data}, nil) {
				return
			}
			next = m.Sequence + 1
		}
	}
}

// Replace keeps a value for a plan in the place of an older one, which is overwritten. One that
// was replaced or destroyed since it was read is overwritten only. After an error it must be
// done again.
func (k *Keys) Replace(ctx context.Context, old KeyEntry, value []byte) error {
	fail := func(err error) error {
		return fmt.Errorf("cannot replace the key of plan %s: %w", old.Plan, explain(err))
	}
	info, err := k.stream.Info(ctx)
	if err != nil {
		return fail(err)
	}
	if info.Config.MaxMsgsPerSubject < keysPerPlan { // as versions before this one have made it
		info.Config.MaxMsgsPerSubject = keysPerPlan
		if _, err := k.client.UpdateStream(ctx, info.Config); err != nil {
			return fail(err)
		}
	}
	_, last, err := k.last(ctx, old.Plan)
	if err != nil && !errors.Is(err, ErrKeyDestroyed) && !errors.Is(err, ErrNoKey) {
		return err
	}
	if last == old.Sequence {
		err := k.put(ctx, keySubject(k.tenant, old.Plan), value, last)
		if err != nil && !errors.Is(err, ledger.ErrConflict) {
			return err
		}
		if err != nil { // it was replaced or destroyed just now
			return k.Replace(ctx, old, value)
		}
	}
	err = k.stream.SecureDeleteMsg(ctx, old.Sequence)
	if err != nil && !errors.Is(err, js.ErrMsgNotFound) {
		return fail(err)
	}
	return nil
}

// tenantToken is in the place of a plan where something is kept for the tenant itself; no
// plan has such a name.
const tenantToken = "$tenant"

// Tenant returns what is kept for the tenant itself, and its sequence. The error is ErrNoKey
// where there is nothing.
func (k *Keys) Tenant(ctx context.Context) ([]byte, uint64, error) {
	m, err := k.stream.GetLastMsgForSubject(ctx, keySubject(k.tenant, tenantToken))
	switch {
	case errors.Is(err, js.ErrMsgNotFound):
		return nil, 0, ErrNoKey
	case err != nil:
		return nil, 0, fmt.Errorf("cannot read about the key of tenant %s: %w", k.tenant, explain(err))
	}
	return m.Data, m.Sequence, nil
}

// SetTenant keeps a value for the tenant itself, after the one of a sequence, or 0 for none.
// The error is ledger.ErrConflict when that is not the last one.
func (k *Keys) SetTenant(ctx context.Context, value []byte, after uint64) error {
	return k.put(ctx, keySubject(k.tenant, tenantToken), value, after)
}

// Get returns what is kept for a plan. Errors: ErrNoKey, ErrKeyDestroyed; after another
// one no one knows.
func (k *Keys) Get(ctx context.Context, plan string) ([]byte, error) {
	data, _, err := k.last(ctx, plan)
	return data, err
}

func (k *Keys) last(ctx context.Context, plan string) ([]byte, uint64, error) {
	if !ledger.ValidDerived(plan) {
		return nil, 0, ErrNoKey
	}
	m, err := k.stream.GetLastMsgForSubject(ctx, keySubject(k.tenant, plan))
	switch {
	case errors.Is(err, js.ErrMsgNotFound):
		return nil, 0, ErrNoKey
	case err != nil:
		return nil, 0, fmt.Errorf("cannot read the key of plan %s: %w", plan, explain(err))
	case string(m.Data) == keyDestroyed:
		return nil, m.Sequence, ErrKeyDestroyed
	}
	return m.Data, m.Sequence, nil
}

// Create keeps a value for a plan that has none. The error is ledger.ErrConflict when it
// has one, or had.
func (k *Keys) Create(ctx context.Context, plan string, value []byte) error {
	if !ledger.ValidDerived(plan) {
		return ledger.Refuse("plan", fmt.Sprintf("%q is not a plan id", plan), "a plan id")
	}
	return k.put(ctx, keySubject(k.tenant, plan), value, 0)
}

// put stores a value after the last one of its subject.
func (k *Keys) put(ctx context.Context, subject string, value []byte, after uint64) error {
	m := &nats.Msg{Subject: subject, Data: value}
	_, err := k.client.PublishMsg(ctx, m, js.WithExpectLastSequencePerSubject(after))
	if isWrongLast(err) {
		return fmt.Errorf("%w: %s has a key, or had one", ledger.ErrConflict, subject)
	}
	if err != nil {
		return fmt.Errorf("cannot keep a key at %s: %w", subject, explain(err))
	}
	return nil
}

// Destroy overwrites a plan's value in the store, and marks the plan so that it never
// gets another. Again is harmless; after an error it must be done again.
func (k *Keys) Destroy(ctx context.Context, plan string) error {
	for range 3 { // a key that is made at the same moment is destroyed in the next round
		_, sequence, err := k.last(ctx, plan)
		switch {
		case errors.Is(err, ErrKeyDestroyed):
			return nil
		case err == nil:
			if err := k.stream.SecureDeleteMsg(ctx, sequence); err != nil &&
				!errors.Is(err, js.ErrMsgNotFound) {
				return fmt.Errorf("cannot destroy the key of plan %s: %w", plan, explain(err))
			}
		case !errors.Is(err, ErrNoKey):
			return err
		}
		err = k.put(ctx, keySubject(k.tenant, plan), []byte(keyDestroyed), 0)
		if !errors.Is(err, ledger.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("cannot destroy the key of plan %s: others write it", plan)
}
