package executor_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestARestoreIsGivenUpWhenAnUndoOfTheSameTurnChangesTheFact: what was asked about is
// not there any more.
func TestARestoreIsGivenUpWhenAnUndoOfTheSameTurnChangesTheFact(t *testing.T) {
	for capability, bindings := range map[string][]string{
		ledger.CapabilityRetract: {"key", `"k"`},
		ledger.CapabilityAssert:  {"key", `"k"`, "value", `2`},
	} {
		w := newWorld(t)
		w.must(w.append(sensor, asserted("k", `{"v":1}`)))
		w.must(w.append(ops, evictAsked("k")))
		w.turn()
		if w.state.FactRow("k").Evicted == nil {
			t.Fatal("not evicted")
		}
		w.must(w.agent("p", opened(0)))
		w.must(w.agent("p", pair("a", byFact(capability, bindings...))...))
		w.must(w.agent("p", completed("a")))
		w.must(w.agent("p", planFailed()))
		for w.actionOf("p", "a").Row.Dispatched == nil {
			w.must(w.append(holder, w.decide(nil)...))
		}
		w.must(w.append(ops, restoreAsked("k")))
		records := w.decide([]Answer{{Plan: "p", Number: 1, Purpose: ledger.PurposeUndo, Attempt: 1,
			Reply: &api.Reply{Status: api.StatusDone}}})
		for _, r := range records {
			if r.GetFactReingested() != nil {
				t.Fatalf("%s: brings back what is no more: %v", capability, r)
			}
		}
		w.must(w.append(holder, records...))
		w.turn()
		if row := w.state.FactRow("k"); row.Asked != nil || row.Evicted != nil {
			t.Fatalf("%s: %+v", capability, row)
		}
	}
}

// TestALargeDecisionIsTakenBesideFirings, though leases fire by the clock in every turn.
func TestALargeDecisionIsTakenBesideFirings(t *testing.T) {
	w := newWorld(t)
	const deadlines = 20
	for i := range deadlines {
		w.must(w.agent(fmt.Sprintf("late%03d", i), opened(epoch0+int64(i+1)*second)))
	}
	w.must(w.agent("q", opened(0)))
	records := pair("b", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Bindings = []*pb.Binding{{Name: "x", Expression: `input.big`}}
	})
	records[0].Payload = &pb.Payload{Input: []byte(`{"big":"` + strings.Repeat("x", BesideFiringMax+2000) + `"}`)}
	w.must(w.agent("q", records...))
	w.must(w.agent("q", completed("b")))
	w.must(w.agent("q", planFailed()))
	for i := range deadlines {
		w.now = epoch0 + int64(i+1)*second
		w.must(w.append(holder, w.decide(nil)...))
		if w.actionOf("q", "b").Row.Dispatched != nil {
			return
		}
	}
	t.Fatalf("not dispatched in %d turns in which a deadline fell due", deadlines)
}

// TestATurnBehindACutIsNotLost, also when its fact has flipped back since.
func TestATurnBehindACutIsNotLost(t *testing.T) {
	w := newWorld(t)
	w.limits = CascadeLimits{Depth: 1}
	w.must(w.agent("u", opened(0)))
	w.do("u", "x")
	w.must(w.agent("p", opened(0, when("a", `facts["m"] == 1`), when("b", `facts["n"] == 1`))))
	w.do("p", "y")
	w.must(w.agent("u", planFailed()))
	w.worker = func(c Command) *api.Reply {
		if c.Plan == "u" {
			m := asserted("m", "1")
			m.Plan, m.Action = "u", "x"
			w.must(w.append(sensor, m))
			w.must(w.append(sensor, asserted("n", "1")))
			w.must(w.append(sensor, asserted("n", "0")))
		}
		return &api.Reply{Status: api.StatusDone}
	}
	w.turn()
	if got := w.show("p"); got.State != ledger.StateCompensated || !strings.Contains(got.Reason, "lease b") {
		t.Fatalf("%s: %s, cuts %v", got.State, got.Reason, got.Cuts)
	}
}

// TestNobodyGivesAFactTheDepthOfAnOldUnwind: a source that names a plan that was
// undone long ago, or an action that it never had, stops no other plan's undo.
func TestNobodyGivesAFactTheDepthOfAnOldUnwind(t *testing.T) {
	for _, action := range []string{"a", "nonsense"} {
		w := newWorld(t)
		w.limits = CascadeLimits{Depth: 1}
		w.must(w.agent("v", opened(0, when("halt", `facts["alarm"] == 1`))))
		w.do("v", "y")
		w.must(w.agent("c", opened(0)))
		w.do("c", "a")
		w.must(w.agent("c", planFailed()))
		w.turn()
		w.now += 365 * 24 * 3600 * second
		alarm := asserted("alarm", "1")
		alarm.Plan, alarm.Action = "c", action
		w.append(sensor, alarm) // what names an action that is not there may be refused
		if action == "nonsense" {
			w.must(w.append(sensor, asserted("alarm", "1")))
		}
		w.turn()
		if got := w.show("v"); got.State != ledger.StateCompensated {
			t.Errorf("action %s: %s, cuts %v", action, got.State, got.Cuts)
		}
	}
}

// TestManyLeasesOfANodeFireInLinearTime: those that have fired are not looked at again.
func TestManyLeasesOfANodeFireInLinearTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const plans = 300
	for i := range plans {
		w.must(w.agent(fmt.Sprintf("p%04d", i), opened(0, when("late", `after(timestamp("2026-01-02T04:00:00Z"))`))))
	}
	w.now = epoch0 + 48*3600*second
	for turns := 0; ; turns++ {
		records := w.decide(nil)
		if len(records) == 0 {
			break
		}
		w.must(w.append(holder, records...))
		members := 0
		for range w.kv.Scan(rows.Members.Prefix(), rows.After(rows.Members.Prefix())) {
			members++
		}
		fired := 0
		for _, r := range w.effective() {
			if r.GetLeaseFired() != nil {
				fired++
			}
		}
		if members != plans-fired {
			t.Fatalf("turn %d: %d have fired, and %d are still looked at", turns, fired, members)
		}
	}
}

// TestAnUnwindBacklogDoesNotPutOffEvictions.
func TestAnUnwindBacklogDoesNotPutOffEvictions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.memoryMax = 1000
	for i := range 300 {
		whole := append([]*pb.Record{opened(0)}, pair("a")...)
		w.must(w.agent(fmt.Sprintf("p%04d", i), append(whole, completed("a"), planFailed())...))
	}
	for i := range 50 {
		w.must(w.append(sensor, asserted(fmt.Sprintf("k%d", i), `"`+strings.Repeat("x", 1000)+`"`)))
	}
	w.must(w.append(holder, w.decide(nil)...))
	if used := w.state.Meta().FactBytes; used > 1000 {
		t.Fatalf("%d bytes in memory after the first commit", used)
	}
}
