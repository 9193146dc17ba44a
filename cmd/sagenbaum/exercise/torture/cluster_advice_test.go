//go:build exercise && linux

package torture

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/ledger/jetstream"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// hostOf is `serve` as a host of the cluster.
func (c *natsCluster) hostOf(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	return cmdtest.ServeCommand(t, filepath.Join(t.TempDir(), name), "--nats", c.urls(""), "--holder", name,
		"--tenant", tortureTenant, "--replicas", "3", "--creds", filepath.Join(c.folder, name, "host.creds"), "--keys",
		filepath.Join(c.folder, name, "keys"), "--system-creds", filepath.Join(c.folder, name, "system.creds"))
}

// TestTheAdviceOnReplicasIsFollowed: a server that keeps the ledger is gone, and is started again; and
// a ledger of one replica is given three by what `nats stream edit` sends.
func TestTheAdviceOnReplicasIsFollowed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), clusterPace(1))
	defer cancel()
	c := configured(t, ctx, "host-a")
	host := cmdtest.ServeAs(t, "", c.hostOf(t, "host-a"))
	host.Confess(t)
	ask := (&cmdtest.Served{URL: c.urls("")}).Asks(t, tortureTenant)
	ask.Content(t)

	conn := c.connect(t, ctx, "host")
	gone := (c.leader(t, ctx, conn) + 1) % nodeCount
	c.nodes[gone].kill9(t)
	f := ask.Advised(t, "replicas")
	if !strings.HasPrefix(f.Next, "start these servers again") || !strings.HasPrefix(f.Details[0], c.nodes[gone].name) {
		t.Errorf("%+v", f)
	}
	c.startNode(t, gone)
	ask.Content(t)

	edit := func(replicas int) {
		t.Helper()
		client, err := js.New(conn)
		if err != nil {
			t.Fatal(err)
		}
		cmdtest.Until(t, ctx, "the ledger is given its replicas", func() bool {
			info := c.info(ctx, conn)
			if info == nil {
				return false
			}
			config := info.Config
			config.Replicas = replicas
			_, err := client.UpdateStream(ctx, config)
			return err == nil
		})
	}
	edit(1)
	f = ask.Advised(t, "replicas")
	found := regexp.MustCompile(`^nats stream edit SAGA_default --replicas (\d), and serve --replicas 3 `).
		FindStringSubmatch(f.Next)
	if found == nil {
		t.Fatalf("%+v", f)
	}
	replicas, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	edit(replicas)
	ask.Content(t)
	host.End(t).Wants(t, "serve", cli.ExitGood)
}

// TestTheAdviceOnALedgerWithoutALeaderIsFollowed: two servers of three are gone, and a host that is
// first started meanwhile waits, and is seen; and all goes on when the servers are started again.
func TestTheAdviceOnALedgerWithoutALeaderIsFollowed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), clusterPace(1))
	defer cancel()
	c := configured(t, ctx, "host-a", "host-b")
	host := cmdtest.ServeAs(t, "", c.hostOf(t, "host-a"))
	host.Confess(t)
	ask := (&cmdtest.Served{URL: c.urls("")}).Asks(t, tortureTenant)
	ask.Content(t)

	c.nodes[1].kill9(t)
	c.nodes[2].kill9(t)
	cmdtest.Until(t, ctx, "the doctor says that no server leads", func() bool {
		return strings.HasPrefix(ask.Findings(t)["replicas"].Next, "start the NATS servers that are away")
	})
	started := make(chan error, 1)
	command := c.hostOf(t, "host-b")
	var second *cmdtest.Served
	go func() { // ends when the host is ready, or has ended
		var err error
		second, err = cmdtest.StartServed("", command)
		started <- err
	}()
	t.Cleanup(func() {
		if command.Process != nil {
			_ = command.Process.Kill() // it has ended, as a rule
		}
	})
	cmdtest.Until(t, ctx, "a host that waits for a leader is seen", func() bool {
		return slices.ContainsFunc(ask.Findings(t)["hosts"].Details, func(line string) bool {
			return strings.HasPrefix(line, "host-b: starting") && strings.Contains(line, jetstream.ErrNoLeader.Error())
		})
	})
	c.startNode(t, 1)
	c.startNode(t, 2)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	ask.Content(t)
	second.End(t).Wants(t, "serve", cli.ExitGood)
	host.End(t).Wants(t, "serve", cli.ExitGood)
}
