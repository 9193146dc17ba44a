package host

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/observe"
	"github.com/sagenbaum/sagenbaum/executor/host/page"
	"github.com/sagenbaum/sagenbaum/executor/host/proof"
	"github.com/sagenbaum/sagenbaum/executor/host/vault"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Config says what a host runs. Conn and Dir are required, and Tenants without Follow.
type Config struct {
	Conn    *nats.Conn // kept and closed by the caller
	Tenants []string   // names of tenants, each with a ledger of its own
	// Follow: the control stream says which tenants there are beside Tenants, and what each may
	// use. A tenant that it names is attached at once.
	Follow bool
	// First is the tenant of a server that has none yet; empty: none. It is for Follow.
	First string
	Dir   string // folder for the state store and the host's identity

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

	// MasterKey wraps the keys of tenants, vault.MasterKeySize bytes: the same on every host that
	// may hold these tenants, and on no server. None: sensitive fields are not sealed,
	// and actions that have some are refused.
	MasterKey []byte
	// MasterKeyFile is where MasterKey was read, so that no key of a tenant is made while it has
	// another one; empty: from no file.
	MasterKeyFile string
	// TenantKeysDir is the folder of the keys of tenants, wrapped under MasterKey, with which
	// it is required. It must not lie in Dir, nor in the data of a server: whoever copies
	// these must not copy what opens them.
	TenantKeysDir string
	// Keys opens the store of a tenant's wrapped keys; nil: jetstream.OpenKeys on Conn.
	Keys func(ctx context.Context, tenant string) (vault.KeyStore, error)

	// BlobBytes bounds what the blobs of each tenant take in the server's store; 0: 8 GiB.
	BlobBytes int64
	// BlobGrace is for how long a blob of a plan that has ended is kept though no record names it,
	// and BlobEvery how often that is looked at; 0: 24 hours, and 10 minutes.
	BlobGrace, BlobEvery time.Duration
	// BlobAgain is for how long a blob that an undo needs is looked for before it counts as
	// missing; 0: 10 s.
	BlobAgain time.Duration

	// Webhooks gives the URL that the pages of a hook are posted to; "default" is
	// for every hook without one of its own. https, or http to this machine. Every
	// page is published on api.PageSubject besides.
	Webhooks map[string]string

	// WebhookKeys sign what is posted, by the hook of the webhook, the newest first; those of ""
	// sign for hooks that have none. Without any it is not signed.
	WebhookKeys map[string][][]byte
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
	// stream a repair keeps aside, and which is restarted when it is mute; empty: the servers
	// run elsewhere.
	StoreDir string

	// KeysDir is the folder of the keys that sign checkpoints; empty: "keys" in Dir.
	// A tenant that has no key, and no checkpoint yet, gets its first one there.
	KeysDir string
	// Witness cosigns the checkpoints of all tenants; zero: no one does.
	Witness proof.Witness
	// SignAfter is how long after the first record that no checkpoint covers one is signed, at the
	// latest, and, from 100 ms to 10 s, after which it is tried again; 0: 10 s.
	SignAfter time.Duration
	signing   proof.Times // when checkpoints are signed; zero, except in tests
	// erasing is called before each step of the erasure of a tenant; an error ends it there, as a
	// kill does. Nil, except in tests.
	erasing func(step string) error

	// Cascade bounds what follows from undos; zeros are the defaults.
	Cascade executor.CascadeLimits

	// Clock is that of the process, which must outlive a host that another one follows in
	// it: else a clock that has jumped would be right for the next one. nil: a new one.
	Clock *Clock

	// GiveUp, when closed, ends the wait for room on a full disk of the state
	// store, so that a process that is to stop can; nil: it waits for ever.
	GiveUp <-chan struct{}

	Metrics *observe.Metrics // nil: none
	Tracer  trace.Tracer     // of what follows from undos; nil: none

	Logger *slog.Logger // nil: discards
}

// signs is when checkpoints are signed.
func (cfg Config) signs() proof.Times {
	times := cfg.signing
	if cfg.SignAfter != 0 {
		times.After = cfg.SignAfter
		times.Retry = min(max(cfg.SignAfter, signRetryMin), signRetryMax)
	}
	return times
}

func checkConfig(cfg Config) error {
	switch {
	case cfg.Conn == nil:
		return ledger.Refuse("Conn", "missing", "a connected *nats.Conn")
	case cfg.Dir == "":
		return ledger.Refuse("Dir", "empty", "a folder")
	case len(cfg.Tenants) == 0 && !cfg.Follow:
		return ledger.Refuse("Tenants", "none", "at least one tenant, or Follow")
	case len(cfg.MasterKey) != 0 && len(cfg.MasterKey) != vault.MasterKeySize:
		return ledger.Refuse("MasterKey", fmt.Sprintf("%d bytes", len(cfg.MasterKey)),
			fmt.Sprintf("%d random bytes, or none", vault.MasterKeySize))
	case len(cfg.MasterKey) != 0 && cfg.TenantKeysDir == "":
		return ledger.Refuse("TenantKeysDir", "empty", "a folder outside Dir and the server's data")
	case cfg.First != "" && !ledger.ValidToken(cfg.First):
		return ledger.Refuse("First", fmt.Sprintf("%q is no name", cfg.First),
			ledger.TokenWanted+", or none")
	case cfg.MemoryBytes < 0:
		return ledger.Refuse("MemoryBytes", "negative", "bytes, or 0 for no limit")
	case cfg.Holder != "" && !ledger.ValidToken(cfg.Holder):
		return ledger.Refuse("Holder", fmt.Sprintf("%q", cfg.Holder),
			ledger.TokenWanted)
	}
	if cfg.EscalateAfter < 0 {
		return ledger.Refuse("EscalateAfter", "negative", "a duration, or 0 for 15 minutes")
	}
	if cfg.SignAfter < 0 {
		return ledger.Refuse("SignAfter", "negative", "a duration, or 0 for 10 seconds")
	}
	if cfg.StuckAfter < 0 {
		return ledger.Refuse("StuckAfter", "negative", "a duration, or 0 for 10 minutes")
	}
	for hook, keys := range cfg.WebhookKeys {
		for _, key := range keys {
			if len(key) < page.WebhookKeyMin {
				return ledger.Refuse(fmt.Sprintf("WebhookKeys[%s]", hook),
					fmt.Sprintf("%d bytes", len(key)),
					fmt.Sprintf("at least %d bytes", page.WebhookKeyMin))
			}
		}
	}
	if err := cfg.Cascade.Check(); err != nil {
		return err
	}
	if err := proof.CheckWitness(cfg.Witness); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, t := range cfg.Tenants {
		if !ledger.ValidToken(t) || seen[t] {
			return ledger.Refuse("Tenants", fmt.Sprintf("%q is no name, or there twice", t),
				ledger.TokenWanted+", each once")
		}
		seen[t] = true
	}
	for _, hook := range slices.Sorted(maps.Keys(cfg.Webhooks)) {
		if err := page.CheckWebhook(hook, cfg.Webhooks[hook]); err != nil {
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
