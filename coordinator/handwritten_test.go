package coordinator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The seven ways of docs/guide/handwritten.md: in each the same happens to a saga that was
// written by hand and to a plan.

// saga is what people write by hand: a list of undos in memory, called in reverse.
type saga struct{ undos []func() error }

func (s *saga) do(forward, undo func() error) error {
	if err := forward(); err != nil {
		s.unwind()
		return err
	}
	s.undos = append(s.undos, undo)
	return nil
}

func (s *saga) unwind() {
	for _, undo := range slices.Backward(s.undos) {
		_ = undo() // logged, in most of them
	}
	s.undos = nil
}

// shop is the outside world: what was booked and not cancelled, by name. Who gives a key
// is carried out once under it.
type shop struct {
	mu    sync.Mutex
	there map[string]int
	done  map[string]bool // by key
}

func newShop() *shop { return &shop{there: map[string]int{}, done: map[string]bool{}} }

func (s *shop) change(name, key string, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key == "" || !s.done[key] {
		s.there[name] += by
	}
	s.done[key] = true
}

func (s *shop) book(name string) func() error {
	return func() error { s.change(name, "", 1); return nil }
}

func (s *shop) cancel(name string) func() error {
	return func() error { s.change(name, "", -1); return nil }
}

// left is as in "hotel=1 room=-1".
func (s *shop) left() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.there)) {
		if n := s.there[name]; n != 0 {
			names = append(names, fmt.Sprint(name, "=", n))
		}
	}
	return strings.Join(names, " ")
}

// trip is a shop with a live executor and a worker that cancels there.
type trip struct {
	*live
	*shop
	answer func(c api.Command) error // of the worker, which cancels unless it is a stop; set at first
}

func trips() []contract.Contract {
	return []contract.Contract{{
		Capability: "trip.book", Class: contract.Compensable, Late: contract.LateNever,
		Grace: 50 * time.Millisecond,
		Inverse: &contract.Inverse{Call: "trip.cancel", With: map[string]any{"name": "=input.name"},
			Backoff: 50 * time.Millisecond},
	}}
}

var errLost = errors.New("no answer came")

func newTrip(t *testing.T) *trip {
	t.Parallel()
	w := &trip{live: newLive(t, coordinator.Config{Contracts: trips()}), shop: newShop()}
	w.undo("trip.cancel", func(_ context.Context, c api.Command) (worker.Result, error) {
		var with struct{ Name string }
		if err := json.Unmarshal(c.Arguments, &with); err != nil {
			return worker.Result{}, err
		}
		var problem error
		if w.answer != nil {
			problem = w.answer(c)
		}
		if !errors.Is(problem, worker.ErrStop) {
			w.change(with.Name, c.Key, -1)
		}
		return worker.Result{}, problem
	})
	return w
}

// booking is an action that books; then it returns what fails.
func (w *trip) booking(p *coordinator.Plan, a coordinator.Action, fails error) error {
	a.Capability = "trip.book"
	a.Input = map[string]string{"name": a.ID}
	_, err := p.Do(w.t.Context(), a, func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
		w.change(a.ID, "", 1)
		return coordinator.Outcome{}, fails
	})
	return err
}

func (w *trip) books(p *coordinator.Plan, names ...string) {
	w.t.Helper()
	for _, name := range names {
		if err := w.booking(p, coordinator.Action{ID: name}, nil); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *trip) fails(p *coordinator.Plan, end string) {
	w.t.Helper()
	if err := p.Fail(w.t.Context(), "the traveller is ill"); err != nil {
		w.t.Fatal(err)
	}
	w.ends(p, end)
}

// stands wants what is left of the saga, and of the plan.
func stands(t *testing.T, byHand *shop, wantByHand string, w *trip, want string) {
	t.Helper()
	if got := byHand.left(); got != wantByHand {
		t.Errorf("by hand %q is left, want %q", got, wantByHand)
	}
	if got := w.left(); got != want {
		t.Errorf("of the plan %q is left, want %q", got, want)
	}
}

// TestWay1TheListDiesWithItsProcess: what was done stands for ever, and nobody has a list of it.
func TestWay1TheListDiesWithItsProcess(t *testing.T) {
	byHand := newShop()
	_ = new(saga).do(byHand.book("flight"), byHand.cancel("flight")) // and its process is gone

	w := newTrip(t)
	p := w.begin(coordinator.PlanSpec{Deadline: 2 * time.Second})
	w.books(p, "flight")
	// The agent never comes back. Its plan has a deadline, and the ledger has the undo.
	w.ends(p, ledger.StateCompensated)
	stands(t, byHand, "flight=1", w, "")
}

// TestWay2ATimeoutIsTakenForNo: the call was made, and its answer was lost.
func TestWay2ATimeoutIsTakenForNo(t *testing.T) {
	byHand, s := newShop(), new(saga)
	_ = s.do(byHand.book("flight"), byHand.cancel("flight"))
	_ = s.do(func() error { _ = byHand.book("hotel")(); return errLost }, byHand.cancel("hotel"))

	w := newTrip(t)
	p := w.begin(coordinator.PlanSpec{})
	w.books(p, "flight")
	if err := w.booking(p, coordinator.Action{ID: "hotel"}, errLost); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	w.fails(p, ledger.StateCompensated)
	stands(t, byHand, "hotel=1", w, "")
}

// TestWay3AnUndoThatIsTriedAgainIsDoneTwice: it was done, and its answer was lost.
func TestWay3AnUndoThatIsTriedAgainIsDoneTwice(t *testing.T) {
	byHand, s, tries := newShop(), new(saga), 0
	_ = s.do(byHand.book("flight"), func() (err error) {
		for err = errLost; err != nil; tries++ { // a loop around the undo, as is usual
			if err = byHand.cancel("flight")(); tries == 0 {
				err = errLost
			}
		}
		return nil
	})
	s.unwind()

	w := newTrip(t)
	w.answer = func(c api.Command) error {
		if c.Attempt == 1 {
			return errLost
		}
		return nil
	}
	p := w.begin(coordinator.PlanSpec{})
	w.books(p, "flight")
	w.fails(p, ledger.StateCompensated)
	if got := w.undoneActions(); got != "flight flight" { // under one key
		t.Errorf("sent %s", got)
	}
	stands(t, byHand, "flight=-1", w, "")
}

// TestWay4TooMuchIsUndone: for one act that must not stand, all that came before goes as well,
// though it does not rest on it.
func TestWay4TooMuchIsUndone(t *testing.T) {
	byHand, s := newShop(), new(saga)
	for _, name := range []string{"flight", "hotel", "car", "tour"} {
		_ = s.do(byHand.book(name), byHand.cancel(name))
	}
	s.unwind() // the hotel is not allowed

	w := newTrip(t)
	p := w.begin(coordinator.PlanSpec{})
	w.books(p, "flight")
	for _, part := range [][2]string{{"hotel", "flight"}, {"car", "flight"}, {"tour", "hotel"}} {
		a := coordinator.Action{ID: part[0], After: []string{part[1]}, Branch: true}
		if err := w.booking(p, a, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.rule(p.ID(), "hotel", pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK)
	w.commits(p)
	if got := w.undoneActions(); got != "tour hotel" {
		t.Errorf("undone %s", got)
	}
	stands(t, byHand, "", w, "car=1 flight=1")
}

// commits goes on when it is told what was undone.
func (w *trip) commits(p *coordinator.Plan) {
	w.t.Helper()
	told := 0
	for deadline := time.Now().Add(testenv.Patience); time.Now().Before(deadline); {
		err := p.Commit(w.t.Context())
		var part *coordinator.PartUndone
		switch {
		case err == nil && told == 1:
			return
		case errors.As(err, &part) && part.Action == "hotel":
			told++
		case !errors.Is(err, coordinator.ErrUnwinding):
			w.t.Fatalf("told %d times: %v", told, err)
		}
		select {
		case <-w.t.Context().Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	w.t.Fatal("the plan does not go on")
}

// TestWay5AnUndoThatFailsIsForgotten: the saga returns as if it had been undone.
func TestWay5AnUndoThatFailsIsForgotten(t *testing.T) {
	errKept := errors.New("cannot be cancelled any more")
	byHand, s := newShop(), new(saga)
	_ = s.do(byHand.book("flight"), byHand.cancel("flight"))
	_ = s.do(byHand.book("hotel"), func() error { return errKept })
	s.unwind()

	w := newTrip(t)
	w.answer = func(c api.Command) error {
		if c.Action == "hotel" {
			return worker.Stop(errKept)
		}
		return nil
	}
	p := w.begin(coordinator.PlanSpec{OnUndoFailure: coordinator.ContinueOnUndoFailure})
	w.books(p, "flight", "hotel")
	w.fails(p, ledger.StateQuarantined) // its owner is paged, and asked
	end, err := p.Wait(t.Context())
	if err != nil || !slices.Contains(end.Outstanding, "hotel") {
		t.Errorf("%+v, %v", end, err)
	}
	stands(t, byHand, "hotel=1", w, "hotel=1")
}

// TestWay6AnUndoReadsWhatIsThereNow and not what was there when it was due to be undone.
func TestWay6AnUndoReadsWhatIsThereNow(t *testing.T) {
	byHand, s := newShop(), new(saga)
	memory := map[string]string{"room": "hotel"} // what the agent believes
	_ = s.do(byHand.book("hotel"), func() error { return byHand.cancel(memory["room"])() })
	memory["room"] = "hostel" // it has changed its mind
	s.unwind()

	w := newTrip(t)
	input := map[string]string{"name": "hotel"}
	p := w.begin(coordinator.PlanSpec{})
	if _, err := p.Do(t.Context(), coordinator.Action{ID: "hotel", Capability: "trip.book", Input: input},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{}, w.book("hotel")()
		}); err != nil {
		t.Fatal(err)
	}
	input["name"] = "hostel"
	w.fails(p, ledger.StateCompensated)
	stands(t, byHand, "hostel=-1 hotel=1", w, "")
}

// TestWay7StartedAgainItDoesAllOfItAgain.
func TestWay7StartedAgainItDoesAllOfItAgain(t *testing.T) {
	byHand := newShop()
	for range 2 { // the process dies after its first act, and is started again
		_ = new(saga).do(byHand.book("flight"), byHand.cancel("flight"))
	}

	w := newTrip(t)
	p := w.begin(coordinator.PlanSpec{ID: "trip"})
	w.books(p, "flight")
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	process, err := coordinator.New(coordinator.Config{Conn: w.connect("a1"), Tenant: "default",
		Agent: "a1", Contracts: trips()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Close(context.Background()) })
	again, err := process.Resume(t.Context(), "trip")
	if err != nil {
		t.Fatal(err)
	}
	w.books(again, "flight") // what is recorded is not done again
	stands(t, byHand, "flight=2", w, "flight=1")
	w.fails(again, ledger.StateCompensated)
	stands(t, byHand, "flight=2", w, "")
}
