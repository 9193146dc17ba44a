//go:build exercise && linux

package torture

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

const (
	leaderPause = 2 * time.Second // between two blows at the leader of the ledger's stream
	// silenceMax is the promise for agents while servers of the cluster die, one at a
	// time: p99 of the time without an acknowledgement behind a blow.
	silenceMax = 10 * time.Second
)

// The leader of the ledger's stream is killed with -9, or told to step down, every
// two seconds under load. Agents go on, appends in doubt are found or sent again
// under their id, and nothing counts twice.
func TestLeaderOfTheLedgerKilledUnderLoad(t *testing.T) {
	t.Parallel()
	blows, tries := tortureCycles(t, testenv.Cases(2, 4)), 3
	ctx, cancel := context.WithTimeout(t.Context(), clusterPace(2+blows*tries))
	defer cancel()
	a := newArena(t, ctx, jetstream.LeaseTTL, "host-a", "host-b")
	a.load.await(t, ctx, acksMin)
	var late []time.Duration
	for range tries { // an election may take long on a machine that does much else
		longest := a.blowAtTheLeader(t, ctx, blows)
		at := longest[len(longest)*99/100]
		if late = append(late, at); at <= silenceMax {
			break
		}
	}
	if slices.Min(late) > silenceMax {
		t.Errorf("p99 of the silence behind a blow is %v, want at most %v", late, silenceMax)
	}
	a.finish(t, ctx)
}

// blowAtTheLeader kills the leader of the ledger and makes it step down, in turns, and
// returns how long no acknowledgement came after each blow, in order of length.
func (a *arena) blowAtTheLeader(t *testing.T, ctx context.Context, blows int) []time.Duration {
	t.Helper()
	silence := a.load.watchSilence(ctx)
	for n := range blows {
		leader := a.cluster.leader(t, ctx, a.conn)
		silence.blow()
		if n%2 == 0 {
			a.cluster.nodes[leader].kill9(t)
			<-time.After(leaderPause / 2)
			a.cluster.startNode(t, leader)
			<-time.After(leaderPause / 2)
		} else {
			a.cluster.stepDown(ctx, a.conn)
			<-time.After(leaderPause)
		}
		// Two servers down at a time are more than three can bear.
		a.cluster.awaitCurrent(t, ctx, a.conn)
		a.load.await(t, ctx, a.load.count()+1)
		for name, s := range a.hosts {
			if s.Ended() {
				t.Fatalf("%s has ended after blow %d", name, n+1)
			}
		}
	}
	longest := silence.end()
	var kills, steps []time.Duration
	for n, took := range longest {
		if n%2 == 0 {
			kills = append(kills, took)
		} else {
			steps = append(steps, took)
		}
	}
	t.Logf("%d blows at the leader; without an acknowledgement behind a kill -9: %s; behind a step-down: %s", blows,
		spread(kills), spread(steps))
	slices.Sort(longest)
	return longest
}

// silence measures how long no acknowledgement came, at the longest, between blows.
type silence struct {
	mu      sync.Mutex
	last    time.Time
	longest []time.Duration
	stop    context.CancelFunc
	ended   chan struct{}
}

func (l *load) watchSilence(ctx context.Context) *silence {
	ctx, stop := context.WithCancel(ctx)
	s := &silence{last: time.Now(), stop: stop, ended: make(chan struct{})}
	go func() { // ends with ctx
		defer close(s.ended)
		for {
			l.mu.Lock()
			next := l.next
			l.mu.Unlock()
			select {
			case <-next:
				s.heard()
			case <-ctx.Done():
				return
			}
		}
	}()
	return s
}

func (s *silence) heard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if n := len(s.longest); n > 0 {
		s.longest[n-1] = max(s.longest[n-1], now.Sub(s.last))
	}
	s.last = now
}

func (s *silence) blow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.longest = append(s.longest, 0)
}

func (s *silence) end() []time.Duration {
	s.stop()
	<-s.ended
	return s.longest
}

// A server loses its disk and comes back empty: it gets everything from the others,
// and what it then leads is the same ledger.
func TestServerWithoutItsStoreComesBack(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), clusterPace(3))
	defer cancel()
	a := newArena(t, ctx, jetstream.LeaseTTL, "host-a", "host-b")
	a.load.await(t, ctx, acksMin)
	empty := a.cluster.leader(t, ctx, a.conn)
	a.cluster.nodes[empty].kill9(t)
	if err := os.RemoveAll(a.cluster.nodes[empty].dir); err != nil {
		t.Fatal(err)
	}
	a.load.await(t, ctx, a.load.count()+acksMin)
	a.hosts["host-b"].End(t).Wants(t, "host-b", cli.ExitGood)
	a.start(t, "host-b") // two servers are enough to start on
	a.cluster.startNode(t, empty)
	a.cluster.awaitCurrent(t, ctx, a.conn)
	a.lead(t, ctx, empty)
	a.load.await(t, ctx, a.load.count()+acksMin)
	a.finish(t, ctx)
}

// lead makes a server the leader of the ledger's stream.
func (a *arena) lead(t *testing.T, ctx context.Context, node int) {
	t.Helper()
	cmdtest.Until(t, ctx, a.cluster.nodes[node].name+" leads", func() bool {
		if a.cluster.leader(t, ctx, a.conn) == node {
			return true
		}
		a.cluster.stepDown(ctx, a.conn)
		return false
	})
}
