package executor_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// explained prints what the leases of p answer, a line each.
func explained(t *testing.T, s *schedule, q api.ExplainQuery) string {
	t.Helper()
	s.state.Flush()
	shown, err := view.NewReader(s.kv, "t", nil).Explain(q)
	if err != nil {
		return err.Error()
	}
	var out strings.Builder
	for _, l := range shown.Leases {
		fmt.Fprintf(&out, "%s/%s %s", l.Action, l.Name, l.Truth)
		switch {
		case l.Fired:
			out.WriteString(" fired")
		case l.Moot:
			out.WriteString(" moot")
		}
		fmt.Fprintf(&out, " waits %s keys %s", strings.Join(l.Waits, "+"), strings.Join(l.Keys, "+"))
		if l.WakeNs != 0 {
			fmt.Fprintf(&out, " wakes %ds", (l.WakeNs-epoch0)/second)
		}
		for _, r := range l.Readings {
			fmt.Fprintf(&out, " %s=%s", r.Name, r.Value)
		}
		out.WriteString("\n")
	}
	return out.String()
}

// TestEveryReasonToUndoIsALeaseThatExplainShows: failure, cancellation, deadline,
// verdict and an extra effect are conditions like one over facts.
func TestEveryReasonToUndoIsALeaseThatExplainShows(t *testing.T) {
	s := newSchedule(t)
	s.must(s.agent("p", opened(epoch0+60*second, when("late", `facts["gate/" + plan.labels.none].open == true`),
		when("paid", `facts["paid"].n > 3`))))
	s.play("a:probe a? b:probe b+ judge:b=allow fact:paid=" + `{"n":2}` + " turn")
	got := explained(t, s, api.ExplainQuery{Plan: "p"})
	for _, want := range []string{
		`/plan.failed false waits  keys  plan.status="open"`,
		`/plan.cancelled false`,
		`/plan.deadline unknown waits time 2026-`,
		` wakes 60s`,
		`/late unknown moot`,
		`/paid false waits  keys paid facts["paid"]={"n":2}`,
		`b/action.verdict false`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	s.play("a.probe=duplicate fail turn")
	got = explained(t, s, api.ExplainQuery{Plan: "p", Action: "a"})
	if !strings.Contains(got, "a/action.duplicate true fired") {
		t.Error(got)
	}
	if got = explained(t, s, api.ExplainQuery{Plan: "p", Lease: LeaseFailed}); !strings.HasPrefix(got, "/plan.failed true fired") {
		t.Error(got)
	}
	for _, q := range []api.ExplainQuery{{Plan: "q"}, {Plan: "p", Action: "z"}, {Plan: "p", Lease: "z"}} {
		if got = explained(t, s, q); !strings.Contains(got, "want") && !strings.Contains(got, "there is no") &&
			!strings.Contains(got, "no lease") && !strings.Contains(got, "no action") {
			t.Errorf("%+v: %s", q, got)
		}
	}
}

// TestExplainCountsTheLeasesThatAnswerAlike.
func TestExplainCountsTheLeasesThatAnswerAlike(t *testing.T) {
	s := newSchedule(t)
	for i := range 3 {
		s.must(s.agent(fmt.Sprint("p", i), opened(0, when("halt", `facts["market"].halted == true`))))
	}
	s.state.Flush()
	shown, err := view.NewReader(s.kv, "t", nil).Explain(api.ExplainQuery{Plan: "p1", Lease: "halt"})
	if err != nil || len(shown.Leases) != 1 || shown.Leases[0].Shared != 2 ||
		fmt.Sprint(shown.Leases[0].Keys) != "[market]" {
		t.Fatalf("%+v %v", shown, err)
	}
}

// asOf reads the state as of some seconds behind the start of the schedule.
func asOf(s *schedule, seconds int64) *view.Reader {
	s.state.Flush()
	return view.NewReader(s.kv, "t", s).At(epoch0 + seconds*second)
}

// heldLease is what the reader shows of one lease of p.
func heldLease(t *testing.T, r *view.Reader, action, name string) api.Lease {
	t.Helper()
	shown, err := r.Explain(api.ExplainQuery{Plan: "p", Action: action, Lease: name})
	if err != nil || len(shown.Leases) != 1 {
		t.Fatalf("%+v %v", shown, err)
	}
	return shown.Leases[0].Lease
}

// TestLeasesAreShownAsOfTheClock, not of the last record: truth, waits, wake and
// what has become moot.
func TestLeasesAreShownAsOfTheClock(t *testing.T) {
	s := newSchedule(t)
	at := func(seconds int) string { return fmt.Sprintf(`timestamp("2026-01-02T03:04:%02dZ")`, 5+seconds) }
	s.must(s.agent("p", opened(0,
		when("guard", `before(`+at(5)+`) && facts["x"] == 1`), when("late", `after(`+at(9)+`) && facts["y"] == 1`),
		when("window", `absent_for("paid", plan.opened_at, duration("30s")) && facts["x"] == 2`))))
	for _, c := range []struct {
		seconds int64
		name    string
		want    string
	}{
		{1, "guard", "unknown moot=false [] waits [fact x] wakes 5"},
		{6, "guard", "false moot=true [time 2026-01-02T03:04:10Z, which has passed] waits [] wakes 0"},
		{1, "late", "unknown moot=false [] waits [fact y time 2026-01-02T03:04:14Z] wakes 9"},
		{10, "late", "unknown moot=false [] waits [fact y] wakes 0"},
		{31, "window", "unknown moot=false [] waits [fact x] wakes 0"},
	} {
		l := heldLease(t, asOf(s, c.seconds), "", c.name)
		wake := int64(0)
		if l.WakeNs != 0 {
			wake = (l.WakeNs - epoch0) / second
		}
		if got := fmt.Sprintf("%s moot=%v %v waits %v wakes %d", l.Truth, l.Moot, l.MootWhy, l.Waits, wake); got != c.want {
			t.Errorf("%s after %d s: %s, want %s", c.name, c.seconds, got, c.want)
		}
	}
	shown, err := asOf(s, 6).Explain(api.ExplainQuery{Plan: "p"})
	if err != nil || shown.TimeNs != epoch0+6*second {
		t.Errorf("as of %d: %v", shown.TimeNs, err)
	}
	if shown, _ = asOf(s, -6).Explain(api.ExplainQuery{Plan: "p"}); shown.TimeNs != s.state.Meta().TimeNs {
		t.Errorf("as of %d, before the last record", shown.TimeNs)
	}
}

// TestTheStatusNamesNoInstantThatNobodyWaitsFor: what has come and was not true
// stays in the index, and is not due.
func TestTheStatusNamesNoInstantThatNobodyWaitsFor(t *testing.T) {
	s := newSchedule(t)
	due := func(seconds int64) int64 {
		ns := asOf(s, seconds).Status().NextDueNs
		if ns != 0 {
			ns = (ns - epoch0) / second
		}
		return ns
	}
	s.must(s.agent("p",
		opened(epoch0+60*second, when("gate", `after(timestamp("2026-01-02T03:04:10Z")) && facts["x"] == 1`))))
	s.must(s.agent("q", opened(0, when("each", `elapsed(plan.opened_at, duration("7s")) && facts["x"] == 1`),
		when("mine", `after(timestamp("2026-01-02T03:04:13Z")) && facts["y/" + plan.id] == 1`))))
	if got := due(0); got != 5 {
		t.Errorf("at first: due at %d", got)
	}
	for _, seconds := range []int64{6, 9, 40} { // asked, or not: no difference
		if got := due(seconds); seconds > 8 && got != 60 || seconds == 6 && got != 7 {
			t.Errorf("after %d s: due at %d", seconds, got)
		}
	}
	s.play("@40s")
	if got := due(41); got != 60 {
		t.Errorf("asked: due at %d", got)
	}
	if got := due(61); got != 60 {
		t.Errorf("a deadline that waits to fire is due at %d", got)
	}
	s.play("@61s")
	if got := due(99); got != 0 {
		t.Errorf("nothing is left, and due at %d", got)
	}
}

// TestALeaseSaysWhatBecameOfIt: suspended during a rewind, retired with its plan or
// action, fired at an address.
func TestALeaseSaysWhatBecameOfIt(t *testing.T) {
	s := newSchedule(t)
	s.must(s.agent("p", opened(0, when("mine", `facts["x"] == 1`))))
	s.must(s.agent("p", pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Triggers = []*pb.Trigger{when("own", `facts["y"] == 1`)}
	})...))
	s.play("a+ save:here")
	s.must(s.agent("p", pair("b", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Triggers = []*pb.Trigger{when("own", `facts["z"] == 1`)}
	})...))
	s.play("b+ b=fail,done back:here turn")
	want := func(when, action, name, suspended, retired string) {
		t.Helper()
		if l := heldLease(t, asOf(s, 0), action, name); l.Suspended != suspended || l.Retired != retired || l.Moot ||
			l.Fired {
			t.Errorf("%s: %s of %q: %+v", when, name, action, l)
		}
	}
	if s.planOf("p").Row.Phase != rowspb.Phase_PHASE_UNWINDING {
		t.Fatal("the rewind is over")
	}
	want("rewinding", "", "mine", "here", "")
	want("rewinding", "1", "own", "here", "")
	want("rewinding", "b", "own", "", "the undo of its action began")
	if l := heldLease(t, asOf(s, 0), "", LeaseCancelled); !l.Fired || l.FiredAt == "" {
		t.Errorf("%+v", l)
	}
	s.play("@9s turn")
	want("rewound", "", "mine", "", "")
	want("rewound", "2", "own", "", "its action was compensated")
	s.play("commit turn")
	want("committed", "", "mine", "", "the plan was committed")

	s = newSchedule(t)
	s.must(s.agent("p", opened(0, when("mine", `facts["x"] == 1`), when("other", `facts["x"] == 2`))))
	s.play("a a+ fact:x=1 turn")
	want("undone", "", "other", "", "the plan was undone")
	if l := heldLease(t, asOf(s, 0), "", "mine"); !l.Fired || l.FiredAt != s.show("p").Fired {
		t.Errorf("%+v, the plan fired at %s", l, s.show("p").Fired)
	}
}

// TestACutLeaseIsNotMoot, and one that was given up does not fire: neither is said
// to wait for anything.
func TestACutLeaseIsNotMoot(t *testing.T) {
	r := newRing(t, 2, CascadeLimits{Depth: 2})
	r.kick(0)
	if l := r.show("w0-2").Leases[2]; l.Cascade != "cut" || l.Truth != "true" || l.Moot || len(l.Waits) > 0 ||
		l.WakeNs != 0 {
		t.Errorf("%+v", l)
	}
	r.must(r.owner("ann", "w0-2", false))
	if l := r.show("w0-2").Leases[2]; l.Cascade != "given up" || l.Moot || l.WakeNs != 0 || l.Retired != "" {
		t.Errorf("%+v", l)
	}
}

// TestACompletedForwardWithoutLiftedFieldsIsNotWaitedFor.
func TestACompletedForwardWithoutLiftedFieldsIsNotWaitedFor(t *testing.T) {
	s := newSchedule(t)
	s.play("open")
	s.must(s.agent("p", pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Triggers = []*pb.Trigger{when("priced", `action.output.price > 3`)}
	})...))
	if l := heldLease(t, asOf(s, 0), "a", "priced"); l.Moot || fmt.Sprint(l.Waits) != "[output of the forward]" {
		t.Errorf("before the outcome: %+v", l)
	}
	s.play("a+ turn")
	if l := heldLease(t, asOf(s, 0), "a", "priced"); !l.Moot ||
		fmt.Sprint(l.MootWhy) != "[action.output.price, which was not lifted from the output]" {
		t.Errorf("completed: %+v", l)
	}
	if row := s.planOf("p").Action(1).Row.Leases[0]; !row.Moot {
		t.Error("the fold still waits for it")
	}
}

// TestAPreviewNamesConditionsThatAreHeldForNothing: what they read was not lifted. One that is moot
// since something else came is not named.
func TestAPreviewNamesConditionsThatAreHeldForNothing(t *testing.T) {
	s := newSchedule(t)
	s.play("open")
	s.must(s.agent("p", pair("a", func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		f.Lifted = []byte(`{"room":7}`)
		c.Triggers = []*pb.Trigger{when("bounced", `facts["payment/" + string(action.order)].status == "bounced"`),
			when("other", `action.room == 8`), when("held", `seen("x")`)}
	})...))
	s.must(s.agent("p", pair("b")...))
	for action, want := range map[string]int{"": 1, "a": 1, "b": 0} {
		shown, err := asOf(s, 0).Preview(api.PreviewQuery{Plan: "p", Action: action}, s.state.Meta().TimeNs)
		if err != nil || len(shown.Unarmed) != want {
			t.Errorf("of action %q: %+v, %v", action, shown.Unarmed, err)
		} else if want > 0 && shown.Unarmed[0] != (api.Unarmed{Number: 1, Action: "a", Trigger: "bounced",
			Reason: "action.order was not lifted from the input, which has no such field"}) {
			t.Errorf("%+v", shown.Unarmed)
		}
	}
}

// TestExplainTellsAFactThatIsThereFromOneThatIsNot.
func TestExplainTellsAFactThatIsThereFromOneThatIsNot(t *testing.T) {
	s := newSchedule(t)
	s.must(s.agent("p", opened(0, when("mine", `"there" in facts && "gone" in facts`))))
	s.play("fact:there=7")
	l := heldLease(t, asOf(s, 0), "", "mine")
	if len(l.Readings) != 2 || l.Readings[0].Present || !l.Readings[1].Present || l.Readings[1].Value != "" ||
		l.Readings[1].Sequence == 0 {
		t.Errorf("%+v", l.Readings)
	}
}

// TestAHistoryAfterItsLastActionIsEmpty, whatever the number.
func TestAHistoryAfterItsLastActionIsEmpty(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ b b+")
	for after, want := range map[uint32]int{0: 2, 1: 1, 2: 0, 3: 0, math.MaxUint32 - 1: 0, math.MaxUint32: 0} {
		h := asOf(s, 0).History("a1", api.HistoryQuery{Plan: "p", After: after})
		if len(h.Actions) != want || h.Next != 0 || h.State != "open" {
			t.Errorf("after %d: %d actions, next %d", after, len(h.Actions), h.Next)
		}
	}
	if h := asOf(s, 0).History("a1", api.HistoryQuery{Plan: "p", Limit: 1}); len(h.Actions) != 1 || h.Next != 1 {
		t.Errorf("a page of one: %+v", h)
	}
}
