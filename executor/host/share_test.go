package host

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// handClock is a clock that tests move.
type handClock struct{ ns time.Duration }

func newTestUse(s *share, c *handClock) *processorUse {
	w := newProcessorUse(s)
	w.now = func() time.Duration { return c.ns }
	return w
}

func TestATenantThatWorksLittleNeedsNoPlace(t *testing.T) {
	t.Parallel()
	s := &share{places: make(chan struct{}, 1)}
	s.places <- struct{}{} // taken by another
	c := new(handClock)
	w := newTestUse(s, c)
	for range 100 {
		w.begin(nil)
		c.ns += freeMax
		w.step() // would wait for ever
		w.end()
		c.ns += freeMax * freeShare
	}
	if w.place || len(s.places) != 1 {
		t.Errorf("has a place: %v, %d taken", w.place, len(s.places))
	}
}

func TestATenantThatWorksALotTakesAPlace(t *testing.T) {
	t.Parallel()
	s := &share{places: make(chan struct{}, 1)}
	c := new(handClock)
	w := newTestUse(s, c)
	w.begin(nil)
	c.ns += freeMax + 1
	w.step()
	if !w.place || len(s.places) != 1 {
		t.Fatalf("has a place: %v, %d taken", w.place, len(s.places))
	}
	c.ns += 10 * placeMax
	w.step()
	if !w.place {
		t.Error("left its place, and nobody waits")
	}
	w.end()
	if w.place || len(s.places) != 0 {
		t.Errorf("after its turn it has a place: %v, %d taken", w.place, len(s.places))
	}
}

// TestACostlyCallLooksAtTheClock, however quick the calls before it were: a text that
// takes long to compile comes at any time.
func TestACostlyCallLooksAtTheClock(t *testing.T) {
	s := &share{places: make(chan struct{}, 1)}
	c := new(handClock)
	w := newTestUse(s, c)
	w.begin(nil)
	for range 10_000 {
		w.between(false)
	}
	for n := range 100 {
		before := w.looked
		c.ns += 3 * time.Millisecond
		w.between(true)
		if w.looked == before {
			t.Fatalf("costly call %d: the clock was not looked at", n)
		}
		for range 70 { // as quick as ever
			w.between(false)
		}
	}
	if !w.place {
		t.Error("300 ms of work, and no place")
	}
}

func TestThoseThatWorkALotTakeTurns(t *testing.T) {
	t.Parallel()
	const tries = 5 // one that waits may not be in the queue yet, which nobody can see
	var got []int
	for range tries {
		if got = turns(); inTurns(got) {
			return
		}
	}
	t.Fatalf("not in turns in %d tries: %v", tries, got)
}

const turnsTenants = 3

// turns is the order in which tenants got the one place.
func turns() (got []int) {
	s := &share{places: make(chan struct{}, 1)}
	const turnsEach = 4
	order := make(chan int, turnsTenants*turnsEach)
	ended := make(chan struct{}, turnsTenants)
	work := func(tenant int) {
		c := new(handClock)
		w := newTestUse(s, c)
		w.begin(nil)
		c.ns += freeMax + 1
		for range turnsEach {
			w.step()
			order <- tenant
			for int(s.waiting.Load())+len(ended) < turnsTenants-1 { // the others queue up
				runtime.Gosched()
			}
			c.ns += placeMax + 1
		}
		ended <- struct{}{}
		w.end()
	}
	for i := range turnsTenants {
		go work(i)
	}
	for range turnsTenants * turnsEach {
		got = append(got, <-order)
	}
	return got
}

// inTurns reports whether each tenant came once in every round.
func inTurns(got []int) bool {
	for round := range slices.Chunk(got, turnsTenants) {
		if !slices.Equal(slices.Sorted(slices.Values(round)), []int{0, 1, 2}) {
			return false
		}
	}
	return true
}

func TestWaitingForAPlaceEndsWithTheSession(t *testing.T) {
	t.Parallel()
	s := &share{places: make(chan struct{}, 1)}
	s.places <- struct{}{}
	c := new(handClock)
	w := newTestUse(s, c)
	ctx, cancel := context.WithCancel(context.Background())
	w.begin(ctx.Done())
	c.ns += freeMax + 1
	cancel()
	defer func() {
		if _, over := recover().(interrupted); !over {
			t.Error("not interrupted")
		}
		w.end()
		if len(s.places) != 1 || s.waiting.Load() != 0 {
			t.Errorf("%d places taken, %d wait", len(s.places), s.waiting.Load())
		}
	}()
	w.step()
}

// TestACostlyTenantLeavesAQuietOneAlone gives one of two tenants a fold that never
// gets its place: the other folds on, and the host still stops.
func TestACostlyTenantLeavesAQuietOneAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h, err := New(Config{Conn: r.conn, Tenants: []string{"costly", "quiet"}, Dir: r.dir + "/two",
		DurableServer: r.srv.DurableID()})
	if err != nil {
		t.Fatal(err)
	}
	for range cap(h.share.places) {
		h.share.places <- struct{}{}
	}
	c := new(handClock)
	h.roster.order[0].use.now = func() time.Duration { c.ns += freeMax; return c.ns } // slow at every look
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	<-h.Ready()
	for _, a := range h.roster.all() {
		folded := a.board.Await(appendFact(t, r, a.tenant),
			map[string]time.Duration{"quiet": 30 * time.Second}[a.tenant])
		if want := a.tenant == "quiet"; folded != want {
			t.Errorf("%s folded: %v, want %v", a.tenant, folded, want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

func appendFact(t *testing.T, r *rig, tenant string) uint64 {
	t.Helper()
	p, err := jetstream.Attach(r.conn, tenant)
	if err != nil {
		t.Fatal(err)
	}
	data, err := ledger.EncodeCommit(
		[]*pb.Record{{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: "k", Value: []byte("1")}}}})
	if err != nil {
		t.Fatal(err)
	}
	source := ledger.Source{Tenant: tenant, Class: ledger.ClassFact, Name: "s"}
	sequence, err := p.Append(context.Background(), ledger.Append{Subject: source.Subject(), ID: jetstream.NewID(),
		Data: data})
	if err != nil {
		t.Fatal(err)
	}
	return sequence
}
