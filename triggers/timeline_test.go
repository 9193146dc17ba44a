package triggers

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// memory is a past that tests fill.
type memory struct{ *past }

func newMemory(testing.TB) *memory { return &memory{newPast()} }

const second = int64(time.Second)

// start is the instant at which every timeline arms its lease.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano()

func after(seconds float64) int64 { return int64(seconds * 1e9) }

func fact(at float64, key, value string) Event {
	return Event{AtNs: after(at), Kind: EventAssert, Key: key, Value: json.RawMessage(value)}
}

func retracted(at float64, key string) Event {
	return Event{AtNs: after(at), Kind: EventRetract, Key: key}
}

func status(at float64, s string) Event {
	return Event{AtNs: after(at), Kind: EventStatus, Text: s}
}

func verdict(at float64, outcome string) Event {
	return Event{AtNs: after(at), Kind: EventVerdict, Text: outcome, By: "compliance"}
}

func actions(at float64, n int) Event {
	return Event{AtNs: after(at), Kind: EventActions, Count: n}
}

func completed(at float64, output string) Event {
	return Event{AtNs: after(at), Kind: EventOutcome, Text: "completed", Value: json.RawMessage(output)}
}

// timeline runs one condition for an action over events.
type timeline struct {
	t         *testing.T
	condition *Condition
	scope     Scope
	evaluated int
}

func newTimeline(t *testing.T, condition string) *timeline {
	t.Helper()
	c, err := Compile(condition)
	if err != nil {
		t.Fatal(err)
	}
	return &timeline{t: t, condition: c, scope: Scope{
		Plan: Plan{ID: "p1", Status: "open", Agent: "a1", OpenedNs: start, DeadlineNs: start + 3600*second},
		Action: &Action{ID: "a1", Capability: "order.place", AtNs: start,
			Input: json.RawMessage(`{"order":"o7","amount":120,"cap":"eu","ready":true}`)},
		ArmedNs: start, NowNs: start,
	}}
}

// run returns the ns after arming at which the lease fired, or -1, and how the
// timeline went.
func (l *timeline) run(events ...Event) (int64, Course) {
	l.t.Helper()
	r, err := newTimelineRun(l.condition, Timeline{Scope: l.scope, Events: events})
	if err != nil {
		l.t.Fatal(err)
	}
	r.view = &memory{r.past}
	course, err := r.run()
	if err != nil {
		l.t.Fatal(err)
	}
	l.evaluated = course.Evaluations
	for i := range course.Spans {
		if course.Moot && course.Spans[i].FromNs > course.MootNs && course.Spans[i].Truth == True {
			l.t.Errorf("true at %d, moot since %d", course.Spans[i].FromNs, course.MootNs)
		}
	}
	if !course.Fires {
		return -1, course
	}
	return course.FiresNs, course
}

func stamp(after time.Duration) string {
	return fmt.Sprintf("timestamp(%q)", time.Unix(0, start).UTC().Add(after).Format(time.RFC3339Nano))
}

// TestWorkedExamplesFireAtTheirSecond runs the examples of docs/triggers.md.
func TestWorkedExamplesFireAtTheirSecond(t *testing.T) {
	const never = -1.0
	for _, c := range []struct {
		name, condition string
		events          []Event
		fires           float64 // seconds after arming
		moot            bool
	}{
		{"1 elapsed", `elapsed(action.at, duration("72h"))`, nil, 259200, false},
		{"2 fifty milliseconds", `after(` + stamp(50*time.Millisecond) + `)`, nil, 0.05, false},
		{"3 verdict", `verdict.outcome in ["block", "redirect"]`, []Event{verdict(5, "allow"), verdict(9, "block")}, 9, false},
		{"4 status", `plan.status == "failed"`, []Event{status(3, "open"), status(8, "failed")}, 8, false},
		{"5 absent", `absent_for("confirmed/" + action.order, action.at, duration("15m"))`, nil, 900, false},
		{"5 confirmed", `absent_for("confirmed/" + action.order, action.at, duration("15m"))`, []Event{fact(60, "confirmed/o7", `{}`)}, never, true},
		{"6 not shipped", `absent_for("shipped/o7", first_at("paid/o7"), duration("1h"))`, []Event{fact(100, "paid/o7", `1`)}, 3700, false},
		{"6 shipped", `absent_for("shipped/o7", first_at("paid/o7"), duration("1h"))`, []Event{fact(100, "paid/o7", `1`), fact(900, "shipped/o7", `1`)}, never, true},
		{"7 three declines", `at_least(3, "declined/o7", duration("10m"))`, []Event{fact(10, "declined/o7", `1`), fact(400, "declined/o7", `1`), fact(700, "declined/o7", `1`), fact(800, "declined/o7", `1`)}, 800, false},
		{"8 refused after refund", `within("refused/o7", first_at("refund/o7"), duration("24h"))`, []Event{fact(10, "refund/o7", `1`), fact(20, "refused/o7", `1`)}, 20, false},
		{"8 refused before refund", `within("refused/o7", first_at("refund/o7"), duration("24h"))`, []Event{fact(10, "refused/o7", `1`), fact(20, "refund/o7", `1`)}, never, true},
		{"9 no progress", `plan.status == "open" && elapsed(since("plan/p1"), duration("30m"))`, []Event{fact(10, "plan/p1", `{"step":1}`), fact(600, "plan/p1", `{"step":2}`), fact(700, "plan/p1", `{"step":2}`)}, 2400, false},
		{"10 no approval", `after(` + stamp(time.Hour) + `) && !("approval/a1" in facts)`, nil, 3600, false},
		{"10 approval", `after(` + stamp(time.Hour) + `) && !("approval/a1" in facts)`, []Event{fact(60, "approval/a1", `true`)}, never, false},
		{"11 price", `facts["quote/" + action.order].price > 1.1 * facts["booked/o7"].price`, []Event{fact(5, "booked/o7", `{"price":100.0}`), fact(9, "quote/o7", `{"price":105.0}`), fact(12, "quote/o7", `{"price":111.0}`)}, 12, false},
		{"11 price in whole numbers", `facts["quote/" + action.order].price > 1.1 * facts["booked/o7"].price`, []Event{fact(5, "booked/o7", `{"price":100}`), fact(9, "quote/o7", `{"price":105}`), fact(12, "quote/o7", `{"price":111}`)}, 12, false},
		{"12 computed key", `facts["order/" + facts["link/o7"].parent].status == "cancelled"`, []Event{fact(6, "link/o7", `{"parent":"o1"}`), fact(9, "order/o1", `{"status":"cancelled"}`)}, 9, false},
		{"13 any of", `["c1","c2","c3"].exists(c, facts["step/" + c].status == "failed")`, []Event{fact(5, "step/c2", `{"status":"ok"}`), fact(6, "step/c3", `{"status":"failed"}`)}, 6, false},
		{"14 taint not cleared", `facts["taint/a1"].level >= 3 && absent_for("cleared/a1", at("taint/a1"), duration("1h"))`, []Event{fact(50, "taint/a1", `{"level":3}`)}, 3650, false},
		{"15 default", `facts[?"limit/" + action.cap].orValue(100) < action.amount`, nil, 0, false},
		{"16 not after", `!after(` + stamp(5*time.Second) + `)`, nil, never, true},
		{"17 guard", `before(` + stamp(time.Minute) + `) && plan.status == "failed"`, []Event{status(70, "failed")}, never, true},
		{"18 or", `plan.status == "failed" || (plan.step >= 3 && elapsed(at("plan/p1"), duration("5m")))`, []Event{actions(10, 3), fact(10, "plan/p1", `{"step":3}`)}, 310, false},
		{"deadline", `after(plan.deadline)`, nil, 3600, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newTimeline(t, c.condition)
			ns, course := l.run(c.events...)
			// A window closes just after its end, so the second is what counts; fractions are exact.
			if got := float64(ns/1e6) / 1e3; ns >= 0 && got != c.fires || ns < 0 && c.fires != never {
				t.Errorf("fires at %v s, want %v; last %+v", float64(ns)/1e9, c.fires, course.Last)
			}
			if course.Moot != c.moot {
				t.Errorf("moot %v, want %v", course.Moot, c.moot)
			}
			for _, span := range course.Spans {
				if span.Err != nil {
					t.Error(span.Err)
				}
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
		events    []Event
		fires     float64
		moot      bool
	}{
		{`action.output.ref == "r1"`, []Event{completed(4, `{"ref":"r1"}`)}, 4, false},
		{`has(action.output.ref)`, []Event{completed(4, `{"ref":"r1"}`)}, 4, false},
		{`!has(action.output.ref) && after(` + stamp(9*time.Second) + `)`, []Event{completed(4, `{}`)}, 9, false},
		{`action.output.ref == "r1"`, []Event{completed(4, `{"other":1}`)}, never, true},
		{`action.outcome == "completed" && action.ready`, []Event{completed(4, `{}`)}, 4, false},
		{`action.missing == 1`, nil, never, true},
		{`action.amount > 500`, nil, never, true},
		{`action.amount > 500 || seen("x")`, []Event{fact(3, "x", `1`)}, 3, false},
		{`action.amount > 100 && seen("x")`, []Event{fact(3, "x", `1`)}, 3, false},
		{`seen("x")`, []Event{fact(0, "x", `1`), fact(7, "x", `1`)}, 7, false},
		{`last_at("x") > first_at("x")`, []Event{fact(3, "x", `1`), fact(7, "x", `1`)}, 7, false},
		{`facts["x"].a.b == 2`, []Event{fact(3, "x", `{"a":{"b":1}}`), fact(5, "x", `{"a":{"b":2}}`)}, 5, false},
		{`"x" in facts && !("y" in facts)`, []Event{fact(3, "y", `1`), fact(4, "x", `1`), retracted(6, "y")}, 6, false},
		{`has(facts["x"].a.b)`, []Event{fact(3, "x", `{"a":1}`), fact(5, "x", `{"a":{"b":null}}`)}, 5, false},
		{`!has(facts.x)`, nil, 0, false},
		{`facts.x == null`, []Event{fact(3, "x", `0`), fact(4, "x", `null`)}, 4, false},
		{`has(plan.deadline) && has(verdict.outcome)`, []Event{verdict(3, "allow")}, 3, false},
		{`count("x", duration("10s")) == 1`, []Event{fact(1, "x", `1`), fact(1.5, "x", `1`)}, 1, false},
		{`seen("y") && count("x", duration("10s")) == 1`, []Event{fact(1, "x", `1`), fact(2, "x", `1`), fact(3, "y", `1`)}, 11, false},
		{`!at_least(2, "x", duration("10s")) && seen("y")`, []Event{fact(1, "x", `1`), fact(2, "x", `1`), fact(3, "y", `1`)}, 11, false},
		{`within("x", at("y"), duration("5s"))`, []Event{fact(1, "y", `1`), fact(20, "y", `1`), fact(25, "x", `1`)}, 25, false},
		{`absent_for("x", action.at, duration("5s"))`, []Event{fact(5, "x", `1`)}, never, true},
		{`plan.labels.env == "prod"`, nil, never, true},
		{`action.labels.team == "a" || seen("x")`, []Event{fact(2, "x", `1`)}, 2, false},
		{`plan.labels.?env.orValue("x") == "x"`, nil, 0, false},
		{`action.?output.ref.orValue("none") == "r1"`, []Event{completed(4, `{"ref":"r1"}`)}, 4, false},
		{`action.?output.ref.orValue("none") == "r1"`, []Event{completed(4, `{"ref":"r2"}`)}, never, false},
		{`action.id == "a1" ? seen("x") : seen("y")`, []Event{fact(2, "y", `1`), fact(3, "x", `1`)}, 3, false},
		{`facts["x"].list.all(i, i > 1)`, []Event{fact(2, "x", `{"list":[1,2]}`), fact(3, "x", `{"list":[2,3]}`)}, 3, false},
		{`timestamp(facts["x"].due) < action.at`, []Event{fact(2, "x", `{"due":"2020-01-01T00:00:00Z"}`)}, 2, false},
		{`after(timestamp("9999-12-31T23:59:59Z"))`, nil, never, false},
		{`after(timestamp("0001-01-01T00:00:00Z"))`, nil, 0, false},
	} {
		t.Run(c.condition, func(t *testing.T) {
			ns, course := newTimeline(t, c.condition).run(c.events...)
			if got := float64(ns/1e6) / 1e3; ns >= 0 && got != c.fires || ns < 0 && c.fires != never {
				t.Errorf("fires at %v s, want %v; last %+v", float64(ns)/1e9, c.fires, course.Last)
			}
			if course.Moot != c.moot {
				t.Errorf("moot %v, want %v", course.Moot, c.moot)
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
		l, m := newTimeline(t, condition), newMemory(t)
		for _, seconds := range []int64{3, 5, 8} {
			m.assert("k", `1`, start+seconds*second)
		}
		m.now, l.scope.NowNs = start+10*second, start+10*second
		want := wake
		if wake != 0 {
			want = start + wake
		}
		if got := l.condition.Evaluate(l.scope, m).WakeNs; got != want {
			t.Errorf("%s wakes %d ns after arming, want %d", condition, got-start, wake)
		}
	}
}
