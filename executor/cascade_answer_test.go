package executor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestTheOwnerLetsACutCascadeGoOn: from depth 1 on, and it is cut again where the
// limit is reached again; the chain is kept.
func TestTheOwnerLetsACutCascadeGoOn(t *testing.T) {
	r := newRing(t, 2, CascadeLimits{Depth: 4})
	r.kick(0)
	if got := fmt.Sprint(r.cut()); got != "[w0-3: depth 5 of 4]" {
		t.Fatal(got)
	}
	if got := r.owner("ann", "w1-3", true)[0]; got.Verdict != Refused ||
		got.Reason != "no lease of plan w1-3 waits behind a cut cascade: it is open" {
		t.Errorf("nothing is cut there: %+v", got)
	}
	r.must(r.owner("ann", "w0-3", true))
	r.run()
	if got := fmt.Sprint(r.fired()); got != "[1 2 3 4 1 2 3 4]" {
		t.Errorf("fired at %s", got)
	}
	if got := fmt.Sprint(r.cut()); got != "[w0-5: depth 5 of 4]" {
		t.Errorf("cut %s", got)
	}
	why := r.why("w0-5")
	if len(why.Steps) != 9 || why.Steps[4].Plan != "w0-3" || why.Steps[4].Depth != 1 || why.Cycle.Rounds != 3 {
		t.Errorf("%+v", why)
	}
	if state := r.show("w0-3").State; state != "compensated" {
		t.Errorf("w0-3 is %s", state)
	}
	r.wantRefolded()
}

// TestTheOwnerGivesUpACutLease for good: the plan goes on, and nothing of the same
// kind turns the lease again.
func TestTheOwnerGivesUpACutLease(t *testing.T) {
	r := newRing(t, 2, CascadeLimits{Depth: 2})
	r.kick(0)
	if got := fmt.Sprint(r.cut()); got != "[w0-2: depth 3 of 2]" {
		t.Fatal(got)
	}
	r.must(r.owner("ann", "w0-2", false))
	r.kick(1)
	if got := r.show("w0-2"); got.State != "open" || len(got.Cuts) > 0 || len(r.cut()) > 0 ||
		got.Leases[2].Cascade != "given up" {
		t.Fatalf("%+v", got)
	}
	if len(r.state.Unpaged()) > 0 {
		t.Error("its page is still open")
	}
	if got := r.owner("ann", "w0-2", true)[0]; got.Verdict != Refused {
		t.Errorf("%+v", got)
	}
	r.must(r.agent("w0-2", planCommitted()))
	r.turn()
	r.wantState("w0-2", "committed", "a=retired")
	r.wantRefolded()
}

// TestACutWaitsForASecondApprover where the plan asks for one.
func TestACutWaitsForASecondApprover(t *testing.T) {
	watches := [][]int{{1}, {0}}
	r := newGraph(t, watches, CascadeLimits{Depth: 2})
	r.second = true
	r.kick(0) // its next plan asks for two
	for _, c := range []struct {
		who      string
		resume   bool
		proposal string
	}{{"ann", true, "resume by ann"}, {"ann", true, "resume by ann"}, {"bob", false, "give-up by bob"},
		{"cleo", true, "resume by cleo"}} {
		r.must(r.owner(c.who, "w0-2", c.resume))
		r.run()
		if cuts := r.show("w0-2").Cuts; len(cuts) != 1 || !strings.HasPrefix(cuts[0].Proposal, c.proposal+" at ") {
			t.Fatalf("%+v", cuts)
		}
	}
	r.must(r.owner("ann", "w0-2", true))
	r.run()
	if state := r.show("w0-2").State; state != "compensated" {
		t.Errorf("w0-2 is %s", state)
	}
	r.wantRefolded()
}

// TestACutPlanStillEndsOtherwise: committed, failed, cancelled or undone for another
// lease, it waits for its owner no more.
func TestACutPlanStillEndsOtherwise(t *testing.T) {
	for end, want := range map[string]string{"commit": "committed", "fail": "compensated", "stop": "compensated",
		"deadline": "compensated"} {
		r := newRing(t, 2, CascadeLimits{Depth: 2})
		r.kick(0)
		switch end {
		case "commit":
			r.must(r.agent("w0-2", planCommitted()))
		case "fail":
			r.must(r.agent("w0-2", planFailed()))
		case "stop":
			r.must(r.append(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ann"},
				&pb.Record{Plan: "w0-2", Kind: &pb.Record_CancelRequested{CancelRequested: &pb.CancelRequested{}}}))
		case "deadline": // that of the action's own lease
			r.must(r.agent("w0-2", pair("b", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
				c.Triggers = []*pb.Trigger{when("late", `elapsed(action.at, duration("1s"))`)}
			})...))
			r.turn()
			r.now += 2 * second
		}
		r.turn()
		if shown := r.show("w0-2"); shown.State != want || len(shown.Cuts) > 0 {
			t.Errorf("after %s it is %s, cut %v", end, shown.State, shown.Cuts)
		}
		for _, p := range r.state.Unpaged() {
			if p.Plan == "w0-2" {
				t.Errorf("after %s its page is open", end)
			}
		}
		r.wantRefolded()
	}
}

// TestAnotherLeaseTurnsBehindACut: what turned true meanwhile is not forgotten.
func TestAnotherLeaseTurnsBehindACut(t *testing.T) {
	w := newWorld(t)
	w.limits.Depth = 1
	w.must(w.agent("p", opened(0)))
	w.do("p", "a")
	w.must(w.agent("q", opened(0, when("first", `"x" in facts`), when("other", `"x" in facts && "y" in facts`),
		when("late", `elapsed(plan.opened_at, duration("9s"))`))))
	w.do("q", "b")
	w.must(w.agent("p", planFailed()))
	w.turn()
	w.must(w.made("p", "a", "x", "1"))
	w.must(w.append(factory,
		&pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: "y", Value: []byte("1")}}}))
	w.turn()
	if got := fmt.Sprint(w.cut()); got != "[q: depth 2 of 1 q: depth 2 of 1]" {
		t.Fatal(got)
	}
	answer := func(lease string) Result {
		return w.append(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ann"},
			&pb.Record{Plan: "q", Kind: &pb.Record_CascadeAnswered{
				CascadeAnswered: &pb.CascadeAnswered{Lease: lease, Reason: "no", Actor: "ann"}}})[0]
	}
	if r := answer("third"); r.Verdict != Refused || r.Reason != "lease third of plan q is not cut; cut: first, other" {
		t.Errorf("%+v", r)
	}
	stale := &pb.Record{Plan: "q", Cause: &pb.Address{Sequence: 1},
		Kind: &pb.Record_CascadeAnswered{CascadeAnswered: &pb.CascadeAnswered{Reason: "no", Actor: "ann"}}}
	if r := w.append(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ann"}, stale)[0]; r.Verdict != Refused || !strings.HasPrefix(r.Reason, "cause: 1.0-, but the cascade was cut at ") {
		t.Errorf("%+v", r)
	}
	if r := answer("first"); r.Verdict != Effective || len(w.cut()) != 1 {
		t.Errorf("%+v, cut %v", r, w.cut())
	}
	w.at(9 * time.Second)
	w.wantState("q", "compensated", "b=compensated")
	w.wantRefolded()
}

// TestAGivenUpLeaseStaysSoOverASavepoint, and one that was cut is armed anew there.
func TestAGivenUpLeaseStaysSoOverASavepoint(t *testing.T) {
	for _, giveUp := range []bool{true, false} {
		s := newSchedule(t)
		s.limits.Depth = 1
		s.must(s.agent("o", opened(0)))
		s.do("o", "u")
		s.must(s.agent("p", opened(0, when("watch", `"x" in facts`))))
		s.play("x x+ save:s y y+")
		s.must(s.agent("o", planFailed()))
		s.turn()
		s.must(s.made("o", "u", "x", "1"))
		s.turn()
		want := "[p: depth 2 of 1]"
		if giveUp {
			s.must(s.owner("ann", "p", false))
			want = "[]"
		}
		s.play("back:s turn")
		s.wantState("p", "open", "x=held y=compensated")
		if got := fmt.Sprint(s.cut()); got != want {
			t.Errorf("given up %v: cut %s", giveUp, got)
		}
		s.wantRefolded()
	}
}

// TestACutLeaseOfAnActionGoesWithItsPlan: a child that is committed keeps it, its
// root's end gives it up.
func TestACutLeaseOfAnActionGoesWithItsPlan(t *testing.T) {
	for _, end := range []string{"commit", "fail"} {
		s := newSchedule(t)
		s.limits.Depth = 1
		s.must(s.agent("o", opened(0)))
		s.do("o", "u")
		s.play("open a a+ q/open^a")
		s.must(s.agent("q", pair("c", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.Triggers = []*pb.Trigger{when("watch", `"x" in facts`)}
		})...))
		s.must(s.agent("q", completed("c")))
		s.must(s.agent("o", planFailed()))
		s.turn()
		s.must(s.made("o", "u", "x", "1"))
		s.turn()
		s.play("q/commit turn")
		if got := fmt.Sprint(s.cut()); got != "[q: depth 2 of 1]" || s.show("q").Cuts[0].Action != "c" {
			t.Errorf("cut %s", got)
		}
		s.play(end + " turn")
		if got := s.cut(); len(got) > 0 || len(s.state.Unpaged()) > 0 {
			t.Errorf("after %s cut %v", end, got)
		}
		s.wantRefolded()
	}
}
