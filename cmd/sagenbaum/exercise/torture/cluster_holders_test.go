//go:build exercise && linux

package torture

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// clusterPace bounds a run of so many faults.
func clusterPace(faults int) time.Duration { return torturePace + time.Duration(faults)*30*time.Second }

// The holder is killed with -9 under load, is stopped, stands still and comes back
// as a zombie, and loses the bucket of leases. Another host goes on each time.
func TestAnotherHostTakesOver(t *testing.T) {
	t.Parallel()
	times := tortureCycles(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), clusterPace(4*times))
	defer cancel()
	a := newArena(t, ctx, 2*time.Second, "host-a", "host-b")
	for range times {
		a.kill(t, ctx)
		a.stop(t, ctx)
		a.zombie(t, ctx)
		a.loseLeases(t, ctx)
		if t.Failed() {
			t.FailNow()
		}
	}
	a.finish(t, ctx)
}

// The same for a kill, with the lease that serve has by default.
func TestAnotherHostTakesOverWithinFifteenSeconds(t *testing.T) {
	t.Parallel()
	times := tortureCycles(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), clusterPace(times))
	defer cancel()
	a := newArena(t, ctx, jetstream.LeaseTTL, "host-a", "host-b")
	for range times {
		a.kill(t, ctx)
	}
	a.finish(t, ctx)
}

// kill kills the holder with -9 and starts it again as the one that stands by.
func (a *arena) kill(t *testing.T, ctx context.Context) {
	t.Helper()
	a.load.await(t, ctx, a.load.count()+acksMin)
	was := a.holder(t, ctx, "", 0)
	a.lose("kill -9", was)
	a.hosts[was.Holder].Kill9(t)
	a.takenOver(t, ctx, was)
	a.start(t, was.Holder)
}

// stop ends the holder as its supervisor would: it gives the tenant back.
func (a *arena) stop(t *testing.T, ctx context.Context) {
	t.Helper()
	a.load.await(t, ctx, a.load.count()+acksMin)
	was := a.holder(t, ctx, "", 0)
	a.lose("stop", was)
	a.hosts[was.Holder].End(t).Wants(t, "the holder", cli.ExitGood)
	a.takenOver(t, ctx, was)
	a.start(t, was.Holder)
}

// zombie stops the holder's process for longer than its lease, and lets it go on
// when another one holds.
func (a *arena) zombie(t *testing.T, ctx context.Context) {
	t.Helper()
	a.load.await(t, ctx, a.load.count()+acksMin)
	was := a.holder(t, ctx, "", 0)
	fence := a.fence(t, ctx)
	a.lose("SIGSTOP", was)
	a.hosts[was.Holder].Freeze(t)
	now := a.takenOver(t, ctx, was)
	a.hosts[was.Holder].Resume(t)
	a.refuseOldTerm(t, ctx, was, fence)
	a.awaitStandby(t, ctx, was.Holder)
	if status := a.holder(t, ctx, "", 0); status.Holder != now.Holder || status.Term != now.Term {
		t.Errorf("%s began term %d; behind the zombie's return it is %s in term %d", now.Holder, now.Term,
			status.Holder, status.Term)
	}
}

// fence is the sequence of the last TermStarted.
func (a *arena) fence(t *testing.T, ctx context.Context) (sequence uint64) {
	t.Helper()
	cmdtest.Until(t, ctx, "the last term can be read", func() bool {
		client, err := js.New(a.conn)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		stream, err := client.Stream(ctx, jetstream.StreamName(tortureTenant))
		if err != nil {
			return false
		}
		last, err := stream.GetLastMsgForSubject(ctx, termSubject)
		if err == nil {
			sequence = last.Sequence
		}
		return err == nil
	})
	return sequence
}

var termSubject = ledger.Source{Tenant: tortureTenant, Class: ledger.ClassExecutor, Term: true}.Subject()

// refuseOldTerm does what a zombie of this term does, late: its append is refused
// by the fence, and its last command by the worker, which has heard a later term.
func (a *arena) refuseOldTerm(t *testing.T, ctx context.Context, was api.Status, fence uint64) {
	t.Helper()
	appender, err := jetstream.Attach(a.conn, tortureTenant)
	if err != nil {
		t.Fatal(err)
	}
	commit := pairCommit(t, 0)
	commit.ID, commit.Subject = jetstream.NewID(), ledger.Source{Tenant: tortureTenant,
		Class: ledger.ClassExecutor}.Subject()
	commit.FenceSubject, commit.Fence = termSubject, fence
	for err = ledger.ErrBusy; errors.Is(err, ledger.ErrBusy) || errors.Is(err, ledger.ErrInDoubt); {
		_, err = appender.Append(ctx, commit)
	}
	if !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("an append of term %d, which has ended: %v", was.Term, err)
	}
	a.orders.mu.Lock()
	command := bytes.Clone(a.orders.last[was.Term])
	a.orders.mu.Unlock()
	if command == nil {
		return // it sent none
	}
	var c api.Command
	if err := json.Unmarshal(command, &c); err != nil {
		t.Fatal(err)
	}
	reply, err := a.conn.RequestWithContext(ctx, api.UndoSubject(tortureTenant, c.Capability), command)
	if err != nil {
		t.Fatal(err)
	}
	var answer api.Reply
	if err := json.Unmarshal(reply.Data, &answer); err != nil || answer.Code != worker.CodeStaleTerm {
		t.Errorf("a command of term %d, which has ended, was answered %s, %v", was.Term, reply.Data, err)
	}
}

// loseLeases takes the bucket of leases away from under all hosts. One of them holds
// afterwards, and it may be another.
func (a *arena) loseLeases(t *testing.T, ctx context.Context) {
	t.Helper()
	a.load.await(t, ctx, a.load.count()+acksMin)
	before := a.holder(t, ctx, "", 0).Term
	client, err := js.New(a.conn)
	if err != nil {
		t.Fatal(err)
	}
	bucket := func(do func(context.Context, string) error) bool {
		brief, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return do(brief, "KV_"+jetstream.HoldersBucket) == nil
	}
	cmdtest.Until(t, ctx, "the bucket is lost", func() bool { return bucket(client.DeleteStream) })
	cmdtest.Until(t, ctx, "the bucket is made again", func() bool {
		return bucket(func(ctx context.Context, name string) error {
			_, err := client.Stream(ctx, name)
			return err
		})
	})
	a.load.await(t, ctx, a.load.count()+acksMin)
	<-time.After(a.ttl) // both hosts have asked again by then
	if after := a.holder(t, ctx, "", 0).Term; after > before+2 {
		t.Errorf("two hosts have begun %d terms over a lost bucket: they beat each other in turn", after-before)
	}
}
