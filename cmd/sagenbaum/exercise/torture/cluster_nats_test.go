//go:build exercise

package torture

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

const (
	// asNATS makes the test binary behave as nats-server, as its own main does.
	asNATS = "SAGENBAUM_TEST_AS_NATS"
	// keepToAddress has such a server tell clients of no other server, so that they
	// stay behind the proxy that they were given.
	keepToAddress = "keep to address"
	nodeCount     = 3
)

// runAsNATS is the main of nats-server.
func runAsNATS(args []string) {
	say := func(err error) {
		fmt.Fprintln(os.Stderr, "nats-server:", err)
		os.Exit(1)
	}
	options, err := natsd.ConfigureOptions(flag.NewFlagSet("nats-server", flag.ExitOnError), args, func() {}, func() {},
		func() {})
	if err != nil {
		say(err)
	}
	options.Cluster.NoAdvertise = os.Getenv(asNATS) == keepToAddress
	server, err := natsd.NewServer(options)
	if err != nil {
		say(err)
	}
	server.ConfigureLogger()
	go func() { // ends the process when who started it is gone
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	if err := natsd.Run(server); err != nil {
		say(err)
	}
	server.WaitForShutdown()
}

// natsNode is one NATS server of a cluster, a process of its own.
type natsNode struct {
	name, host, dir string
	inNamespace     string // empty: none of its own
	command         *exec.Cmd
}

// natsCluster is three of them, with testdata/cluster.conf.
type natsCluster struct {
	nodes [nodeCount]*natsNode
	mode  string
	// folder is what `sagenbaum cluster config` has written, with TLS and roles; empty: the
	// servers run testdata/cluster.conf.
	folder string
}

// clustersMade gives every cluster of a test process addresses of its own.
var clustersMade atomic.Int32

// newCluster names three servers without starting them.
func newCluster(t *testing.T) *natsCluster {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("*** SKIPPED: three servers need three loopback addresses, which Linux has ***")
	}
	c, dir := &natsCluster{mode: keepToAddress}, t.TempDir()
	net := fmt.Sprintf("127.%d.%d", 100+os.Getpid()%100, clustersMade.Add(1))
	for i := range c.nodes {
		name := fmt.Sprint("nats-", i+1)
		c.nodes[i] = &natsNode{name: name, host: fmt.Sprintf("%s.%d", net, i+1), dir: filepath.Join(dir, name)}
	}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			if t.Failed() {
				log, _ := os.ReadFile(n.log())
				t.Logf("%s said last:\n%s", n.name, log[max(0, len(log)-2000):])
			}
			if n.command != nil {
				_ = n.command.Process.Kill() // it may be gone
				_ = n.command.Wait()
			}
		}
	})
	return c
}

// startCluster starts three servers and waits until they keep streams together.
func startCluster(t *testing.T, ctx context.Context) *natsCluster {
	t.Helper()
	c := newCluster(t)
	c.start(t, ctx)
	return c
}

func (c *natsCluster) start(t *testing.T, ctx context.Context) {
	t.Helper()
	for i := range c.nodes {
		c.startNode(t, i)
	}
	c.awaitWhole(t, ctx)
}

func (n *natsNode) log() string { return n.dir + ".log" }

// startNode starts a server, or starts it again on what it has stored.
func (c *natsCluster) startNode(t *testing.T, i int) {
	t.Helper()
	n := c.nodes[i]
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	conf, err := filepath.Abs(filepath.Join("testdata", "cluster.conf"))
	if err != nil {
		t.Fatal(err)
	}
	args := []string{self, "-c", conf, "-l", n.log()}
	if n.inNamespace != "" {
		args = append([]string{"ip", "netns", "exec", n.inNamespace}, args...)
	}
	n.command = exec.Command(args[0], args[1:]...)
	if c.folder != "" {
		n.command.Args[2], n.command.Dir = "nats.conf", filepath.Join(c.folder, n.name)
	}
	n.command.Env = []string{
		asNATS + "=" + c.mode, "PATH=" + os.Getenv("PATH"), "NATS_NAME=" + n.name, "NATS_HOST=" + n.host,
		"NATS_STORE=" + n.dir,
		"CLUSTER_PASSWORD=cluster-secret", "HOST_PASSWORD=host-secret", "SYSTEM_PASSWORD=system-secret",
	}
	for j, other := range c.nodes {
		n.command.Env = append(n.command.Env,
			fmt.Sprintf("NATS_ROUTE_%d=nats-route://cluster:cluster-secret@%s:6222", j+1, other.host))
	}
	n.command.Stderr = os.Stderr
	if _, err := n.command.StdinPipe(); err != nil { // it ends with this process
		t.Fatal(err)
	}
	if err := n.command.Start(); err != nil {
		t.Fatal(err)
	}
}

// kill9 ends a server at once and waits until it is gone.
func (n *natsNode) kill9(t *testing.T) {
	t.Helper()
	if err := n.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = n.command.Wait() // it says that it was killed
}

// interrupt ends a server as an operator would.
func (n *natsNode) interrupt(t *testing.T) {
	t.Helper()
	if err := n.command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = n.command.Wait() // its code says nothing that matters here
}

// configured writes the files of a cluster with TLS and roles for these hosts, the agent
// "tester" and the worker "maker", and starts its servers.
func configured(t *testing.T, ctx context.Context, hosts ...string) *natsCluster {
	t.Helper()
	c := newCluster(t)
	c.folder = filepath.Join(t.TempDir(), "cluster")
	args := []string{"cluster", "config", c.folder, "--store-dir", "store"}
	for _, n := range c.nodes {
		args = append(args, "--server", n.name+"="+n.host)
	}
	for _, host := range hosts {
		args = append(args, "--host", host)
	}
	c.addUser(t, "tester", "--role", "agent")
	c.addUser(t, "maker", "--role", "worker", "--serve", "thing.>")
	cmdtest.Run(t, args...).Wants(t, "cluster config", cli.ExitGood, "next: copy")
	cmdtest.CredsOf.Store(c.urls(""), filepath.Join(c.folder, "operator.creds"))
	c.start(t, ctx)
	return c
}

// urls are the servers as a user writes them.
func (c *natsCluster) urls(user string) string {
	var urls []string
	if c.folder != "" {
		for _, n := range c.nodes {
			urls = append(urls, "tls://"+n.host+":4222")
		}
		return strings.Join(urls, ",")
	}
	for _, n := range c.nodes {
		urls = append(urls, fmt.Sprintf("nats://%s:%s-secret@%s:4222", user, user, n.host))
	}
	return strings.Join(urls, ",")
}

// credsOf is the file of a user's credentials in a configured cluster; "host" is host-a.
func (c *natsCluster) credsOf(user string) string {
	if user == "host" {
		return filepath.Join(c.folder, "host-a", "host.creds")
	}
	return filepath.Join(c.folder, user+".creds")
}

// addUser adds a user to a configured cluster. The servers know it after the next configuration.
func (c *natsCluster) addUser(t *testing.T, name string, args ...string) {
	t.Helper()
	r := cmdtest.Run(t, append([]string{"user", "add", name, "--tenant", tortureTenant, "--file",
		filepath.Join(c.folder, "users")}, args...)...)
	r.Wants(t, "user add", cli.ExitGood)
	if err := os.WriteFile(c.credsOf(name), []byte(r.Stdout), 0o600); err != nil {
		t.Fatal(err)
	}
}

// connect retries until any of the servers answers.
func (c *natsCluster) connect(t *testing.T, ctx context.Context, user string) (conn *nats.Conn) {
	t.Helper()
	options := []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2), nats.Timeout(time.Second)}
	if c.folder != "" {
		own, creds, err := connect.File(c.credsOf(user), "")
		if err != nil {
			t.Fatal(err)
		}
		if options = append(options, own...); creds.CA == "" { // made before there was an authority
			options = append(options, nats.RootCAs(filepath.Join(c.folder, "ca.pem")))
		}
	}
	cmdtest.Until(t, ctx, "a server of the cluster lets "+user+" in", func() bool {
		var err error
		conn, err = nats.Connect(c.urls(user), options...)
		return err == nil
	})
	t.Cleanup(conn.Close)
	return conn
}

// awaitWhole waits until all three servers can take a replica each.
func (c *natsCluster) awaitWhole(t *testing.T, ctx context.Context) {
	t.Helper()
	client, err := js.New(c.connect(t, ctx, "host"))
	if err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, ctx, "three servers keep a stream", func() bool {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := client.CreateStream(short,
			js.StreamConfig{Name: "PROBE", Subjects: []string{"probe"}, Storage: js.MemoryStorage, Replicas: nodeCount})
		return err == nil && client.DeleteStream(short, "PROBE") == nil
	})
}

// leader is the index of the server that leads the ledger's stream.
func (c *natsCluster) leader(t *testing.T, ctx context.Context, conn *nats.Conn) (leader int) {
	t.Helper()
	cmdtest.Until(t, ctx, "the ledger has a leader", func() bool {
		leader = c.leaderNow(ctx, conn)
		return leader >= 0
	})
	return leader
}

// leaderNow is leader, or -1 while there is none.
func (c *natsCluster) leaderNow(ctx context.Context, conn *nats.Conn) int {
	info := c.info(ctx, conn)
	if info == nil || info.Cluster == nil {
		return -1
	}
	return slices.IndexFunc(c.nodes[:], func(n *natsNode) bool { return n.name == info.Cluster.Leader })
}

// info is what the leader of the ledger's stream says of it; nil: nobody answers.
func (c *natsCluster) info(ctx context.Context, conn *nats.Conn) *js.StreamInfo {
	client, err := js.New(conn)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	stream, err := client.Stream(ctx, jetstream.StreamName(tortureTenant))
	if err != nil {
		return nil
	}
	return stream.CachedInfo()
}

// stepDown has the leader of the ledger's stream give that up. It may have gone.
func (c *natsCluster) stepDown(ctx context.Context, conn *nats.Conn) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _ = conn.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+jetstream.StreamName(tortureTenant), nil)
}

// awaitCurrent waits until every replica of the ledger has all of it.
func (c *natsCluster) awaitCurrent(t *testing.T, ctx context.Context, conn *nats.Conn) {
	t.Helper()
	cmdtest.Until(t, ctx, "all replicas are current", func() bool {
		info := c.info(ctx, conn)
		if info == nil || info.Cluster == nil || len(info.Cluster.Replicas) != nodeCount-1 {
			return false
		}
		for _, r := range info.Cluster.Replicas {
			if !r.Current || r.Offline || r.Lag != 0 {
				return false
			}
		}
		return true
	})
}
