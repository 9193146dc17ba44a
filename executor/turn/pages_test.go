package turn

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func pageOf(id, action, hook string) executor.Page {
	return executor.Page{Number: 1, Page: api.Page{
		ID: id, Kind: api.PageQuarantined, Plan: "p", Action: action, Hook: hook, AtNs: int64(time.Hour),
	}}
}

// noPager publishes nothing.
type noPager struct{}

func (noPager) Lock()            {}
func (noPager) Unlock()          {}
func (noPager) Page(*Delivery)   {}
func (noPager) Unpage(*Delivery) {}

// TestAPageIsSentUntilItIsSettled: taken by a hook, answered by its owner or replaced by a
// later one about the same; then it leaves nothing.
func TestAPageIsSentUntilItIsSettled(t *testing.T) {
	t.Parallel()
	var p Pages
	taken, _ := p.Add(pageOf("1", "a", "payments"), false)
	if again, _ := p.Add(pageOf("1", "a", "payments"), false); again != nil {
		t.Error("one page, two deliveries")
	}
	answered, _ := p.Add(pageOf("2", "b", "payments"), false)
	own, _ := p.Add(pageOf("3", "c", "ops"), true)
	if !p.Take(taken, "payments") || p.Take(taken, "ops") || p.Waits(taken) {
		t.Error("it is taken once")
	}
	if l := p.Recorded(answered.Key); l != answered || p.Take(answered, "payments") {
		t.Error("it was answered and still waits")
	}
	if p.Recorded(own.Key) != nil || p.Drop(taken.Key) != nil {
		t.Error("a record ends a page about a host, or a host one of the state")
	}
	paged := p.Taken()
	if len(paged) != 1 || paged[0].Hook != "payments" {
		t.Errorf("%+v", paged)
	}
	later, replaced := p.Add(pageOf("4", "a", "payments"), false)
	if replaced != taken || later == nil {
		t.Error("the later page does not replace the earlier one")
	}
	if p.Settled(len(paged), noPager{}) || !p.Waits(later) {
		t.Error("what is settled is not the later page")
	}
	p.Recorded(later.Key)
	if !p.Take(own, "ops") || p.Len() != 0 || len(p.rooms.of) != 0 || p.rooms.deliveries != 0 || len(p.Taken()) != 0 {
		t.Errorf("left: %v, %+v", p.All(), p.rooms)
	}
}

// TestTakenPagesAreRecordedAFewAtATime: the first ones first, and the others after them.
func TestTakenPagesAreRecordedAFewAtATime(t *testing.T) {
	t.Parallel()
	var p Pages
	for n := range PagedMax + 1 {
		l, _ := p.Add(pageOf(fmt.Sprint(n), fmt.Sprint("a", n), "payments"), false)
		l.Page.Number = uint32(n + 1)
		p.Take(l, "payments")
	}
	for _, first := range []uint32{1, PagedMax + 1} {
		paged := p.Taken()
		if len(paged) == 0 || len(paged) > PagedMax || paged[0].Number != first {
			t.Fatalf("%d pages from %d on, want %d", len(paged), paged[0].Number, first)
		}
		if more := p.Settled(len(paged), noPager{}); more != (first == 1) {
			t.Errorf("more after %d: %v", first, more)
		}
	}
}

// TestOperatorsGetAPageThatNoOneTakes: once it is old enough, also after a restart.
func TestOperatorsGetAPageThatNoOneTakes(t *testing.T) {
	t.Parallel()
	p := Pages{EscalateNs: int64(5 * time.Minute)}
	l, _ := p.Add(pageOf("1", "a", "payments"), false)
	for _, c := range []struct {
		age, in   time.Duration
		escalated bool
		hooks     []string
	}{
		{0, time.Second, false, []string{"payments"}},
		{-time.Hour, time.Second, false, []string{"payments"}},
		{4 * time.Minute, time.Minute, false, []string{"payments"}},
		{5 * time.Minute, 5 * time.Minute, true, []string{"payments", api.PageOperators}},
		{24 * time.Hour, RoundMax, false, []string{"payments", api.PageOperators}},
	} {
		r := p.Round(l, l.Page.AtNs+int64(c.age))
		if r.Escalated != c.escalated || !slices.Equal(r.Hooks, c.hooks) || r.InNs != int64(c.in) {
			t.Errorf("at %s: %+v", c.age, r)
		}
	}
}

// TestAKeyIsDestroyedOnce: each plan until the store says that its key is gone, the others
// before it after a failure.
func TestAKeyIsDestroyedOnce(t *testing.T) {
	t.Parallel()
	var e Erasures
	e.Add([]string{"a", "b"})
	e.Add([]string{"b", "a"})
	var tried []string
	for i := 0; ; i++ {
		plan, more := e.Next()
		if !more {
			break
		}
		tried = append(tried, plan)
		e.Result(plan, i > 0)
	}
	if !slices.Equal(tried, []string{"a", "b", "a"}) || !slices.Equal(e.Destroyed(), []string{"b", "a"}) {
		t.Errorf("tried %v, destroyed %v", tried, e.Destroyed())
	}
	e.Recorded("b")
	e.Add([]string{"a"})
	if _, more := e.Next(); more || !slices.Equal(e.Destroyed(), []string{"a"}) {
		t.Errorf("destroyed %v", e.Destroyed())
	}
}

// TestAHaltHoldsOverARestart: while the stream is the same one, and its record is another
// one than the second copy has.
func TestAHaltHoldsOverARestart(t *testing.T) {
	t.Parallel()
	found := &ledger.Halted{Guard: "G4", Sequence: 7, Problem: "another record"}
	kept, keep := KeepHalt(found, 5)
	if _, others := KeepHalt(&ledger.Halted{Guard: "G2", Sequence: 7}, 5); !keep || others {
		t.Fatalf("kept %v, and a guard's own %v", keep, others)
	}
	for name, c := range map[string]struct {
		createdNs    int64
		copied       uint64
		same, halted bool
	}{
		"as it was":        {5, 9, false, true},
		"mended":           {5, 9, true, false},
		"another stream":   {6, 9, false, false},
		"no copy any more": {5, 6, false, false},
	} {
		again, err := kept.Again(ledger.Head{CreatedNs: c.createdNs}, c.copied,
			func(uint64) (bool, error) { return c.same, nil })
		if err != nil || (again != nil) != c.halted || again != nil && *again != *found {
			t.Errorf("%s: %v %v", name, again, err)
		}
	}
}
