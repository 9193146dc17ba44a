package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// LocalConfig says what Start runs in the process of a program. Only Dir is required.
type LocalConfig struct {
	// Dir is the folder of all data, made if missing: as --data of `sagenbaum serve`, which goes on
	// with it once the program has ended. One process uses it at a time.
	Dir string
	// Tenants that are made if there are none of these names; none: "default", unless there is
	// another one.
	Tenants []string
	// Server is more of the server's configuration; its Dir is not set. Without an address or a port
	// it listens nowhere, and no other process can connect.
	Server embedded.Config
	// Host is more of the host's configuration. What names the server, the folder and the tenants
	// is not set.
	Host Config
}

// Local is a server and a host in the process of a program. Its methods may be called from any
// goroutine.
type Local struct {
	server *embedded.Server
	host   *Host
	own    *nats.Conn // of the host
	cancel context.CancelFunc
	ended  chan struct{} // closed when the host's Run has returned
	err    error         // of Run; to be read once ended is closed
	close  func() error

	mu    sync.Mutex
	conns []*nats.Conn // of Connect
}

// Start starts a NATS server and the executor in this process, as durable as `sagenbaum serve`:
// every write is synced before it is acknowledged. It returns when what the ledger had is folded
// and the tenants are held. ctx bounds the start alone; Close ends what it has started.
//
// Errors: *ledger.Refused for a bad configuration, embedded.ErrInUse for a folder that another
// process uses, ErrNoRoom for a full disk, ctx's, or what the folder said.
func Start(ctx context.Context, cfg LocalConfig) (*Local, error) {
	if err := checkLocal(cfg); err != nil {
		return nil, err
	}
	cfg.Server.Dir = ServerDir(cfg.Dir)
	if cfg.Server.Host == "" && cfg.Server.Port == 0 {
		cfg.Server.NoListen = true
	}
	server, err := embedded.Start(cfg.Server)
	if err != nil {
		return nil, err
	}
	l, err := startOn(server, cfg)
	if err != nil {
		server.Close()
		return nil, err
	}
	if err := l.await(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func checkLocal(cfg LocalConfig) error {
	h := cfg.Host
	switch {
	case cfg.Dir == "":
		return ledger.Refuse("Dir", "empty", "a folder for all data")
	case cfg.Server.Dir != "" || cfg.Server.NoStreams:
		return ledger.Refuse("Server", "another folder, or no streams", "the server of Dir")
	case h.Conn != nil || h.Dir != "" || h.StoreDir != "" || h.DurableServer != "" || h.System != nil:
		return ledger.Refuse("Host", "a server or a folder of its own", "those of Dir")
	case len(h.Tenants) > 0 || h.First != "" || h.Follow:
		return ledger.Refuse("Host", "tenants of its own", "LocalConfig.Tenants")
	}
	return nil
}

// ServerDir is the folder of the server within a folder of all data.
func ServerDir(dir string) string { return filepath.Join(dir, "nats") }

// StateDir is the folder of the host within a folder of all data.
func StateDir(dir string) string { return filepath.Join(dir, "executor") }

// On completes the configuration of a host for a server in this process and the folder of all
// data. The caller closes Conn.
func On(server *embedded.Server, dir string, cfg Config) (_ Config, err error) {
	if cfg.Conn, err = server.Connect(nats.Name("sagenbaum executor")); err != nil {
		return cfg, err
	}
	cfg.Dir, cfg.StoreDir, cfg.DurableServer = StateDir(dir), ServerDir(dir), server.DurableID()
	cfg.AcceptLossyBroker = cfg.AcceptLossyBroker || cfg.DurableServer == ""
	return cfg, nil
}

// probeEvery is how often a server in this process is asked whether it can store.
const probeEvery = time.Second

// Watch returns a context that ends with ctx, or, with the cause ErrMute, when the server can store
// nothing any more: start it again then, on the same folder, with a new host.
func Watch(ctx context.Context, server *embedded.Server) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { // ends with ctx
		for pause.For(ctx, probeEvery) {
			if err := server.Probe(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%w: %v", ErrMute, err))
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// startOn runs a host on a server.
func startOn(server *embedded.Server, cfg LocalConfig) (*Local, error) {
	cfg.Host.Tenants, cfg.Host.Follow = slices.Clone(cfg.Tenants), true
	if len(cfg.Tenants) == 0 {
		cfg.Host.First = "default"
	}
	all, err := On(server, cfg.Dir, cfg.Host)
	if err != nil {
		return nil, err
	}
	h, err := New(all)
	if err != nil {
		all.Conn.Close()
		return nil, err
	}
	ctx, cancel := Watch(context.Background(), server)
	l := &Local{server: server, host: h, own: all.Conn, cancel: cancel, ended: make(chan struct{})}
	l.close = sync.OnceValue(l.stop)
	go func() { // ends with Close
		defer close(l.ended)
		l.err = h.Run(ctx)
	}()
	return l, nil
}

// await waits until the tenants are held, or say why they cannot be.
func (l *Local) await(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with await
		select {
		case <-l.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	if l.host.Await(ctx) {
		return nil
	}
	select {
	case <-l.ended:
		return fmt.Errorf("cannot start: %w", l.err)
	default:
		return fmt.Errorf("cannot start: %w", ctx.Err())
	}
}

// awaitEvery is how often Await looks.
const awaitEvery = 5 * time.Millisecond

// Await returns true once every tenant is past its start: its ledger is folded, and it is held,
// here or by another host, or says why it cannot be. It returns false when ctx ends.
func (h *Host) Await(ctx context.Context) bool {
	select {
	case <-h.Ready():
	case <-ctx.Done():
		return false
	}
	for slices.ContainsFunc(h.Health(), starts) {
		if !pause.For(ctx, awaitEvery) {
			return false
		}
	}
	return true
}

// starts reports whether a tenant is about to be held.
func starts(t TenantHealth) bool {
	return t.Mode == api.ModeStarting || t.Mode == api.ModeStandby && t.Problem == ""
}

// Connect returns a connection for agents and workers, through memory and with all permissions.
// Close closes it.
func (l *Local) Connect(options ...nats.Option) (*nats.Conn, error) {
	conn, err := l.server.Connect(options...)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(slices.DeleteFunc(l.conns, (*nats.Conn).IsClosed), conn)
	return conn, nil
}

// URL is where other processes connect; empty: nowhere.
func (l *Local) URL() string { return l.server.URL() }

// Host is the host, for questions about its tenants.
func (l *Local) Host() *Host { return l.host }

// Ended is closed when nothing is folded or sent any more: after Close, or because the disk has
// failed, which Close then returns. Start goes on from the same folder.
func (l *Local) Ended() <-chan struct{} { return l.ended }

// Close ends the host and the server, and returns when all is on disk and the folder is free.
// Close agents and workers first: what they had acknowledged is kept in any case, and whatever is
// still to be undone goes on at the next start. It may be called more than once.
func (l *Local) Close() error { return l.close() }

func (l *Local) stop() error {
	l.cancel()
	<-l.ended
	err := errors.Join(l.err, l.host.Close())
	l.mu.Lock()
	conns := l.conns
	l.mu.Unlock()
	for _, conn := range append(conns, l.own) {
		conn.Close()
	}
	l.server.Close()
	return err
}
