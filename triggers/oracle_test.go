package triggers

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/triggers/oracle"
)

// The evaluator must agree with package oracle at every instant, must not change its
// mind before its own wake instant unless something happened, and what it calls moot
// must never become true.

var (
	oracleRounds = flag.Int("oracle", 0, "random timelines that TestTheOracleAgrees runs; 0: 3,000, 20,000 in a long run")
	oracleSeed   = flag.Int64("oracle-seed", 0, "seed of the first of them")
)

func oracleRuns() int { return cmp.Or(*oracleRounds, testenv.Cases(3000, 20_000)) }

const oracleEnd = 24 // ticks of one timeline, of 1 ns

// history is what happens on a random timeline beside its facts, by tick.
type history struct {
	facts    []oracleFact
	status   [oracleEnd + 1]string
	actions  [oracleEnd + 1]int
	verdict  int // tick of the verdict; beyond the end: never
	output   int // tick of completion
	deadline int // 0: none
	label    string
	noAction bool
}

type oracleFact struct {
	event oracle.Event
	json  string
}

func randomHistory(r *rand.Rand, g *oracle.Generator) *history {
	h := &history{verdict: r.Intn(2 * oracleEnd), output: 1 + r.Intn(2*oracleEnd), deadline: r.Intn(oracleEnd),
		noAction: r.Intn(8) == 0, label: []string{"", "c"}[r.Intn(2)]}
	for at := range oracleEnd + 1 {
		h.status[at] = "open"
		if at > 0 {
			h.actions[at] = h.actions[at-1] + r.Intn(2)*r.Intn(2)
		}
		if at > 0 && r.Intn(6) > 0 {
			h.status[at] = h.status[at-1]
		} else if r.Intn(2) == 0 {
			h.status[at] = "b"
		}
		for range r.Intn(3) * r.Intn(2) {
			e := oracle.Event{Ns: start + int64(at), Key: g.Key()}
			text := ""
			if e.Retracted = r.Intn(5) == 0; !e.Retracted {
				e.Value, text = g.Fact()
			}
			h.facts = append(h.facts, oracleFact{e, text})
		}
	}
	return h
}

func TestTheOracleAgrees(t *testing.T) {
	rounds := oracleRuns()
	cache := NewCache(16)
	var tally [3]int
	moots := 0
	for n := range rounds {
		seed := *oracleSeed + int64(n)
		r := rand.New(rand.NewSource(seed))
		g := &oracle.Generator{Choose: r.Intn, Literal: r.Intn, StartNs: start, TickNs: 1, Ticks: oracleEnd}
		expression := g.Condition(r.Intn(4))
		condition, err := cache.Condition(expression.Text)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, expression.Text)
		}
		if condition.ReadsClock() != expression.Clock {
			t.Fatalf("seed %d: reads the clock: %v\n%s", seed, condition.ReadsClock(), expression.Text)
		}
		moots += compareOverTime(t, fmt.Sprintf("seed %d: %s", seed, expression.Text), condition, expression,
			randomHistory(r, g), &tally)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d timelines: %d unknown, %d false, %d true; %d turned moot", rounds, tally[Unknown], tally[False],
		tally[True], moots)
}

// oracleScope is the same moment for both.
func oracleScope(h *history, now int) (Scope, oracle.Moment) {
	active := now // when the latest action was registered
	for active > 0 && h.actions[active] == h.actions[active-1] {
		active--
	}
	scope := Scope{Plan: Plan{Status: h.status[now], OpenedNs: start, ActiveNs: start + int64(active),
		Actions: h.actions[now]}, ArmedNs: start, NowNs: start + int64(now)}
	m := oracle.Moment{NowNs: scope.NowNs, ArmedNs: start, Plan: oracle.Plan{Status: h.status[now], Label: h.label,
		OpenedNs: start, ActiveNs: scope.Plan.ActiveNs, Actions: h.actions[now]}}
	if h.label != "" {
		scope.Plan.Labels = map[string]string{"l": h.label}
	}
	if h.deadline > 0 {
		scope.Plan.DeadlineNs = start + int64(h.deadline)
		m.Plan.DeadlineNs = scope.Plan.DeadlineNs
	}
	if h.noAction {
		return scope, m
	}
	scope.Action = &Action{AtNs: start, Input: json.RawMessage(`{"n":3,"k":"b"}`)}
	m.Action = &oracle.Action{AtNs: start, Input: []oracle.Object{{Field: "n", Value: 3}, {Field: "k", Value: "b"}}}
	if now >= h.verdict {
		scope.Verdict, m.Verdict = &Verdict{Outcome: "b"}, &oracle.Verdict{Outcome: "b"}
	}
	if now >= h.output {
		scope.Action.Output, scope.Action.Outcome = json.RawMessage(`{"n":2}`), "completed"
		m.Action.Output, m.Action.Completed, m.Action.Outcome = []oracle.Object{{Field: "n", Value: 2}}, true, "completed"
	}
	return scope, m
}

// compareOverTime compares at every tick and returns 1 if the condition turned moot.
func compareOverTime(t *testing.T, name string, condition *Condition, expression oracle.Condition, h *history,
	tally *[3]int) int {
	m := newMemory(t)
	next, moot := 0, 0
	var events []oracle.Event
	var before Result
	for now := range oracleEnd + 1 {
		scope, moment := oracleScope(h, now)
		m.now = scope.NowNs
		quiet := now > 0 && h.status[now] == h.status[now-1] && h.actions[now] == h.actions[now-1] && now != h.verdict &&
			now != h.output
		for ; next < len(h.facts) && h.facts[next].event.Ns == m.now; next++ {
			quiet = false
			f := h.facts[next]
			if f.event.Retracted {
				m.retract(f.event.Key)
			} else {
				m.assert(f.event.Key, f.json, m.now)
			}
			events = append(events, f.event)
		}
		moment.Events = events
		got, want := condition.Evaluate(scope, m), expression.Ask(&moment)
		tally[want]++
		switch {
		case got.Truth.String() != want.String():
			t.Errorf("%s\nat %d: %v (%v), want %v", name, now, got.Truth, got.Err, want)
		case quiet && !before.Moot && got.Truth != before.Truth && (before.WakeNs == 0 || before.WakeNs > scope.NowNs):
			t.Errorf("%s\nat %d: turned from %v to %v before its wake instant %d", name, now, before.Truth, got.Truth,
				before.WakeNs-start)
		case moot == 1 && got.Truth == True:
			t.Errorf("%s\nat %d: true, after it was moot", name, now)
		case got.Truth == Unknown && len(got.Waits) == 0 && got.Err == nil:
			t.Errorf("%s\nat %d: unknown, and does not say what it waits for", name, now)
		}
		if got.Moot {
			moot = 1
		}
		before = got
	}
	return moot
}

func FuzzCompile(f *testing.F) {
	for _, seed := range []string{`after(plan.deadline)`, `has(facts.x.y) && !("a" in facts)`,
		`[1,2].map(x, x * 2).all(y, y > 1)`, `facts[?"a"].orValue(1) < action.amount`, `r"\d" // c`, `{"a": 1.5}["b"]`,
		`"` + strings.Repeat("é", 9)} {
		f.Add(seed)
	}
	cache, world := NewCache(64), newCrowd()
	f.Fuzz(func(t *testing.T, expression string) {
		if binding, err := cache.Binding(expression); err == nil {
			if raw, err := binding.Evaluate(BindingVars{Input: json.RawMessage(`{"a":[1,{"b":"c"}]}`)}); err == nil &&
				!json.Valid(raw) {
				t.Errorf("binding %q gives %q", expression, raw)
			}
		}
		condition, err := cache.Condition(expression)
		if err != nil {
			return
		}
		normal := Normalise(expression)
		again, err := cache.Condition(normal)
		if err != nil || again.Digest() != condition.Digest() || Normalise(normal) != normal {
			t.Errorf("%q has the normal form %q (%v)", expression, normal, err)
		}
		evaluateAt(t, condition, `{"x":[1,2,3]}`, 5)
		world.holdsBounds(t, condition)
	})
}

func FuzzEvaluate(f *testing.F) {
	f.Add(`facts["k"].x.all(i, i > 1)`, `{"x":[1,2]}`, int64(5))
	f.Add(`within("k", action.at, duration("5ns")) || facts["k"] == 1.5`, `1.50`, int64(-1))
	f.Add(`facts["k"] + 1 > 9223372036854775807`, `9223372036854775807`, int64(1)<<62)
	for _, seed := range []string{`facts.few.exists(a, facts["text" + a] == facts.list1)`,
		`count("a", duration("1h")) + count("b", duration("2h")) > 3`, `[facts.text1].map(x, x + x).map(x, x + x) == []`,
		`facts.list1 == facts.list2 || facts.deep in facts.few`} {
		f.Add(seed, `"few"`, start)
	}
	cache, world := NewCache(64), newCrowd()
	f.Fuzz(func(t *testing.T, expression, value string, now int64) {
		condition, err := cache.Condition(expression)
		if err != nil {
			return
		}
		first := evaluateAt(t, condition, value, now)
		if again := evaluateAt(t, condition, value, now); fmt.Sprint(first) != fmt.Sprint(again) {
			t.Errorf("%q answers %v, then %v", expression, first, again)
		}
		if first.WakeNs != 0 && first.WakeNs <= now {
			t.Errorf("%q wakes at %d, not after %d", expression, first.WakeNs, now)
		}
		world.holdsBounds(t, condition)
	})
}

func evaluateAt(t *testing.T, condition *Condition, value string, now int64) Result {
	m := newMemory(t)
	m.now = now
	m.assert("k", value, now)
	return condition.Evaluate(Scope{NowNs: now, ArmedNs: now - 10, Plan: Plan{Status: "open", DeadlineNs: 7},
		Action: &Action{AtNs: 1, Input: json.RawMessage(value)}}, m)
}

func FuzzDecodeIsJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.5,"x\u00e9",null,true,{"a":1,"a":2}]}`, `1e400`, `-0`, `"\ud800"`, `[`,
		`{"b":1,"a":2}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		value := decode([]byte(text))
		if !json.Valid([]byte(text)) {
			return
		}
		raw, err := encode(nil, value)
		if err != nil {
			return // a number that no double holds, or nested too deep
		}
		var want, got any
		if json.Unmarshal([]byte(text), &want) == nil &&
			(json.Unmarshal(raw, &got) != nil || fmt.Sprint(want) != fmt.Sprint(got)) {
			t.Errorf("%q is read as %s", text, raw)
		}
	})
}
