package executor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestAForgedDepthIsVoid, and a forged chain, and a cut of what no cascade has turned.
func TestAForgedDepthIsVoid(t *testing.T) {
	r := newRing(t, 2, CascadeLimits{})
	r.must(r.agent("w0-1", planFailed()))
	forge := func(plan, want string, change func(*pb.LeaseFired) *pb.Record) {
		t.Helper()
		records := r.decide(nil)
		at := slices.IndexFunc(records, func(k *pb.Record) bool { return k.Plan == plan && k.GetLeaseFired() != nil })
		forged := proto.CloneOf(records[at])
		body := change(forged.GetLeaseFired())
		if body != nil {
			forged.Kind = body.Kind
		}
		got := r.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, forged)[0]
		if got.Verdict != Void || got.Reason != want {
			t.Errorf("%+v, want %q", got, want)
		}
	}
	forge("w0-1", "lease plan.failed of plan w0-1 turned by no cascade", func(k *pb.LeaseFired) *pb.Record {
		return &pb.Record{Kind: &pb.Record_CascadeCut{CascadeCut: &pb.CascadeCut{Lease: k.Lease, Depth: 1}}}
	})
	forge("w0-1", "depth 7, but what lease plan.failed of plan w0-1 read makes it 1",
		func(k *pb.LeaseFired) *pb.Record { k.Depth = 7; return nil })
	r.must(r.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, r.decide(nil)...))
	for _, c := range r.state.Commands() {
		r.work(c)
	}
	forge("w1-1", "depth 1, but what lease watch of plan w1-1 read makes it 2",
		func(k *pb.LeaseFired) *pb.Record { k.Depth, k.Chain = 1, nil; return nil })
	forge("w1-1", "the chain is not what led to lease watch of plan w1-1",
		func(k *pb.LeaseFired) *pb.Record { k.Chain[0].Plan = "w1-1"; return nil })
	forge("w1-1", "the chain is not what led to lease watch of plan w1-1",
		func(k *pb.LeaseFired) *pb.Record { k.Chain = nil; return nil })
	r.must(r.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, r.decide(nil)...))
}

// TestARetractionCarriesItsDepth, and so does what time alone turns after it.
func TestARetractionCarriesItsDepth(t *testing.T) {
	w := newWorld(t)
	w.must(w.append(factory,
		&pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: "x", Value: []byte("1")}}}))
	w.must(w.agent("p", opened(0)))
	w.must(w.agent("q", opened(0, when("gone", `!("x" in facts)`))))
	w.must(w.agent("r", opened(0, when("later", `!("x" in facts) && elapsed(plan.opened_at, duration("9s"))`))))
	w.must(w.agent("s", opened(0, when("free", `elapsed(plan.opened_at, duration("9s"))`))))
	for _, plan := range []string{"p", "q", "r", "s"} {
		w.do(plan, "a")
	}
	w.must(w.agent("p", planFailed()))
	w.turn()
	w.forget("p", "a", "x")
	w.at(9*time.Second + time.Millisecond)
	want := map[string]int{"p": 1, "q": 2, "r": 2, "s": 1}
	for plan, depth := range want {
		steps := w.why(plan).Steps
		if last := steps[len(steps)-1]; last.Depth != depth || last.Plan != plan || last.Retracted != (depth == 2) {
			t.Errorf("plan %s: %+v", plan, steps)
		}
	}
	w.wantRefolded()
}

// TestAChildPassesItsDepthToItsRoot, and the undo of a child carries that of its root.
func TestAChildPassesItsDepthToItsRoot(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ q/open^a")
	s.must(s.agent("r", opened(0, when("after", `"c" in facts`))))
	s.do("r", "z")
	s.must(s.agent("o", opened(0)))
	s.do("o", "o")
	records := pair("c", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Triggers = []*pb.Trigger{when("watch", `"o" in facts`)}
	})
	s.must(s.agent("q", records...))
	s.must(s.agent("q", completed("c"), planCommitted()))
	s.must(s.agent("o", planFailed()))
	s.worker = func(c Command) *api.Reply {
		s.must(s.made(c.Plan, c.Action, c.Action, "1"))
		return &api.Reply{Status: api.StatusDone}
	}
	s.turn()
	if got := fmt.Sprint(s.fired()); got != "[1 2 2 3]" {
		t.Errorf("fired at %s", got)
	}
	s.wantState("p", "compensated", "a=compensated plan:q=compensated")
	s.wantState("r", "compensated", "z=compensated")
	var chain []string
	for _, step := range s.why("r").Steps {
		chain = append(chain, fmt.Sprintf("%s %s %s %s/%s %d", step.Plan, step.Lease, step.By, step.UndonePlan, step.Undone,
			step.Depth))
	}
	if got := strings.Join(chain, ", "); got != "o plan.failed  / 1, q watch fact o/o 2, p plan.failed part / 2, r after fact q/c 3" {
		t.Errorf("chain %s", got)
	}
	s.wantRefolded()
}

// TestAFactWithoutAnUndoHasNoDepth: of a source that names nothing, of a plan that
// never unwound.
func TestAFactWithoutAnUndoHasNoDepth(t *testing.T) {
	w := newWorld(t)
	w.limits.Depth = 1
	w.must(w.agent("p", opened(0)))
	w.do("p", "a")
	for i, from := range []string{"", "p"} {
		plan := fmt.Sprint("q", i)
		w.must(w.agent(plan, opened(0, when("x", fmt.Sprintf(`facts["x"] == %d`, i)))))
		w.must(w.made(from, "", "x", fmt.Sprint(i)))
		w.turn()
		if why := w.why(plan); len(why.Steps) != 1 || why.Steps[0].Depth != 1 || why.Steps[0].By != "" {
			t.Errorf("%+v", why)
		}
	}
}

// TestLimitsOfCascadesAreChecked, each by its name.
func TestLimitsOfCascadesAreChecked(t *testing.T) {
	if err := (CascadeLimits{}).Check(); err != nil || (CascadeLimits{}).OrDefault() != (CascadeLimits{8, 8, 10_000}) {
		t.Error(err)
	}
	for field, l := range map[string]CascadeLimits{"cascade.depth": {Depth: 65},
		"cascade.plan": {Plan: CascadePlanMax + 1}, "cascade.tenant": {Tenant: CascadeTenantMax + 1}} {
		if err := l.Check(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestTheDeepestFactCounts, in whatever order the condition reads them.
func TestTheDeepestFactCounts(t *testing.T) {
	for _, keys := range [][2]string{{"a", "b"}, {"b", "a"}} {
		w := newWorld(t)
		w.must(w.agent("p", opened(0)))
		w.must(w.agent("q", opened(0, when("x", fmt.Sprintf(`%q in facts`, keys[0])))))
		w.must(w.agent("r", opened(0, when("x", `"a" in facts && "b" in facts`))))
		for _, plan := range []string{"p", "q", "r"} {
			w.do(plan, "u")
		}
		w.must(w.agent("p", planFailed()))
		w.turn()
		w.must(w.made("p", "u", keys[0], "1"))
		w.turn()
		w.must(w.made("q", "u", keys[1], "1"))
		w.turn()
		steps := w.why("r").Steps
		if last := steps[len(steps)-1]; len(steps) != 3 || last.Depth != 3 || last.Key != keys[1] || last.UndonePlan != "q" {
			t.Errorf("%v: %+v", keys, steps)
		}
	}
}
