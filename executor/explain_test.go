package executor

import (
	"fmt"
	"strings"
	"testing"
)

// explained prints what the leases of p answer, a line each.
func explained(t *testing.T, s *schedule, q ExplainQuery) string {
	t.Helper()
	s.state.Flush()
	view, err := NewReader(s.kv, "t", nil).Explain(q)
	if err != nil {
		return err.Error()
	}
	var out strings.Builder
	for _, l := range view.Leases {
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
	s.must(s.agent("p", opened(epoch0+60*second, when("late", `facts["gate/" + plan.labels.none].open == true`), when("paid", `facts["paid"].n > 3`))))
	s.play("a:probe a? b:probe b+ judge:b=allow fact:paid=" + `{"n":2}` + " turn")
	got := explained(t, s, ExplainQuery{Plan: "p"})
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
	got = explained(t, s, ExplainQuery{Plan: "p", Action: "a"})
	if !strings.Contains(got, "a/action.duplicate true fired") {
		t.Error(got)
	}
	if got = explained(t, s, ExplainQuery{Plan: "p", Lease: leaseFailed}); !strings.HasPrefix(got, "/plan.failed true fired") {
		t.Error(got)
	}
	for _, q := range []ExplainQuery{{Plan: "q"}, {Plan: "p", Action: "z"}, {Plan: "p", Lease: "z"}} {
		if got = explained(t, s, q); !strings.Contains(got, "want") && !strings.Contains(got, "there is no") && !strings.Contains(got, "no lease") && !strings.Contains(got, "no action") {
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
	view, err := NewReader(s.kv, "t", nil).Explain(ExplainQuery{Plan: "p1", Lease: "halt"})
	if err != nil || len(view.Leases) != 1 || view.Leases[0].Shared != 3 || fmt.Sprint(view.Leases[0].Keys) != "[market]" {
		t.Fatalf("%+v %v", view, err)
	}
}
