// Package host is the shell around the executor's pure core: it reads the
// ledgers, keeps the folded state in Pebble, appends what Decide proposes and
// sends what was folded back as valid.
//
// One goroutine, the actor, owns a tenant's state. A turn of it reads the
// records that are there, folds them in one Pebble batch, sends the commands
// that became valid, decides over what changed and what fell due, and appends
// the decisions as one commit. While that commit is on its way the actor goes on
// folding; commands leave only when their record has been read back.
//
// What each store promises: the ledger is the truth, durable when acknowledged.
// Pebble is a cache: lost, stale or broken, it is rebuilt from the ledger. The
// holders' bucket decides who tries and never who is right.
package host

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
)

// ErrMute is what Run returns when the server has stopped answering appends
// without closing the connection, as JetStream does after a write error. Restart
// the server, then run a new Host.
var ErrMute = errors.New("the server does not answer appends any more")

// ErrNoRoom and ErrState are package store's: what New and Run return of a state store
// whose disk is full, and of one that has failed.
var (
	ErrNoRoom = store.ErrNoRoom
	ErrState  = store.ErrState
)

// Config says what a host runs. Conn, Tenants and Dir are required.
type Config struct {
	Conn    *nats.Conn // kept and closed by the caller
	Tenants []string   // names of tenants, each with a ledger of its own
	Dir     string     // folder for the state store and the host's identity

	// Holder names this process among those that may run a tenant: a token,
	// kept in Dir by default, so that a restart takes its tenants back at once.
	Holder   string
	LeaseTTL time.Duration // 1 s to 1 h; 0: 10 s

	MaxBytes int64 // of each new ledger; 0: no limit
	Replicas int   // of each new ledger; 0: 1
	// DurableServer, System and AcceptLossyBroker are as in jetstream.Config: how
	// the server is known to sync every write, or that it need not.
	DurableServer     string
	System            *nats.Conn
	AcceptLossyBroker bool

	// MemoryBytes bounds the keys and values of the facts of each tenant in working
	// memory; what is over it is evicted, the least recently asserted first, and read
	// from the ledger. 0: no limit.
	MemoryBytes int64

	// Interest says whether anybody subscribes a subject now, where the server is in
	// this process; nil: it cannot be asked.
	Interest func(subject string) bool
	// MasterKey wraps the keys of plans, MasterKeySize bytes: the same on every host that
	// may hold these tenants, and on no server. None: sensitive fields are not sealed,
	// and actions that have some are refused.
	MasterKey []byte
	// Keys opens the store of a tenant's wrapped keys; nil: jetstream.OpenKeys on Conn.
	Keys func(ctx context.Context, tenant string) (KeyStore, error)

	// Webhooks gives the URL that the pages of a hook are posted to; "default" is
	// for every hook without one of its own. https, or http to this machine. Every
	// page is published on api.PageSubject besides.
	Webhooks map[string]string

	// WebhookKeys sign what is posted, each, the newest first; none: it is not signed.
	WebhookKeys [][]byte
	// EscalateAfter is how long no one may take a page before the hook of operators gets it
	// as well; 0: 15 minutes.
	EscalateAfter time.Duration
	// StuckAfter is how long a command may wait for a worker, or a worker say that it
	// is working, before the hook api.PageOperators is called; 0: 10 minutes.
	StuckAfter time.Duration

	// TilesDir is the folder of the tiles, the second copy of each ledger; empty:
	// "tiles" in Dir. One host uses it at a time.
	TilesDir string
	// StoreDir is the data folder of an embedded server, whose files of a damaged
	// stream a repair keeps aside; empty: it has no access to them.
	StoreDir string

	// KeysDir is the folder of the keys that sign checkpoints; empty: "keys" in Dir.
	// A tenant that has no key, and no checkpoint yet, gets its first one there.
	KeysDir string
	// Witness cosigns the checkpoints of all tenants; zero: no one does.
	Witness Witness

	// Cascade bounds what follows from undos; zeros are the defaults.
	Cascade executor.CascadeLimits

	// Clock is that of the process, which must outlive a host that another one follows in
	// it: else a clock that has jumped would be right for the next one. nil: a new one.
	Clock *Clock

	// GiveUp, when closed, ends the wait for room on a full disk of the state
	// store, so that a process that is told to stop can; nil: it waits for ever.
	GiveUp <-chan struct{}

	Metrics *Metrics     // nil: none
	Tracer  trace.Tracer // of what follows from undos; nil: none

	Logger *slog.Logger // nil: discards
}

// Host runs the executors of one or more tenants. Create it with New, run it
// with Run, once.
type Host struct {
	cfg      Config
	log      *slog.Logger
	db       *pebble.DB
	clock    *Clock
	holders  *jetstream.Holders
	hooks    *http.Client // posts pages, and asks the witness
	actors   []*actor
	share    *share
	copies   *store.Snapshots
	programs sync.Pool // *triggers.Cache, of one question at a time

	checkpointRecords uint64        // as the bounds of these names
	checkpointAfter   time.Duration //
	checkpointRetry   time.Duration //
	witnessRetry      time.Duration //

	folded     atomic.Uint64  // records, by all tenants
	failed     atomic.Bool    // ErrState
	corrupt    <-chan error   // a block of the state store cannot be read
	rebuilding atomic.Bool    // memory.rebuild is under way
	attaching  sync.WaitGroup // tenants not yet attached
	ready      chan struct{}
}

// New opens the state store below cfg.Dir. Errors: *ledger.Refused for a bad
// configuration; otherwise what the folder or the server said.
func New(cfg Config) (*Host, error) {
	if err := checkConfig(cfg); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.StuckAfter == 0 {
		cfg.StuckAfter = stuckDefault
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the state folder: %w", err)
	}
	if cfg.Holder == "" {
		id, err := identity(cfg.Dir)
		if err != nil {
			return nil, err
		}
		cfg.Holder = id
	}
	if cfg.Clock == nil {
		cfg.Clock = NewClock()
	}
	corrupt := make(chan error, 1) // the first is enough
	db, err := store.OpenWatched(filepath.Join(cfg.Dir, "state"), cfg.Logger, cfg.GiveUp,
		func(err error) {
			select {
			case corrupt <- err:
			default:
			}
		})
	if err != nil {
		return nil, fmt.Errorf("cannot open the state store in %s: %w", cfg.Dir, err)
	}
	if err := dropRebuilds(cfg.Dir); err != nil { // no one else has the folder now
		return nil, errors.Join(fmt.Errorf("cannot remove what is left of a rebuild: %w", err),
			db.Close())
	}
	h := &Host{cfg: cfg, log: cfg.Logger, db: db, clock: cfg.Clock, hooks: newHookClient(),
		share: newShare(), ready: make(chan struct{}), corrupt: corrupt,
		checkpointRecords: checkpointRecords, checkpointAfter: checkpointAfter,
		checkpointRetry: checkpointRetry, witnessRetry: witnessRetry}
	h.copies = store.NewSnapshots(cfg.Dir, db, cfg.Tenants, cfg.Logger, h.tellDigest)
	for _, tenant := range cfg.Tenants {
		h.actors = append(h.actors, newActor(h, tenant))
	}
	h.attaching.Add(len(h.actors))
	return h, nil
}

// Ready is closed when every tenant's ledger is open: records that come now are
// stored and will be folded.
func (h *Host) Ready() <-chan struct{} { return h.ready }

// TenantHealth is what a host says of one of its tenants, without asking anybody.
type TenantHealth struct {
	Tenant  string `json:"tenant"`
	Mode    string `json:"mode"` // as view.Host.Mode
	Problem string `json:"problem,omitempty"`
}

// Health says how the tenants are, in the order of the configuration. It may be
// called at any time.
func (h *Host) Health() []TenantHealth {
	all := make([]TenantHealth, 0, len(h.actors))
	for _, a := range h.actors {
		a.mu.Lock()
		t := TenantHealth{Tenant: a.tenant, Mode: a.mode, Problem: a.problem}
		if a.refusal != "" {
			t.Problem = a.refusal
		}
		a.mu.Unlock()
		all = append(all, t)
	}
	return all
}

func checkConfig(cfg Config) error {
	switch {
	case cfg.Conn == nil:
		return ledger.Refuse("Conn", "missing", "a connected *nats.Conn")
	case cfg.Dir == "":
		return ledger.Refuse("Dir", "empty", "a folder")
	case len(cfg.Tenants) == 0:
		return ledger.Refuse("Tenants", "none", "at least one tenant")
	case len(cfg.MasterKey) != 0 && len(cfg.MasterKey) != MasterKeySize:
		return ledger.Refuse("MasterKey", fmt.Sprintf("%d bytes", len(cfg.MasterKey)),
			fmt.Sprintf("%d random bytes, or none", MasterKeySize))
	case cfg.MemoryBytes < 0:
		return ledger.Refuse("MemoryBytes", "negative", "bytes, or 0 for no limit")
	case cfg.Holder != "" && !ledger.ValidToken(cfg.Holder):
		return ledger.Refuse("Holder", fmt.Sprintf("%q", cfg.Holder),
			"1 to 64 letters, digits, '-' or '_'")
	}
	if cfg.EscalateAfter < 0 {
		return ledger.Refuse("EscalateAfter", "negative", "a duration, or 0 for 15 minutes")
	}
	if cfg.StuckAfter < 0 {
		return ledger.Refuse("StuckAfter", "negative", "a duration, or 0 for 10 minutes")
	}
	for i, key := range cfg.WebhookKeys {
		if len(key) < WebhookKeyMin {
			return ledger.Refuse(fmt.Sprintf("WebhookKeys[%d]", i), fmt.Sprintf("%d bytes", len(key)),
				fmt.Sprintf("at least %d bytes", WebhookKeyMin))
		}
	}
	if err := cfg.Cascade.Check(); err != nil {
		return err
	}
	if err := CheckWitness(cfg.Witness); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, t := range cfg.Tenants {
		if !ledger.ValidToken(t) || seen[t] {
			return ledger.Refuse("Tenants", fmt.Sprintf("%q is no name, or there twice", t),
				"1 to 64 letters, digits, '-' or '_', each once")
		}
		seen[t] = true
	}
	for _, hook := range slices.Sorted(maps.Keys(cfg.Webhooks)) {
		if err := CheckWebhook(hook, cfg.Webhooks[hook]); err != nil {
			return err
		}
	}
	return nil
}

// identity reads the host's id, or makes one on the first start.
func identity(dir string) (string, error) {
	path := filepath.Join(dir, "host.id")
	if b, err := os.ReadFile(path); err == nil {
		if id := strings.TrimSpace(string(b)); ledger.ValidToken(id) {
			return id, nil
		}
	}
	var raw [8]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return "", fmt.Errorf("cannot make a host id: %w", err)
	}
	id := "host-" + hex.EncodeToString(raw[:])
	if err := os.WriteFile(path, []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("cannot keep the host id: %w", err)
	}
	return id, nil
}

// Run runs all tenants until ctx ends, or until the server is mute (ErrMute) or
// the state store broken (ErrState). It returns ctx's cause, or nil when that is
// context.Canceled. Run starts one goroutine per tenant and one for its
// queries' subscription; all have ended when it returns.
func (h *Host) Run(ctx context.Context) error {
	defer h.unmeter()
	defer h.hooks.CloseIdleConnections()
	var err error
	if h.holders, err = h.openHolders(ctx); err != nil {
		if ctx.Err() != nil {
			return why(ctx)
		}
		return err
	}
	go func() {
		h.attaching.Wait() // every actor counts down once, at the latest when it ends
		close(h.ready)
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // ends with ctx
		select {
		case err := <-h.corrupt:
			cancel(err)
		case <-ctx.Done():
		}
	}()
	var running sync.WaitGroup
	running.Go(func() { h.copies.Run(ctx, &h.folded) })
	for _, a := range h.actors {
		silence, err := h.serveAll(a)
		defer silence()
		if err != nil {
			cancel(err)
			break
		}
		running.Go(func() {
			if err := a.run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	running.Wait()
	for _, a := range h.actors {
		a.opened.Do(h.attaching.Done) // one that never ran
	}
	return why(ctx)
}

// unmeter takes the tenants out of the numbers: this host runs them no more.
func (h *Host) unmeter() {
	for _, a := range h.actors {
		a.meter.level(a.levels, levels{})
		a.meter.mode(a.currentMode(), "")
	}
}

// why says why a context ended; nil when someone just wanted it to.
func why(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) &&
		!errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// openHolders waits for a server that is still starting.
func (h *Host) openHolders(ctx context.Context) (*jetstream.Holders, error) {
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	for {
		// A question that comes while a cluster elects a leader stays without an answer.
		once, done := context.WithTimeout(ctx, holdersTimeout)
		holders, err := jetstream.OpenHolders(once,
			jetstream.HoldersConfig{Conn: h.cfg.Conn, TTL: h.cfg.LeaseTTL, Replicas: h.cfg.Replicas})
		done()
		var refused *ledger.Refused
		if err == nil || errors.As(err, &refused) || !pause.For(ctx, retryDelayMin) {
			return holders, err
		}
		h.log.Warn("no leases yet; trying on", "error", err)
	}
}

// Close closes the state store; Run must have returned. A store that has failed
// stays as it is: Pebble keeps its locks then, until the process ends.
func (h *Host) Close() error {
	if h.failed.Load() {
		return nil
	}
	for _, a := range h.actors {
		if err := a.kv.Close(); err != nil {
			return fmt.Errorf("cannot close the state of %s: %w", a.tenant, err)
		}
	}
	if err := h.db.Close(); err != nil {
		return fmt.Errorf("cannot close the state store: %w", err)
	}
	return nil
}

// tilesRoot is the folder of all tenants' tiles.
func (h *Host) tilesRoot() string {
	if h.cfg.TilesDir != "" {
		return h.cfg.TilesDir
	}
	return filepath.Join(h.cfg.Dir, "tiles")
}
