package executor_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestDeadlinesFireBeforeOtherWork: an unwind that waits for a decision, and those of
// the plans that fire, take little of the turn that fires them.
func TestDeadlinesFireBeforeOtherWork(t *testing.T) {
	t.Parallel()
	const plans = 40
	w := newWorld(t)
	for i := range plans {
		plan := fmt.Sprintf("late%02d", i)
		w.must(w.agent(plan, opened(epoch0+second)))
		w.do(plan, "a", "b")
	}
	for i := range plans {
		plan := fmt.Sprintf("failed%02d", i)
		w.must(w.agent(plan, opened(0)))
		w.do(plan, "a")
		w.must(w.agent(plan, planFailed()))
	}
	w.now += 2 * second
	records := w.decide(nil)
	size := 0
	for i, r := range records {
		if fires := r.GetLeaseFired() != nil && r.GetLeaseFired().Lease == LeaseDeadline; fires != (i < plans) {
			t.Fatalf("record %d is %s of %s", i, ledger.KindOf(r).Name, r.Plan)
		}
		if i >= plans {
			size += ledger.RecordSize(r)
		}
	}
	if len(records) == plans || size > BesideFiringMax {
		t.Errorf("%d records, %d bytes of other work", len(records), size)
	}
	again := OpenWith(w.kv, "t", nil, w.programs)
	if !sameRecords(records, again.Decide(Input{EpochNs: w.now, SizeMax: 60 << 10})) {
		t.Error("after a restart it decides otherwise")
	}
	w.at(10 * time.Second)
	for i := range plans {
		w.wantState(fmt.Sprintf("late%02d", i), ledger.StateCompensated, "a=compensated b=compensated")
	}
}

// TestAPlanThatFiredIsNotLookedAtAgain: its due entry stands until its unwind, and a
// turn asks nothing about it.
func TestAPlanThatFiredIsNotLookedAtAgain(t *testing.T) {
	w := newWorld(t)
	w.must(w.agent("p", opened(epoch0+second)))
	w.do("p", "a")
	w.now += 2 * second
	fired := w.decide(nil)[:1]
	w.must(w.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, fired...))
	w.decide(nil)
	if n := w.state.Snoozed(); n != 0 {
		t.Errorf("looks again at %d entries", n)
	}
	w.at(0)
	w.wantState("p", ledger.StateCompensated, "a=compensated")
}

// TestAFactWakesWhatTheClockHasAsked: a holder's clock is ahead of logical time, as
// where the stream's is slow. A lease that was asked at its instant, and waits for a
// fact since, is asked again when the fact comes, though its instant stays the same.
func TestAFactWakesWhatTheClockHasAsked(t *testing.T) {
	for _, condition := range []string{
		`after(plan.opened_at + duration("45s")) && facts["k"].n > 3`, // a lease by itself
		`elapsed(at("o"), duration("45s")) && facts["k"].n > 3`,       // a node
	} {
		w := newWorld(t)
		assert := func(key string, n int) {
			w.must(w.append(ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "sensor"},
				&pb.Record{Kind: &pb.Record_FactAsserted{
					FactAsserted: &pb.FactAsserted{Key: key, Value: fmt.Appendf(nil, `{"n":%d}`, n)}}}))
		}
		assert("o", 1)
		assert("k", 1)
		w.must(w.agent("p", opened(0, when("late", condition))))
		w.do("p", "a")
		w.now = epoch0 + 50*second
		if records := w.decide(nil); len(records) != 0 {
			t.Fatalf("%s: fires without its fact: %v", condition, records)
		}
		w.now = epoch0 + 10*second // by the stream's clock
		assert("k", 5)
		w.now = epoch0 + 51*second
		if next, ok := w.state.NextWake(); !ok || next > w.now {
			t.Errorf("%s: nothing is due: %d, %v", condition, next, ok)
		}
		if records := w.decide(nil); len(records) == 0 || records[0].GetLeaseFired() == nil {
			t.Errorf("%s: does not fire: %v", condition, records)
		}
	}
}
