//go:build exercise && linux

package torture

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// TestKeysAreOverwrittenOnEveryReplica: on three servers each has a key in the files of its
// stream, and none has it when it was destroyed; a second key is refused as on one server.
// The logs by which the servers agree have it until they are compacted, some minutes later.
func TestKeysAreOverwrittenOnEveryReplica(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), clusterPace(1))
	defer cancel()
	c := startCluster(t, ctx)
	conn := c.connect(t, ctx, "host")
	secret := []byte("wrapped-key-of-plan-p-0123456789")
	var keys *jetstream.Keys
	cmdtest.Until(t, ctx, "the keys are open", func() (ok bool) {
		var err error
		keys, err = jetstream.OpenKeys(ctx, jetstream.Config{Conn: conn, Tenant: "t", Replicas: nodeCount})
		return err == nil
	})
	cmdtest.Until(t, ctx, "a key is kept", func() bool {
		err := keys.Create(ctx, "p", secret)
		return err == nil || errors.Is(err, ledger.ErrConflict)
	})
	if err := keys.Create(ctx, "p", []byte("again")); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("a second key: %v", err)
	}
	cmdtest.Until(t, ctx, "every server has it", func() bool { return c.having(t, secret) == nodeCount })
	cmdtest.Until(t, ctx, "it is destroyed", func() bool { return keys.Destroy(ctx, "p") == nil })
	if _, err := keys.Get(ctx, "p"); !errors.Is(err, jetstream.ErrKeyDestroyed) {
		t.Errorf("%v", err)
	}
	cmdtest.Until(t, ctx, "no stream has it", func() bool { return c.having(t, secret) == 0 })
}

// having counts the servers with a text in the files of a stream.
func (c *natsCluster) having(t *testing.T, text []byte) (count int) {
	t.Helper()
	for _, n := range c.nodes {
		found := false
		_ = filepath.Walk(n.dir, func(path string, info os.FileInfo, err error) error {
			if err != nil || info.IsDir() || strings.Contains(path, "/_js_/") {
				return nil // files come and go under a server that runs
			}
			content, err := os.ReadFile(path)
			found = found || err == nil && bytes.Contains(content, text)
			return nil
		})
		if found {
			count++
		}
	}
	return count
}
