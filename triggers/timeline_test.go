package triggers

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"
)

// memory is a View over facts that a test asserts at instants. It fails the test
// when an evaluation asks for times outside the epoch.
type memory struct {
	t     testing.TB
	now   int64
	facts map[string]*Fact
	times map[string][]int64
	seq   uint64
}

func newMemory(t testing.TB) *memory {
	return &memory{t: t, facts: map[string]*Fact{}, times: map[string][]int64{}}
}

func (m *memory) Fact(key string) *Fact {
	return m.facts[key]
}

func (m *memory) Occurrences(key string, fromNs, toNs int64) iter.Seq[int64] {
	if toNs > m.now {
		m.t.Errorf("Occurrences(%q) asks for times up to %d, after the epoch %d", key, toNs, m.now)
	}
	return func(yield func(int64) bool) {
		for _, ns := range m.times[key] {
			if ns > fromNs && ns <= toNs && !yield(ns) {
				return
			}
		}
	}
}

func (m *memory) assert(key, value string, ns int64) {
	m.seq++
	had, ok := m.facts[key]
	fact := Fact{Value: json.RawMessage(value), AssertedNs: ns, ChangedNs: ns, Sequence: m.seq}
	if ok && string(had.Value) == value {
		fact.ChangedNs = had.ChangedNs
	}
	m.facts[key] = &fact
	m.times[key] = append(m.times[key], ns)
}

func (m *memory) retract(key string) { delete(m.facts, key) }

const second = int64(time.Second)

// start is the instant at which every timeline arms its lease.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano()

// event is something that happens on a timeline.
type event struct {
	at float64 // seconds after arming
	do func(*timeline)
}

func fact(at float64, key, value string) event {
	return event{at, func(l *timeline) { l.memory.assert(key, value, l.scope.NowNs) }}
}

func retracted(at float64, key string) event {
	return event{at, func(l *timeline) { l.memory.retract(key) }}
}

func status(at float64, s string) event {
	return event{at, func(l *timeline) { l.scope.Plan.Status = s }}
}

func verdict(at float64, outcome string) event {
	return event{at, func(l *timeline) { l.scope.Verdict = &Verdict{Outcome: outcome, By: "compliance"} }}
}

func actions(at float64, n int) event {
	return event{at, func(l *timeline) { l.scope.Plan.Actions = n }}
}

func completed(at float64, output string) event {
	return event{at, func(l *timeline) {
		l.scope.Action.Output, l.scope.Action.Outcome = json.RawMessage(output), "completed"
	}}
}

// timeline drives one lease with a virtual clock: it evaluates at arming, after
// every event and at every instant that the last evaluation asked to wake at,
// and nowhere else.
type timeline struct {
	t         *testing.T
	condition *Condition
	scope     Scope
	memory    *memory
	evaluated int
}

func newTimeline(t *testing.T, condition string) *timeline {
	t.Helper()
	c, err := Compile(condition)
	if err != nil {
		t.Fatal(err)
	}
	return &timeline{t: t, condition: c, memory: newMemory(t), scope: Scope{
		Plan: Plan{ID: "p1", Status: "open", Agent: "a1", OpenedNs: start, DeadlineNs: start + 3600*second},
		Action: &Action{ID: "a1", Capability: "order.place", AtNs: start,
			Input: json.RawMessage(`{"order":"o7","amount":120,"cap":"eu","ready":true}`)},
		ArmedNs: start, NowNs: start,
	}}
}

// run returns the ns after arming at which the lease fired, or -1, and the last
// result.
func (l *timeline) run(events ...event) (int64, Result) {
	l.t.Helper()
	slices.SortStableFunc(events, func(a, b event) int { return int(1e9 * (a.at - b.at)) })
	l.memory.now = start
	for len(events) > 0 && events[0].at <= 0 {
		events[0].do(l)
		events = events[1:]
	}
	for l.evaluated < 1000 {
		l.memory.now = l.scope.NowNs
		result := l.condition.Evaluate(l.scope, l.memory)
		l.evaluated++
		switch {
		case result.Truth == True:
			return l.scope.NowNs - start, result
		case result.Moot && result.WakeNs != 0:
			l.t.Fatalf("moot, and wakes at %d", result.WakeNs)
		case result.WakeNs != 0 && result.WakeNs <= l.scope.NowNs:
			l.t.Fatalf("wakes at %d, which is not after the epoch %d", result.WakeNs, l.scope.NowNs)
		}
		next := result.WakeNs
		if len(events) > 0 {
			if at := start + int64(events[0].at*1e9); next == 0 || at <= next {
				l.scope.NowNs = at
				for len(events) > 0 && start+int64(events[0].at*1e9) == at {
					l.memory.now = at
					events[0].do(l)
					events = events[1:]
				}
				continue
			}
		}
		if next == 0 {
			return -1, result
		}
		l.scope.NowNs = next
	}
	l.t.Fatal("the timeline does not end")
	return -1, Result{}
}

func stamp(after time.Duration) string {
	return fmt.Sprintf("timestamp(%q)", time.Unix(0, start).UTC().Add(after).Format(time.RFC3339Nano))
}

// TestWorkedExamplesFireAtTheirSecond runs the examples of docs/triggers.md.
func TestWorkedExamplesFireAtTheirSecond(t *testing.T) {
	const never = -1.0
	for _, c := range []struct {
		name, condition string
		events          []event
		fires           float64 // seconds after arming
		moot            bool
	}{
		{"1 elapsed", `elapsed(action.at, duration("72h"))`, nil, 259200, false},
		{"2 fifty milliseconds", `after(` + stamp(50*time.Millisecond) + `)`, nil, 0.05, false},
		{"3 verdict", `verdict.outcome in ["block", "redirect"]`, []event{verdict(5, "allow"), verdict(9, "block")}, 9, false},
		{"4 status", `plan.status == "failed"`, []event{status(3, "open"), status(8, "failed")}, 8, false},
		{"5 absent", `absent_for("confirmed/" + action.order, action.at, duration("15m"))`, nil, 900, false},
		{"5 confirmed", `absent_for("confirmed/" + action.order, action.at, duration("15m"))`, []event{fact(60, "confirmed/o7", `{}`)}, never, true},
		{"6 not shipped", `absent_for("shipped/o7", first_at("paid/o7"), duration("1h"))`, []event{fact(100, "paid/o7", `1`)}, 3700, false},
		{"6 shipped", `absent_for("shipped/o7", first_at("paid/o7"), duration("1h"))`, []event{fact(100, "paid/o7", `1`), fact(900, "shipped/o7", `1`)}, never, true},
		{"7 three declines", `at_least(3, "declined/o7", duration("10m"))`, []event{fact(10, "declined/o7", `1`), fact(400, "declined/o7", `1`), fact(700, "declined/o7", `1`), fact(800, "declined/o7", `1`)}, 800, false},
		{"8 refused after refund", `within("refused/o7", first_at("refund/o7"), duration("24h"))`, []event{fact(10, "refund/o7", `1`), fact(20, "refused/o7", `1`)}, 20, false},
		{"8 refused before refund", `within("refused/o7", first_at("refund/o7"), duration("24h"))`, []event{fact(10, "refused/o7", `1`), fact(20, "refund/o7", `1`)}, never, true},
		{"9 no progress", `plan.status == "open" && elapsed(since("plan/p1"), duration("30m"))`, []event{fact(10, "plan/p1", `{"step":1}`), fact(600, "plan/p1", `{"step":2}`), fact(700, "plan/p1", `{"step":2}`)}, 2400, false},
		{"10 no approval", `after(` + stamp(time.Hour) + `) && !("approval/a1" in facts)`, nil, 3600, false},
		{"10 approval", `after(` + stamp(time.Hour) + `) && !("approval/a1" in facts)`, []event{fact(60, "approval/a1", `true`)}, never, false},
		{"11 price", `facts["quote/" + action.order].price > 1.1 * facts["booked/o7"].price`, []event{fact(5, "booked/o7", `{"price":100.0}`), fact(9, "quote/o7", `{"price":105.0}`), fact(12, "quote/o7", `{"price":111.0}`)}, 12, false},
		{"11 price in whole numbers", `facts["quote/" + action.order].price > 1.1 * facts["booked/o7"].price`, []event{fact(5, "booked/o7", `{"price":100}`), fact(9, "quote/o7", `{"price":105}`), fact(12, "quote/o7", `{"price":111}`)}, 12, false},
		{"12 computed key", `facts["order/" + facts["link/o7"].parent].status == "cancelled"`, []event{fact(6, "link/o7", `{"parent":"o1"}`), fact(9, "order/o1", `{"status":"cancelled"}`)}, 9, false},
		{"13 any of", `["c1","c2","c3"].exists(c, facts["step/" + c].status == "failed")`, []event{fact(5, "step/c2", `{"status":"ok"}`), fact(6, "step/c3", `{"status":"failed"}`)}, 6, false},
		{"14 taint not cleared", `facts["taint/a1"].level >= 3 && absent_for("cleared/a1", at("taint/a1"), duration("1h"))`, []event{fact(50, "taint/a1", `{"level":3}`)}, 3650, false},
		{"15 default", `facts[?"limit/" + action.cap].orValue(100) < action.amount`, nil, 0, false},
		{"16 not after", `!after(` + stamp(5*time.Second) + `)`, nil, never, true},
		{"17 guard", `before(` + stamp(time.Minute) + `) && plan.status == "failed"`, []event{status(70, "failed")}, never, true},
		{"18 or", `plan.status == "failed" || (plan.step >= 3 && elapsed(at("plan/p1"), duration("5m")))`, []event{actions(10, 3), fact(10, "plan/p1", `{"step":3}`)}, 310, false},
		{"deadline", `after(plan.deadline)`, nil, 3600, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newTimeline(t, c.condition)
			ns, result := l.run(c.events...)
			// A window closes just after its end, so the second is what counts; fractions are exact.
			if got := float64(ns/1e6) / 1e3; ns >= 0 && got != c.fires || ns < 0 && c.fires != never {
				t.Errorf("fires at %v s, want %v; last %+v", float64(ns)/1e9, c.fires, result)
			}
			if result.Moot != c.moot {
				t.Errorf("moot %v, want %v", result.Moot, c.moot)
			}
			if result.Err != nil {
				t.Error(result.Err)
			}
			if bound := len(c.events) + 4; l.evaluated > bound {
				t.Errorf("%d evaluations, want at most %d: nothing may poll", l.evaluated, bound)
			}
		})
	}
}

func TestFiftyMillisecondsAndThreeWeeksAreOneMachinery(t *testing.T) {
	for _, d := range []time.Duration{50 * time.Millisecond, 21 * 24 * time.Hour} {
		l := newTimeline(t, `after(plan.deadline)`)
		l.scope.Plan.DeadlineNs = start + int64(d)
		if ns, _ := l.run(); ns != int64(d) || l.evaluated != 2 {
			t.Errorf("a deadline of %v fires after %v in %d evaluations, want exactly then and 2", d, time.Duration(ns), l.evaluated)
		}
	}
}

func TestWorldsAndScopeOverTime(t *testing.T) {
	const never = -1.0
	for _, c := range []struct {
		condition string
		events    []event
		fires     float64
		moot      bool
	}{
		{`action.output.ref == "r1"`, []event{completed(4, `{"ref":"r1"}`)}, 4, false},
		{`has(action.output.ref)`, []event{completed(4, `{"ref":"r1"}`)}, 4, false},
		{`!has(action.output.ref) && after(` + stamp(9*time.Second) + `)`, []event{completed(4, `{}`)}, 9, false},
		{`action.output.ref == "r1"`, []event{completed(4, `{"other":1}`)}, never, true},
		{`action.outcome == "completed" && action.ready`, []event{completed(4, `{}`)}, 4, false},
		{`action.missing == 1`, nil, never, true},
		{`action.amount > 500`, nil, never, true},
		{`action.amount > 500 || seen("x")`, []event{fact(3, "x", `1`)}, 3, false},
		{`action.amount > 100 && seen("x")`, []event{fact(3, "x", `1`)}, 3, false},
		{`seen("x")`, []event{fact(0, "x", `1`), fact(7, "x", `1`)}, 7, false},
		{`last_at("x") > first_at("x")`, []event{fact(3, "x", `1`), fact(7, "x", `1`)}, 7, false},
		{`facts["x"].a.b == 2`, []event{fact(3, "x", `{"a":{"b":1}}`), fact(5, "x", `{"a":{"b":2}}`)}, 5, false},
		{`"x" in facts && !("y" in facts)`, []event{fact(3, "y", `1`), fact(4, "x", `1`), retracted(6, "y")}, 6, false},
		{`has(facts["x"].a.b)`, []event{fact(3, "x", `{"a":1}`), fact(5, "x", `{"a":{"b":null}}`)}, 5, false},
		{`!has(facts.x)`, nil, 0, false},
		{`facts.x == null`, []event{fact(3, "x", `0`), fact(4, "x", `null`)}, 4, false},
		{`has(plan.deadline) && has(verdict.outcome)`, []event{verdict(3, "allow")}, 3, false},
		{`count("x", duration("10s")) == 1`, []event{fact(1, "x", `1`), fact(1.5, "x", `1`)}, 1, false},
		{`seen("y") && count("x", duration("10s")) == 1`, []event{fact(1, "x", `1`), fact(2, "x", `1`), fact(3, "y", `1`)}, 11, false},
		{`!at_least(2, "x", duration("10s")) && seen("y")`, []event{fact(1, "x", `1`), fact(2, "x", `1`), fact(3, "y", `1`)}, 11, false},
		{`within("x", at("y"), duration("5s"))`, []event{fact(1, "y", `1`), fact(20, "y", `1`), fact(25, "x", `1`)}, 25, false},
		{`absent_for("x", action.at, duration("5s"))`, []event{fact(5, "x", `1`)}, never, true},
		{`plan.labels.env == "prod"`, nil, never, true},
		{`action.labels.team == "a" || seen("x")`, []event{fact(2, "x", `1`)}, 2, false},
		{`plan.labels.?env.orValue("x") == "x"`, nil, 0, false},
		{`action.?output.ref.orValue("none") == "r1"`, []event{completed(4, `{"ref":"r1"}`)}, 4, false},
		{`action.?output.ref.orValue("none") == "r1"`, []event{completed(4, `{"ref":"r2"}`)}, never, false},
		{`action.id == "a1" ? seen("x") : seen("y")`, []event{fact(2, "y", `1`), fact(3, "x", `1`)}, 3, false},
		{`facts["x"].list.all(i, i > 1)`, []event{fact(2, "x", `{"list":[1,2]}`), fact(3, "x", `{"list":[2,3]}`)}, 3, false},
		{`timestamp(facts["x"].due) < action.at`, []event{fact(2, "x", `{"due":"2020-01-01T00:00:00Z"}`)}, 2, false},
		{`after(timestamp("9999-12-31T23:59:59Z"))`, nil, never, false},
		{`after(timestamp("0001-01-01T00:00:00Z"))`, nil, 0, false},
	} {
		t.Run(c.condition, func(t *testing.T) {
			ns, result := newTimeline(t, c.condition).run(c.events...)
			if got := float64(ns/1e6) / 1e3; ns >= 0 && got != c.fires || ns < 0 && c.fires != never {
				t.Errorf("fires at %v s, want %v; last %+v", float64(ns)/1e9, c.fires, result)
			}
			if result.Moot != c.moot {
				t.Errorf("moot %v, want %v", result.Moot, c.moot)
			}
		})
	}
}

func TestEveryFunctionWakesAtItsFlip(t *testing.T) {
	at := func(seconds int) string { return stamp(time.Duration(seconds) * time.Second) }
	for condition, wake := range map[string]int64{ // ns after arming; evaluated at 10 s, k occurred at 3, 5 and 8 s
		`after(` + at(20) + `)`:                                                20 * second,
		`before(` + at(20) + `)`:                                               20 * second,
		`after(` + at(10) + `)`:                                                0,
		`elapsed(` + at(1) + `, duration("15s"))`:                              16 * second,
		`elapsed(last_at("k"), duration("5s"))`:                                13 * second,
		`within("x", ` + at(4) + `, duration("7s"))`:                           11*second + 1,
		`absent_for("x", ` + at(4) + `, duration("7s"))`:                       11*second + 1,
		`within("k", ` + at(4) + `, duration("7s"))`:                           0,
		`at_least(1, "k", duration("8s"))`:                                     16 * second,
		`at_least(2, "k", duration("8s"))`:                                     13 * second,
		`at_least(3, "k", duration("8s"))`:                                     11 * second,
		`at_least(4, "k", duration("8s"))`:                                     0,
		`count("k", duration("8s")) > 5`:                                       11 * second,
		`count("k", duration("1s")) > 5`:                                       0,
		`seen("x") || plan.status == "failed"`:                                 0,
		`after(` + at(30) + `) || after(` + at(20) + `)`:                       20 * second,
		`plan.status == "failed" && after(` + at(20) + `)`:                     0, // not consulted
		`after(` + at(20) + `) && plan.status == "failed"`:                     20 * second,
		`after(plan.deadline) || before(` + at(40) + `)`:                       40 * second,
		`after(timestamp("9999-01-01T00:00:00Z"))`:                             0,
		`at_least(1, "k", duration("9s")) ? seen("x") : after(` + at(11) + `)`: 17 * second,
	} {
		l := newTimeline(t, condition)
		for _, seconds := range []int64{3, 5, 8} {
			l.memory.assert("k", `1`, start+seconds*second)
		}
		l.memory.now, l.scope.NowNs = start+10*second, start+10*second
		want := wake
		if wake != 0 {
			want = start + wake
		}
		if got := l.condition.Evaluate(l.scope, l.memory).WakeNs; got != want {
			t.Errorf("%s wakes %d ns after arming, want %d", condition, got-start, wake)
		}
	}
}
