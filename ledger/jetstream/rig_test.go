package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
)

// rig is what the contract is tried on: Memory, one server, or a cluster of three.
type rig interface {
	// open returns an empty ledger of a tenant; bytesMax is its capacity, 0: none.
	open(t *testing.T, tenant string, bytesMax int64) *bed
	// restart stops all servers and starts them again, cleanly or as after a crash;
	// the stores and readers that are open go on by themselves.
	restart(t *testing.T, crash bool)
}

// bed is one tenant's ledger under the contract, with what can happen to it.
type bed struct {
	*testing.T
	ctx    context.Context
	tenant string
	store  ledger.Store
	other  ledger.Store // the same ledger over another connection
	copies int          // servers that keep it

	put func(subject, contentType string, data []byte) // as a foreign client does
	// expire lets the dedupe window pass for what is stored; a marker may be
	// appended on the way.
	expire func()
	// faulty is the same ledger over a network that can be broken: the next append
	// gets the fault. sever takes the network away until heal.
	faulty      func() (store ledger.Store, next func(ledger.Fault))
	sever, heal func()
	// fragile makes an empty ledger anew whose records can be lost: lose and cut do,
	// as broken files under a server would; cut loses the tail and restarts.
	fragile func()
	lose    func(sequence uint64)
	cut     func(last uint64)
}

func (b *bed) subject(rest string) string { return "saga." + b.tenant + "." + rest }
func (b *bed) term() string               { return b.subject("executor.term") }
func (b *bed) executor() string           { return b.subject("executor") }

func (b *bed) commit(plan, data string) ledger.Append {
	return ledger.Append{Subject: b.subject("agent.a1." + plan), ID: newID(), Data: []byte(data)}
}

// fenced is an append that is fenced on the term subject.
func (b *bed) fenced(subject, data string, fence uint64) ledger.Append {
	return ledger.Append{Subject: subject, ID: newID(), Data: []byte(data), FenceSubject: b.term(), Fence: fence}
}

// must appends and wants it stored at a sequence; 0: any.
func (b *bed) must(a ledger.Append, want uint64) uint64 {
	b.Helper()
	seq := mustAppend(b, b.ctx, b.store, a)
	if want != 0 && seq != want {
		b.Fatalf("append of %q got %d, want %d", a.Data, seq, want)
	}
	return seq
}

// conflict wants an append to be a conflict that says where its fence is.
func (b *bed) conflict(a ledger.Append) uint64 {
	b.Helper()
	var at *ledger.Fenced
	seq, err := retrying(b.ctx, b.store, a)
	if !errors.Is(err, ledger.ErrConflict) || !errors.As(err, &at) {
		b.Fatalf("append of %q: %d, %v; want a conflict", a.Data, seq, err)
	}
	return at.Last
}

// wantLast wants the ledger to be 1..last without a hole.
func (b *bed) wantLast(last uint64) {
	b.Helper()
	if h := headOf(b, b.store); h.First != 1 || h.Last != last || h.Deleted != 0 {
		b.Fatalf("head %+v, want 1..%d", h, last)
	}
}

// briefly appends and gives up soon: for appends that get no answer.
func (b *bed) briefly(s ledger.Store, a ledger.Append) error {
	ctx, cancel := context.WithTimeout(b.ctx, 250*time.Millisecond)
	defer cancel()
	_, err := s.Append(ctx, a)
	return err
}

// memoryRig holds Memory to the contract.
type memoryRig struct {
	mu     sync.Mutex // guards stores
	stores []*ledger.Memory
}

func (r *memoryRig) restart(*testing.T, bool) {
	for _, m := range r.stores {
		m.Restart()
	}
}

func (r *memoryRig) open(t *testing.T, tenant string, bytesMax int64) *bed {
	var clock atomic.Int64
	m := ledger.NewMemory(tenant, func() int64 { return clock.Add(1) })
	m.BytesMax = bytesMax
	r.mu.Lock()
	r.stores = append(r.stores, m)
	r.mu.Unlock()
	next := ledger.FaultNone
	m.Fault = func(ledger.Append) ledger.Fault {
		fault := next
		next = ledger.FaultNone
		return fault
	}
	return &bed{
		T: t, ctx: within(t, caseWait), tenant: tenant, store: m, other: m, copies: 1,
		put:    func(subject, contentType string, data []byte) { m.Put(subject, contentType, data) },
		expire: m.Forget,
		faulty: func() (ledger.Store, func(ledger.Fault)) { return m, func(f ledger.Fault) { next = f } },
		sever:  func() {}, heal: func() {}, fragile: func() {},
		lose: m.Drop, cut: m.Truncate,
	}
}

// caseWait bounds one case, restarts included.
const caseWait = 2 * time.Minute

// serverRig is one server that stores on disk. Its port stays over restarts.
type serverRig struct {
	t      *testing.T
	dir    string
	server *embedded.Server
	port   int
	conn   *nats.Conn
	second *nats.Conn
}

func newServerRig(t *testing.T) *serverRig {
	r := &serverRig{t: t, dir: t.TempDir()}
	r.server = startServer(t, embedded.Config{Dir: r.dir})
	r.conn, r.second = patient(t, r.server), patient(t, r.server)
	r.port = portOf(t, r.conn)
	return r
}

// restart after a crash goes on with the files as they are under the running
// server: nothing that it does at its end has been done.
func (r *serverRig) restart(t *testing.T, crash bool) {
	if crash {
		dir := r.t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(r.dir)); err != nil {
			t.Fatal(err)
		}
		r.dir = dir
	}
	r.server.Close()
	r.server = startServer(r.t, embedded.Config{Dir: r.dir, Port: r.port})
}

func (r *serverRig) open(t *testing.T, tenant string, bytesMax int64) *bed {
	n := &natsBed{t: t, conn: r.conn, second: r.second,
		upstream: func() string { return fmt.Sprintf("127.0.0.1:%d", r.port) }}
	n.config = jetstream.Config{Tenant: tenant, MaxBytes: bytesMax, DurableServer: r.server.DurableID(),
		AcceptLossyBroker: true}
	return n.bed()
}

// clusterRig is a stream of three replicas on a cluster.
type clusterRig struct {
	*cluster
	conn, second *nats.Conn
}

func newClusterRig(t *testing.T, c *cluster) *clusterRig {
	r := &clusterRig{cluster: c}
	for i, conn := range []**nats.Conn{&r.conn, &r.second} {
		var err error
		if *conn, err = nats.Connect(c.servers[i].ClientURL(), nats.IgnoreDiscoveredServers(), nats.MaxReconnects(-1),
			nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup((*conn).Close)
	}
	return r
}

func (r *clusterRig) restart(t *testing.T, crash bool) {
	if err := r.cluster.restart(crash); err != nil {
		t.Fatal(err)
	}
}

func (r *clusterRig) open(t *testing.T, tenant string, bytesMax int64) *bed {
	n := &natsBed{t: t, conn: r.conn, second: r.second,
		upstream: func() string { return fmt.Sprintf("127.0.0.1:%d", r.ports[2]) }}
	n.config = jetstream.Config{Tenant: tenant, MaxBytes: bytesMax, Replicas: 3, AcceptLossyBroker: true}
	return n.bed()
}

// natsBed makes a bed of a tenant's stream.
type natsBed struct {
	t            *testing.T
	conn, second *nats.Conn
	upstream     func() string // address of a server
	config       jetstream.Config
	ctx          context.Context
	proxy        *proxy
	kept         *jetstream.Store // as opened at first: Open refuses a fragile stream
	loose        js.StreamConfig  // of fragile
}

func (n *natsBed) bed() *bed {
	n.ctx = within(n.t, caseWait)
	n.t.Cleanup(func() {
		if n.proxy != nil {
			n.proxy.close()
		}
	})
	n.kept = n.open(n.conn)
	b := &bed{
		T: n.t, ctx: n.ctx, tenant: n.config.Tenant, store: n.kept, other: n.open(n.second),
		copies: max(n.config.Replicas, 1),
		put:    putOver(n.t, n.conn), expire: n.expire, faulty: n.faulty,
		sever: func() { n.proxy.set(proxySevered) }, heal: func() { n.proxy.set(proxyOpen) },
		fragile: n.fragile, cut: n.cut,
	}
	b.lose = func(sequence uint64) {
		until(n.t, n.ctx, "lose a record", func() error { return n.stream().DeleteMsg(n.ctx, sequence) })
	}
	return b
}

// open is tried until it is done: a cluster may be without a leader, and the server of this
// connection may not know yet that a stream takes the subjects. An append behind a fence
// that never was is a conflict then, and leaves nothing behind.
func (n *natsBed) open(conn *nats.Conn) *jetstream.Store {
	n.t.Helper()
	config := n.config
	config.Conn = conn
	var store *jetstream.Store
	until(n.t, n.ctx, "open", func() (err error) {
		ctx, cancel := context.WithTimeout(n.ctx, 2*time.Second)
		defer cancel()
		if store, err = jetstream.Open(ctx, config); err != nil {
			return err
		}
		subject := "saga." + config.Tenant + ".fact.probe"
		_, err = store.Append(ctx, ledger.Append{Subject: subject, ID: newID(), Data: []byte("x"),
			FenceSubject: subject, Fence: 1 << 40})
		if errors.Is(err, ledger.ErrConflict) {
			return nil
		}
		return fmt.Errorf("an append behind a fence that never was: %v", err)
	})
	return store
}

func (n *natsBed) stream() js.Stream {
	n.t.Helper()
	stream, err := admin(n.t, n.conn).Stream(n.ctx, jetstream.StreamName(n.config.Tenant))
	if err != nil {
		n.t.Fatal(err)
	}
	return stream
}

// expire shortens the window, and waits until a marker is stored a second time:
// what was stored before it is then forgotten, too.
func (n *natsBed) expire() {
	n.t.Helper()
	marker := ledger.Append{Subject: "saga." + n.config.Tenant + ".fact.marker", ID: newID(), Data: []byte("marker")}
	first := mustAppend(n.t, n.ctx, n.kept, marker)
	config := n.stream().CachedInfo().Config
	config.Duplicates = 100 * time.Millisecond
	until(n.t, n.ctx, "expire", func() error {
		// A change makes the server look at its ids, sometimes by the window as it was:
		// it is changed again until they are gone.
		config.Duplicates++
		if _, err := admin(n.t, n.conn).UpdateStream(n.ctx, config); err != nil {
			return err
		}
		if mustAppend(n.t, n.ctx, n.kept, marker) == first {
			return errors.New("the marker is remembered")
		}
		return nil
	})
}

func (n *natsBed) faulty() (ledger.Store, func(ledger.Fault)) {
	n.t.Helper()
	p, err := startProxy(n.upstream)
	if err != nil {
		n.t.Fatal(err)
	}
	n.proxy = p
	conn, err := nats.Connect("nats://"+p.address(), nats.IgnoreDiscoveredServers(), nats.MaxReconnects(-1),
		nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(conn.Close)
	store := n.open(conn)
	return store, func(f ledger.Fault) {
		// A connection that is not back yet would keep the append and send it later.
		until(n.t, n.ctx, "reconnect", func() error { return conn.FlushTimeout(time.Second) })
		switch f {
		case ledger.FaultLost:
			p.set(proxyLosesRequest)
		case ledger.FaultKept:
			p.set(proxyLosesReply)
		default:
			n.t.Fatalf("no network makes fault %d", f)
		}
	}
}

func (n *natsBed) fragile() {
	n.t.Helper()
	n.loose = n.stream().CachedInfo().Config
	n.loose.DenyDelete, n.loose.Metadata = false, nil
	n.anew()
}

// anew makes the stream again, empty.
func (n *natsBed) anew() {
	n.t.Helper()
	client := admin(n.t, n.conn)
	if err := client.DeleteStream(n.ctx, n.loose.Name); err != nil {
		n.t.Fatal(err)
	}
	until(n.t, n.ctx, "make the stream again", func() error {
		_, err := client.CreateStream(n.ctx, n.loose)
		return err
	})
}

// cut makes the stream again with its first records only.
func (n *natsBed) cut(last uint64) {
	n.t.Helper()
	kept := take(n.t, n.ctx, n.kept, 1, int(last))
	n.anew()
	for _, m := range kept {
		mustAppend(n.t, n.ctx, n.kept, ledger.Append{Subject: m.Subject, ID: newID(), Data: m.Data})
	}
}

// clusterFolder is where a server of the cluster stores, generation by generation.
func clusterFolder(dir string, server, generation int) string {
	return fmt.Sprintf("%s/n%d.%d", dir, server, generation)
}

// restart stops all servers and starts them again.
func (c *cluster) restart(crash bool) error {
	if crash {
		for i := range c.servers {
			if err := os.CopyFS(clusterFolder(c.dir, i, c.generation+1),
				os.DirFS(clusterFolder(c.dir, i, c.generation))); err != nil {
				return err
			}
		}
		c.generation++
	}
	c.stop()
	return c.start(3)
}

func (c *cluster) stop() {
	for _, server := range c.servers {
		server.Shutdown()
	}
	for _, server := range c.servers {
		server.WaitForShutdown()
	}
}

// start starts so many of the three servers on their folders and ports.
func (c *cluster) start(servers int) error {
	c.servers = nil
	for i := range servers {
		server, err := c.node(i)
		if err != nil {
			return err
		}
		c.servers = append(c.servers, server)
		server.Start()
	}
	return c.ready()
}

// again starts one server again.
func (c *cluster) again(i int) error {
	server, err := c.node(i)
	if err == nil {
		c.servers[i] = server
		server.Start()
		err = c.ready()
	}
	return err
}

func (c *cluster) node(i int) (*natsd.Server, error) {
	var routes []string
	for _, port := range c.ports[3:] {
		routes = append(routes, fmt.Sprintf("%q", fmt.Sprintf("nats://127.0.0.1:%d", port)))
	}
	file := clusterFolder(c.dir, i, c.generation) + ".conf"
	config := fmt.Sprintf(clusterConfig, i, c.ports[i], clusterFolder(c.dir, i, c.generation), c.ports[3+i],
		strings.Join(routes, ", "))
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	options, err := natsd.ProcessConfigFile(file)
	if err != nil {
		return nil, err
	}
	options.NoSigs, options.NoLog = true, true
	return natsd.NewServer(options)
}

func (c *cluster) ready() error {
	for _, server := range c.servers {
		if server.Running() && !server.ReadyForConnections(20*time.Second) {
			return errors.New("a server of the cluster is not ready")
		}
	}
	return nil
}
