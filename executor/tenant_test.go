package executor_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	. "github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// underHolder begins a term of a holder with this version of the fold.
func (w *world) underHolder(version uint32) {
	w.t.Helper()
	was := w.deciding
	defer func() { w.deciding = was }()
	w.deciding = false // no ledger goes back to an earlier holder: the audit says so, and goes on
	w.must(w.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{
		Term: 2, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h1", FoldVersion: version}}}))
}

// governed says what the tenant may do, in the term of underHolder.
func (w *world) governed(is *pb.TenantChanged) {
	w.t.Helper()
	is.By = "ana"
	w.must(w.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, &pb.Record{Term: 2, EpochNs: w.now,
		Kind: &pb.Record_TenantChanged{TenantChanged: is}}))
}

// TestAnOutcomeOpensNoPlanThatItsTenantMayNotHave: a plan that was never opened is one for its
// owner, because the act may have happened, and has failed from the start; under a holder that
// did not know this it stays open.
func TestAnOutcomeOpensNoPlanThatItsTenantMayNotHave(t *testing.T) {
	suspended := &pb.TenantChanged{Suspended: true, Reason: "not paid"}
	full := &pb.TenantChanged{Limits: &pb.TenantLimits{OpenPlans: 1}}
	for what, test := range map[string]struct {
		version uint32
		is      *pb.TenantChanged
		record  *pb.Record
		reason  string // "": it stays open
	}{
		"completed while suspended": {FoldVersion, suspended, completed("1"), "tenant: suspended by ana"},
		"in doubt while suspended":  {FoldVersion, suspended, inDoubt("1"), "tenant: suspended by ana"},
		"completed beyond a limit":  {FoldVersion, full, completed("1"), "limits.open_plans: 1 of 1"},
		"a pair without what it came after": {FoldVersion, suspended, pair("1",
			func(f *pb.ForwardRegistered, _ *pb.CompensationRegistered) { f.After = []string{"0"} })[0],
			"tenant: suspended by ana"},
		"nothing is limited": {FoldVersion, &pb.TenantChanged{Limits: &pb.TenantLimits{OpenPlans: 9}},
			completed("1"), ""},
		"an earlier holder": {ledger.BoundedSince - 1, suspended, completed("1"), ""},
	} {
		t.Run(what, func(t *testing.T) {
			s := newSchedule(t)
			s.underHolder(test.version)
			s.play("open a a+")
			s.governed(test.is)
			records := []*pb.Record{test.record}
			if test.record.GetForwardRegistered() != nil {
				records = append(records, pair("1")[1])
			}
			s.agent("q", records...)
			s.turn()
			s.turn()
			shown, want := s.show("q"), ledger.StateQuarantined
			if test.reason == "" {
				want = ledger.StateOpen
			}
			if shown.State != want || !strings.Contains(shown.Reason, test.reason) ||
				(shown.Reason == "") != (test.reason == "") || len(shown.Orphans) != 1 {
				t.Errorf("%s, %q, %+v; want %s, %q", shown.State, shown.Reason, shown.Orphans, want, test.reason)
			}
			if got := s.show("p").State; got != ledger.StateOpen {
				t.Errorf("the plan that was there is %s", got)
			}
		})
	}
}

// TestATenantHoldsAsManyConditionsAsItMay: what brings more opens no plan, and a pair counts and
// has its plan fail; those of plans that have ended leave room, of whatever shape they are.
func TestATenantHoldsAsManyConditionsAsItMay(t *testing.T) {
	conditions := func(n int) (list []*pb.Trigger) {
		for i := range n {
			list = append(list, &pb.Trigger{Name: string(rune('a' + i)), Condition: `facts["never"] == 1`})
		}
		return list
	}
	s := newSchedule(t)
	s.underHolder(FoldVersion)
	s.governed(&pb.TenantChanged{Limits: &pb.TenantLimits{HeldConditions: 4}})
	open := func(id string, n int) Result {
		return s.agent(id, &pb.Record{Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{
			Triggers: conditions(n)}}})[0]
	}
	act := func(id string, n int) {
		s.must(s.agent(id, pair("1", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.Triggers = conditions(n)
		})...))
		s.must(s.agent(id, completed("1")))
	}
	holds := func(want uint64) {
		t.Helper()
		s.turn()
		s.turn()
		if got := s.state.Meta().Conditions; got != want {
			t.Fatalf("%d conditions are held, want %d", got, want)
		}
	}
	const over = "limits.held_conditions: 5 of 4 conditions would be held; want fewer, or more from " +
		"who runs the server: sagenbaum tenant limits t --held-conditions N"
	open("p", 2)
	act("p", 2)
	holds(4)
	if got := open("q", 1); got.Verdict != Refused || got.Reason != "refused: "+over {
		t.Errorf("a fifth condition: %+v", got)
	}
	open("r", 0)
	act("r", 0) // what brings none needs no room
	open("v", 0)
	act("v", 1)
	holds(4)
	for id, want := range map[string]string{"p": "open", "q": "failed", "r": "open", "v": "compensated"} {
		got := s.show(id)
		if got.State != want || id == "v" && got.Reason != "refused: "+over {
			t.Errorf("plan %s is %s, %q, want %s", id, got.State, got.Reason, want)
		}
	}
	s.must(s.agent("p", &pb.Record{Kind: &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{}}}))
	holds(0)
	open("w", 4)
	holds(4)
	s.must(s.agent("w", &pb.Record{Kind: &pb.Record_PlanFailed{PlanFailed: &pb.PlanFailed{Reason: "x"}}}))
	holds(0)
	open("y", 1)
	s.must(s.agent("z", &pb.Record{Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{ParentPlan: "y",
		Triggers: conditions(2)}}}))
	act("z", 1)
	holds(4)
	commit := &pb.Record{Kind: &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{}}}
	s.must(s.agent("z", proto.CloneOf(commit)))
	holds(4) // a part holds them for its root
	s.must(s.agent("y", commit))
	holds(0)
	s.governed(&pb.TenantChanged{Limits: &pb.TenantLimits{}})
	open("x", 5)
	holds(5)
}

// TestASuspendedTenantSeesWhatUndoesItsPlans: they are committed still, so that facts are taken;
// what ends a fact is taken also of a source that is too fast. Under a holder that did not know
// this they were refused.
func TestASuspendedTenantSeesWhatUndoesItsPlans(t *testing.T) {
	suspended := &pb.TenantChanged{Suspended: true, Reason: "not paid"}
	slow := &pb.TenantChanged{Limits: &pb.TenantLimits{Records: 1}}
	for what, test := range map[string]struct {
		version uint32
		is      *pb.TenantChanged
		play    string
		fires   bool
	}{
		"a fact while suspended":            {FoldVersion, suspended, "fact:b=1", true},
		"a retraction while suspended":      {FoldVersion, suspended, "forget:c", true},
		"a retraction beyond the rate":      {FoldVersion, slow, "fact:x=1 forget:c", true},
		"a fact beyond the rate":            {FoldVersion, slow, "fact:x=1 !fact:b=1", false},
		"a fact under an earlier holder":    {ledger.BoundedSince - 1, suspended, "!fact:b=1", false},
		"a retraction of an earlier holder": {ledger.BoundedSince - 1, suspended, "!forget:c", false},
		"the rate under an earlier holder":  {ledger.BoundedSince - 1, slow, "fact:x=1 !forget:c", false},
	} {
		t.Run(what, func(t *testing.T) {
			s := newSchedule(t)
			s.underHolder(test.version)
			s.play("fact:c=1 @2s")
			s.agent("p", &pb.Record{Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{Triggers: []*pb.Trigger{
				{Name: "b", Condition: `facts["b"] == 1`}, {Name: "c", Condition: `!("c" in facts)`}}}}})
			s.play("a a+")
			s.governed(test.is)
			s.play(test.play + " turn turn")
			want := ledger.StateOpen
			if test.fires {
				want = ledger.StateCompensated
			}
			if got := s.show("p"); got.State != want {
				t.Errorf("%s, %q, want %s", got.State, got.Reason, want)
			}
		})
	}
}

// TestATenantMayRequireNames: what nothing tells from a copy, or from another process's, is refused
// by its field then, and changes nothing.
func TestATenantMayRequireNames(t *testing.T) {
	w := newWorld(t)
	w.underHolder(FoldVersion)
	w.governed(&pb.TenantChanged{RequireNames: true, Limits: &pb.TenantLimits{}})
	law := ledger.Source{Tenant: "t", Class: ledger.ClassVerdict, Name: "law"}
	verdict := &pb.Record{Plan: "p", Action: "a", Kind: &pb.Record_VerdictGiven{VerdictGiven: &pb.VerdictGiven{
		Outcome: pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW}}}
	cancel := &pb.Record{Plan: "p", Kind: &pb.Record_CancelRequested{CancelRequested: &pb.CancelRequested{Actor: "ops"}}}
	refused := func(what, field string, r Result) {
		t.Helper()
		if r.Verdict != Refused || !strings.HasPrefix(r.Reason, "refused: "+field+": missing, and tenant t requires it") ||
			!strings.Contains(r.Reason, "--require-names=false") {
			t.Errorf("%s without a name is %+v", what, r)
		}
	}
	refused("a plan", "writer", w.agent("q", opened(0))[0])
	plan := opened(0)
	plan.Writer = "w1"
	w.must(w.agent("p", plan))
	act := pair("a")
	for _, r := range act {
		r.Writer = "w1"
	}
	w.must(w.agent("p", act...))
	refused("a fact", "id", w.append(sensor, asserted("k", "1"))[0])
	refused("a verdict", "id", w.append(law, verdict)[0])
	refused("a request", "id", w.append(ops, cancel)[0])
	w.must(w.append(sensor, named(1, w.now, asserted("k", "1"))))
	w.must(w.append(law, named(2, w.now, verdict)))
	w.must(w.append(ops, named(3, w.now, cancel)))
	w.turn()
	if got := w.show("q").State; got != ledger.StateFailed {
		t.Errorf("a plan without a writer is %s", got)
	}
	w.governed(&pb.TenantChanged{Limits: &pb.TenantLimits{}})
	w.must(w.append(sensor, asserted("k", "2")))
	w.wantRefolded()
}
