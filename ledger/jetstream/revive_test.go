package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
)

// TestLeasesGoOnWithTwoServersOfThree: after all three have stopped. What they had in memory is lost,
// and a stream of three replicas that is there gets no leader by two that have nothing. What is made in
// its place is on one server, which may go as well.
func TestLeasesGoOnWithTwoServersOfThree(t *testing.T) {
	t.Parallel()
	c := ownCluster(t)
	conn, err := nats.Connect(c.servers[0].ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	ctx := within(t, 2*caseWait)
	h, err := jetstream.NewHolders(jetstream.HoldersConfig{Conn: conn, TTL: time.Second, Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	brief := func(do func(ctx context.Context) error) func() error {
		return func() error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			return do(ctx)
		}
	}
	acquire := brief(func(ctx context.Context) error {
		_, ok, current, err := h.Acquire(ctx, "t", "h1")
		if err == nil && !ok {
			err = fmt.Errorf("held by %s", current)
		}
		return err
	})
	h.Hurry(100 * time.Millisecond)
	until(t, ctx, "a lease", acquire)
	c.stop()
	if err := c.start(2); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, "a lease with two servers of three", acquire)
	stream, err := admin(t, conn).Stream(ctx, "KV_"+jetstream.HoldersBucket)
	if err != nil {
		t.Fatal(err)
	}
	leader := stream.CachedInfo().Cluster.Leader
	c.stop()
	if err := c.start(3); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, "a lease after another restart", acquire)
	for _, server := range c.servers {
		if server.Name() == leader {
			server.Shutdown()
		}
	}
	until(t, ctx, "a lease without the one server that had the bucket", acquire)

	c.stop()
	if err := c.start(1); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, "that one server of three leads nothing", brief(func(ctx context.Context) error {
		if _, _, _, err := h.Acquire(ctx, "t", "h1"); !errors.Is(err, jetstream.ErrNoLeader) {
			return fmt.Errorf("%w is not said", err)
		}
		return nil
	}))
	// It passes, unlike a server whose settings are wrong.
	_, err = jetstream.Open(ctx, jetstream.Config{Conn: conn, Tenant: "t", Replicas: 3, System: c.system})
	if !errors.Is(err, jetstream.ErrNoLeader) || isRefused(err, "sync_interval") {
		t.Fatal(err)
	}
}
