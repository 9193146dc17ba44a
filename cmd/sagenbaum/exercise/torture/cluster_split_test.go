//go:build exercise && linux

package torture

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// The holder is cut off from NATS: first its connections hang, then they break and
// no new one comes through. It stops deciding when it cannot renew its lease,
// another host takes over, and when the way is open again it stands by.
func TestHolderCutOffFromNATS(t *testing.T) {
	t.Parallel()
	times := tortureCycles(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), clusterPace(2+2*times))
	defer cancel()
	a := plainArena(t, startCluster(t, ctx), ctx, 2*time.Second)
	ways := a.behindProxies(t, "host-a")
	a.start(t, "host-a")
	a.start(t, "host-b")
	a.work(t, ctx)
	for range times {
		for how, cut := range map[string]func(){"connections hang": func() {}, "connections break": func() {
			for _, p := range ways {
				p.cut()
			}
		}} {
			a.give(t, ctx, "host-a")
			a.load.await(t, ctx, a.load.count()+acksMin)
			was := a.holder(t, ctx, "", 0)
			a.lose(how, was)
			for _, p := range ways {
				p.hang(true)
			}
			cut()
			a.takenOver(t, ctx, was)
			for _, p := range ways {
				p.hang(false)
			}
			a.awaitStandby(t, ctx, "host-a")
		}
	}
	a.finish(t, ctx)
}

// behindProxies gives a host a way of its own to each server.
func (a *arena) behindProxies(t *testing.T, name string) (ways []*proxy) {
	t.Helper()
	var urls []string
	for _, n := range a.cluster.nodes {
		p := newProxy(t, n.host+":4222")
		ways, urls = append(ways, p), append(urls, "nats://host:host-secret@"+p.address())
	}
	a.through[name] = strings.Join(urls, ",")
	return ways
}

// give has a host hold the tenant: every other one is stopped and started again.
func (a *arena) give(t *testing.T, ctx context.Context, to string) {
	t.Helper()
	status := a.holder(t, ctx, "", 0)
	if status.Holder == to {
		return
	}
	a.hosts[status.Holder].End(t).Wants(t, status.Holder, cli.ExitGood)
	a.holder(t, ctx, status.Holder, status.Term)
	a.start(t, status.Holder)
}

// awaitStandby waits until a host answers that it stands by.
func (a *arena) awaitStandby(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	cmdtest.Until(t, ctx, name+" stands by", func() bool {
		hosts, err := a.client.Hosts(ctx)
		return err == nil && slices.ContainsFunc(hosts, func(h api.Host) bool {
			return h.Host == name && h.Mode == api.ModeStandby
		})
	})
}

// network is a namespace per process, each behind a cable of its own that can be
// pulled: nothing passes then, and nobody is told.
type network struct {
	hub, prefix string
	third       int // of its addresses 198.18.third.0/22; a multiple of 4
}

// newNetwork makes the hub that forwards between namespaces, which takes root.
func newNetwork(t *testing.T) *network {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("*** SKIPPED: only root can make network namespaces ***")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("*** SKIPPED: this test needs ip (apt-get install iproute2) ***")
	}
	id := fmt.Sprintf("%d%d", os.Getpid()%10_000, clustersMade.Add(1)%10)
	n := &network{hub: "sh" + id, prefix: id, third: os.Getpid() % 64 * 4}
	if out, err := exec.Command("ip", "netns", "add", n.hub).CombinedOutput(); err != nil {
		t.Skipf("*** SKIPPED: cannot make a network namespace here: %v %s ***", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", n.hub).Run() })
	if out, err := exec.Command("ip", "netns", "exec", n.hub, "sh", "-c",
		"echo 1 >/proc/sys/net/ipv4/ip_forward").CombinedOutput(); err != nil {
		t.Skipf("*** SKIPPED: a network namespace cannot forward here: %v %s ***", err, out)
	}
	return n
}

// join gives a new namespace, or this one when name is empty, cable 0 to 3 to the hub.
func (n *network) join(t *testing.T, number int, name string) (address string) {
	t.Helper()
	in := func(ns string, args ...string) []string {
		if ns == "" {
			return append([]string{"ip"}, args...)
		}
		return append([]string{"ip", "-n", ns}, args...)
	}
	do := func(args []string) {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
	}
	near, far, subnet := n.cable(number), fmt.Sprintf("sf%s%d", n.prefix, number), fmt.Sprintf("198.18.%d",
		n.third+number)
	if name != "" {
		do(in("", "netns", "add", name))
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
		do(in(name, "link", "set", "lo", "up"))
	}
	do(in(n.hub, "link", "add", near, "type", "veth", "peer", "name", far))
	if name != "" {
		do(in(n.hub, "link", "set", far, "netns", name))
	} else {
		do(in(n.hub, "link", "set", far, "netns", "1"))
	}
	do(in(n.hub, "addr", "add", subnet+".1/24", "dev", near))
	do(in(n.hub, "link", "set", near, "up"))
	do(in(name, "addr", "add", subnet+".2/24", "dev", far))
	do(in(name, "link", "set", far, "up"))
	if name != "" {
		do(in(name, "route", "add", "default", "via", subnet+".1"))
	} else {
		do(in(name, "route", "add", fmt.Sprintf("198.18.%d.0/22", n.third), "via", subnet+".1"))
	}
	return subnet + ".2"
}

func (n *network) cable(number int) string { return fmt.Sprintf("sn%s%d", n.prefix, number) }

// pull cuts a cable, or mends it.
func (n *network) pull(t *testing.T, number int, cut bool) {
	t.Helper()
	state := "up"
	if cut {
		state = "down"
	}
	if out, err := exec.Command("ip", "-n", n.hub, "link", "set", n.cable(number), state).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
}

// The server that leads the ledger is cut off from the others by a pulled cable, and
// the holder with it: nobody is told. The minority acknowledges nothing, the other
// host takes over with the majority, and all agree when the cable is back.
func TestClusterIsSplit(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	times := tortureCycles(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), clusterPace(3+2*times))
	defer cancel()
	c := newCluster(t)
	for i, node := range c.nodes {
		node.inNamespace = fmt.Sprintf("sn%s-%d", n.prefix, i+1)
		node.host = n.join(t, i, node.inNamespace)
	}
	n.join(t, nodeCount, "")
	c.start(t, ctx)
	a := plainArena(t, c, ctx, 2*time.Second)
	a.inside["host-a"] = c.nodes[0].inNamespace
	a.start(t, "host-a")
	a.start(t, "host-b")
	a.work(t, ctx)
	for range times {
		a.give(t, ctx, "host-a")
		a.lead(t, ctx, 0)
		a.load.await(t, ctx, a.load.count()+acksMin)
		was := a.holder(t, ctx, "", 0)
		a.lose("pulled cable", was)
		a.losses[len(a.losses)-1].max = 3 * takeOverMax // the ledger needs another leader first
		n.pull(t, 0, true)
		a.takenOver(t, ctx, was)
		a.load.await(t, ctx, a.load.count()+acksMin)
		if c.leader(t, ctx, a.conn) == 0 {
			t.Errorf("%s leads from behind a pulled cable", c.nodes[0].name)
		}
		n.pull(t, 0, false)
		c.awaitCurrent(t, ctx, a.conn)
		a.awaitStandby(t, ctx, "host-a")
	}
	a.finish(t, ctx)
}
