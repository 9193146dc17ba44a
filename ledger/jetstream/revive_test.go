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

// brief bounds one try of something that is tried again.
func brief(ctx context.Context, do func(ctx context.Context) error) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return do(ctx)
	}
}

// acquires has the lease of t.
func acquires(ctx context.Context, h *jetstream.Holders) func() error {
	return brief(ctx, func(ctx context.Context) error {
		_, ok, current, err := h.Acquire(ctx, "t", "h1")
		if err == nil && !ok {
			err = fmt.Errorf("held by %s", current)
		}
		return err
	})
}

// grows has a bucket that was made on one server get the replicas of h.
func grows(t *testing.T, ctx context.Context, conn *nats.Conn, h *jetstream.Holders) {
	t.Helper()
	few, err := jetstream.NewHolders(jetstream.HoldersConfig{Conn: conn, TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	until(t, ctx, "a bucket on one server", acquires(ctx, few))
	h.HurryGrowth(100 * time.Millisecond)
	until(t, ctx, "the bucket has its replicas", brief(ctx, func(ctx context.Context) error {
		if _, _, _, err := h.Acquire(ctx, "t", "h1"); err != nil {
			return err
		}
		stream, err := admin(t, conn).Stream(ctx, "KV_"+jetstream.HoldersBucket)
		if err == nil && stream.CachedInfo().Config.Replicas != 3 {
			err = errors.New("it has fewer")
		}
		return err
	}))
	h.HurryGrowth(time.Hour)
}

// TestLeasesGoOnWithTwoServersOfThree: after all three have stopped. What they had in memory is lost,
// and a stream of three replicas that is there gets no leader by two that have nothing. What is made in
// its place is on one server, which may go as well. One server of three leads nothing, and says so.
func TestLeasesGoOnWithTwoServersOfThree(t *testing.T) {
	t.Parallel()
	c := ownCluster(t)
	conn, err := nats.Connect(c.servers[0].ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	h, err := jetstream.NewHolders(jetstream.HoldersConfig{Conn: conn, TTL: time.Second, Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	h.Hurry(100 * time.Millisecond)
	ctx := within(t, 2*caseWait)
	again := func(servers int) {
		t.Helper()
		c.stop()
		if err := c.start(servers); err != nil {
			t.Fatal(err)
		}
	}
	grows(t, ctx, conn, h)
	again(2)
	until(t, ctx, "a lease with two servers of three", acquires(ctx, h))
	stream, err := admin(t, conn).Stream(ctx, "KV_"+jetstream.HoldersBucket)
	if err != nil {
		t.Fatal(err)
	}
	leader := stream.CachedInfo().Cluster.Leader
	again(3)
	until(t, ctx, "a lease after another restart", acquires(ctx, h))
	for _, server := range c.servers {
		if server.Name() == leader {
			server.Shutdown()
		}
	}
	until(t, ctx, "a lease without the one server that had the bucket", acquires(ctx, h))

	again(1)
	until(t, ctx, "that one server of three leads nothing", brief(ctx, func(ctx context.Context) error {
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

// TestALeaseThatHasRunOutDoesNotKeepOthersOut: two servers of three were gone, with the holder, and one
// is back. The one that has stayed shows the lease, and no server leads that would remove it.
func TestALeaseThatHasRunOutDoesNotKeepOthersOut(t *testing.T) {
	t.Parallel()
	c := ownCluster(t)
	conn, err := nats.Connect(c.servers[0].ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	h, err := jetstream.NewHolders(jetstream.HoldersConfig{Conn: conn, TTL: time.Second, Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t, caseWait)
	until(t, ctx, "a lease", acquires(ctx, h))
	c.servers[1].Shutdown()
	c.servers[2].Shutdown()
	until(t, ctx, "no server leads the leases", brief(ctx, func(ctx context.Context) error {
		stream, err := admin(t, conn).Stream(ctx, "KV_"+jetstream.HoldersBucket)
		if err == nil && stream.CachedInfo().Cluster.Leader != "" {
			err = errors.New("one does")
		}
		return err
	}))
	if err := c.again(1); err != nil {
		t.Fatal(err)
	}
	h.Hurry(2 * time.Second)
	since := time.Now()
	until(t, ctx, "a lease of another host", brief(ctx, func(ctx context.Context) error {
		_, ok, current, err := h.Acquire(ctx, "t", "h2")
		if err == nil && !ok {
			h.Stalled(since)
			err = fmt.Errorf("held by %s", current)
		}
		return err
	}))
}
