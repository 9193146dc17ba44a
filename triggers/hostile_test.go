package triggers

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// crowd is a View of a thousand facts of 60 KiB each, whose keys occurred a million
// times.
type crowd struct {
	facts map[string]*Fact
	asked int // occurrences that were yielded
	read  int // facts
}

func newCrowd() *crowd {
	c := &crowd{facts: map[string]*Fact{}}
	list := "[" + strings.TrimSuffix(strings.Repeat("1,", 30_000), ",") + "]"
	deep := strings.Repeat(`{"a":[`, 120) + "1" + strings.Repeat("]}", 120)
	text := `"` + strings.Repeat("a", 60_000) + `"`
	for i := range 1000 {
		c.facts[fmt.Sprintf("list%d", i)] = &Fact{Value: []byte(list)}
		c.facts[fmt.Sprintf("text%d", i)] = &Fact{Value: []byte(text)}
	}
	c.facts["deep"] = &Fact{Value: []byte(deep)}
	c.facts["deeper"] = &Fact{Value: []byte(strings.Repeat("[", 30_000) + strings.Repeat("]", 30_000))}
	c.facts["few"] = &Fact{Value: []byte(`[` + strings.TrimSuffix(strings.Repeat(`"x",`, 900), ",") + `]`)}
	c.facts["digits"] = &Fact{Value: []byte(strings.Repeat("7", 65_000))}
	c.facts["decimals"] = &Fact{Value: []byte("0." + strings.Repeat("7", 60_000))}
	c.facts["two dozen"] = &Fact{Value: []byte(`[` + strings.TrimSuffix(strings.Repeat(`1,`, 24), ",") + `]`)}
	c.facts["date"] = &Fact{Value: []byte(`"2026-12-01T00:00:00Z"`)}
	c.facts["short"] = &Fact{Value: []byte(`"0123456789abcdef"`)}
	c.facts["regex"] = &Fact{Value: []byte(`"(a{1,9}){1,9}(x|y|z|b){1,9}$"`)}
	return c
}

func (c *crowd) Fact(key string) *Fact {
	c.read++
	return c.facts[key]
}

func (c *crowd) Under(prefix string) iter.Seq2[string, *Fact] {
	return func(yield func(string, *Fact) bool) {
		for _, key := range slices.Sorted(maps.Keys(c.facts)) {
			if !strings.HasPrefix(key, prefix) {
				continue
			}
			if c.read++; !yield(key, c.facts[key]) {
				return
			}
		}
	}
}

func (c *crowd) Occurrences(_ string, fromNs, toNs int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for ns := max(fromNs+1, start-1_000_000); ns <= toNs; ns++ {
			if c.asked++; !yield(ns) {
				return
			}
		}
	}
}

// holdsBounds fails when an evaluation takes more than it may, of facts or of time.
func (c *crowd) holdsBounds(t *testing.T, condition *Condition) {
	t.Helper()
	c.asked, c.read = 0, 0
	began := testenv.CPU()
	r := condition.Hold(Scope{ArmedNs: start - 2_000_000, Plan: Plan{OpenedNs: start},
		Action: &Action{AtNs: start, Input: []byte(`{"k":"a"}`)}}).Ask(new(Scratch), start, c)
	if took := testenv.CPU() - began; took > 2*time.Second || c.asked > 2*timesMax || c.read > 2*readMax {
		t.Errorf("%q takes %v, %d occurrences, %d facts: %v", condition.text, took, c.asked, c.read, r.Err)
	}
}

// tree writes operands as one balanced expression.
func tree(operator string, operands []string) string {
	if len(operands) == 1 {
		return operands[0]
	}
	half := len(operands) / 2
	return "(" + tree(operator, operands[:half]) + operator + tree(operator, operands[half:]) + ")"
}

// pairs asks what is given 576 times.
func pairs(asked string) string {
	return `facts["two dozen"].all(x, facts["two dozen"].all(y, ` + asked + `))`
}

func repeated(n int, operand string) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = strings.ReplaceAll(operand, "#", fmt.Sprint(i))
	}
	return list
}

// TestNoEvaluationCostsMoreThanItsBound: the worst that a text of 4 KiB can do with
// the worst facts is stopped, with a reason, or is cheap.
func TestNoEvaluationCostsMoreThanItsBound(t *testing.T) {
	world := newCrowd()
	for _, c := range []struct{ name, expression, stopped string }{
		{"sums of long texts", tree("+", repeated(150, `facts.text1`)) + ` == "x"`, "a text of more"},
		{"sums of long lists", tree("+", repeated(150, `facts.list1`)) + ` == []`, ""},
		{"doubling of a long text", `[facts.text1]` + strings.Repeat(`.map(x, x + x)`, 25) + ` == ["a"]`, "a text of more"},
		{"doubling of a fact", `[facts.short]` + strings.Repeat(`.map(x, x + x)`, 25) + ` == ["a"]`, "a text of more"},
		{"comparisons of long lists", tree("||", repeated(100, `facts.few == [facts.few]`)), "more than 10000 parts"},
		{"comparisons of equal lists", tree("&&", repeated(100, `facts.list1 == facts.list2`)), "more than 10000 parts"},
		{"a long list compared", `facts.list1 == facts.list2`, ""},
		{"many long facts", tree("||", repeated(180, `facts.text# == 1`)), "bytes of facts"},
		{"many facts", `[` + strings.TrimSuffix(strings.Repeat(`"x",`, 700), ",") + `].all(i, facts["k" + i] == 1)`, ""},
		{"facts of computed keys",
			`["1","2","3","4","5","6","7","8","9","0"].map(a, ["1","2","3","4","5","6","7","8","9","0"].map(b, ["1","2","3","4","5","6","7","8","9","0"].exists(c, a + b + c in facts))) == []`, "more than 512 facts"},
		{"times of computed keys",
			`["1","2","3","4","5","6","7","8","9","0"].map(a, ["1","2","3","4","5","6","7","8","9","0"].map(b, ["1","2","3","4","5","6","7","8","9","0"].exists(c, seen(a + b + c) && false))) == []`, "more than 512 facts"},
		{"many facts of a prefix", `facts.count("text") > 3`, "more than 512 facts"},
		{"a prefix in a loop", `["1","2","3"].all(i, facts.count("deep") + facts.count("list9") > 300)`, ""},
		{"long facts of a prefix", `facts.exists("text9", k, v, v == 1)`, "bytes of facts"},
		{"loops in loops over a prefix",
			`facts.exists("list99", a, x, facts.exists("list99", b, y, x.exists(n, y.exists(m, n != m))))`, "cancelled"},
		{"count over a million", `count("a", duration("1h")) == 5`, ""},
		{"counts over a million", tree("||", repeated(60, `count("a", duration("1h")) == 5`)), "more than 20000 occurrences"},
		{"at_least over a million", `at_least(10000, "a", duration("1h")) && false`, ""},
		{"last of a million", `last_at("gone") == plan.opened_at`, ""},
		{"lasts of a million", tree("||", repeated(100, `last_at("gone") == plan.opened_at`)), ""},
		{"a long text matched", `facts.text1.matches("(a{1,9}){1,9}(x|y|z|b){1,9}$")`, "operation cancelled"},
		{"long texts matched", tree("||", repeated(50, `facts.text#.matches("(a{1,9}){1,9}b$")`)), "operation cancelled"},
		{"a long text matched by a fact", `facts.text1.matches(facts.regex)`, "operation cancelled"},
		{"a long text searched", tree("||", repeated(60, `facts.text1.contains("aaaaaaaaaaab")`)), "cost limit"},
		{"a long text converted", tree("||", repeated(60, `bytes(facts.text1) == b"a"`)), ""},
		{"a deep value", tree("||", repeated(60, `facts.deep == [facts.deep]`)), "more than 10000 parts"},
		{"a value too deep", `facts.deeper == 1`, ""},
		{"a loop over a long list", `facts.list1.all(a, a == 1)`, "cost limit"},
		{"loops over a long list", `facts.list1.map(a, facts.list1.filter(b, a > b)) == []`, "cost limit"},
		{"a sort", `facts.list1.map(a, facts.list1.filter(b, b < a).size()) == [1]`, "cost limit"},
		{"doubling", `["aaaaaaaaaaaaaaaa"]` + strings.Repeat(`.map(x, x + x)`, 20) + ` == ["a"]`, "cost limit"},
		{"nested loops", `facts.few.all(a, facts.few.all(b, facts.few.all(c, a == b || b == c)))`, "cost limit"},
	} {
		t.Run(c.name, func(t *testing.T) { world.stops(t, c.expression, c.stopped) })
	}
}

// TestNoNumberCostsMoreThanItsBound: a fact has up to 65,000 digits, and a step may not take what
// they take; nor is an operand evaluated twice, in conversions of conversions.
func TestNoNumberCostsMoreThanItsBound(t *testing.T) {
	world := newCrowd()
	for _, c := range []struct{ name, expression, stopped string }{
		{"a long number negated", pairs(`-(-(-(-(-(-(-(-(-(-facts.digits))))))))) < y`), "too many digits"},
		{"a long fraction negated", pairs(`-(-(-(-(-(-(-(-(-(-facts.decimals))))))))) < y`), "too many digits"},
		{"a long number as text", pairs(`"a" != string(facts.digits)`), "too many digits"},
		{"a long number as a double", pairs(tree("&&", repeated(10, `double(facts.decimals) < 1.0`))), "cost limit"},
		{"a long number as an int", pairs(tree("&&", repeated(10, `int(facts.decimals) == 0`))), "cost limit"},
		{"a long number divided", pairs(tree("&&", repeated(10, `facts.decimals / 3.0 < 1.0`))), "cost limit"},
		{"a long number compared", pairs(tree("&&", repeated(5,
			`facts.decimals < 1.5 && facts.digits > facts.decimals`))), "cost limit"},
		{"conversions of conversions", strings.Repeat("timestamp(", 28) + "facts.date" + strings.Repeat(")", 28) +
			" == timestamp(0)", ""},
		{"conversions of what is not known", strings.Repeat("double(", 28) + "facts.none" + strings.Repeat(")", 28) +
			" == 0.0", ""},
		{"conversions there and back", strings.Repeat("timestamp(string(", 14) + "facts.date" + strings.Repeat("))", 14) +
			" == timestamp(0)", ""},
	} {
		t.Run(c.name, func(t *testing.T) { world.stops(t, c.expression, c.stopped) })
	}
}

// stops fails when an expression costs more than it may, or is not stopped by what is given;
// empty: by nothing.
func (c *crowd) stops(t *testing.T, expression, stopped string) {
	t.Helper()
	if len(expression) > textMax {
		t.Fatalf("a text of %d bytes proves nothing", len(expression))
	}
	began := testenv.CPU()
	condition, err := Compile(expression)
	if err != nil {
		t.Fatal(err)
	}
	compiled := testenv.CPU() - began
	c.asked, c.read = 0, 0
	held := condition.Hold(Scope{ArmedNs: start - 2_000_000, Plan: Plan{OpenedNs: start}})
	began = testenv.CPU()
	r := held.Ask(new(Scratch), start, c)
	took := testenv.CPU() - began
	t.Logf("compiled in %v, asked in %v: %v %.80v, %d occurrences, %d facts", compiled, took, r.Truth, r.Err,
		c.asked, c.read)
	switch {
	case took > 500*time.Millisecond || compiled > 500*time.Millisecond:
		t.Errorf("compiled in %v, asked in %v", compiled, took)
	case stopped == "" && r.Err != nil && strings.Contains(r.Err.Error(), "cancelled"), stopped != "" &&
		(r.Err == nil || !strings.Contains(r.Err.Error(), stopped)):
		t.Errorf("%v, want it stopped by %q", r.Err, stopped)
	case c.asked > 2*timesMax || c.read > 2*readMax:
		t.Errorf("looked at %d occurrences and %d facts", c.asked, c.read)
	case r.Err != nil && (r.Truth != Unknown || r.Moot):
		t.Errorf("%v, moot %v, with an error", r.Truth, r.Moot)
	}
}

// TestWhatExceedsABoundIsRefused at registration, in words, and quickly.
func TestWhatExceedsABoundIsRefused(t *testing.T) {
	for name, expression := range map[string]string{
		"a text":           strings.Repeat("true && ", 1<<19) + "true",
		"a long text":      strings.Repeat("a", textMax+1),
		"parentheses":      strings.Repeat("(", 300) + "true" + strings.Repeat(")", 300),
		"brackets":         strings.Repeat("[", 2000),
		"braces":           strings.Repeat("{", 2000),
		"choices":          strings.Repeat("true ? true : ", 250) + "true",
		"nodes":            "[" + strings.Repeat("1,", 1500) + "1] == []",
		"sums":             strings.TrimSuffix(strings.Repeat("1+", 2000), "+") + " == 1",
		"fields":           `facts["x"]` + strings.Repeat(`.a`, 1000) + ` == 1`,
		"members":          `facts["x"]` + strings.Repeat(`.all(a, a`, 400) + strings.Repeat(")", 400),
		"a regex":          `plan.status.matches("((((a{9}){9}){9}){9}){9}")`,
		"many times":       `at_least(2147483647, "a", duration("1h"))`,
		"a long key":       `seen("` + strings.Repeat("k", keyMax+1) + `")`,
		"an odd call":      `count("a", duration()) == 1`,
		"misspelt names":   strings.Repeat("fatcs+", 600) + "x",
		"unfinished text":  `"` + strings.Repeat(`\"`, 2000),
		"unfinished bytes": strings.Repeat(`b"`, 1999) + "b",
		"macros":           `has(` + strings.Repeat(`facts.x.exists(a, `, 60) + `a` + strings.Repeat(")", 61),
		"no text":          "\xff\xfe",
	} {
		t.Run(name, func(t *testing.T) {
			began := testenv.CPU()
			_, err := Compile(expression)
			took := testenv.CPU() - began
			t.Logf("%v: %.100v", took, err)
			var refused *Error
			if !errors.As(err, &refused) || refused.Line < 1 || refused.Column < 1 || refused.Message == "" ||
				len(refused.Error()) > 500 {
				t.Errorf("%v", err)
			}
			if took > 500*time.Millisecond {
				t.Errorf("took %v", took)
			}
		})
	}
}

// TestARegularExpressionIsHeldToWhatItMayScan, alone and in a loop, with a constant
// pattern and a computed one; a short text is matched as ever.
func TestARegularExpressionIsHeldToWhatItMayScan(t *testing.T) {
	for expression, stops := range map[string]bool{
		`facts["long"].matches("(.{0,120}x)")`:                                 true,
		`facts["long"].matches(facts["pattern"])`:                              true,
		`facts["long"].matches("y")`:                                           false,
		`facts["short"].matches("(.{0,120}x)")`:                                false,
		`facts["short"].matches(facts["pattern"])`:                             false,
		`facts["many"].exists(s, facts["middling"].matches("(.{0,120}x)"))`:    true,
		`facts["middling"].matches("(.{0,120}x)") || facts["short"] == "none"`: false,
	} {
		condition, err := Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		m := newMemory(t)
		m.now = start + second
		for key, n := range map[string]int{"long": 24 << 10, "middling": 1 << 10, "short": 100} {
			m.assert(key, `"`+strings.Repeat("a", n)+`"`, start)
		}
		m.assert("many", "["+strings.Repeat("1,", 99)+"1]", start)
		m.assert("pattern", `"(.{0,50}x)"`, start)
		got := condition.Evaluate(Scope{NowNs: m.now, ArmedNs: start}, m)
		if stopped := got.Err != nil && strings.Contains(got.Err.Error(), "operation cancelled"); stopped != stops {
			t.Errorf("%s: %s %v", expression, got.Truth, got.Err)
		}
	}
}
