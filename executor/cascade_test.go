package executor_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// ring is a world of agents that begin anew: each has a place with one plan at a
// time, opens the next as soon as that one is being undone, and the undo of a plan is
// a fact that plans of other places watch.
type ring struct {
	*world
	watches [][]int // by place: the places whose undos turn its lease
	rounds  []int   // by place: plans opened
	undos   []int   // by place: undone so far
	second  bool    // plans ask for a second approver
	restart bool    // all state is lost between turns
}

// newRing makes places 0..n-1, each of which watches the one before.
func newRing(t *testing.T, n int, limits CascadeLimits) *ring {
	watches := make([][]int, n)
	for i := range n {
		watches[i] = []int{(i + n - 1) % n}
	}
	return newGraph(t, watches, limits)
}

func newGraph(t *testing.T, watches [][]int, limits CascadeLimits) *ring {
	r := &ring{world: newWorld(t), watches: watches, rounds: make([]int, len(watches)), undos: make([]int, len(watches))}
	r.limits, r.worker = limits, r.work
	for i := range watches {
		r.open(i)
	}
	return r
}

// current is the plan of a place.
func (r *ring) current(place int) string { return fmt.Sprintf("w%d-%d", place, r.rounds[place]) }

func (r *ring) open(place int) {
	r.rounds[place]++
	var parts []string
	for _, j := range r.watches[place] {
		parts = append(parts, fmt.Sprintf(`%q in facts && facts[%q] > %d`, undone(j), undone(j), r.undos[j]))
	}
	open := opened(0)
	if len(parts) > 0 {
		open = opened(0, when("watch", strings.Join(parts, " || ")))
	}
	open.GetPlanOpened().SecondApprover = r.second
	r.must(r.agent(r.current(place), open))
	r.do(r.current(place), "a")
}

// undone is the fact that says how often the plans of a place were undone.
func undone(place int) string {
	return "undone/" + string(rune('a'+place/26)) + string(rune('a'+place%26))
}

// work undoes an action, and says so as a fact that names what it undid.
func (r *ring) work(c Command) *api.Reply {
	var place, round int
	if _, err := fmt.Sscanf(c.Plan, "w%d-%d", &place, &round); err != nil {
		r.t.Fatal(err)
	}
	if c.Plan == r.current(place) {
		r.open(place)
	}
	r.undos[place]++
	r.must(r.made(c.Plan, c.Action, undone(place), fmt.Sprint(r.undos[place])))
	return &api.Reply{Status: api.StatusDone}
}

// made asserts a fact as what an undo has made.
func (w *world) made(plan, action, key, value string) []Result {
	w.t.Helper()
	return w.append(factory,
		&pb.Record{Plan: plan, Action: action,
			Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: key, Value: []byte(value)}}})
}

var factory = ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "store"}

func (w *world) forget(plan, action, key string) {
	w.t.Helper()
	w.must(w.append(factory,
		&pb.Record{Plan: plan, Action: action, Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: key}}}))
}

// run lets everybody act until nobody does; it fails when that never ends.
func (r *ring) run() {
	r.t.Helper()
	for range 5000 {
		if r.restart {
			r.state = OpenWith(r.kv, "t", nil, r.programs)
		}
		r.turn()
		acted := false
		for place := range r.watches {
			if Closed(r.planOf(r.current(place)).Row.Phase) { // it was committed, or nothing of it was to be undone
				r.open(place)
				acted = true
			}
		}
		if !acted {
			return
		}
	}
	r.t.Fatal("the cascade never ends")
}

// kick has an agent fail the plan of a place.
func (r *ring) kick(place int) {
	r.t.Helper()
	r.must(r.agent(r.current(place), planFailed()))
	r.run()
}

// cut are the plans that wait for their owner, as "w1-2: depth 9 of 8".
func (w *world) cut() (out []string) {
	views, _ := view.NewReader(w.kv, "t", nil).Quarantined(api.ListQuery{})
	for _, v := range views {
		for _, c := range v.Cuts {
			out = append(out, v.Plan+": "+c.Why)
		}
	}
	return out
}

func (w *world) why(plan string) api.Why {
	w.t.Helper()
	shown, err := view.NewReader(w.kv, "t", nil).Why(api.WhyQuery{Plan: plan})
	if err != nil {
		w.t.Fatal(err)
	}
	return shown
}

// fired are the depths of the leases that have fired, in order.
func (w *world) fired() (depths []uint32) {
	w.t.Helper()
	for _, m := range w.log {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range entries {
			if k := e.Record.GetLeaseFired(); k != nil {
				depths = append(depths, k.Depth)
			}
		}
	}
	return depths
}

// wantRefolded wants the ledger alone to give the same state.
func (w *world) wantRefolded() {
	w.t.Helper()
	for _, batch := range []int{1, 7, 1000} {
		if rows.Digest(w.refold(batch)) != rows.Digest(w.kv) {
			w.t.Fatalf("another digest with batches of %d", batch)
		}
	}
}

// owner answers a cut as an operator.
func (w *world) owner(who, plan string, resume bool) []Result {
	w.t.Helper()
	return w.append(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: who},
		&pb.Record{Plan: plan, Kind: &pb.Record_CascadeAnswered{
			CascadeAnswered: &pb.CascadeAnswered{Resume: resume, Reason: "seen", Actor: who}}})
}

// TestARingOfPlansIsCutAtTheDepthLimit, for loops of 2, 3 and 50 plans: as many
// leases fire as the limit allows, one waits, and its chain shows the whole cycle
// where the limit is longer than that.
func TestARingOfPlansIsCutAtTheDepthLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		places int
		depth  uint32
		cycle  string
	}{
		{2, 8, "cycle of 2: w1-1 -> w0-2 -> w1-2, went round 3 times, with other plans each time"},
		{3, 8, "cycle of 3: w1-1 -> w2-1 -> w0-2 -> w1-2, went round 2 times, with other plans each time"},
		{50, 8, ""},
		{50, 64, "cycle of 50: w1-1 -> w2-1 -> "},
	} {
		r := newRing(t, c.places, CascadeLimits{Depth: c.depth})
		r.kick(0)
		plan := r.current(int(c.depth) % c.places)
		if got, want := fmt.Sprint(r.cut()), fmt.Sprintf("[%s: depth %d of %d]", plan, c.depth+1, c.depth); got != want {
			t.Fatalf("%d places: cut %s, want %s", c.places, got, want)
		}
		if depths := r.fired(); len(depths) != int(c.depth) || slices.Max(depths) != c.depth {
			t.Errorf("%d places: fired at %v", c.places, depths)
		}
		why := r.why(plan)
		if len(why.Steps) != int(c.depth)+1 || why.Omitted || why.Steps[0].Plan != "w0-1" ||
			why.Steps[0].Reason != "step failed" {
			t.Errorf("%d places: %d steps, the first %+v", c.places, len(why.Steps), why.Steps[0])
		}
		got := ""
		if why.Cycle != nil {
			got = why.Cycle.String()
		}
		if got != c.cycle && (c.cycle == "" || !strings.HasPrefix(got, c.cycle)) {
			t.Errorf("%d places: %q, want %q", c.places, got, c.cycle)
		}
		if pages := r.state.Unpaged(); len(pages) != 1 || pages[0].Kind != api.PageCascadeCut || pages[0].Plan != plan {
			t.Errorf("pages %+v", pages)
		}
		r.now += 1000 * HourNs // nothing but the owner's word lets it go on
		r.run()
		if len(r.cut()) != 1 || r.state.HasWork() {
			t.Errorf("%d places: after a while cut %v", c.places, r.cut())
		}
		r.wantRefolded()
	}
}

// TestEveryGraphOfMutualTriggersTerminates: whatever watches what, the leases fire at
// no depth above the limit (I25), and all that does not is with its owner.
func TestEveryGraphOfMutualTriggersTerminates(t *testing.T) {
	t.Parallel()
	graphs, cuts, biggest := testenv.Cases(40, 200), 0, 0
	for seed := range uint64(graphs) {
		rnd := rand.New(rand.NewPCG(seed, 93))
		n := 1 + rnd.IntN(7)
		watches := make([][]int, n)
		for i := range n {
			for range rnd.IntN(3) {
				if j := rnd.IntN(n); !slices.Contains(watches[i], j) {
					watches[i] = append(watches[i], j)
				}
			}
		}
		limits := CascadeLimits{Depth: 1 + rnd.Uint32N(10), Tenant: 1 + rnd.Uint64N(100)}
		r := newGraph(t, watches, limits)
		r.restart = seed%2 == 0
		for range 2 {
			r.kick(rnd.IntN(n))
			for place := range n { // some owners let it go on
				if plan := r.current(place); rnd.IntN(4) == 0 && len(r.planOf(plan).Row.Cuts) > 0 {
					r.must(r.owner("ann", plan, rnd.IntN(2) == 0))
					r.run()
				}
			}
		}
		for _, depth := range r.fired() {
			if depth > limits.Depth {
				t.Fatalf("seed %d: fired at depth %d of %d", seed, depth, limits.Depth)
			}
		}
		if cut := r.state.Meta().Cut; cut > 0 {
			cuts++
		}
		biggest = max(biggest, len(r.fired()))
		r.wantRefolded()
	}
	if cuts < graphs/4 {
		t.Errorf("only %d of %d graphs were cut", cuts, graphs)
	}
	t.Logf("%d of %d graphs were cut; up to %d leases fired", cuts, graphs, biggest)
}

// TestARestartChangesNothingInACascade: the same commits, byte for byte.
func TestARestartChangesNothingInACascade(t *testing.T) {
	var logs [2]*ring
	for i := range logs {
		r := newRing(t, 3, CascadeLimits{})
		r.restart = i == 1
		r.kick(0)
		plan := r.current(2)
		if r.restart {
			r.kv = r.refold(1)
			r.state = OpenWith(r.kv, "t", nil, r.programs)
		}
		r.must(r.owner("ann", plan, true))
		r.run()
		logs[i] = r
	}
	if a, b := logs[0], logs[1]; len(a.log) != len(b.log) || rows.Digest(a.kv) != rows.Digest(b.kv) {
		t.Fatalf("%d and %d commits", len(a.log), len(b.log))
	}
	for i := range logs[0].log {
		if string(logs[0].log[i].Data) != string(logs[1].log[i].Data) {
			t.Fatalf("commit %d differs", i+1)
		}
	}
}

// TestTheBudgetOfATenantCutsAndCountsByTheHour of logical time.
func TestTheBudgetOfATenantCutsAndCountsByTheHour(t *testing.T) {
	r := newRing(t, 3, CascadeLimits{Depth: 64, Tenant: 5})
	r.now = (r.now/HourNs + 1) * HourNs
	r.kick(0)
	if got := fmt.Sprint(r.cut()); got != "[w0-3: tenant budget of 5 an hour]" ||
		view.NewReader(r.kv, "t", nil).Status().Cascaded != 5 {
		t.Fatalf("cut %s", got)
	}
	r.now += HourNs
	r.run()
	if got := fmt.Sprint(r.cut()); got != "[w0-3: tenant budget of 5 an hour]" {
		t.Fatalf("the next hour lets it go by itself: %s", got)
	}
	r.kick(1) // w2, w0 (whose lease stays cut), so no further
	if status := view.NewReader(r.kv, "t", nil).Status(); status.Cascaded != 1 || status.Cut != 1 {
		t.Fatalf("the next hour begins with %d, cut %d", status.Cascaded, status.Cut)
	}
}

// rewindingPlan is a plan that goes back to its savepoint each time a fact of its own
// undo turns the lease of what came after.
func rewindingPlan(t *testing.T, limits CascadeLimits) *schedule {
	s := newSchedule(t)
	s.limits = limits
	s.worker = func(c Command) *api.Reply {
		s.must(s.made(c.Plan, c.Action, "again", `"`+c.Action+`"`))
		return &api.Reply{Status: api.StatusDone}
	}
	s.play("open x x+ save:s y y+ back:s turn")
	for i := range 3 {
		s.again(i, pb.Scope_SCOPE_ACTION)
		s.play("back:s turn")
	}
	return s
}

func (s *schedule) again(i int, scope pb.Scope) {
	id := fmt.Sprint("y", i)
	records := pair(id, func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		again := when("again", `"again" in facts`)
		again.Scope = scope
		c.Triggers = []*pb.Trigger{again}
	})
	s.must(s.agent("p", records...))
}

// TestTheBudgetOfAPlanCutsALoopWithinIt, which rewinds to a savepoint and turns the
// lease of what it does next.
func TestTheBudgetOfAPlanCutsALoopWithinIt(t *testing.T) {
	s := rewindingPlan(t, CascadeLimits{Depth: 64, Plan: 3})
	if got := fmt.Sprint(s.fired()); got != "[1 2 3 4]" {
		t.Fatalf("fired at %s", got)
	}
	s.again(3, pb.Scope_SCOPE_ACTION)
	s.turn()
	if got := fmt.Sprint(s.cut()); got != "[p: plan budget of 3]" {
		t.Fatal(got)
	}
	if c := s.why("p").Cycle; c == nil ||
		c.String() != "cycle of 1: p -> p, went round 3 times, with other actions each time" {
		t.Errorf("%v", c)
	}
	s.must(s.owner("ann", "p", true)) // the budget begins anew
	s.play("back:s turn")
	s.again(4, pb.Scope_SCOPE_PLAN)
	s.turn()
	if got := fmt.Sprint(s.fired()); got != "[1 2 3 4 1 2]" {
		t.Errorf("fired at %s", got)
	}
	s.wantState("p", "compensated",
		"x=compensated y=compensated y0=compensated y1=compensated y2=compensated y3=compensated y4=compensated")
	s.wantRefolded()
}

// TestAPreviewLooksPastACut: it shows the whole unwind and changes nothing.
func TestAPreviewLooksPastACut(t *testing.T) {
	r := newRing(t, 2, CascadeLimits{Depth: 2})
	r.kick(0)
	digest := rows.Digest(r.kv)
	shown, err := view.NewReader(r.kv, "t", nil).Preview(api.PreviewQuery{Plan: "w0-2"}, r.now)
	if err != nil || shown.End != "compensated" || len(shown.Steps) != 1 || shown.Steps[0].Step != "compensate" {
		t.Errorf("%+v, %v", shown, err)
	}
	if rows.Digest(r.kv) != digest || len(r.cut()) != 1 {
		t.Error("it changed something")
	}
}

// TestAFiringThatAFactOvertakesLeavesTheUnwindToTheOthers: two conditions turn on one clock, and
// before their commit lands a fact says that the first has not. The plan goes back for the second,
// and the beginning of its unwind may say what was decided from both; another one is no race.
func TestAFiringThatAFactOvertakesLeavesTheUnwindToTheOthers(t *testing.T) {
	held := func(condition string) func(*pb.ForwardRegistered, *pb.CompensationRegistered) {
		return func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.ValidForNs = int64(time.Hour)
			c.Triggers = append(c.Triggers, &pb.Trigger{Name: "held", AfterCommit: true, Condition: condition})
		}
	}
	minute := time.Unix(0, epoch0+int64(time.Minute)).UTC().Format(time.RFC3339Nano)
	for _, said := range []string{"plan:q", "b", "", "nowhere"} {
		s := newSchedule(t)
		s.play("open")
		s.must(s.agent("p", pair("a", held(`after(timestamp("`+minute+`"))`))...))
		s.play("a+ q/open^")
		s.must(s.agent("q", pair("x", held(`elapsed(action.at, duration("30s")) && "x" in facts`))...))
		s.play("q/x+ q/commit turn b b+ fact:x=1 r/open r/a r/a+ r/fail turn")
		s.now += 2 * int64(time.Minute)
		records := s.decide(nil)
		s.play("forget:x")
		began := records[2].GetUnwindStarted()
		if began.GetFromAction() != "plan:q" {
			t.Fatalf("it begins with %v", records)
		}
		began.FromAction = said
		if r := s.append(holder, records...); r[0].Verdict != Void || r[2].Verdict != Effective || r[2].Reason != "" {
			t.Fatalf("%q: %+v", said, r)
		}
		s.play("turn")
		if got, want := s.outcome(), "open: a=compensated plan:q=compensated b=compensated [a b x a]"; got != want {
			t.Errorf("%q: it is %s, want %s", said, got, want)
		}
		if found := s.audits(); (len(found) == 0) != (said == "plan:q") {
			t.Errorf("%q: the audit finds %v", said, found)
		}
		s.wantRefolded()
	}
}

// audits is what an audit of the whole ledger finds.
func (s *schedule) audits() (found []audit.Violation) {
	l := audit.NewWith("t", s.programs)
	for _, m := range s.log {
		found = append(found, l.Add(m)...)
	}
	return append(found, l.End()...)
}
