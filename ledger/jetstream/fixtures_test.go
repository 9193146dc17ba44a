package jetstream_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
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
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
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
		seq, err := appendWithin(ctx, s, a)
		again := errors.Is(err, ledger.ErrBusy) && !errors.Is(err, ledger.ErrFull) || errors.Is(err, ledger.ErrInDoubt)
		if ctx.Err() != nil || !again {
			return seq, err
		}
		<-tick.C
	}
}

// answerWait is how long a question waits that a restart may have lost.
const answerWait = 700 * time.Millisecond

// appendWithin gives up waiting for a server that lost the question in a restart.
func appendWithin(ctx context.Context, s ledger.Store, a ledger.Append) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	return s.Append(ctx, a)
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
	all, err := taken(ctx, s, from, n)
	if err != nil {
		tb.Fatalf("read from %d, %d messages later: %v", from, len(all), err)
	}
	return all
}

// taken reads n messages, or as many as there are before an error.
func taken(ctx context.Context, s ledger.Store, from uint64, n int) (all []ledger.Message, err error) {
	for m, err := range s.Read(ctx, from) {
		if err != nil {
			return all, err
		}
		if all = append(all, m); len(all) == n {
			break
		}
	}
	return all, nil
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

// startServer starts a server, on a port of its own that it can be started on again.
func startServer(tb testing.TB, cfg embedded.Config) *embedded.Server {
	tb.Helper()
	if cfg.Port == 0 {
		ports, err := testenv.FreePorts(1)
		if err != nil {
			tb.Fatal(err)
		}
		cfg.Port = ports[0]
	}
	var server *embedded.Server
	err := testenv.Listen(func() (err error) {
		server, err = embedded.Start(cfg)
		return err
	})
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
	store, err := jetstream.Open(within(tb, 10*time.Second),
		jetstream.Config{Conn: conn, Tenant: "t", DurableServer: server.DurableID(),
			AcceptLossyBroker: server.DurableID() == ""})
	if err != nil {
		tb.Fatal(err)
	}
	return store
}

// putOver stores messages as a foreign client does.
func putOver(t *testing.T, conn *nats.Conn) func(subject, contentType string, data []byte) {
	return func(subject, contentType string, data []byte) {
		msg := nats.NewMsg(subject)
		msg.Data = data
		msg.Header.Set("Content-Type", contentType)
		// The other servers of a cluster learn of a new stream a moment later.
		until(t, within(t, 10*time.Second), "put", func() error {
			reply, err := conn.RequestMsg(msg, testenv.Patience)
			if err == nil && strings.Contains(string(reply.Data), `"error"`) {
				err = errors.New(string(reply.Data))
			}
			return err
		})
	}
}

// cluster is three servers in this process.
type cluster struct {
	dir        string
	generation int   // of the folders
	ports      []int // of clients, then of routes
	servers    []*natsd.Server
	system     *nats.Conn
}

// theCluster is shared by the tests that restart no server: each has tenants of its own.
var theCluster = sync.OnceValues(func() (*cluster, error) {
	clusterStarted.Store(true)
	return startCluster(clusterDir)
})

var clusterStarted atomic.Bool

func sharedCluster(t *testing.T) *cluster {
	t.Helper()
	c, err := theCluster()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ownCluster is one that a test may restart.
func ownCluster(t *testing.T) *cluster {
	t.Helper()
	c, err := startCluster(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

// clusterDir is where the shared cluster stores; TestMain sets and removes it.
var clusterDir string

const clusterConfig = `
server_name: n%d
listen: "127.0.0.1:%d"
jetstream { store_dir: %q, sync_interval: always }
accounts {
  TENANTS { jetstream: enabled, users: [ { user: tenant, password: tenant } ] }
  SYS { users: [ { user: sys, password: sys } ] }
}
system_account: SYS
no_auth_user: tenant
cluster { name: c, listen: "127.0.0.1:%d", routes: [ %s ] }
`

func startCluster(dir string) (*cluster, error) {
	ports, err := testenv.FreePorts(6)
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir, ports: ports}
	if err := c.start(3); err != nil {
		return nil, err
	}
	c.system, err = nats.Connect(c.servers[0].ClientURL(), nats.UserInfo("sys", "sys"), nats.MaxReconnects(-1),
		nats.ReconnectWait(20*time.Millisecond))
	return c, err
}

func (c *cluster) close() {
	c.system.Close()
	c.stop()
}

// openCluster opens an empty R3 stream, verified through the system account.
func openCluster(t *testing.T) ledger.Store {
	c := sharedCluster(t)
	conn, err := nats.Connect(c.servers[0].ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	ctx := within(t, 30*time.Second)
	var store *jetstream.Store
	until(t, ctx, "open on the cluster", func() error {
		// Before the cluster has a leader nobody answers.
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		store, err = jetstream.Open(ctx, jetstream.Config{Conn: conn, Tenant: "t", Replicas: 3, System: c.system})
		return err
	})
	t.Cleanup(func() {
		if _, err := conn.Request("$JS.API.STREAM.DELETE."+jetstream.StreamName("t"), nil, testenv.Patience); err != nil {
			t.Error(err)
		}
	})
	return store
}
