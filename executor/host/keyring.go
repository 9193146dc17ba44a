package host

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// KeyStore keeps the keys of one tenant's plans, each wrapped: jetstream.Keys.
type KeyStore interface {
	Get(ctx context.Context, plan string) ([]byte, error)
	Create(ctx context.Context, plan string, value []byte) error
	Destroy(ctx context.Context, plan string) error
}

// MasterKeySize is the length of Config.MasterKey in bytes.
const MasterKeySize = 32

// errNoMasterKey: this host was started without what its plans' keys are wrapped with.
var errNoMasterKey = errors.New("this host has no master key (sagenbaum serve --master-key FILE)")

// Bounds of a keyring: keys that are kept in memory, and the time of one question.
const (
	keysKeptMax = 4096
	keyTimeout  = 5 * time.Second
)

// keyring has the keys of one tenant's plans. A plan's key is 32 random bytes, wrapped
// by AES-256-GCM under the hosts' master key and bound to tenant, plan and agent, so that
// neither the store alone nor the master key alone opens anything. It is safe for
// concurrent use.
type keyring struct {
	tenant string
	master []byte // empty: none
	open   func(context.Context) (KeyStore, error)

	mu    sync.Mutex
	store KeyStore
	kept  map[string]planKey
	dead  map[string]bool // plans that were erased since this process began
}

// planKey is a plan's key and whose plan it is.
type planKey struct {
	agent string
	key   seal.Key
}

// wrapped is what the store has of a plan.
type wrapped struct {
	Agent string `json:"agent"`
	Key   []byte `json:"key"` // nonce and ciphertext
}

func (h *Host) newKeyring(tenant string) *keyring {
	open := h.cfg.Keys
	if open == nil {
		open = func(ctx context.Context, tenant string) (KeyStore, error) {
			return jetstream.OpenKeys(ctx,
				jetstream.Config{Conn: h.cfg.Conn, Tenant: tenant, Replicas: h.cfg.Replicas})
		}
	}
	return &keyring{
		tenant: tenant, master: h.cfg.MasterKey, kept: map[string]planKey{}, dead: map[string]bool{},
		open: func(ctx context.Context) (KeyStore, error) { return open(ctx, tenant) },
	}
}

// attached opens the store, the first time that something is asked of it.
func (k *keyring) attached(ctx context.Context) (KeyStore, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.store != nil {
		return k.store, nil
	}
	store, err := k.open(ctx)
	if err == nil {
		k.store = store
	}
	return store, err
}

// get returns a plan's key. Errors: jetstream.ErrNoKey, jetstream.ErrKeyDestroyed and
// seal.ErrForged, which trying again does not help; others it may.
func (k *keyring) get(ctx context.Context, plan string) (planKey, error) {
	k.mu.Lock()
	known, ok := k.kept[plan]
	dead := k.dead[plan]
	k.mu.Unlock()
	switch {
	case dead:
		return planKey{}, jetstream.ErrKeyDestroyed
	case ok:
		return known, nil
	}
	if len(k.master) == 0 {
		return planKey{}, errNoMasterKey
	}
	store, err := k.attached(ctx)
	if err != nil {
		return planKey{}, err
	}
	data, err := store.Get(ctx, plan)
	if err != nil {
		return planKey{}, err
	}
	key, err := k.unwrap(plan, data)
	if err != nil {
		return planKey{}, err
	}
	k.keep(plan, key)
	return key, nil
}

func (k *keyring) keep(plan string, key planKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead[plan] {
		return
	}
	if len(k.kept) >= keysKeptMax {
		clear(k.kept)
	}
	k.kept[plan] = key
}

// issue returns the key of an agent's plan, made if it has none.
func (k *keyring) issue(ctx context.Context, agent, plan string) (planKey, error) {
	for range 2 { // another host may be faster
		key, err := k.get(ctx, plan)
		if !errors.Is(err, jetstream.ErrNoKey) {
			if err == nil && key.agent != agent {
				return planKey{}, fmt.Errorf("plan %s is agent %s's", plan, key.agent)
			}
			return key, err
		}
		key = planKey{agent: agent}
		if _, err := rand.Read(key.key[:]); err != nil {
			return planKey{}, err
		}
		data, err := k.wrap(plan, key)
		if err != nil {
			return planKey{}, err
		}
		store, err := k.attached(ctx)
		if err == nil {
			err = store.Create(ctx, plan, data)
		}
		if err == nil {
			k.keep(plan, key)
			return key, nil
		}
		if !errors.Is(err, ledger.ErrConflict) {
			return planKey{}, err
		}
	}
	return planKey{}, fmt.Errorf("cannot keep the key of plan %s: others write it", plan)
}

// destroy makes a plan's key unreadable for good. Again is harmless.
func (k *keyring) destroy(ctx context.Context, plan string) error {
	k.forget(plan)
	store, err := k.attached(ctx)
	if err == nil {
		err = store.Destroy(ctx, plan)
	}
	return err
}

// forget has this process open nothing more of a plan, whatever the store says.
func (k *keyring) forget(plan string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.kept, plan)
	k.dead[plan] = true
}

func (k *keyring) aead() (cipher.AEAD, error) {
	block, err := aes.NewCipher(k.master)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// bound is what a wrapped key is bound to.
func (k *keyring) bound(plan, agent string) []byte {
	text, err := json.Marshal([]string{"sagenbaum/key/v1", k.tenant, plan, agent})
	if err != nil {
		panic("host: names that are no JSON: " + err.Error())
	}
	return text
}

func (k *keyring) wrap(plan string, key planKey) ([]byte, error) {
	aead, err := k.aead()
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return json.Marshal(wrapped{key.agent,
		aead.Seal(nonce, nonce, key.key[:], k.bound(plan, key.agent))})
}

func (k *keyring) unwrap(plan string, data []byte) (planKey, error) {
	aead, err := k.aead()
	if err != nil {
		return planKey{}, err
	}
	var w wrapped
	if json.Unmarshal(data, &w) != nil || len(w.Key) < aead.NonceSize() {
		return planKey{}, fmt.Errorf("%w: the key of plan %s is not readable", seal.ErrForged, plan)
	}
	plain, err := aead.Open(nil, w.Key[:aead.NonceSize()], w.Key[aead.NonceSize():],
		k.bound(plan, w.Agent))
	if err != nil || len(plain) != seal.KeySize {
		return planKey{},
			fmt.Errorf("%w: the key of plan %s was wrapped under another master key, or changed",
				seal.ErrForged, plan)
	}
	return planKey{w.Agent, seal.Key(plain)}, nil
}

// gone reports whether an error of a keyring will never go away.
func gone(err error) bool {
	return errors.Is(err, jetstream.ErrNoKey) || errors.Is(err, jetstream.ErrKeyDestroyed) ||
		errors.Is(err, seal.ErrForged)
}

// opened opens what was sealed for one of these plans, and for one of these actions
// where there are any; what was sealed elsewhere stays closed, so that no one has a host
// open what is another's. It returns the opened values too.
func (k *keyring) opened(ctx context.Context, document json.RawMessage, plans []string,
	actions []string) (json.RawMessage, []json.RawMessage, error) {
	return seal.Open(document, func(v seal.Value) (json.RawMessage, error) {
		if !slices.Contains(plans, v.Plan) || len(actions) > 0 && !slices.Contains(actions, v.Action) {
			return v.Raw, nil
		}
		key, err := k.get(ctx, v.Plan)
		if err != nil {
			return nil, err
		}
		return v.Open(key.key, k.tenant)
	})
}

// keyOwner says whose a plan is, and whether it was erased.
func (a *actor) keyOwner(plan string) (agent, erased string) {
	a.look(func(r *executor.Reader) { agent, erased = r.KeyOwner(plan) })
	return agent, erased
}

// openCommand opens what a command takes: what was sealed for its plan and action. A plan
// that undoes another has the values of that one, a duty those of its action.
func (a *actor) openCommand(c executor.Command) (json.RawMessage, []json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
	defer cancel()
	plan, _, _ := strings.Cut(c.Plan, "~")
	action, _, _ := strings.Cut(c.Action, "~")
	return a.keys.opened(ctx, c.Arguments, []string{plan}, []string{action})
}

// askReveal shows a plan with what was sealed, to operators who may ask it.
func (a *actor) askReveal(q view.PlanQuery) any {
	shown, known := a.seenPlan(q.Plan)
	if !known {
		return shown
	}
	seen := &shown.Plan
	ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
	defer cancel()
	plan, _, _ := strings.Cut(seen.Plan, "~")
	for i := range seen.Actions {
		action := &seen.Actions[i]
		for _, document := range []*json.RawMessage{&action.Input, &action.Output, &action.Before,
			&action.Arguments} {
			opened, _, err := a.keys.opened(ctx, *document, []string{plan}, nil)
			if err != nil {
				return view.ErrorAnswer{Error: fmt.Sprintf("cannot reveal action %s of plan %s: %v",
					action.Action, seen.Plan, err)}
			}
			*document = opened
		}
	}
	a.log.Info("sealed values were revealed to an operator", "plan", seen.Plan)
	return shown
}

// askKey answers an agent about the key of a plan of its own.
func (a *actor) askKey(agent string, q api.KeyQuery) any {
	if !ledger.ValidToken(q.Plan) {
		return api.KeyAnswer{Error: fmt.Sprintf("%q is not a plan id", q.Plan)}
	}
	owner, erased := a.keyOwner(q.Plan)
	if owner == "" && a.catchUp() { // its first record may have been acknowledged just now
		owner, erased = a.keyOwner(q.Plan)
	}
	switch {
	case owner != "" && owner != agent:
		return api.KeyAnswer{Error: fmt.Sprintf("plan %s is agent %s's", q.Plan, owner)}
	case erased != "":
		return api.KeyAnswer{Erased: erased}
	}
	ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
	defer cancel()
	key, err := a.keys.issue(ctx, agent, q.Plan)
	switch {
	case errors.Is(err, jetstream.ErrKeyDestroyed):
		return api.KeyAnswer{Erased: "its key was destroyed"}
	case err != nil:
		a.log.Warn("no key for an agent", "plan", q.Plan, "agent", agent, "error", err)
		return api.KeyAnswer{Error: err.Error()}
	}
	return api.KeyAnswer{Key: key.key[:]}
}
