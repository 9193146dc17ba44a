package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/page"
	"github.com/sagenbaum/sagenbaum/executor/host/vault"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// failingStore takes no append until it has failed with each of its errors.
type failingStore struct {
	ledger.Store
	mu      sync.Mutex
	errs    []error
	appends []ledger.Append
}

func (s *failingStore) Append(_ context.Context, a ledger.Append) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.appends = append(s.appends, a)
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		return 0, err
	}
	return 2, nil
}

// appendingActor is an actor whose appends go to a store that fails.
func appendingActor(t *testing.T, errs ...error) (*actor, *failingStore) {
	t.Helper()
	h, err := New(Config{Conn: new(nats.Conn), Tenants: []string{"t"}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	store := &failingStore{errs: errs}
	a := h.roster.order[0]
	a.life, a.store = t.Context(), store
	a.holds(t, "h1", nil)
	t.Cleanup(a.stepDown)
	return a, store
}

// bare is the shell of an actor whose clocks stand still and whose appends go nowhere, unless
// they are let go.
type bare struct {
	shell
	sent     Actuator     // takes commands
	proof    []*pb.Record // to be appended
	appended *turn.Append // the last one
	down     *turn.Down   // the last one
}

func (b *bare) Inputs(bool) (turn.Instant, []*pb.Record) { return turn.Instant{}, b.proof }
func (b *bare) Append(p turn.Append)                     { b.appended = &p }
func (b *bare) Wake(bool, int64)                         {}

func (b *bare) Close(d turn.Down) {
	b.down = &d
	b.shell.Close(d)
}

func (b *bare) Open(out *turn.Outbound) error {
	a := b.actor
	a.out = &outbound{
		replies:  io.NopCloser(nil),
		dispatch: newDispatcher(&out.Flights, b.sent, a.host.clock.instant, nil),
		pages: page.New(a.life, &out.Pages,
			page.Config{Tenant: "t", Meter: a.observer.Meter, Workers: &a.sends, Log: a.log}),
		eraser: vault.NewEraser(a.life, &out.Erasures, a.keys, &a.sends, a.log),
	}
	out.Dispatcher, out.Pager, out.Eraser = a.out.dispatch, a.out.pages, a.out.eraser
	return nil
}

// step takes one step of an actor's session.
func (a *actor) step(t *testing.T, b *bare) *bare {
	t.Helper()
	b.actor = a
	if _, err := a.session.Step(b); err != nil {
		t.Fatal(err)
	}
	return b
}

// holds has an actor's session claim term 1, read it back, and hold the tenant.
func (a *actor) holds(t *testing.T, holder string, sent Actuator) (claim ledger.Message) {
	t.Helper()
	a.state = executor.Open(a.kv, "t", nil)
	a.session = turn.NewSession(turn.Config{Tenant: "t", Holder: holder, NewID: jetstream.NewID}, a.state, 0)
	a.session.Lead(true, holder)
	p := a.step(t, new(bare)).appended
	if p == nil || !p.Claim {
		t.Fatalf("no claim: %+v", p)
	}
	claim = ledger.Message{Sequence: 1, StampNs: 1, Subject: p.Subject, Data: p.Data}
	a.session.Acknowledged(1, nil, true, 0)
	entries, err := ledger.Decode("t", claim)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.session.Begin(1, len(claim.Data)); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if a.tiles != nil {
			if err := a.tiles.Keep(claim, e); err != nil {
				t.Fatal(err)
			}
		}
		a.session.Fold(e)
	}
	if _, err := a.session.Write(0, true, noDisk{}, noDisk{}); err != nil {
		t.Fatal(err)
	}
	if a.step(t, &bare{sent: sent}); !a.holding() || a.out == nil {
		t.Fatal("it does not hold the tenant")
	}
	return claim
}

// noDisk keeps nothing of a turn.
type noDisk struct{}

func (noDisk) Flush() error { return nil }
func (noDisk) Commit()      {}

// appends has the machine append records.
func (a *actor) appends(t *testing.T, records []*pb.Record) {
	t.Helper()
	p := a.step(t, &bare{proof: records}).appended
	if p == nil {
		t.Fatal("nothing is appended")
	}
	shell{a}.Append(*p)
}

// readBack folds an append of the actor, as the ledger's second message.
func (a *actor) readBack(t *testing.T, p ledger.Append) {
	t.Helper()
	entries, err := ledger.Decode("t", ledger.Message{Sequence: 2, StampNs: 2, Subject: p.Subject, Data: p.Data})
	if err == nil {
		err = a.session.Begin(2, len(p.Data))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		a.session.Fold(e)
	}
	if _, err := a.session.Write(0, true, noDisk{}, noDisk{}); err != nil {
		t.Fatal(err)
	}
	a.step(t, new(bare))
}

// takesAck handles one result of an append.
func (a *actor) takesAck(t *testing.T, k ack) error {
	if err := a.acknowledged(k); err != nil {
		return err
	}
	if p := a.step(t, new(bare)).appended; p != nil {
		shell{a}.Append(*p)
	}
	return nil
}

// until has an actor handle what becomes of its append until that has an end.
func (a *actor) until(t *testing.T) {
	t.Helper()
	for stored := false; !stored && a.holding(); {
		select {
		case k := <-a.acks:
			stored = k.err == nil
			if err := a.takesAck(t, k); err != nil {
				t.Fatal(err)
			}
		case <-time.After(testenv.Patience):
			t.Fatal("the append has no end")
		}
	}
}

func decision() []*pb.Record {
	return []*pb.Record{{Term: 1, Kind: &pb.Record_RecordRefused{RecordRefused: &pb.RecordRefused{Sequence: 1}}}}
}

// TestADecisionGoesOutAgainAsItIs: whatever an append failed with, the next one is the same
// commit under the same message id, so that the stream stores it once, and on the same fence,
// so that it is stored only while no other term has begun.
func TestADecisionGoesOutAgainAsItIs(t *testing.T) {
	t.Parallel()
	a, store := appendingActor(t, ledger.ErrInDoubt, ledger.ErrBusy, ledger.ErrFull, ledger.ErrInDoubt)
	a.appends(t, decision())
	a.until(t)
	if len(store.appends) != 5 || a.board.Last() != 2 {
		t.Fatalf("%d appends, stored at %d", len(store.appends), a.board.Last())
	}
	first := store.appends[0]
	want := ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}.Subject()
	if first.ID == "" || first.Fence != 1 || first.FenceSubject != want {
		t.Errorf("%+v, want it fenced on %s at 1", first, want)
	}
	for _, next := range store.appends {
		if next.ID != first.ID || string(next.Data) != string(first.Data) || next.Subject != first.Subject ||
			next.Fence != first.Fence || next.FenceSubject != first.FenceSubject {
			t.Errorf("%+v, and before it was %+v", next, first)
		}
	}
	a.readBack(t, first)
	a.appends(t, decision())
	a.until(t)
	if last := store.appends[len(store.appends)-1]; last.ID == first.ID {
		t.Error("two commits have one id: the stream would drop the second")
	}
}

// TestAnAppendBehindAnotherTermIsGivenUp: whoever is told that another term has begun sends
// nothing again and decides nothing more.
func TestAnAppendBehindAnotherTermIsGivenUp(t *testing.T) {
	t.Parallel()
	a, store := appendingActor(t, ledger.ErrInDoubt, ledger.ErrConflict)
	a.appends(t, decision())
	a.until(t)
	if a.holding() || a.session.Term() != 0 {
		t.Errorf("holding %v, term %d", a.holding(), a.session.Term())
	}
	if len(store.appends) != 2 {
		t.Errorf("%d appends", len(store.appends))
	}
	select {
	case <-a.lead.doubt:
	default:
		t.Error("nobody asks whether the lease is still there")
	}
}

// TestOneAppendIsUnderWayAtATime: until the one before was read back, nothing is decided. A
// decision taken earlier would be taken on a state that does not have it.
func TestOneAppendIsUnderWayAtATime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	seen := make(chan *nats.Msg, 1000)
	sub, err := r.conn.ChanSubscribe("saga.t.executor", seen)
	if err != nil {
		t.Fatal(err)
	}
	r.serve(done)
	r.host("h1")
	for i := range 5 {
		r.plan(string(rune('p'+i)), 3, 0)
		r.fail(string(rune('p' + i)))
	}
	for i := range 5 {
		r.ended(string(rune('p' + i)))
	}
	if err := errors.Join(r.conn.Flush(), sub.Unsubscribe()); err != nil {
		t.Fatal(err)
	}
	ids, folded := map[string]bool{}, uint64(0)
	for len(seen) > 0 {
		m := <-seen
		id := m.Header.Get(nats.MsgIdHdr)
		if id == "" || m.Header.Get(nats.ExpectedLastSubjSeqHdr) == "" {
			t.Fatalf("a decision without id or fence: %v", m.Header)
		}
		commit := new(pb.Commit)
		if err := commit.UnmarshalVT(m.Data); err != nil {
			t.Fatal(err)
		}
		for _, record := range commit.Records {
			if f := record.Folded; f != 0 && !ids[id] {
				if f <= folded {
					t.Errorf("decided on %d, behind a decision on %d", f, folded)
				}
				folded = f
				break
			}
		}
		ids[id] = true
	}
	if len(ids) < 2 || folded == 0 { // what is sent ahead, and what came of it
		t.Errorf("%d decisions, on %d", len(ids), folded)
	}
}

// TestOnlyItsOwnServerThatIsMuteEndsAHost: servers that run elsewhere are not its to restart.
func TestOnlyItsOwnServerThatIsMuteEndsAHost(t *testing.T) {
	t.Parallel()
	mute := fmt.Errorf("%w: 3 appends in a row", ErrMute)
	for _, c := range []struct {
		storeDir string
		err      error
		ends     bool
	}{{"", mute, false}, {"nats", mute, true}, {"", ErrState, true}, {"", ledger.ErrInDoubt, false}} {
		if h := (&Host{cfg: Config{StoreDir: c.storeDir}}); h.endsBy(c.err) != c.ends {
			t.Errorf("store folder %q, %v: the host ends=%v, want %v", c.storeDir, c.err, !c.ends, c.ends)
		}
	}
}

// TestAStoreThatNeverAnswersIsMute: after some appends in a row without a reply, over a
// connection that is there. One that was stored in between begins the count anew.
func TestAStoreThatNeverAnswersIsMute(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for want, errs := range map[int][]error{
		turn.MissesMax:     {ledger.ErrInDoubt, ledger.ErrInDoubt, ledger.ErrInDoubt, ledger.ErrInDoubt},
		turn.MissesMax - 1: {ledger.ErrInDoubt, ledger.ErrInDoubt},
	} {
		a, store := appendingActor(t, errs...)
		a.host.cfg.Conn = r.conn
		for round := range 2 {
			a.appends(t, decision())
			misses, mute, stored := 0, false, false
			for !stored && !mute {
				k := <-a.acks
				if stored = k.err == nil; !stored {
					misses++
				}
				mute = errors.Is(a.takesAck(t, k), ErrMute)
			}
			if mute != (want == turn.MissesMax) || misses != want {
				t.Fatalf("round %d: mute=%v after %d misses, want %d", round, mute, misses, want)
			}
			if mute {
				break
			}
			if round == 0 {
				a.readBack(t, store.appends[len(store.appends)-1])
			}
			store.mu.Lock()
			store.errs = errs // again, behind one that was stored
			store.mu.Unlock()
		}
	}
}
