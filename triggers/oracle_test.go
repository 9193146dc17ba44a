package triggers

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"time"
)

// The oracle is the language said again, naively: every node of a random
// expression carries its CEL text and a function that answers from the history
// alone, at any instant, without flips or keys. The evaluator must agree at every
// instant, must not change its mind before its own wake instant unless something
// happened, and what it calls moot must never become true.

var oracleRounds = flag.Int("oracle", 20_000, "random timelines that TestTheOracleAgrees runs")

const oracleEnd = 24 // ticks of one timeline

// history is everything that happens on a random timeline, by tick.
type history struct {
	events   []happening
	status   [oracleEnd + 1]string
	verdict  int // tick of the verdict; beyond the end: never
	output   int // tick of completion
	deadline int // 0: none
}

type happening struct {
	at      int
	key     string
	value   any // nil and retract: none
	retract bool
}

// at is an instant of a history.
type instant struct {
	*history
	now int
}

type naiveUnknown struct{} // also stands for an error: both wait

func (i instant) fact(key string) any {
	var value any = naiveUnknown{}
	for _, e := range i.events {
		if e.key == key && e.at <= i.now {
			if value = e.value; e.retract {
				value = naiveUnknown{}
			}
		}
	}
	return value
}

func (i instant) times(key string, from, to int) []int {
	var ticks []int
	for _, e := range i.events {
		if e.key == key && !e.retract && e.at > from && e.at <= to && e.at <= i.now {
			ticks = append(ticks, e.at)
		}
	}
	return ticks
}

// condition and operand are nodes: text and meaning.
type naiveTruth struct {
	text string
	eval func(instant) Truth
}
type naiveValue struct {
	text string
	eval func(instant) any // int, float64, string, bool, nil, map[string]any, naiveTime or naiveUnknown
}
type naiveTime int // a tick

func truthOf(b bool) Truth {
	if b {
		return True
	}
	return False
}

func not(t Truth) Truth {
	switch t {
	case True:
		return False
	case False:
		return True
	}
	return Unknown
}

func and(a, b Truth) Truth {
	switch {
	case a == False || b == False:
		return False
	case a == True && b == True:
		return True
	}
	return Unknown
}

// generator makes random expressions.
type generator struct{ *rand.Rand }

func (g generator) key() string { return string(rune('a' + g.Intn(4))) }

func (g generator) truth(depth int) naiveTruth {
	if depth == 0 || g.Intn(4) == 0 {
		return g.leaf()
	}
	a, b := g.truth(depth-1), g.truth(depth-1)
	switch g.Intn(4) {
	case 0:
		return naiveTruth{"!(" + a.text + ")", func(i instant) Truth { return not(a.eval(i)) }}
	case 1:
		return naiveTruth{"(" + a.text + " && " + b.text + ")", func(i instant) Truth { return and(a.eval(i), b.eval(i)) }}
	case 2:
		return naiveTruth{"(" + a.text + " || " + b.text + ")", func(i instant) Truth { return not(and(not(a.eval(i)), not(b.eval(i)))) }}
	}
	c := g.truth(depth - 1)
	return naiveTruth{"(" + a.text + " ? " + b.text + " : " + c.text + ")", func(i instant) Truth {
		switch a.eval(i) {
		case True:
			return b.eval(i)
		case False:
			return c.eval(i)
		}
		return Unknown
	}}
}

func (g generator) leaf() naiveTruth {
	switch g.Intn(5) {
	case 0, 1:
		return g.clockLeaf()
	case 2:
		return g.closedLeaf()
	case 3:
		return g.loop()
	}
	return g.comparison()
}

func (g generator) comparison() naiveTruth {
	a, b := g.value(), g.value()
	operator := []string{"==", "!=", "<", ">="}[g.Intn(4)]
	return naiveTruth{a.text + " " + operator + " " + b.text, func(i instant) Truth { return compare(operator, a.eval(i), b.eval(i)) }}
}

func compare(operator string, a, b any) Truth {
	_, left := a.(naiveUnknown)
	_, right := b.(naiveUnknown)
	if left || right {
		return Unknown
	}
	x, xn := number(a)
	y, yn := number(b)
	switch operator {
	case "==", "!=":
		equal := truthOf(fmt.Sprintf("%T%v", a, a) == fmt.Sprintf("%T%v", b, b))
		if xn && yn {
			equal = truthOf(x == y)
		}
		if operator == "!=" {
			return not(equal)
		}
		return equal
	}
	var less Truth
	switch {
	case xn && yn:
		less = truthOf(x < y)
	case fmt.Sprintf("%T", a) != fmt.Sprintf("%T", b):
		return Unknown
	default:
		switch v := a.(type) {
		case string:
			less = truthOf(v < b.(string))
		case bool:
			less = truthOf(!v && b.(bool))
		case naiveTime:
			less = truthOf(v < b.(naiveTime))
		default:
			return Unknown
		}
	}
	if operator == ">=" {
		return not(less)
	}
	return less
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

func (g generator) value() naiveValue {
	key := g.key()
	switch g.Intn(9) {
	case 0:
		n := g.Intn(4)
		return naiveValue{fmt.Sprintf("dyn(%d)", n), func(instant) any { return n }}
	case 1:
		return naiveValue{`dyn("s")`, func(instant) any { return "s" }}
	case 2:
		return naiveValue{`dyn(plan.status)`, func(i instant) any { return i.status[i.now] }}
	case 3:
		return naiveValue{`dyn(verdict.outcome)`, func(i instant) any { return ifAt(i.now >= i.verdict, "block") }}
	case 4:
		field := []string{"n", "missing"}[g.Intn(2)]
		return naiveValue{"dyn(action.output." + field + ")", func(i instant) any { return ifAt(i.now >= i.output && field == "n", 2) }}
	case 5:
		field := []string{"n", "missing"}[g.Intn(2)]
		return naiveValue{"dyn(action." + field + ")", func(instant) any { return ifAt(field == "n", 3) }}
	case 6:
		return naiveValue{fmt.Sprintf("facts[%q].x", key), func(i instant) any {
			fields, ok := i.fact(key).(map[string]any)
			if value, has := fields["x"]; ok && has {
				return value
			}
			return naiveUnknown{}
		}}
	case 7:
		return naiveValue{fmt.Sprintf("facts[?%q].orValue(1)", key), func(i instant) any {
			value := i.fact(key)
			if _, absent := value.(naiveUnknown); absent {
				return 1
			}
			return value
		}}
	}
	return naiveValue{fmt.Sprintf("facts[%q]", key), func(i instant) any { return i.fact(key) }}
}

func ifAt(known bool, value any) any {
	if known {
		return value
	}
	return naiveUnknown{}
}

func tick(n int) string { return stamp(time.Duration(n)) }

func (g generator) time() naiveValue {
	key := g.key()
	switch g.Intn(7) {
	case 0:
		return naiveValue{"action.at", func(instant) any { return naiveTime(0) }}
	case 1:
		return naiveValue{"plan.deadline", func(i instant) any { return ifAt(i.deadline > 0, naiveTime(i.deadline)) }}
	case 2:
		return naiveValue{fmt.Sprintf("first_at(%q)", key), func(i instant) any { return edgeOf(i.times(key, 0, i.now), true) }}
	case 3:
		return naiveValue{fmt.Sprintf("last_at(%q)", key), func(i instant) any { return edgeOf(i.times(key, 0, i.now), false) }}
	case 4:
		return naiveValue{fmt.Sprintf("at(%q)", key), func(i instant) any {
			if _, absent := i.fact(key).(naiveUnknown); absent {
				return naiveUnknown{}
			}
			return edgeOf(i.times(key, -1, i.now), false)
		}}
	case 5:
		return naiveValue{fmt.Sprintf("since(%q)", key), func(i instant) any { return i.since(key) }}
	}
	n := g.Intn(oracleEnd)
	return naiveValue{tick(n), func(instant) any { return naiveTime(n) }}
}

func edgeOf(ticks []int, first bool) any {
	switch {
	case len(ticks) == 0:
		return naiveUnknown{}
	case first:
		return naiveTime(ticks[0])
	}
	return naiveTime(ticks[len(ticks)-1])
}

// since is the tick of the first assertion of the value that holds now.
func (i instant) since(key string) any {
	changed, text := any(naiveUnknown{}), ""
	for _, e := range i.events {
		if e.key != key || e.at > i.now {
			continue
		}
		if e.retract {
			changed, text = naiveUnknown{}, ""
			continue
		}
		if now := fmt.Sprintf("%T%v", e.value, e.value); now != text {
			changed, text = naiveTime(e.at), now
		}
	}
	return changed
}

func (g generator) clockLeaf() naiveTruth {
	t, key, d, n := g.time(), g.key(), 1+g.Intn(8), 1+g.Intn(3)
	length := fmt.Sprintf(`duration("%dns")`, d)
	withTime := func(i instant, f func(int) Truth) Truth {
		if at, ok := t.eval(i).(naiveTime); ok {
			return f(int(at))
		}
		return Unknown
	}
	after := func(i instant, at int) Truth {
		if i.now >= at {
			return True
		}
		return Unknown
	}
	within := func(i instant) Truth {
		return withTime(i, func(at int) Truth {
			if len(i.times(key, at-1, at+d)) > 0 {
				return True
			}
			if i.now > at+d {
				return False
			}
			return Unknown
		})
	}
	count := func(i instant) int { return len(i.times(key, i.now-d, i.now)) }
	switch g.Intn(10) {
	case 8:
		return naiveTruth{fmt.Sprintf("size(latest(%d, %q, %s, %s)) == %d", n, key, t.text, length, n-1), func(i instant) Truth {
			return withTime(i, func(at int) Truth { return truthOf(min(n, len(i.times(key, at-1, at+d))) == n-1) })
		}}
	case 9:
		return naiveTruth{fmt.Sprintf("latest(%d, %q, %s, %s).exists(x, x > %s)", n, key, t.text, length, t.text), func(i instant) Truth {
			return withTime(i, func(at int) Truth { return truthOf(len(i.times(key, at, at+d)) > 0) })
		}}
	case 0:
		return naiveTruth{"after(" + t.text + ")", func(i instant) Truth { return withTime(i, func(at int) Truth { return after(i, at) }) }}
	case 1:
		return naiveTruth{"before(" + t.text + ")", func(i instant) Truth { return withTime(i, func(at int) Truth { return truthOf(i.now < at) }) }}
	case 2:
		return naiveTruth{"elapsed(" + t.text + ", " + length + ")", func(i instant) Truth { return withTime(i, func(at int) Truth { return after(i, at+d) }) }}
	case 3:
		return naiveTruth{fmt.Sprintf("seen(%q)", key), func(i instant) Truth {
			if len(i.times(key, 0, i.now)) > 0 {
				return True
			}
			return Unknown
		}}
	case 4:
		return naiveTruth{fmt.Sprintf("within(%q, %s, %s)", key, t.text, length), within}
	case 5:
		return naiveTruth{fmt.Sprintf("absent_for(%q, %s, %s)", key, t.text, length), func(i instant) Truth { return not(within(i)) }}
	case 6:
		return naiveTruth{fmt.Sprintf("at_least(%d, %q, %s)", n, key, length), func(i instant) Truth { return truthOf(count(i) >= n) }}
	}
	return naiveTruth{fmt.Sprintf("count(%q, %s) == %d", key, length, n-1), func(i instant) Truth { return truthOf(count(i) == n-1) }}
}

func (g generator) closedLeaf() naiveTruth {
	key := g.key()
	known := func(v any) Truth {
		_, absent := v.(naiveUnknown)
		return truthOf(!absent)
	}
	switch g.Intn(6) {
	case 0:
		return naiveTruth{fmt.Sprintf("has(facts[%q].x)", key), func(i instant) Truth {
			fields, ok := i.fact(key).(map[string]any)
			_, has := fields["x"]
			return truthOf(ok && has)
		}}
	case 1:
		return naiveTruth{"has(action.output.n)", func(i instant) Truth { return truthOf(i.now >= i.output) }}
	case 2:
		return naiveTruth{"has(verdict.outcome)", func(i instant) Truth { return truthOf(i.now >= i.verdict) }}
	case 3:
		return naiveTruth{"has(plan.deadline)", func(i instant) Truth { return truthOf(i.deadline > 0) }}
	case 4:
		return naiveTruth{"has(action.missing)", func(instant) Truth { return False }}
	}
	return naiveTruth{fmt.Sprintf("%q in facts", key), func(i instant) Truth { return known(i.fact(key)) }}
}

func (g generator) loop() naiveTruth {
	keys := []string{g.key(), g.key()}
	value := g.value()
	list := fmt.Sprintf("[%q, %q]", keys[0], keys[1])
	each := func(i instant) (Truth, Truth) {
		return compare("==", i.fact(keys[0]), value.eval(i)), compare("==", i.fact(keys[1]), value.eval(i))
	}
	if g.Intn(2) == 0 {
		return naiveTruth{list + ".all(k, facts[k] == " + value.text + ")", func(i instant) Truth { a, b := each(i); return and(a, b) }}
	}
	return naiveTruth{list + ".exists(k, facts[k] == " + value.text + ")", func(i instant) Truth { a, b := each(i); return not(and(not(a), not(b))) }}
}

func (g generator) history() *history {
	h := &history{verdict: g.Intn(2 * oracleEnd), output: 1 + g.Intn(2*oracleEnd), deadline: g.Intn(oracleEnd)}
	for at := range oracleEnd + 1 {
		h.status[at] = "s"
		if at > 0 && g.Intn(6) > 0 {
			h.status[at] = h.status[at-1]
		} else if g.Intn(2) == 0 {
			h.status[at] = "failed"
		}
		for range g.Intn(3) * g.Intn(2) {
			values := []any{g.Intn(4), 1.5, "s", true, nil, map[string]any{"x": g.Intn(3)}, map[string]any{"y": 1}}
			h.events = append(h.events, happening{at: at, key: g.key(), value: values[g.Intn(len(values))], retract: g.Intn(5) == 0})
		}
	}
	return h
}

func TestTheOracleAgrees(t *testing.T) {
	rounds := *oracleRounds
	if testing.Short() {
		rounds = min(rounds, 2000)
	}
	cache := NewCache(16)
	var tally [3]int
	moots := 0
	for seed := range rounds {
		g := generator{rand.New(rand.NewSource(int64(seed)))}
		expression := g.truth(g.Intn(4))
		condition, err := cache.Condition(expression.text)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, expression.text)
		}
		moots += compareOverTime(t, fmt.Sprintf("seed %d: %s", seed, expression.text), condition, expression, g.history(), &tally)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d timelines: %d unknown, %d false, %d true; %d turned moot", rounds, tally[Unknown], tally[False], tally[True], moots)
}

// compareOverTime compares at every tick and returns 1 if the condition turned moot.
func compareOverTime(t *testing.T, name string, condition *Condition, expression naiveTruth, h *history, tally *[3]int) int {
	m := newMemory(t)
	scope := Scope{Plan: Plan{OpenedNs: start}, ArmedNs: start, Action: &Action{AtNs: start, Input: json.RawMessage(`{"n":3}`)}}
	if h.deadline > 0 {
		scope.Plan.DeadlineNs = start + int64(h.deadline)
	}
	next, moot := 0, 0
	var before Result
	for now := range oracleEnd + 1 {
		scope.NowNs, m.now = start+int64(now), start+int64(now)
		quiet := now > 0 && h.status[now] == h.status[now-1]
		scope.Plan.Status = h.status[now]
		if now == h.verdict {
			scope.Verdict, quiet = &Verdict{Outcome: "block"}, false
		}
		if now == h.output {
			scope.Action.Output, quiet = json.RawMessage(`{"n":2}`), false
		}
		for ; next < len(h.events) && h.events[next].at == now; next++ {
			quiet = false
			apply(m, h.events[next], scope.NowNs)
		}
		got, want := condition.Evaluate(scope, m), expression.eval(instant{h, now})
		tally[want]++
		switch {
		case got.Truth != want:
			t.Errorf("%s\nat %d: %v (%v), want %v", name, now, got.Truth, got.Err, want)
		case quiet && !before.Moot && got.Truth != before.Truth && (before.WakeNs == 0 || before.WakeNs > scope.NowNs):
			t.Errorf("%s\nat %d: turned from %v to %v before its wake instant %d", name, now, before.Truth, got.Truth, before.WakeNs-start)
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

func apply(m *memory, e happening, ns int64) {
	if e.retract {
		m.retract(e.key)
		return
	}
	raw, err := json.Marshal(e.value)
	if err != nil {
		panic(err)
	}
	m.assert(e.key, string(raw), ns)
}

func FuzzCompile(f *testing.F) {
	for _, seed := range []string{`after(plan.deadline)`, `has(facts.x.y) && !("a" in facts)`, `[1,2].map(x, x * 2).all(y, y > 1)`, `facts[?"a"].orValue(1) < action.amount`, `r"\d" // c`, `{"a": 1.5}["b"]`, `"` + strings.Repeat("é", 9)} {
		f.Add(seed)
	}
	cache := NewCache(64)
	f.Fuzz(func(t *testing.T, expression string) {
		if binding, err := cache.Binding(expression); err == nil {
			if raw, err := binding.Evaluate(BindingVars{Input: json.RawMessage(`{"a":[1,{"b":"c"}]}`)}); err == nil && !json.Valid(raw) {
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
		began := time.Now()
		evaluateAt(t, condition, `{"x":[1,2,3]}`, 5)
		if took := time.Since(began); took > time.Second {
			t.Errorf("%q takes %v", expression, took)
		}
	})
}

func FuzzEvaluate(f *testing.F) {
	f.Add(`facts["k"].x.all(i, i > 1)`, `{"x":[1,2]}`, int64(5))
	f.Add(`within("k", action.at, duration("5ns")) || facts["k"] == 1.5`, `1.50`, int64(-1))
	f.Add(`facts["k"] + 1 > 9223372036854775807`, `9223372036854775807`, int64(1)<<62)
	cache := NewCache(64)
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
	for _, seed := range []string{`{"a":[1,2.5,"x\u00e9",null,true,{"a":1,"a":2}]}`, `1e400`, `-0`, `"\ud800"`, `[`, `{"b":1,"a":2}`} {
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
		if json.Unmarshal([]byte(text), &want) == nil && (json.Unmarshal(raw, &got) != nil || fmt.Sprint(want) != fmt.Sprint(got)) {
			t.Errorf("%q is read as %s", text, raw)
		}
	})
}
