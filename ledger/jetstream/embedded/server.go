// Package embedded runs a NATS server with JetStream inside this process, so
// that one binary and one folder are all there is to install.
//
// It promises more than a server out of the box: every write is synced before it
// is acknowledged, one process at a time uses a folder, and no one but this
// machine can connect unless there are TLS and credentials.
//
//	server, err := embedded.Start(embedded.Config{Dir: "sagenbaum-data/nats"})
//	conn, err := server.Connect()
//	store, err := jetstream.Open(ctx, jetstream.Config{
//		Conn: conn, Tenant: "default", DurableServer: server.DurableID(),
//	})
package embedded

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
)

// PortDefault is where NATS clients look when no port is named.
const PortDefault = 4222

// readyWait bounds the start. A million messages are recovered in a second.
const readyWait = 2 * time.Minute

// Config says where and how the server runs.
type Config struct {
	Dir  string // folder of all its data; made if missing; one server at a time
	Host string // address to listen on; empty: 127.0.0.1. Others need TLS and users
	Port int    // 0: 4222; -1: a free one
	// NoSync acknowledges before the disk has synced: faster, and a power cut
	// loses acknowledged records.
	NoSync   bool
	MaxStore int64 // bytes of all streams; 0: three quarters of the disk
	// TLSCert and TLSKey are PEM files, both or none; with TLSCA clients must
	// show a certificate that it has signed.
	TLSCert, TLSKey, TLSCA string
	// Users who may connect, with what; nil: everybody on this machine may do everything.
	// Changes of the directory take effect at once.
	Users *access.Directory
	// Tenant is that of a user of all tenants whose client names none; empty: "default".
	Tenant string
	// Connections is how many connections the agents and sources of a tenant may have; 0: any
	// number. Agents that replay their functions are not counted, and always get in. nil: all
	// do. It is asked for each connection, from any goroutine.
	Connections func(tenant string) uint64
	// Erased reports whether a tenant was erased: none of its users is let in, and those who are
	// in are disconnected. nil: none was. It may be asked from any goroutine.
	Erased func(tenant string) bool
	Logger *slog.Logger // nil: silent
	// NoStreams starts NATS without JetStream: a server that answers on the same address
	// while Dir cannot be written. It leaves Dir alone; an append finds no stream.
	NoStreams bool
	// NoListen opens no port: only Connect reaches the server.
	NoListen bool
}

// ErrInUse is what Start, LockFolder and CheckFolder return of a folder that another server uses.
var ErrInUse = errors.New("another server uses it")

// Server is a running server. It is safe for concurrent use.
type Server struct {
	natsd   *natsd.Server
	durable bool
	gate    *gate       // nil: everybody is let in
	lock    *folderLock // nil: it uses no folder
	silent  bool        // it listens nowhere
	stop    func()
	tries   int // of Probe, while what it finds may pass
}

// Start starts a server and returns when it takes connections and has recovered
// its streams. What the configuration may not be is *ledger.Refused.
func Start(cfg Config) (*Server, error) {
	if cfg.Host == "" {
		cfg.Host = "127.0.0.1"
	}
	if cfg.Port == 0 {
		cfg.Port = PortDefault
	}
	if cfg.Tenant == "" {
		cfg.Tenant = "default"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := check(cfg); err != nil {
		return nil, err
	}
	s := &Server{tries: probeTries, durable: !cfg.NoSync && !cfg.NoStreams,
		silent: cfg.NoListen}
	options, err := s.options(cfg)
	if err != nil {
		return nil, err
	}
	if !cfg.NoStreams {
		if s.lock, err = lockFolder(cfg.Dir); err != nil {
			return nil, err
		}
		options.JetStreamMaxStore = maxStore(cfg) // of the folder, which is there now
	}
	if err := s.run(cfg, options); err != nil {
		s.release()
		return nil, err
	}
	s.stop = sync.OnceFunc(func() {
		if s.gate != nil {
			close(s.gate.stop)
			<-s.gate.ended
		}
		s.natsd.Shutdown()
		s.natsd.WaitForShutdown()
		s.release()
	})
	return s, nil
}

func (s *Server) release() {
	if s.lock != nil {
		s.lock.release()
	}
}

// LockFolder keeps other processes that lock a folder out of it until it is released, or this
// process ends; the folder is made where it is missing. The error is ErrInUse, or the system's.
func LockFolder(dir string) (release func(), err error) {
	lock, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	return lock.release, nil
}

// CheckFolder reports why no server could start on a folder now: it cannot be made or
// written, it is full, or another server uses it.
func CheckFolder(dir string) error {
	lock, err := lockFolder(dir)
	if err != nil {
		return err
	}
	defer lock.release()
	return writable(dir)
}

// check refuses what would open the server to the network unprotected.
func check(cfg Config) error {
	switch {
	case cfg.Dir == "":
		return ledger.Refuse("dir", "missing", "a folder for the server's data")
	case cfg.Port < -1 || cfg.Port > 65535:
		return ledger.Refuse("port", strconv.Itoa(cfg.Port),
			"1 to 65535, 0 for 4222, -1 for a free one")
	case cfg.MaxStore < 0:
		return ledger.Refuse("max_store", "negative", "bytes, or 0 for three quarters of the disk")
	case (cfg.TLSCert == "") != (cfg.TLSKey == ""), cfg.TLSCA != "" && cfg.TLSCert == "":
		return ledger.Refuse("tls", "half of it", "a certificate and its key")
	case !loopback(cfg.Host) && (cfg.TLSCert == "" || cfg.Users == nil):
		return ledger.Refuse("host",
			fmt.Sprintf("%s can be reached from the network without TLS and credentials", cfg.Host),
			"a loopback address, or tls_cert, tls_key and users")
	}
	return nil
}

// loopback reports whether host is certain to be this machine only. Names other
// than localhost are not looked up: what they mean may change.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// maxStore is the bound on all streams. The server's own default is a share of
// what is free at its start, which shrinks with every restart as the ledgers
// grow, down to nothing on a disk that was full for a moment.
func maxStore(cfg Config) int64 {
	if size := diskSize(cfg.Dir); cfg.MaxStore == 0 && size > 0 {
		return size / 4 * 3
	}
	return cfg.MaxStore
}

func (s *Server) options(cfg Config) (*natsd.Options, error) {
	options := &natsd.Options{
		ServerName: "sagenbaum", Host: cfg.Host, Port: cfg.Port,
		JetStream: !cfg.NoStreams, StoreDir: cfg.Dir,
		SyncAlways: !cfg.NoSync, NoSigs: true, DisableJetStreamBanner: true, DontListen: cfg.NoListen,
	}
	if cfg.TLSCert != "" {
		config, err := natsd.GenTLSConfig(&natsd.TLSConfigOpts{
			CertFile: cfg.TLSCert, KeyFile: cfg.TLSKey, CaFile: cfg.TLSCA, Verify: cfg.TLSCA != "",
			MinVersion: tls.VersionTLS12,
		})
		if err != nil {
			return nil, ledger.Refuse("tls", err.Error(), "PEM files of a certificate and its key")
		}
		options.TLSConfig, options.TLS = config, true
	}
	if cfg.Users != nil {
		s.gate = newGate(cfg)
		options.CustomClientAuthentication, options.AlwaysEnableNonce = s.gate, true
	}
	return options, nil
}

// run starts the server and waits until it is ready or has failed.
func (s *Server) run(cfg Config, options *natsd.Options) error {
	if err := portFree(cfg); err != nil {
		return err
	}
	if !cfg.NoStreams {
		if err := writable(cfg.Dir); err != nil {
			return err
		}
		if err := syncLeft(cfg); err != nil {
			return err
		}
	}
	instance, err := natsd.NewServer(options)
	if err != nil {
		return fmt.Errorf("cannot start NATS: %v", err)
	}
	log := &logger{slog: cfg.Logger, fatal: make(chan string, 1)}
	instance.SetLoggerV2(log, false, false, false)
	if s.gate != nil { // before it takes connections
		s.gate.natsd = instance
		if err := export(instance.GlobalAccount()); err != nil {
			return fmt.Errorf("cannot start NATS: %w", err)
		}
	}
	// Start returns when the server runs or could not be started; Close and a
	// failure below end what it has started.
	instance.Start()
	err = await(instance, log.fatal, !cfg.NoStreams)
	if err != nil {
		instance.Shutdown()
		instance.WaitForShutdown()
		return fmt.Errorf("cannot start NATS: %w", err)
	}
	s.natsd = instance
	if s.gate != nil {
		go s.gate.sweep() // ends with Close
	}
	return nil
}

// await returns when the server is ready, with its streams if it has any, has given up or
// takes too long.
func await(instance *natsd.Server, fatal <-chan string, streams bool) error {
	for deadline := time.Now().Add(readyWait); ; {
		ready := instance.ReadyForConnections(100 * time.Millisecond)
		select {
		case cause := <-fatal:
			return errors.New(cause)
		default:
		}
		switch {
		case ready && (instance.JetStreamEnabled() || !streams):
			return nil
		case ready:
			return errors.New("JetStream did not start")
		case time.Now().After(deadline):
			return fmt.Errorf("not ready after %s", readyWait)
		}
	}
}

// roomProbe is what must fit on the disk for a start. A server on a full disk
// would come up, find no room for the first record, and be mute.
const roomProbe = 1 << 20

// writable tells early, and in words, that a folder cannot be used.
func writable(dir string) error {
	file, err := os.CreateTemp(dir, ".probe-")
	if err != nil {
		return fmt.Errorf("cannot write to folder %s: %w", dir, withoutPath(err))
	}
	_, err = file.Write(make([]byte, roomProbe))
	if err == nil {
		err = file.Sync() // some file systems find out here
	}
	file.Close()
	if removed := os.Remove(file.Name()); err == nil {
		err = removed
	}
	if err != nil {
		return fmt.Errorf("cannot write to folder %s: %w", dir, withoutPath(err))
	}
	return nil
}

// withoutPath is what a file system said, without the name of a file that is gone again.
func withoutPath(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// portFree tells early that a port is taken. Another process may take it right
// afterwards; the server's own error then says so.
func portFree(cfg Config) error {
	if cfg.Port < 0 || cfg.NoListen {
		return nil
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.Port)))
	if err != nil {
		return fmt.Errorf("cannot listen on %s port %d (is another NATS server running? choose "+
			"another port): %w", cfg.Host, cfg.Port, err)
	}
	return listener.Close()
}

// DurableID is the server's ID when every write is synced before it is
// acknowledged, for jetstream.Config.DurableServer; empty with NoSync. It is
// another one after each start.
func (s *Server) DurableID() string {
	if !s.durable {
		return ""
	}
	return s.natsd.ID()
}

// URL is where clients on this machine connect. A server that listens on all addresses has the
// loopback one: the wildcard is no address to connect to, and no certificate has it. One that
// listens nowhere has none.
func (s *Server) URL() string {
	if s.silent {
		return ""
	}
	u, err := url.Parse(s.natsd.ClientURL())
	if err != nil {
		return s.natsd.ClientURL()
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsUnspecified() {
		host := "127.0.0.1"
		if ip.To4() == nil {
			host = "::1"
		}
		u.Host = net.JoinHostPort(host, u.Port())
	}
	return u.String()
}

// InProcess makes a connection go through memory instead of the network, with
// all permissions. TCP is faster for one large read, this for everything else.
func (s *Server) InProcess() nats.Option {
	return func(o *nats.Options) error {
		if s.gate != nil {
			o.User, o.Password = s.gate.user, s.gate.password
		}
		return nats.InProcessServer(s.natsd)(o)
	}
}

// Connect returns a connection in process, with all permissions.
func (s *Server) Connect(options ...nats.Option) (*nats.Conn, error) {
	conn, err := nats.Connect("", append([]nats.Option{s.InProcess()}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("cannot connect in process: %w", err)
	}
	return conn, nil
}

// ConnectDoor returns a connection in process to a tenant, for a door: with the permissions of
// access.Door.
func (s *Server) ConnectDoor(tenant string, options ...nats.Option) (*nats.Conn, error) {
	inside := func(o *nats.Options) error {
		if s.gate != nil {
			o.User, o.Password = s.gate.user+"."+tenant, s.gate.password
			o.InboxPrefix = access.User{Name: doorName, Role: access.Door}.Inbox()
		}
		return nats.InProcessServer(s.natsd)(o)
	}
	conn, err := nats.Connect("", append([]nats.Option{inside}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("cannot connect in process: %w", err)
	}
	return conn, nil
}

// Probe reports whether the server can still store. After a write error (a full
// disk, a failing one) a stream stays mute until the server is restarted, also
// when the disk has recovered: appends are in doubt and never answered. Then
// Probe fails, and Close and Start on the same folder make it speak again;
// everything acknowledged is there.
func (s *Server) Probe(ctx context.Context) error {
	// The server has no call for this; its own health page, asked in process, is
	// the one place that shows a stream's write error. It takes whatever lies beside the
	// account's folder for another account that has failed: a file that a server which was
	// killed at its start tried the disk with, lost+found.
	page := "/healthz?account=" + url.QueryEscape(natsd.DEFAULT_GLOBAL_ACCOUNT)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return fmt.Errorf("cannot ask the server: %w", err)
	}
	var answer healthAnswer
	folders := "" // not looked at yet
	for left, most := s.tries, probeRounds*s.tries; left > 0 && most > 0; left, most = left-1, most-1 {
		answer = healthAnswer{header: http.Header{}}
		s.natsd.HandleHealthz(&answer, request)
		switch answer.code {
		case http.StatusOK, 0:
			return nil
		case http.StatusNotFound: // the account has no stream yet, or its folder cannot be read
			if _, err := os.ReadDir(s.natsd.JetStreamConfig().StoreDir); err != nil {
				return fmt.Errorf("cannot store: %w", err)
			}
			return nil
		}
		if !s.mayPass(ctx, answer.body.Bytes()) {
			break
		}
		if now := s.streamFolders(); now != folders { // a stream is being made or deleted, however slowly
			folders, left = now, s.tries
		}
	}
	var health struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal(answer.body.Bytes(), &health); err != nil || health.Error == "" {
		health.Error = answer.body.String()
	}
	return fmt.Errorf("cannot store: %s", health.Error)
}

// mayPass reports whether what the health page says may be over by now: it gives the
// listener a millisecond, which a busy machine may not have, and calls a stream that is
// being made one that was not recovered.
func (s *Server) mayPass(ctx context.Context, page []byte) bool {
	switch {
	case bytes.Contains(page, []byte("failed to be ready after")):
		_ = s.natsd.ReadyForConnections(probeAgain) // it is asked again, whatever this says
		return ctx.Err() == nil
	case bytes.Contains(page, []byte("could not be recovered")):
		select {
		case <-ctx.Done():
			return false
		case <-time.After(probeAgain):
			return true
		}
	default:
		return false
	}
}

// streamFolders says which folders of streams there are, and when something was made or deleted in
// each: two that differ are from before and after some progress.
func (s *Server) streamFolders() string {
	var is strings.Builder
	root := filepath.Join(s.natsd.JetStreamConfig().StoreDir, natsd.DEFAULT_GLOBAL_ACCOUNT, "streams")
	// Nothing is lost by what cannot be read: Probe asks the server, and this only for how long.
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			fmt.Fprintln(&is, path, info.ModTime().UnixNano())
		}
		return nil
	})
	return is.String()
}

// probeTries bounds how often the health page is asked while what it says may pass,
// and probeAgain is how long a stream may take to be made, each time.
const (
	probeTries  = 150 // a machine that is busy with others has taken 6 s to make a stream
	probeRounds = 10  // how often it begins again, because the folders have changed
	probeAgain  = 200 * time.Millisecond
)

// healthAnswer receives the health page.
type healthAnswer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *healthAnswer) Header() http.Header         { return a.header }
func (a *healthAnswer) WriteHeader(code int)        { a.code = code }
func (a *healthAnswer) Write(b []byte) (int, error) { return a.body.Write(b) }

// Close stops the server and returns when all is on disk and the folder is free.
// Close the connections first. It may be called more than once.
func (s *Server) Close() { s.stop() }

// Running reports whether the server takes connections.
func (s *Server) Running() bool { return s.natsd.Running() }

// lockPath is the file that one server holds while it uses a folder.
func lockPath(dir string) string { return filepath.Join(dir, "lock") }

// logger hands the server's log to slog. Fatal must return: the server then gives
// up on the start, and run reports the cause.
type logger struct {
	slog  *slog.Logger
	fatal chan string

	mu     sync.Mutex
	since  time.Time // when the first violation of this time was logged
	logged int       // violations since then
	silent uint64    // of them, those that were not
}

// Violations that go into the log in some time: a client that may not publish, or connect, can try
// as often as it likes, and each line would hold up those of everyone.
const (
	violationsMax  = 20
	violationsTime = 10 * time.Second
)

// violation logs one that a client has committed, within bounds.
func (l *logger) violation(text string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.since) >= violationsTime {
		if l.silent > 0 {
			l.slog.Warn("nats refused more than it has logged", "refused", l.silent)
		}
		l.since, l.logged, l.silent = now, 0, 0
	}
	if l.logged == violationsMax {
		l.silent++
		return
	}
	l.logged++
	l.slog.Warn("nats", "text", text)
}

func (l *logger) Noticef(format string, v ...any) {
	l.slog.Debug("nats", "text", fmt.Sprintf(format, v...))
}
func (l *logger) Warnf(format string, v ...any) {
	l.slog.Warn("nats", "text", fmt.Sprintf(format, v...))
}
func (l *logger) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	// of a client: also one that is not let in
	if strings.Contains(text, " Violation - ") || strings.Contains(text, " - cid:") {
		l.violation(text, time.Now())
		return
	}
	l.slog.Error("nats", "text", text)
}
func (l *logger) Debugf(format string, v ...any) {}
func (l *logger) Tracef(format string, v ...any) {}

func (l *logger) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.slog.Error("nats", "text", text)
	select {
	case l.fatal <- text:
	default: // the first one is the cause
	}
}
