package jetstream_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
)

const (
	executorSubject = "saga.t.executor"
	termSubject     = "saga.t.executor.term"
)

// within returns a context that ends with the test or after d.
func within(tb testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	tb.Cleanup(cancel)
	return ctx
}

func newID() string {
	var id [16]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

func commit(plan, data string) ledger.Append {
	return ledger.Append{Subject: "saga.t.agent.a1." + plan, ID: newID(), Data: []byte(data)}
}

func fenced(subject, data string, fence uint64) ledger.Append {
	return ledger.Append{Subject: subject, ID: newID(), Data: []byte(data), FenceSubject: termSubject, Fence: fence}
}

// retrying appends as every caller does: busy or in doubt (a cluster on a loaded
// machine changes its leader) is asked again, with the same id.
func retrying(ctx context.Context, s ledger.Store, a ledger.Append) (uint64, error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		seq, err := s.Append(ctx, a)
		if ctx.Err() != nil || !errors.Is(err, ledger.ErrBusy) && !errors.Is(err, ledger.ErrInDoubt) {
			return seq, err
		}
		<-tick.C
	}
}

func mustAppend(tb testing.TB, ctx context.Context, s ledger.Store, a ledger.Append) uint64 {
	tb.Helper()
	seq, err := retrying(ctx, s, a)
	if err != nil {
		tb.Fatalf("append to %s: %v", a.Subject, err)
	}
	return seq
}

// until tries again until try succeeds or ctx ends.
func until(tb testing.TB, ctx context.Context, what string, try func() error) {
	tb.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}

func headOf(tb testing.TB, s ledger.Store) ledger.Head {
	tb.Helper()
	h, err := s.Head(within(tb, 10*time.Second))
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// take reads n messages.
func take(tb testing.TB, ctx context.Context, s ledger.Store, from uint64, n int) []ledger.Message {
	tb.Helper()
	var all []ledger.Message
	for m, err := range s.Read(ctx, from) {
		if err != nil {
			tb.Fatalf("read from %d, %d messages later: %v", from, len(all), err)
		}
		if all = append(all, m); len(all) == n {
			break
		}
	}
	return all
}

// take2 reads messages without their errors.
func take2(ctx context.Context, s ledger.Store, from uint64) iter.Seq[ledger.Message] {
	return func(yield func(ledger.Message) bool) {
		for m, err := range s.Read(ctx, from) {
			if err != nil || !yield(m) {
				return
			}
		}
	}
}

// readErr reads until the error.
func readErr(ctx context.Context, s ledger.Store, from uint64) error {
	for _, err := range s.Read(ctx, from) {
		if err != nil {
			return err
		}
	}
	return nil
}

func isRefused(err error, field string) bool {
	var refused *ledger.Refused
	return errors.As(err, &refused) && refused.Field == field
}

func isHalted(err error, guard string) bool {
	var halted *ledger.Halted
	return errors.As(err, &halted) && halted.Guard == guard
}

func newMemory() *ledger.Memory {
	var clock atomic.Int64
	return ledger.NewMemory("t", func() int64 { return clock.Add(1) })
}

func startServer(tb testing.TB, cfg embedded.Config) *embedded.Server {
	tb.Helper()
	if cfg.Port == 0 {
		cfg.Port = -1
	}
	server, err := embedded.Start(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(server.Close)
	return server
}

func connect(tb testing.TB, server *embedded.Server, options ...nats.Option) *nats.Conn {
	tb.Helper()
	conn, err := server.Connect(options...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(conn.Close)
	return conn
}

func openOn(tb testing.TB, server *embedded.Server, conn *nats.Conn) *jetstream.Store {
	tb.Helper()
	store, err := jetstream.Open(within(tb, 10*time.Second), jetstream.Config{Conn: conn, Tenant: "t", DurableServer: server.DurableID(), AcceptLossyBroker: server.DurableID() == ""})
	if err != nil {
		tb.Fatal(err)
	}
	return store
}

func putOver(t *testing.T, conn *nats.Conn) putter {
	return func(subject, contentType string, data []byte) {
		msg := nats.NewMsg(subject)
		msg.Data = data
		msg.Header.Set("Content-Type", contentType)
		// The other servers of a cluster learn of a new stream a moment later.
		until(t, within(t, 10*time.Second), "put", func() error {
			reply, err := conn.RequestMsg(msg, 5*time.Second)
			if err == nil && strings.Contains(string(reply.Data), `"error"`) {
				err = errors.New(string(reply.Data))
			}
			return err
		})
	}
}

func openSingle(t *testing.T) (ledger.Store, putter) {
	server := startServer(t, embedded.Config{Dir: t.TempDir()})
	conn := connect(t, server)
	return openOn(t, server, conn), putOver(t, conn)
}

// cluster is three servers in this process, shared by the tests that need one:
// each test has the tenant's stream for itself.
type cluster struct {
	servers []*natsd.Server
	system  *nats.Conn
}

var theCluster = sync.OnceValues(func() (*cluster, error) {
	clusterStarted.Store(true)
	return startCluster(clusterDir)
})

var clusterStarted atomic.Bool

// clusterDir is where the shared cluster stores; TestMain sets and removes it.
var clusterDir string

func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

const clusterConfig = `
server_name: n%d
listen: "127.0.0.1:-1"
jetstream { store_dir: "%s/n%d", sync_interval: always }
accounts {
  TENANTS { jetstream: enabled, users: [ { user: tenant, password: tenant } ] }
  SYS { users: [ { user: sys, password: sys } ] }
}
system_account: SYS
no_auth_user: tenant
cluster { name: c, listen: "127.0.0.1:%d", routes: [ "%s", "%s", "%s" ] }
`

func startCluster(dir string) (*cluster, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	var routes []*url.URL
	for _, port := range ports {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	c := &cluster{}
	for i, port := range ports {
		config := fmt.Sprintf(clusterConfig, i, dir, i, port, routes[0], routes[1], routes[2])
		file := filepath.Join(dir, fmt.Sprintf("n%d.conf", i))
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			return nil, err
		}
		options, err := natsd.ProcessConfigFile(file)
		if err != nil {
			return nil, err
		}
		options.NoSigs, options.NoLog = true, true
		server, err := natsd.NewServer(options)
		if err != nil {
			return nil, err
		}
		c.servers = append(c.servers, server)
		server.Start()
	}
	for _, server := range c.servers {
		if !server.ReadyForConnections(20 * time.Second) {
			return nil, errors.New("a server of the cluster is not ready")
		}
	}
	c.system, err = nats.Connect(c.servers[0].ClientURL(), nats.UserInfo("sys", "sys"))
	return c, err
}

func (c *cluster) close() {
	c.system.Close()
	for _, server := range c.servers {
		server.Shutdown()
	}
	for _, server := range c.servers {
		server.WaitForShutdown()
	}
}

// openCluster opens an empty R3 stream, verified through the system account.
func openCluster(t *testing.T) (ledger.Store, putter) {
	c, err := theCluster()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := nats.Connect(c.servers[0].ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	ctx := within(t, 30*time.Second)
	var store *jetstream.Store
	until(t, ctx, "open on the cluster", func() error {
		// Before the cluster has a leader nobody answers.
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		store, err = jetstream.Open(ctx, jetstream.Config{Conn: conn, Tenant: "t", Replicas: 3, System: c.system})
		return err
	})
	t.Cleanup(func() {
		if _, err := conn.Request("$JS.API.STREAM.DELETE."+jetstream.StreamName("t"), nil, 10*time.Second); err != nil {
			t.Error(err)
		}
	})
	return store, putOver(t, conn)
}
