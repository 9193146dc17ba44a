// Package host is the shell around the executor's pure core: it reads the
// ledgers, keeps the folded state in Pebble, appends what Decide proposes and
// sends what was folded back as valid.
//
// One goroutine, the actor, owns a tenant's state. A turn of it reads the
// records that are there, folds them, sends the commands that became valid,
// decides over what changed and what fell due, and appends the decisions as one
// commit. While that commit is on its way the actor goes on folding; commands
// leave only when their record has been read back. What is folded is written to
// the tiles every 25 ms and to Pebble every 100 ms, or when a question waits.
//
// What each store promises: the ledger is the truth, durable when acknowledged.
// Pebble is a cache: lost, stale or broken, it is rebuilt from the ledger. The
// holders' bucket decides who tries and never who is right.
package host

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sagenbaum/sagenbaum/executor/host/ask"
	"github.com/sagenbaum/sagenbaum/executor/host/observe"
	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/host/vault"
	"github.com/sagenbaum/sagenbaum/executor/host/webclient"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
)

// ErrMute is what Run returns when the server of this process (Config.StoreDir) has stopped
// answering appends without closing the connection, as JetStream does after a write error.
// Restart the server, then run a new Host. With servers that run elsewhere Run does not end: a
// tenant whose appends they do not answer is given up, and begins again when they do.
var ErrMute = errors.New("the server does not answer appends any more")

// ErrNoRoom and ErrState are package store's: what New and Run return of a state store
// whose disk is full, and of one that has failed.
var (
	ErrNoRoom = store.ErrNoRoom
	ErrState  = store.ErrState
)

// Host runs the executors of one or more tenants. Create it with New, run it
// with Run, once.
type Host struct {
	cfg     Config
	log     *slog.Logger
	db      *pebble.DB
	clock   *Clock
	holders *jetstream.Holders

	erasures *jetstream.Erasures
	control  *jetstream.Tenants

	process string // tells it from other hosts of its name

	secret []byte       // makes the tokens of commands, turn.Config.Secret
	hooks  *http.Client // posts pages, and asks the witness
	roster roster
	share  *share

	tenantKeys *vault.Folder // nil: there is no master key

	copies *store.Snapshots
	asked  ask.Shared

	folded    atomic.Uint64  // records, by all tenants
	failed    atomic.Bool    // ErrState
	corrupt   <-chan error   // a block of the state store cannot be read
	attaching sync.WaitGroup // tenants not yet attached
	ready     chan struct{}
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
	tenantKeys, err := openTenantKeys(cfg)
	if err != nil {
		return nil, err
	}
	erasures, err := jetstream.NewErasures(cfg.Conn, cfg.Replicas)
	if err != nil {
		return nil, err
	}
	control, err := jetstream.NewTenants(cfg.Conn, cfg.Replicas)
	if err != nil {
		return nil, err
	}
	corrupt := make(chan error, 1) // the first is enough
	h := &Host{cfg: cfg, log: cfg.Logger, clock: cfg.Clock, hooks: webclient.New(),
		share: newShare(), ready: make(chan struct{}), corrupt: corrupt, tenantKeys: tenantKeys,
		erasures: erasures, control: control, process: jetstream.NewID(), secret: make([]byte, 32)}
	if h.holders, err = jetstream.NewHolders(jetstream.HoldersConfig{Conn: cfg.Conn,
		TTL: cfg.LeaseTTL, Replicas: cfg.Replicas, Process: h.process, Gone: h.twinGone}); err != nil {
		return nil, err
	}
	h.db, err = store.OpenWatched(filepath.Join(cfg.Dir, "state"), cfg.Logger, cfg.GiveUp,
		func(err error) {
			select {
			case corrupt <- err:
			default:
			}
		}, h.roster.waits)
	if err != nil {
		return nil, fmt.Errorf("cannot open the state store in %s: %w", cfg.Dir, err)
	}
	if err := ask.DropRebuilds(cfg.Dir); err != nil { // no one else has the folder now
		return nil, errors.Join(fmt.Errorf("cannot remove what is left of a rebuild: %w", err),
			h.db.Close())
	}
	rand.Read(h.secret) // never fails, as crypto/rand documents
	h.copies = store.NewSnapshots(cfg.Dir, h.db, h.Tenants, cfg.Logger, h.tellDigest)
	h.attaching.Add(1) // until Run knows all tenants
	for _, tenant := range cfg.Tenants {
		h.enlist(tenant, false)
	}
	return h, nil
}

// Ready is closed when every tenant's ledger is open: records that come now are
// stored and will be folded.
func (h *Host) Ready() <-chan struct{} { return h.ready }

// TenantHealth is what a host says of one of its tenants, from memory.
type TenantHealth struct {
	Tenant  string `json:"tenant"`
	Mode    string `json:"mode"` // as api.Host.Mode
	Problem string `json:"problem,omitempty"`
	// Held is whether a host is known to hold the tenant, this one or another, or it was erased.
	Held bool `json:"-"`
}

// Health says how the tenants are, in the order of Tenants. It may be called at any time.
func (h *Host) Health() []TenantHealth {
	actors := h.roster.all()
	all := make([]TenantHealth, 0, len(actors))
	for _, a := range actors {
		mode, problem, held := a.board.Health()
		all = append(all, TenantHealth{Tenant: a.tenant, Mode: mode, Problem: problem, Held: held})
	}
	return all
}

// Run runs all tenants until ctx ends, or until its own server is mute (ErrMute) or
// the state store broken (ErrState). It returns ctx's cause, or nil when that is
// context.Canceled. Run starts one goroutine per tenant and one for its
// queries' subscription; all have ended when it returns.
func (h *Host) Run(ctx context.Context) error {
	defer h.unmeter()
	defer h.hooks.CloseIdleConnections()
	if err := h.openHolders(ctx); err != nil {
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
	defer h.roster.silence()
	run := func(a *actor) {
		if err := h.launch(ctx, &running, a, cancel); err != nil {
			cancel(err)
		}
	}
	for _, a := range h.roster.all() {
		run(a)
	}
	if h.cfg.Follow {
		running.Go(func() { h.follow(ctx, run) })
	} else {
		h.roster.known.Do(h.attaching.Done)
	}
	running.Wait()
	h.roster.known.Do(h.attaching.Done)
	for _, a := range h.roster.all() {
		a.opened.Do(h.attaching.Done) // one that never ran
	}
	return why(ctx)
}

// ownsServer reports whether whoever runs this host runs the server, too, and can restart it.
func (h *Host) ownsServer() bool { return h.cfg.StoreDir != "" }

// endsBy reports whether what a tenant ran into is for whoever runs the host to act on.
func (h *Host) endsBy(err error) bool {
	return errors.Is(err, ErrState) || errors.Is(err, ErrMute) && h.ownsServer()
}

// unmeter takes the tenants out of the numbers: this host runs them no more.
func (h *Host) unmeter() {
	for _, a := range h.roster.all() {
		a.observer.Show(observe.Levels{})
		a.board.Unmeter()
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

// openHolders finds what keeps this host from ever holding a tenant. What passes, as that no server
// leads, does not keep it from saying so.
func (h *Host) openHolders(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, holdersTimeout)
	defer cancel()
	err := h.holders.Open(ctx)
	if refused := new(ledger.Refused); errors.As(err, &refused) {
		return err
	}
	return nil // the first lease is asked for next, and says what it is
}

// Close closes the state store; Run must have returned. A store that has failed
// stays as it is: Pebble keeps its locks then, until the process ends.
func (h *Host) Close() error {
	if h.failed.Load() {
		return nil
	}
	if err := h.db.Close(); err != nil {
		return fmt.Errorf("cannot close the state store: %w", err)
	}
	return nil
}

// tellDigest leaves the digest of a snapshot to be signed.
func (h *Host) tellDigest(tenant string, records uint64, digest []byte) {
	if a := h.roster.of(tenant); a != nil {
		a.proof.Digest(records, digest)
	}
}

// disks are the folders of the host's stores.
func (h *Host) disks() []observe.Disk {
	all := []observe.Disk{{Store: "state", Dir: h.cfg.Dir}, {Store: "tiles", Dir: h.tilesRoot()}}
	if h.ownsServer() {
		all = append(all, observe.Disk{Store: "ledger", Dir: h.cfg.StoreDir})
	}
	return all
}

// keysRoot is the folder of all tenants' keys.
func (h *Host) keysRoot() string {
	if h.cfg.KeysDir != "" {
		return h.cfg.KeysDir
	}
	return filepath.Join(h.cfg.Dir, "keys")
}

// tilesRoot is the folder of all tenants' tiles.
func (h *Host) tilesRoot() string {
	if h.cfg.TilesDir != "" {
		return h.cfg.TilesDir
	}
	return filepath.Join(h.cfg.Dir, "tiles")
}
