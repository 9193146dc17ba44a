package host

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/actuators"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestATermThatTheStreamHasLostHaltsItsTenant, and does not end the host.
func TestATermThatTheStreamHasLostHaltsItsTenant(t *testing.T) {
	t.Parallel()
	_, err := termBegan(t.Context(), ledger.NewMemory("t", func() int64 { return 1 }), 167)
	var halted *ledger.Halted
	if !errors.As(err, &halted) || halted.Guard != "G2" || halted.Sequence != 167 {
		t.Fatalf("%v", err)
	}
}

// TestWhoeverIsFencedByABatchSendsNothingOfIt: an undo and the term of another host are
// folded in one batch. That host sends the undo; this one must not. A batch ends after a
// while: its clock is of a bubble, which no other load can move.
func TestWhoeverIsFencedByABatchSendsNothingOfIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, fenced := range []bool{false, true} {
			a, sent, claim := holdingActor(t)
			messages := make(chan decoded, 16)
			state := executor.Open(rows.NewMemoryKV(), "t", nil)
			fold := func(m ledger.Message) {
				entries, err := ledger.Decode("t", m)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					state.Apply(e)
				}
				state.Flush()
			}
			fold(claim)
			store := func(source ledger.Source, records ...*pb.Record) {
				data, err := ledger.EncodeCommit(records)
				if err != nil {
					t.Fatal(err)
				}
				next := state.Meta().Applied.Sequence + 1
				m := ledger.Message{Sequence: next, StampNs: int64(next), Subject: source.Subject(), Data: data}
				fold(m)
				messages <- a.decode(m)
			}
			begin := func(term uint64, holder string) {
				store(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true},
					&pb.Record{Term: term, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: holder}}})
			}
			failed := &pb.Record{Plan: "p", Kind: &pb.Record_PlanFailed{PlanFailed: &pb.PlanFailed{}}}
			store(agentOf("a1", "p"), append(append([]*pb.Record{opened("p", &pb.PlanOpened{})},
				pair("p", "a", &pb.CompensationRegistered{Capability: "undo.a"})...), completed("p", "a", "r"))...)
			store(agentOf("a1", "p"), failed)
			store(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor},
				state.Decide(executor.Input{EpochNs: 10, SizeMax: turn.CommitSizeMax})...)
			if fenced {
				begin(2, "h2")
			}
			first := <-messages
			if err := a.foldAndWrite(first, messages); err != nil {
				t.Fatal(err)
			}
			if len(messages) > 0 {
				t.Fatal("this was not one batch")
			}
			a.step(t, new(bare))
			if a.holding() == fenced {
				t.Errorf("fenced=%v: holding=%v", fenced, a.holding())
			}
			want := 1
			if fenced {
				want = 0
			}
			if len(sent.sent) != want {
				t.Errorf("fenced=%v: %d commands were sent, want %d", fenced, len(sent.sent), want)
			}
		}
	})
}

// foldingActor is an actor that has folded nothing yet and holds nothing.
func foldingActor(t *testing.T) *actor {
	t.Helper()
	h, err := New(Config{Conn: new(nats.Conn), Tenants: []string{"t"}, Dir: t.TempDir(), Holder: "h1"})
	if err != nil {
		t.Fatal(err)
	}
	a := h.roster.order[0]
	if a.tiles, err = tiles.Open(h.tilesRoot(), "t", slog.New(slog.DiscardHandler), nil); err != nil {
		t.Fatal(err)
	}
	a.tiles.From(0)
	a.life, a.state = t.Context(), executor.Open(a.kv, "t", nil)
	a.session = turn.NewSession(turn.Config{Tenant: "t", Holder: "h1", NewID: jetstream.NewID}, a.state, 0)
	a.use.begin(t.Context().Done())
	t.Cleanup(func() {
		a.use.end()
		a.stepDown()
		if a.tiles != nil { // its session has not ended
			if err := a.tiles.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// holdingActor is a foldingActor that has folded its claim and holds term 1.
func holdingActor(t *testing.T) (a *actor, sent *script, claim ledger.Message) {
	t.Helper()
	a = foldingActor(t)
	sent = &script{results: []actuators.Result{{Fate: actuators.NoWorker}}}
	return a, sent, a.holds(t, "h1", sent)
}

// slowConn is a connection on which nothing is read for a while.
type slowConn struct {
	net.Conn
	wait *atomic.Int64
}

func (c slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	<-time.After(time.Duration(c.wait.Load()))
	return n, err
}

type slowDialer struct{ wait *atomic.Int64 }

func (d slowDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return slowConn{conn, d.wait}, err
}

// keeperOn is a keeper of a tenant's lease, whose connection can be made slow.
func (r *rig) keeperOn() (k *keeper, wait *atomic.Int64) {
	r.t.Helper()
	wait = new(atomic.Int64)
	conn, err := nats.Connect(r.srv.URL(), nats.SetCustomDialer(slowDialer{wait}))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(conn.Close)
	holders, err := jetstream.NewHolders(jetstream.HoldersConfig{Conn: conn, TTL: 10 * time.Minute})
	if err != nil {
		r.t.Fatal(err)
	}
	return &keeper{holders: holders, tenant: "t", me: "h1"}, wait
}

// TestALeaseIsCountedFromBeforeItsRequest: the server may have counted it from any instant
// while the answer was on its way, and another host takes it as soon as the server lets it.
func TestALeaseIsCountedFromBeforeItsRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	k, wait := r.keeperOn()
	const slow = 300 * time.Millisecond
	wait.Store(int64(slow))
	for _, what := range []string{"acquired", "renewed"} {
		asked := time.Now()
		if event, _ := k.turn(t.Context()); !event.held {
			t.Fatalf("the lease is not %s", what)
		}
		answered := time.Now()
		if took := answered.Sub(asked); took < slow {
			t.Fatalf("%s in %s: the connection is not slow", what, took)
		}
		// The answer came at least so much later than the request went out.
		if before := answered.Sub(k.renewed); before < slow {
			t.Errorf("a lease that was %s counts from %s before its answer on", what, before)
		}
	}
}

// TestALeaseThatCannotBeRenewedIsGivenUpBeforeItsEnd: a twentieth of its time before another
// host can have it, and not long before that.
func TestALeaseThatCannotBeRenewedIsGivenUpBeforeItsEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	k, _ := r.keeperOn()
	if event, _ := k.turn(t.Context()); !event.held {
		t.Fatal("the lease is not held")
	}
	r.stopServer()
	ttl := k.holders.TTL()
	held := func(left time.Duration) (bool, time.Duration) {
		k.held, k.renewed = true, time.Now().Add(left-ttl)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		event, pause := k.turn(ctx)
		if event.held != k.held {
			t.Errorf("it says held=%v, and believes %v", event.held, k.held)
		}
		return event.held, pause
	}
	if is, pause := held(ttl / 2); !is || pause > ttl/lateFactor {
		t.Errorf("half of its time is left: held=%v, and the next try in %s", is, pause)
	}
	margin := ttl / lateFactor
	if is, pause := held(margin + time.Minute); !is || pause > time.Minute {
		t.Errorf("a minute before its margin: held=%v, and the next try in %s", is, pause)
	}
	if is, _ := held(margin - 50*time.Millisecond); is {
		t.Error("it is held within its margin, and another host may have it soon")
	}
}

// TestACopyOfALeaseThatWentToAnotherIsGivenUpAtOnce: whoever hears that another holder has
// the tenant waits for nothing.
func TestACopyOfALeaseThatWentToAnotherIsGivenUpAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	k, _ := r.keeperOn()
	if event, _ := k.turn(t.Context()); !event.held {
		t.Fatal("the lease is not held")
	}
	if err := k.holders.Release(t.Context(), k.lease); err != nil {
		t.Fatal(err)
	}
	if _, ok, _, err := k.holders.Acquire(t.Context(), "t", "h2"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if event, _ := k.turn(t.Context()); event.held || k.held {
		t.Error("two hosts hold one lease")
	}
	if event, _ := k.turn(t.Context()); event.held || event.current != "h2" {
		t.Errorf("%+v, want it held by h2", event)
	}
}

// TestATermIsItsHoldersOnly: two hosts that both claim term 1 read back one record. Whoever
// is not named in it does not hold the tenant, though the number is the one it asked for.
func TestATermIsItsHoldersOnly(t *testing.T) {
	t.Parallel()
	a, _, _ := holdingActor(t)
	a.session.Lead(false, "")
	a.session.Lead(true, "")
	p := a.step(t, new(bare)).appended // claimed, and not read back
	if p == nil || !p.Claim || a.session.Term() != 2 {
		t.Fatalf("no claim: %+v", p)
	}
	data, err := ledger.EncodeCommit([]*pb.Record{
		{Term: 2, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h2"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	source := ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}
	m := ledger.Message{Sequence: 2, Subject: source.Subject(), Data: data}
	if err := a.foldAndWrite(a.decode(m), nil); err != nil {
		t.Fatal(err)
	}
	down := a.step(t, new(bare)).down
	if a.holding() || a.session.Term() != 0 || a.out != nil || down == nil || !down.Doubt {
		t.Errorf("holding=%v term=%d %+v", a.holding(), a.session.Term(), down)
	}
	if p := a.step(t, new(bare)).appended; p != nil {
		t.Errorf("it claims again, and no one has said that it leads: %+v", p)
	}
}

// TestACommandMayRunAheadWhileNoOtherHostCanHaveTheTenant: its host is sure of the lock, from when
// it has it until before it gives it back, and has read of no later term.
func TestACommandMayRunAheadWhileNoOtherHostCanHaveTheTenant(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := foldingActor(t)
	holders, err := jetstream.NewHolders(jetstream.HoldersConfig{Conn: r.conn, TTL: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	a.lead = newLeadership(r.conn, "t", "h1", "p1", a.board, a.log)
	a.lead.holders = holders
	may := shell{a}.mayRun(3)
	if may() {
		t.Fatal("it may run, and no one has the lock")
	}
	events, ended := make(chan holderEvent), make(chan struct{})
	next := func() (e holderEvent) {
		t.Helper()
		select {
		case e = <-events:
		case <-time.After(testenv.Patience):
			t.Fatal("it is not said whether this host has the lock")
		}
		return e
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { a.lead.keep(ctx, events); close(ended) }()
	for _, when := range []string{"it has the lock", "another term had begun, and it still has the lock"} {
		if e := next(); !e.held || e.current != "h1" {
			t.Fatalf("%s: %+v", when, e)
		}
		if !may() {
			t.Fatalf("%s, and nothing may run", when)
		}
		a.lead.askAgain()
	}
	next()
	for _, c := range []struct {
		read uint64
		may  bool
	}{{3, true}, {4, false}} {
		if a.termRead.Store(c.read); may() != c.may {
			t.Errorf("term %d was read, and a command of term 3 may run: %v", c.read, !c.may)
		}
	}
	a.termRead.Store(0)
	cancel()
	<-ended
	if may() {
		t.Error("it may run, and the lock was given back")
	}
	if lock, err := holders.Current(t.Context(), "t"); lock.Holder != "" || err != nil {
		t.Errorf("%q has the lock: %v", lock.Holder, err)
	}
}

// TestNothingOfASessionIsLeftForTheNext: what came of an append is that session's.
func TestNothingOfASessionIsLeftForTheNext(t *testing.T) {
	t.Parallel()
	a, _, _ := holdingActor(t)
	a.acks <- ack{sequence: 7}
	a.endSession()
	if len(a.acks) != 0 || a.out != nil {
		t.Errorf("%d results of appends, sending %v", len(a.acks), a.out)
	}
}
