// Package vault has the keys of plans, which what agents seal is closed with: [Keyring] opens
// with them, [Eraser] destroys them. They are wrapped under the key of their tenant, which is
// wrapped under the hosts' master key and kept in a [Folder] outside the data.
package vault

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
)

// KeyStore keeps the keys of one tenant's plans, each wrapped, and the id of the tenant's key:
// jetstream.Keys.
type KeyStore interface {
	Get(ctx context.Context, plan string) ([]byte, error)
	Create(ctx context.Context, plan string, value []byte) error
	Destroy(ctx context.Context, plan string) error

	All(ctx context.Context) iter.Seq2[jetstream.KeyEntry, error]
	Replace(ctx context.Context, old jetstream.KeyEntry, value []byte) error

	Tenant(ctx context.Context) (value []byte, sequence uint64, err error)
	SetTenant(ctx context.Context, value []byte, after uint64) error
}

// Errors of a Keyring, besides those of jetstream.Keys and package seal.
var (
	// errNoMasterKey: this host was started without what the keys of tenants are wrapped with.
	errNoMasterKey = errors.New("this host has no master key (sagenbaum serve --master-key FILE)")

	// ErrTenantErased: the tenant was erased, and its key with it.
	ErrTenantErased = errors.New("the tenant was erased")
)

// MayPass reports whether the same question may have a better answer soon: another host may be
// making the key of the tenant, or have it and not answer yet.
func MayPass(err error) bool {
	var refused *ledger.Refused
	return !errors.As(err, &refused) && !errors.Is(err, errNoMasterKey) && !Gone(err)
}

// Bounds of a Keyring: keys that are kept in memory, the time of one question, and the pause
// after a tenant's key could not be had.
const (
	keysKeptMax = 4096
	keyTimeout  = 5 * time.Second
	openPause   = 2 * time.Second
)

// Config says what a Keyring opens, and by what. Tenant, Store and Log are required; Folder is
// where there is a Master.
type Config struct {
	Tenant string
	Master []byte  // MasterKeySize bytes; empty: none, and nothing is sealed or opened
	Folder *Folder // of tenants' keys

	// Store opens the store of the keys of plans, which it makes where it is missing.
	Store func(context.Context) (KeyStore, error)
	// HasStore reports whether there is a store; nil: there is.
	HasStore func(context.Context) (bool, error)
	// Fetch asks the other hosts for the tenant's key; nil: there are none.
	Fetch func(ctx context.Context, ask func(reply string) Asked) iter.Seq[Given]
	// Announce tells the other hosts that the tenant has a key now, so that they have it before
	// this one is gone; nil: there are none.
	Announce func(ask func(reply string) Asked)

	Log *slog.Logger
}

// Keyring has the keys of one tenant's plans. A plan's key is 32 random bytes, wrapped
// by AES-256-GCM under the tenant's key and bound to tenant, plan and agent. The tenant's key
// is wrapped under the hosts' master key, and is in a Folder. So neither the store, nor the
// folder, nor the master key alone opens anything, and when the tenant's key is destroyed,
// the other two open nothing. Keys that versions before this one made are wrapped under the
// master key itself, until Migrate has wrapped them again. It is safe for concurrent use.
type Keyring struct {
	Config
	again chan struct{} // buffered 1: Migrate has something to do

	opening sync.Mutex // held while the store and the tenant's key are opened

	mu     sync.Mutex
	store  KeyStore
	own    *TenantKey // the tenant's key; nil before it was had
	failed error      // why it could not be had, not long ago
	until  time.Time  // it is not tried before
	kept   map[string]planKey
	dead   map[string]bool // plans that were erased since this process began
	erased bool            // the tenant was
}

// planKey is a plan's key and whose plan it is.
type planKey struct {
	agent string
	key   seal.Key
}

// wrapped is what the store has of a plan.
type wrapped struct {
	Agent string `json:"agent"`
	ID    string `json:"kid,omitempty"` // of the tenant's key; empty: under the master key
	Key   []byte `json:"key"`           // nonce and ciphertext
}

// New makes the keyring of a tenant. The store is opened the first time that something is
// asked of it.
func New(cfg Config) *Keyring {
	return &Keyring{Config: cfg, again: make(chan struct{}, 1), kept: map[string]planKey{},
		dead: map[string]bool{}}
}

// attached opens the store, the first time that something is asked of it.
func (k *Keyring) attached(ctx context.Context) (KeyStore, error) {
	k.opening.Lock()
	defer k.opening.Unlock()
	return k.attach(ctx)
}

// attach is attached with opening held.
func (k *Keyring) attach(ctx context.Context) (KeyStore, error) {
	k.mu.Lock()
	store, erased := k.store, k.erased
	k.mu.Unlock()
	switch {
	case erased:
		return nil, ErrTenantErased
	case store != nil:
		return store, nil
	}
	store, err := k.Store(ctx)
	if err == nil {
		k.mu.Lock()
		k.store = store
		k.mu.Unlock()
	}
	return store, err
}

// get returns a plan's key. Errors: jetstream.ErrNoKey, jetstream.ErrKeyDestroyed and
// seal.ErrForged, which trying again does not help; others it may.
func (k *Keyring) get(ctx context.Context, plan string) (planKey, error) {
	k.mu.Lock()
	known, ok := k.kept[plan]
	dead, erased := k.dead[plan], k.erased
	k.mu.Unlock()
	switch {
	case erased:
		return planKey{}, ErrTenantErased
	case dead:
		return planKey{}, jetstream.ErrKeyDestroyed
	case ok:
		return known, nil
	}
	store, own, err := k.opened(ctx)
	if errors.Is(err, errNoMasterKey) {
		err = k.keyless(ctx, plan)
	}
	if err != nil {
		return planKey{}, err
	}
	data, err := store.Get(ctx, plan)
	if err != nil {
		return planKey{}, err
	}
	key, err := k.unwrap(plan, data, own)
	if err != nil {
		return planKey{}, err
	}
	k.keep(plan, key)
	return key, nil
}

// Key returns the key of a plan that has one. Errors as those that Gone knows; others may pass.
func (k *Keyring) Key(ctx context.Context, plan string) (seal.Key, error) {
	key, err := k.get(ctx, plan)
	return key.key, err
}

// Gone is the function of that name.
func (k *Keyring) Gone(err error) bool { return Gone(err) }

func (k *Keyring) keep(plan string, key planKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead[plan] || k.erased {
		return
	}
	if len(k.kept) >= keysKeptMax {
		clear(k.kept)
	}
	k.kept[plan] = key
}

// Issue returns the key of an agent's plan, made if it has none. Whose plan it is the caller has
// looked up: it may have been handed to this agent since its key was made. Errors:
// jetstream.ErrKeyDestroyed; others may pass.
func (k *Keyring) Issue(ctx context.Context, agent, plan string) (seal.Key, error) {
	for range 2 { // another host may be faster
		key, err := k.get(ctx, plan)
		if !errors.Is(err, jetstream.ErrNoKey) {
			return key.key, err
		}
		key = planKey{agent: agent}
		if _, err := rand.Read(key.key[:]); err != nil {
			return seal.Key{}, err
		}
		store, own, err := k.opened(ctx)
		if err != nil {
			return seal.Key{}, err
		}
		data, err := k.wrap(plan, key, own)
		if err == nil {
			err = store.Create(ctx, plan, data)
		}
		if err == nil {
			k.keep(plan, key)
			return key.key, nil
		}
		if !errors.Is(err, ledger.ErrConflict) {
			return seal.Key{}, err
		}
	}
	return seal.Key{}, fmt.Errorf("cannot keep the key of plan %s: others write it", plan)
}

// Destroy makes a plan's key unreadable for good. Again is harmless.
func (k *Keyring) Destroy(ctx context.Context, plan string) error {
	k.Forget(plan)
	store, err := k.attached(ctx)
	if err == nil {
		err = store.Destroy(ctx, plan)
	}
	return err
}

// Forget has this process open nothing more of a plan, whatever the store says.
func (k *Keyring) Forget(plan string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.kept, plan)
	k.dead[plan] = true
}

// Erase has this process open and make nothing more of the tenant, whatever the stores say.
func (k *Keyring) Erase() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.erased = true
	clear(k.kept)
	if k.own != nil {
		clear(k.own.key)
	}
	k.own, k.store = nil, nil
}

// nudge wakes Migrate.
func (k *Keyring) nudge() {
	select {
	case k.again <- struct{}{}:
	default:
	}
}

// boundPlan is what the wrapped key of a plan is bound to; id is that of the tenant's key it
// is wrapped under, empty for the master key.
func (k *Keyring) boundPlan(plan, agent, id string) []byte {
	if id == "" {
		return bound("sagenbaum/key/v1", k.Tenant, plan, agent)
	}
	return bound("sagenbaum/key/v2", k.Tenant, plan, agent, id)
}

func (k *Keyring) wrap(plan string, key planKey, own TenantKey) ([]byte, error) {
	box, err := wrap(own.key, key.key[:], k.boundPlan(plan, key.agent, own.ID))
	if err != nil {
		return nil, err
	}
	return json.Marshal(wrapped{key.agent, own.ID, box})
}

func (k *Keyring) unwrap(plan string, data []byte, own TenantKey) (planKey, error) {
	var w wrapped
	if json.Unmarshal(data, &w) != nil {
		return planKey{}, fmt.Errorf("%w: the key of plan %s is not readable", seal.ErrForged, plan)
	}
	under, what := own.key, "tenant"
	switch w.ID {
	case own.ID:
	case "":
		under, what = k.Master, "master"
		k.nudge()
	default:
		return planKey{}, fmt.Errorf("%w: the key of plan %s was wrapped under the tenant key %s, and "+
			"the tenant has %s", seal.ErrForged, plan, w.ID, own.ID)
	}
	plain, err := unwrap(under, w.Key, k.boundPlan(plan, w.Agent, w.ID))
	if err != nil {
		return planKey{}, fmt.Errorf("%w: the key of plan %s was wrapped under another %s key, "+
			"or changed", seal.ErrForged, plan, what)
	}
	return planKey{w.Agent, seal.Key(plain)}, nil
}

// Gone reports whether an error of a Keyring will never go away.
func Gone(err error) bool {
	return errors.Is(err, jetstream.ErrNoKey) || errors.Is(err, jetstream.ErrKeyDestroyed) ||
		errors.Is(err, seal.ErrForged) || errors.Is(err, ErrTenantErased)
}

// Open opens what was sealed for one of these plans, and for one of these actions
// where there are any; what was sealed elsewhere stays closed, so that no one has a host
// open what is another's. It returns the opened values too.
func (k *Keyring) Open(ctx context.Context, document json.RawMessage, plans []string,
	actions []string) (json.RawMessage, []json.RawMessage, error) {
	return seal.Open(document, func(v seal.Value) (json.RawMessage, error) {
		if !slices.Contains(plans, v.Plan) || len(actions) > 0 && !slices.Contains(actions, v.Action) {
			return v.Raw, nil
		}
		key, err := k.get(ctx, v.Plan)
		if err != nil {
			return nil, err
		}
		return v.Open(key.key, k.Tenant)
	})
}

// OpenCommand opens what a command takes: what was sealed for its plan and action. A plan
// that undoes another has the values of that one, a duty those of its action.
func (k *Keyring) OpenCommand(c executor.Command) (json.RawMessage, []json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
	defer cancel()
	plan, _, _ := strings.Cut(c.Plan, "~")
	action, _, _ := strings.Cut(c.Action, "~")
	return k.Open(ctx, c.Arguments, []string{plan}, []string{action})
}

// ID is the id of the tenant's key; empty: this host has none.
func (k *Keyring) ID() string {
	if k.Folder == nil {
		return ""
	}
	file, err := k.Folder.read(k.Tenant)
	if err != nil {
		return ""
	}
	return file.ID
}
