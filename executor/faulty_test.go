package executor_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/view"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// inError is what the status says of leases in error.
func (w *world) inError() string {
	w.t.Helper()
	status := view.NewReader(w.kv, "t", w).Status()
	return fmt.Sprint(status.Faulty, " ", status.FaultyPlans)
}

// TestALeaseInErrorIsListed while it is held: one that meets a fact of another type, as
// long as it does, whether it was there from the start or came later.
func TestALeaseInErrorIsListed(t *testing.T) {
	w := newWorld(t)
	wants := func(want string) {
		t.Helper()
		if got := w.inError(); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
		if rows.Digest(w.refold(1)) != rows.Digest(w.kv) {
			t.Fatal("another state when folded anew")
		}
	}
	w.must(w.append(sensor, asserted("m", `"text"`)))
	w.must(w.agent("bad", opened(0, when("x", `facts["m"] > 3 && plan.id != ""`),
		when("y", `facts["m"] + 1 == plan.actions`))))
	w.must(w.agent("own", opened(0, when("x", `facts["n"] > 3 && plan.label == "test"`))))
	wants("2 [bad]")
	w.must(w.append(sensor, asserted("n", `"text"`)))
	wants("3 [bad own]")
	w.must(w.append(sensor, asserted("n", `"another"`)))
	wants("3 [bad own]")
	w.state = OpenWith(w.kv, "t", w, w.programs) // what it watches is in the rows
	w.must(w.append(sensor, asserted("n", `2`)))
	wants("2 [bad]")
	w.must(w.append(sensor, asserted("n", `"text"`)))
	w.must(w.agent("bad", planCommitted()))
	wants("1 [own]")
	w.must(w.agent("own", planFailed()))
	w.turn()
	wants("0 []")
}

// TestManyLeasesOfOneConditionInErrorAreOne entry, of the node that they share.
func TestManyLeasesOfOneConditionInErrorAreOne(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.must(w.agent(fmt.Sprint("p", i), opened(0, when("x", `facts["n"] > 3`))))
	}
	w.must(w.append(sensor, asserted("n", `"text"`)))
	if got := w.inError(); got != "1 [p0]" {
		t.Fatal(got)
	}
	w.must(w.agent("p0", planCommitted()))
	if got := w.inError(); got != "1 [p1]" {
		t.Fatal(got)
	}
	w.state = OpenWith(w.kv, "t", w, w.programs)
	w.must(w.append(sensor, asserted("n", `1`)))
	if got := w.inError(); got != "0 []" {
		t.Fatal(got)
	}
	w.must(w.append(sensor, asserted("n", `"text"`)))
	w.must(w.agent("p3", opened(0, when("x", `facts["n"] > 3`))))
	for i := range 3 {
		w.must(w.agent(fmt.Sprint("p", i+1), planCommitted()))
	}
	if got := w.inError(); got != "0 []" {
		t.Fatal(got)
	}
	w.must(w.agent("p4", opened(0, when("x", `facts["n"] > 3`)))) // armed in error
	if got := w.inError(); got != "1 [p4]" {
		t.Fatal(got)
	}
	w.must(w.append(sensor, asserted("n", `4`)))
	w.turn()
	if got := w.inError(); got != "0 []" || w.show("p4").State != ledger.StateFailed {
		t.Fatal(got, w.show("p4").State)
	}
}

// TestAStatusNamesSomePlansWithLeasesInError, not all.
func TestAStatusNamesSomePlansWithLeasesInError(t *testing.T) {
	w := newWorld(t)
	w.must(w.append(sensor, asserted("m", `"text"`)))
	for i := range view.FaultyShown + 3 {
		w.must(w.agent(fmt.Sprintf("p%02d", i),
			opened(0, when("x", `facts["m"] > plan.actions`), when("y", `facts["m"] < plan.actions`))))
	}
	status := view.NewReader(w.kv, "t", w).Status()
	if plans := status.FaultyPlans; status.Faulty != 2*(view.FaultyShown+3) || len(plans) != view.FaultyShown ||
		!slices.IsSorted(plans) || plans[0] != "p00" || plans[9] != "p09" {
		t.Fatalf("%d %v", status.Faulty, plans)
	}
}
