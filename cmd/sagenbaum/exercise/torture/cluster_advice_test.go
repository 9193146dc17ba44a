//go:build exercise && linux

package torture

import (
	"context"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// TestTheAdviceOnReplicasIsFollowed: a server that keeps the ledger is gone, and is started again; and
// a ledger of one replica is given three by what `nats stream edit` sends.
func TestTheAdviceOnReplicasIsFollowed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), clusterPace(1))
	defer cancel()
	c := configured(t, ctx, "host-a")
	host := cmdtest.ServeFor(t, filepath.Join(t.TempDir(), "host-a"), "--nats", c.urls(""), "--holder", "host-a",
		"--replicas", "3", "--creds", filepath.Join(c.folder, "host-a", "host.creds"),
		"--system-creds", filepath.Join(c.folder, "host-a", "system.creds"))
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
