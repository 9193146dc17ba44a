package host

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor"
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
	a.session, a.store = t.Context(), store
	a.holds(t, "h1")
	return a, store
}

// holds has an actor's machine claim term 1, read it back, and hold the tenant.
func (a *actor) holds(t *testing.T, holder string) (claim ledger.Message) {
	t.Helper()
	a.state = executor.Open(a.kv, "t", nil)
	a.machine = turn.New(turn.Config{Tenant: "t", Holder: holder, NewID: jetstream.NewID}, a.state, 0)
	a.machine.Lead(true, holder)
	r := a.machine.Step(turn.Instant{}, turn.Inputs{})
	if r.Append == nil || !r.Append.Claim {
		t.Fatalf("no claim: %+v", r)
	}
	claim = ledger.Message{Sequence: 1, StampNs: 1, Subject: r.Append.Subject, Data: r.Append.Data}
	a.machine.Acknowledged(1, nil, true, 0)
	entries, err := ledger.Decode("t", claim)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.machine.Begin(1, len(claim.Data)); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if a.tiles != nil {
			if err := a.tiles.Keep(claim, e); err != nil {
				t.Fatal(err)
			}
		}
		a.machine.Fold(e)
	}
	if _, err := a.machine.Write(0, true, noDisk{}, noDisk{}); err != nil {
		t.Fatal(err)
	}
	if r := a.machine.Step(turn.Instant{}, turn.Inputs{}); !r.Up || !a.holding() {
		t.Fatalf("it does not hold the tenant: %+v", r)
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
	r := a.machine.Step(turn.Instant{}, turn.Inputs{Proof: records})
	if r.Append == nil {
		t.Fatalf("nothing is appended: %+v", r)
	}
	a.publish(*r.Append)
}

// readBack folds an append of the actor, as the ledger's second message.
func (a *actor) readBack(t *testing.T, p ledger.Append) {
	t.Helper()
	entries, err := ledger.Decode("t", ledger.Message{Sequence: 2, StampNs: 2, Subject: p.Subject, Data: p.Data})
	if err == nil {
		err = a.machine.Begin(2, len(p.Data))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		a.machine.Fold(e)
	}
	if _, err := a.machine.Write(0, true, noDisk{}, noDisk{}); err != nil {
		t.Fatal(err)
	}
	a.machine.Step(turn.Instant{}, turn.Inputs{})
}

// takesAck handles one result of an append.
func (a *actor) takesAck(k ack) error {
	if err := a.acknowledged(k); err != nil {
		return err
	}
	if r := a.machine.Step(turn.Instant{}, turn.Inputs{}); r.Append != nil {
		a.publish(*r.Append)
	} else if r.Down != nil {
		a.down(*r.Down)
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
			if err := a.takesAck(k); err != nil {
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
	if a.holding() || a.machine.Term() != 0 {
		t.Errorf("holding %v, term %d", a.holding(), a.machine.Term())
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

// TestAStoreThatNeverAnswersEndsTheHost: after some appends in a row without a reply, over a
// connection that is there. One that was stored in between begins the count anew.
func TestAStoreThatNeverAnswersEndsTheHost(t *testing.T) {
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
				mute = errors.Is(a.takesAck(k), ErrMute)
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
