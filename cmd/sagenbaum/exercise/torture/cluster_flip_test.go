//go:build exercise && linux

package torture

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/demo"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// One bit of one replica's ledger flips on the disk, and that server leads
// afterwards. A host that folds from the start either folds what was there before,
// or halts; it never goes on over something else.
func TestFlippedBitInOneReplicaIsNeverFolded(t *testing.T) {
	t.Parallel()
	for n := range tortureCycles(t, 2) {
		t.Run(fmt.Sprint(n), func(t *testing.T) { flipRound(t, n) })
	}
}

func flipRound(t *testing.T, n int) {
	ctx, cancel := context.WithTimeout(t.Context(), clusterPace(1))
	defer cancel()
	a := newArena(t, ctx, 2*time.Second, "host-a")
	a.load.await(t, ctx, acksMin)
	a.rest(t, ctx)
	whole := stored(t, ctx, a.client)
	bad := n % nodeCount
	how := "kill -9"
	if n%2 == 1 { // it trusts its index then, and does not look at every record
		how = "a clean stop"
		a.cluster.nodes[bad].interrupt(t)
	} else {
		a.cluster.nodes[bad].kill9(t)
	}
	at := flip(t, a.cluster.nodes[bad], n)
	a.cluster.startNode(t, bad)
	followed, away := a.tryLead(ctx, t, bad)

	// A host without any state reads everything. It may be served by any replica.
	fresh := a.start(t, "host-b")
	var seen api.Host
	cmdtest.Until(t, ctx, "the fresh host has folded everything or halted", func() bool {
		hosts, err := a.client.Hosts(ctx)
		i := slices.IndexFunc(hosts, func(h api.Host) bool { return h.Host == "host-b" })
		if err != nil || i < 0 {
			return false
		}
		seen = hosts[i]
		return seen.Mode == api.ModeHalted || seen.Applied >= uint64(len(whole))
	})
	missing, other := a.leaderLacks(t, ctx, whole)
	t.Logf("bit flipped at %s behind %s; its server leads: %v, lacks %v and has something else at %v; a fresh host "+
		"is %s at %d of %d %s", at, how, followed, missing, other, seen.Mode, seen.Applied, len(whole), seen.Problem)
	if seen.Mode == api.ModeHalted {
		cmdtest.Until(t, ctx, "the halted host leaves questions to the holder", func() bool {
			for range 10 {
				if status, err := a.client.Status(ctx); err != nil || status.Mode != api.ModeHolding {
					return false
				}
			}
			return true
		})
	}
	for name, s := range a.hosts {
		if r := s.End(t); r.Code != cli.ExitGood {
			t.Errorf("%s ended with %d", name, r.Code)
		}
	}
	applied := appliedBy(t, fresh)
	if applied <= uint64(len(whole)) {
		checkDigest(t, fresh, refold(t, whole[:applied]), whole[:applied])
		return
	}
	if !away { // what it lacks must not halt the test's own reading
		a.cluster.nodes[bad].interrupt(t)
	}
	later := stored(t, ctx, a.client)
	for i, m := range whole {
		if !same(m, later[i]) {
			t.Errorf("message %d was read as another one", m.Sequence)
		}
	}
	checkDigest(t, fresh, refold(t, later[:applied]), later[:applied])
}

// leaderLacks asks the leader alone for every message: which it has not, and which
// are not what they were.
func (a *arena) leaderLacks(t *testing.T, ctx context.Context, whole []ledger.Message) (missing, other []uint64) {
	t.Helper()
	for _, m := range whole {
		reply, err := a.conn.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+jetstream.StreamName(tortureTenant),
			fmt.Appendf(nil, `{"seq":%d}`, m.Sequence))
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Message *struct {
				Subject string `json:"subject"`
				Data    []byte `json:"data"`
			} `json:"message"`
		}
		if err := json.Unmarshal(reply.Data, &answer); err != nil {
			t.Fatal(err)
		}
		switch {
		case answer.Message == nil:
			missing = append(missing, m.Sequence)
		case answer.Message.Subject != m.Subject || !bytes.Equal(answer.Message.Data, m.Data):
			other = append(other, m.Sequence)
		}
	}
	return missing, other
}

func same(a, b ledger.Message) bool {
	return a.Sequence == b.Sequence && a.StampNs == b.StampNs && a.Subject == b.Subject && bytes.Equal(a.Data, b.Data)
}

// rest lets the agents end and waits until nothing happens any more.
func (a *arena) rest(t *testing.T, ctx context.Context) {
	t.Helper()
	close(a.load.stop)
	a.load.running.Wait()
	if len(a.load.errs) > 0 {
		t.Fatalf("agents gave up: %v", a.load.errs)
	}
	settled(t, ctx, a.client)
	a.cluster.awaitCurrent(t, ctx, a.conn)
}

// flip turns one bit of a stopped server's copy of the ledger over, in another place
// for every n, and says where.
func flip(t *testing.T, node *natsNode, n int) string {
	t.Helper()
	blocks, err := filepath.Glob(filepath.Join(node.dir, "jetstream", "SAGENBAUM", "streams",
		jetstream.StreamName(tortureTenant), "msgs", "*.blk"))
	if err != nil || len(blocks) == 0 {
		t.Fatalf("%s has no blocks: %v", node.name, err)
	}
	data, err := os.ReadFile(blocks[0])
	if err != nil {
		t.Fatal(err)
	}
	at := (2*n + 1) * 37 % 100 * len(data) / 100
	data[at] ^= 1 << (n % 8)
	if err := os.WriteFile(blocks[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("byte %d of %d", at, len(data))
}

// leaderless is how long the servers may fail to agree on a leader. One whose blocks are damaged
// may ask for a catch-up that never ends, and win and lose elections meanwhile.
const leaderless = 20 * time.Second

// tryLead makes a server the leader, if its cluster lets it. Where the servers agree on no
// leader with it, it is taken away, as an operator would: away says so.
func (a *arena) tryLead(ctx context.Context, t *testing.T, node int) (leads, away bool) {
	t.Helper()
	led := time.Now()
	for tries := 0; tries < 40; {
		switch a.cluster.leaderNow(ctx, a.conn) {
		case node:
			return true, false
		case -1:
			if time.Since(led) > leaderless {
				a.cluster.nodes[node].interrupt(t)
				a.cluster.leader(t, ctx, a.conn)
				return false, true
			}
		default:
			led = time.Now()
			tries++
			a.cluster.stepDown(ctx, a.conn)
		}
		select {
		case <-ctx.Done():
			return false, false
		case <-time.After(demo.AgainPause * 10):
		}
	}
	return false, false
}
