package host

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
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
	return 7, nil
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
	a := h.actors[0]
	a.session, a.store = t.Context(), store
	a.term, a.fence, a.holding = 3, 5, true
	return a, store
}

// until has an actor handle what becomes of its append until it is stored.
func (a *actor) until(t *testing.T) {
	t.Helper()
	for a.pending != nil && a.pending.stored == 0 {
		select {
		case k := <-a.acks:
			if err := a.acknowledged(k); err != nil {
				t.Fatal(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the append has no end")
		}
	}
}

func decision() []*pb.Record {
	return []*pb.Record{{Term: 3, Kind: &pb.Record_RecordRefused{RecordRefused: &pb.RecordRefused{Sequence: 1}}}}
}

// TestADecisionGoesOutAgainAsItIs: whatever an append failed with, the next one is the same
// commit under the same message id, so that the stream stores it once, and on the same fence,
// so that it is stored only while no other term has begun.
func TestADecisionGoesOutAgainAsItIs(t *testing.T) {
	t.Parallel()
	a, store := appendingActor(t, ledger.ErrInDoubt, ledger.ErrBusy, ledger.ErrFull, ledger.ErrInDoubt)
	a.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, decision(), false)
	a.until(t)
	if len(store.appends) != 5 || a.pending.stored != 7 {
		t.Fatalf("%d appends, stored at %d", len(store.appends), a.pending.stored)
	}
	first := store.appends[0]
	want := ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}.Subject()
	if first.ID == "" || first.Fence != 5 || first.FenceSubject != want {
		t.Errorf("%+v, want it fenced on %s at 5", first, want)
	}
	for _, next := range store.appends {
		if next.ID != first.ID || string(next.Data) != string(first.Data) || next.Subject != first.Subject ||
			next.Fence != first.Fence || next.FenceSubject != first.FenceSubject {
			t.Errorf("%+v, and before it was %+v", next, first)
		}
	}
	a.pending = nil
	a.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, decision(), false)
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
	a.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, decision(), false)
	a.until(t)
	if a.pending != nil || a.holding || a.term != 0 || a.wantsTerm {
		t.Errorf("pending %v, holding %v, term %d", a.pending, a.holding, a.term)
	}
	if len(store.appends) != 2 {
		t.Errorf("%d appends", len(store.appends))
	}
	select {
	case <-a.doubt:
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
	if len(ids) < 4 || folded == 0 { // the actions of a plan are undone one after the other
		t.Errorf("%d decisions, on %d", len(ids), folded)
	}
}

// TestAStoreThatNeverAnswersEndsTheHost: after some appends in a row without a reply, over a
// connection that is there. One that was stored in between begins the count anew.
func TestAStoreThatNeverAnswersEndsTheHost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for want, errs := range map[int][]error{
		missesMax:     {ledger.ErrInDoubt, ledger.ErrInDoubt, ledger.ErrInDoubt, ledger.ErrInDoubt},
		missesMax - 1: {ledger.ErrInDoubt, ledger.ErrInDoubt},
	} {
		a, store := appendingActor(t, errs...)
		a.host.cfg.Conn = r.conn
		for round := range 2 {
			a.pending = nil
			a.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, decision(), false)
			misses, mute := 0, false
			for a.pending.stored == 0 && !mute {
				k := <-a.acks
				if k.err != nil {
					misses++
				}
				mute = errors.Is(a.acknowledged(k), ErrMute)
			}
			if mute != (want == missesMax) || misses != want {
				t.Fatalf("round %d: mute=%v after %d misses, want %d", round, mute, misses, want)
			}
			if mute {
				break
			}
			store.mu.Lock()
			store.errs = errs // again, behind one that was stored
			store.mu.Unlock()
		}
	}
}
