package console

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	hostask "github.com/sagenbaum/sagenbaum/executor/host/ask"
	"github.com/sagenbaum/sagenbaum/executor/host/console/access"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Source is the host that the pages are about; *host.Host is one.
type Source interface {
	Ask(tenant, verb string, question any) (any, error)
	Watch(tenant string) (*hostask.Watch, error)
	Pulse(tenant string) (api.Pulse, error)
	Ledger(tenant string) (ledger.Store, error)
	Copied(tenant string, sequence uint64, records int) (tiles.Copy, error)
	Tenants() []string
}

// Config says where a console listens and who may use it.
type Config struct {
	// Listen is HOST:PORT; port 0 takes a free one. An address that others can reach
	// needs TLSCert and TLSKey, PEM files.
	Listen          string
	TLSCert, TLSKey string

	// Users is the file that says who may do what (docs/guide/console.md). It is read again when it
	// changes. When it is not there, it is made with one admin, and NAME.token beside it has
	// the name and the token of that admin.
	Users string
	First string // the admin's name; empty: "admin"

	// Provider vouches for further users; nil: none. It leads browsers back to
	// URL + "login/provider/done". No one reads without a sign-in then.
	Provider *access.Provider

	// OpenRead lets every visitor of a loopback address read without signing in, for as long
	// as every user may act on all tenants.
	OpenRead bool

	// Beat is how long a stream of events may be silent until it says that it is alive; 0: 15 s.
	Beat time.Duration

	Version string       // shown on the health page
	Logger  *slog.Logger // nil: discards
}

// Server is a console that listens. Its host may come and go: see Attach.
type Server struct {
	cfg     Config
	log     *slog.Logger
	access  *access.Access
	place   place
	port    string
	leaf    *x509.Certificate // nil: none
	http    *http.Server
	names   func(string) bool // hosts that requests may name
	streams streams
	rates   rates
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex
	host *attached // nil: none at the moment
}

// attached is a host, and the connection by which operators' records are appended.
type attached struct {
	Source
	conn *nats.Conn
	gone chan struct{} // closed when it is detached
}

// Start listens. Errors: *ledger.Refused names the field of Config that is wrong;
// otherwise what the address or a file said.
func Start(cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.First = cmp.Or(cfg.First, "admin")
	cfg.Beat = cmp.Or(cfg.Beat, streamBeat)
	at, err := placeOf(cfg.Listen)
	if err != nil {
		return nil, err
	}
	secure, err := checkConfig(cfg, at)
	if err != nil {
		return nil, err
	}
	listeners, port, err := at.listen()
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s for the console: %w", cfg.Listen, err)
	}
	s := &Server{
		cfg: cfg, log: cfg.Logger, place: at, port: port,
		rates: rates{samples: map[string][]sample{}},
	}
	s.names = func(name string) bool { return strings.EqualFold(strings.Trim(name, "[]"), at.name) }
	if secure != nil {
		s.leaf = secure.Certificates[0].Leaf
		s.names = func(name string) bool { return s.leaf.VerifyHostname(name) == nil }
		for i, listener := range listeners {
			listeners[i] = tls.NewListener(listener, secure)
		}
	}
	if s.access, err = access.Open(access.Config{
		Users: cfg.Users, First: cfg.First, Port: port, Secure: secure != nil, Logger: cfg.Logger,
		Provider: cfg.Provider, Back: s.URL() + "login/provider/done",
	}); err != nil {
		closeAll(listeners)
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime,
		MaxHeaderBytes: headerBytesMax,
		ErrorLog:       slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	for _, listener := range listeners {
		s.running.Go(func() { // ends with Close
			if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				s.log.Error("console stopped", "cause", err)
			}
		})
	}
	s.running.Go(s.sample)
	s.running.Go(func() { s.access.Follow(s.ctx) })
	return s, nil
}

// checkConfig returns the TLS configuration, or nil for a console without.
func checkConfig(cfg Config, at place) (*tls.Config, error) {
	switch {
	case !ledger.ValidToken(cfg.First):
		return nil, ledger.Refuse(
			"first", fmt.Sprintf("%q is no name", cfg.First), ledger.TokenWanted,
		)
	case cfg.Users == "":
		return nil, ledger.Refuse("users", "no file", "a file of users")
	case (cfg.TLSCert == "") != (cfg.TLSKey == ""):
		return nil, ledger.Refuse(
			"tls", "a certificate without its key, or a key without its certificate", "both",
		)
	case cfg.TLSCert == "" && !at.here():
		return nil, ledger.Refuse(
			"listen", fmt.Sprintf("others can reach %s, and it has no certificate", cfg.Listen),
			"an address of this machine, as 127.0.0.1:4280, or a certificate and its key",
		)
	case cfg.Beat < 0:
		return nil, ledger.Refuse("beat", cfg.Beat.String(), "a duration above 0, or 0 for 15s")
	case cfg.OpenRead && !at.here():
		return nil, ledger.Refuse(
			"open_read", "others can reach "+cfg.Listen,
			"reading without a token on an address of this machine only",
		)
	case cfg.TLSCert == "":
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(cfg.TLSCert, cfg.TLSKey)
	if err != nil {
		return nil, ledger.Refuse("tls", err.Error(), "PEM files that fit each other")
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return nil, ledger.Refuse("tls", err.Error(), "a certificate")
		}
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
	}, nil
}

// URL is where the console is.
func (s *Server) URL() string {
	scheme, name := "http", s.place.name
	if s.leaf != nil {
		scheme, name = "https", nameOf(s.leaf, s.cfg.Listen)
	}
	return (&url.URL{Scheme: scheme, Host: net.JoinHostPort(name, s.port), Path: "/"}).String()
}

// nameOf is a name of a certificate: the one that is listened on, where it has that.
func nameOf(leaf *x509.Certificate, listen string) string {
	host, _, _ := net.SplitHostPort(listen)
	if host != "" && leaf.VerifyHostname(host) == nil {
		return host
	}
	for _, name := range leaf.DNSNames {
		if !strings.HasPrefix(name, "*") {
			return name
		}
	}
	for _, ip := range leaf.IPAddresses {
		return ip.String()
	}
	return host
}

// Attach has the console show a host until detach is called, which waits for nothing.
// Operators' records are appended over conn.
func (s *Server) Attach(source Source, conn *nats.Conn) (detach func()) {
	a := &attached{Source: source, conn: conn, gone: make(chan struct{})}
	s.mu.Lock()
	s.host = a
	s.mu.Unlock()
	var once sync.Once
	return func() {
		once.Do(func() {
			s.mu.Lock()
			if s.host == a {
				s.host = nil
			}
			s.mu.Unlock()
			close(a.gone)
		})
	}
}

// Close stops listening and ends every request.
func (s *Server) Close() {
	s.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
	}
	s.running.Wait()
}

// attached is the host of now, or nil.
func (s *Server) attached() *attached {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.host
}

// append stores one commit. In doubt, it tries again with the same id: a second copy
// changes nothing.
func (a *attached) append(
	ctx context.Context, tenant string, commit ledger.Append,
) (uint64, error) {
	appender, err := jetstream.Attach(a.conn, tenant)
	if err != nil {
		return 0, err
	}
	sequence, err := appender.Append(ctx, commit)
	if errors.Is(err, ledger.ErrInDoubt) && ctx.Err() == nil {
		sequence, err = appender.Append(ctx, commit)
	}
	return sequence, err
}
