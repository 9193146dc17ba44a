package jetstream

import (
	"context"
	"errors"
	"fmt"
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

// keyDestroyed stands in the place of a key that was destroyed.
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
			MaxConsumers: -1, MaxMsgsPerSubject: 1, MaxMsgSize: keyMessageMax,
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
	return k.put(ctx, plan, value)
}

func (k *Keys) put(ctx context.Context, plan string, value []byte) error {
	if !ledger.ValidDerived(plan) {
		return ledger.Refuse("plan", fmt.Sprintf("%q is not a plan id", plan), "a plan id")
	}
	m := &nats.Msg{Subject: keySubject(k.tenant, plan), Data: value}
	_, err := k.client.PublishMsg(ctx, m, js.WithExpectLastSequencePerSubject(0))
	var refused *js.APIError
	if errors.As(err, &refused) && (refused.ErrorCode == js.JSErrCodeStreamWrongLastSequence ||
		strings.Contains(refused.Description, "wrong last sequence")) {
		return fmt.Errorf("%w: plan %s has a key, or had one", ledger.ErrConflict, plan)
	}
	if err != nil {
		return fmt.Errorf("cannot keep the key of plan %s: %w", plan, explain(err))
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
		if err := k.put(ctx, plan, []byte(keyDestroyed)); !errors.Is(err, ledger.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("cannot destroy the key of plan %s: others write it", plan)
}
