// Package inprocess runs a NATS server and the executor in the process of a Go program, beside its
// agents and workers, as a library on one folder: with no port, and as durable as `serve`, which is
// made of the same parts.
//
//	s, err := inprocess.Start(ctx, inprocess.Config{Dir: "sagenbaum-data"})
//	conn, err := s.Connect()
//	c, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: "default", Agent: "writer"})
package inprocess

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
)

// Config says what Start runs in the process of a program. Only Dir is required.
type Config struct {
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
	Host host.Config
}

// Server is a server and a host in the process of a program. Its methods may be called from any
// goroutine.
type Server struct {
	server *embedded.Server
	host   *host.Host
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
// process uses, host.ErrNoRoom for a full disk, one that names the tenants that are halted, ctx's,
// or what the folder said.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if err := check(cfg); err != nil {
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
	s, err := startOn(server, cfg)
	if err != nil {
		server.Close()
		return nil, err
	}
	if err := s.await(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func check(cfg Config) error {
	h := cfg.Host
	switch {
	case cfg.Dir == "":
		return ledger.Refuse("Dir", "empty", "a folder for all data")
	case cfg.Server.Dir != "" || cfg.Server.NoStreams:
		return ledger.Refuse("Server", "another folder, or no streams", "the server of Dir")
	case h.Conn != nil || h.Dir != "" || h.StoreDir != "" || h.DurableServer != "" || h.System != nil:
		return ledger.Refuse("Host", "a server or a folder of its own", "those of Dir")
	case len(h.Tenants) > 0 || h.First != "" || h.Follow:
		return ledger.Refuse("Host", "tenants of its own", "Config.Tenants")
	}
	return nil
}

// ServerDir is the folder of the server within a folder of all data.
func ServerDir(dir string) string { return filepath.Join(dir, "nats") }

// StateDir is the folder of the host within a folder of all data.
func StateDir(dir string) string { return filepath.Join(dir, "executor") }

// On completes the configuration of a host for a server in this process and the folder of all
// data. The caller closes Conn.
func On(server *embedded.Server, dir string, cfg host.Config) (_ host.Config, err error) {
	if cfg.Conn, err = server.Connect(nats.Name("sagenbaum executor")); err != nil {
		return cfg, err
	}
	cfg.Dir, cfg.StoreDir, cfg.DurableServer = StateDir(dir), ServerDir(dir), server.DurableID()
	cfg.AcceptLossyBroker = cfg.AcceptLossyBroker || cfg.DurableServer == ""
	return cfg, nil
}

// probeEvery is how often a server in this process is asked whether it can store.
const probeEvery = time.Second

// Watch returns a context that ends with ctx, or, with the cause host.ErrMute, when the server can
// store nothing any more: start it again then, on the same folder, with a new host.
func Watch(ctx context.Context, server *embedded.Server) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { // ends with ctx
		for pause.For(ctx, probeEvery) {
			if err := server.Probe(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%w: %v", host.ErrMute, err))
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// startOn runs a host on a server.
func startOn(server *embedded.Server, cfg Config) (*Server, error) {
	cfg.Host.Tenants, cfg.Host.Follow = slices.Clone(cfg.Tenants), true
	if len(cfg.Tenants) == 0 {
		cfg.Host.First = "default"
	}
	all, err := On(server, cfg.Dir, cfg.Host)
	if err != nil {
		return nil, err
	}
	h, err := host.New(all)
	if err != nil {
		all.Conn.Close()
		return nil, err
	}
	ctx, cancel := Watch(context.Background(), server)
	s := &Server{server: server, host: h, own: all.Conn, cancel: cancel, ended: make(chan struct{})}
	s.close = sync.OnceValue(s.stop)
	go func() { // ends with Close
		defer close(s.ended)
		s.err = h.Run(ctx)
	}()
	return s, nil
}

// await waits until the tenants are held, or say why they cannot be.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with await
		select {
		case <-s.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	if s.host.Await(ctx) {
		return halted(s.host.Health())
	}
	select {
	case <-s.ended:
		return fmt.Errorf("cannot start: %w", s.err)
	default:
		return fmt.Errorf("cannot start: %w", ctx.Err())
	}
}

// halted is an error that names the tenants for which nothing is done.
func halted(tenants []host.TenantHealth) error {
	var errs []error
	for _, t := range tenants {
		if t.Halted() {
			errs = append(errs,
				fmt.Errorf("cannot start: tenant %s is halted: %s", t.Tenant, t.Problem))
		}
	}
	return errors.Join(errs...)
}

// Connect returns a connection for agents and workers, through memory and with all permissions.
// Close closes it.
func (s *Server) Connect(options ...nats.Option) (*nats.Conn, error) {
	conn, err := s.server.Connect(options...)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(slices.DeleteFunc(s.conns, (*nats.Conn).IsClosed), conn)
	return conn, nil
}

// URL is where other processes connect; empty: nowhere.
func (s *Server) URL() string { return s.server.URL() }

// Host is the host, for questions about its tenants.
func (s *Server) Host() *host.Host { return s.host }

// Ended is closed when nothing is folded or sent any more: after Close, or because the disk has
// failed, which Close then returns. Start goes on from the same folder, after host.ErrState in a
// new process.
func (s *Server) Ended() <-chan struct{} { return s.ended }

// Close ends the host and the server, and returns when all is on disk and the folder is free.
// Close agents and workers first: what they had acknowledged is kept in any case, and whatever is
// still to be undone goes on at the next start. It may be called more than once.
func (s *Server) Close() error { return s.close() }

func (s *Server) stop() error {
	s.cancel()
	<-s.ended
	err := errors.Join(s.err, s.host.Close())
	s.mu.Lock()
	conns := s.conns
	s.mu.Unlock()
	for _, conn := range append(conns, s.own) {
		conn.Close()
	}
	s.server.Close()
	return err
}
