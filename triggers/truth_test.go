package triggers

import (
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"
)

// operand is an expression of each truth; facts["u"] is never asserted.
func operand(truth Truth) string {
	switch truth {
	case True:
		return `(facts["t"] == 1)`
	case False:
		return `(facts["t"] == 2)`
	}
	return `(facts["u"] == 1)`
}

func evaluate(t testing.TB, expression string) Result {
	t.Helper()
	c, err := Compile(expression)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	m := newMemory(t)
	m.now = start + 10
	m.assert("t", `1`, start+1)
	return c.Evaluate(Scope{Plan: Plan{Status: "open"}, Action: &Action{Input: []byte(`{"x":1}`)}, ArmedNs: start,
		NowNs: start + 10}, m)
}

func TestTruthTablesAreStrongKleene(t *testing.T) {
	letter := map[byte]Truth{'T': True, 'U': Unknown, 'F': False}
	// Rows and columns in the order T U F.
	tables := map[string][3]string{
		"&&": {"TUF", "UUF", "FFF"},
		"||": {"TTT", "TUU", "TUF"},
		"==": {"TUF", "UUU", "FUT"},
		"!=": {"FUT", "UUU", "TUF"},
	}
	order := "TUF"
	for operator, rows := range tables {
		for i := range order {
			for j := range order {
				expression := operand(letter[order[i]]) + operator + operand(letter[order[j]])
				if got, want := evaluate(t, expression).Truth, letter[rows[i][j]]; got != want {
					t.Errorf("%c %s %c is %v, want %v", order[i], operator, order[j], got, want)
				}
			}
		}
	}
	for i, want := range "FUT" {
		if got := evaluate(t, "!"+operand(letter[order[i]])).Truth; got != letter[byte(want)] {
			t.Errorf("!%c is %v, want %c", order[i], got, want)
		}
	}
	// A choice takes its branch; an unknown test leaves it unknown, whatever the branches are.
	for i := range order {
		for j := range order {
			for k := range order {
				want := Unknown
				switch order[i] {
				case 'T':
					want = letter[order[j]]
				case 'F':
					want = letter[order[k]]
				}
				expression := operand(letter[order[i]]) + "?" + operand(letter[order[j]]) + ":" + operand(letter[order[k]])
				if got := evaluate(t, expression).Truth; got != want {
					t.Errorf("%c ? %c : %c is %v, want %v", order[i], order[j], order[k], got, want)
				}
			}
		}
	}
}

func TestMacrosAreKleene(t *testing.T) {
	for expression, want := range map[string]Truth{
		`["u", "t"].exists(k, facts[k] == 1)`:                                 True,
		`["u", "t"].exists(k, facts[k] == 2)`:                                 Unknown,
		`["t", "u"].all(k, facts[k] == 2)`:                                    False,
		`["t", "u"].all(k, facts[k] == 1)`:                                    Unknown,
		`["t"].exists_one(k, facts[k] == 1)`:                                  True,
		`["t", "u"].exists_one(k, facts[k] == 1)`:                             Unknown,
		`["t", "u"].filter(k, facts[k] == 1).size() == 1`:                     Unknown,
		`["t", "u"].map(k, facts[?k].orValue(0)) == [1, 0]`:                   True,
		`["t", "u"].filter(k, k in facts) == ["t"]`:                           True,
		`facts["u"] in [1]`:                                                   Unknown,
		`1 in [facts["u"], 1]`:                                                Unknown,
		`(facts["u"] == 1 || facts["t"] == 1) && !(facts["u"] == 1 && false)`: True,
		`{"b": 1, "a": 2}.map(k, k) == ["a", "b"]`:                            True,
		`{"a": dyn(1)} == {"a": dyn(1.0)} && {"a": 1} != {"b": 1}`:            True,
	} {
		if got := evaluate(t, expression); got.Truth != want || got.Err != nil {
			t.Errorf("%s is %v (%v), want %v", expression, got.Truth, got.Err, want)
		}
	}
}

func TestUnknownSaysWhatItWaitsFor(t *testing.T) {
	at := func(s string) string { return `timestamp("2026-03-01T` + s + `Z")` }
	for expression, want := range map[string]string{
		`facts["u"] == 1 && facts["v"] == 1 && facts["u"] == 2`:              "fact u, fact v",
		`facts["u"] == facts["v"]`:                                           "fact u, fact v",
		`after(` + at("12:30:00") + `)`:                                      "time 2026-03-01T12:30:00Z",
		`absent_for("x", ` + at("12:00:00") + `, duration("1m"))`:            "fact x, time 2026-03-01T12:01:00Z",
		`facts["t"] == 1 && (verdict.outcome == "block" || seen("x"))`:       "a verdict on the action, fact x",
		`after(plan.deadline)`:                                               "plan.deadline, which is not set",
		`facts["u"] == 1 || (facts["v"] == 1 && facts["t"] == 2)`:            "fact u",
		`["v", "u"].exists(k, facts[k] == 1)`:                                "fact u, fact v",
		`elapsed(first_at("x"), duration("1h"))`:                             "fact x",
		`facts["u"].deep.er == facts[facts["w"]].x && plan.status != "open"`: "",
	} {
		if got := strings.Join(evaluate(t, expression).Waits, ", "); got != want {
			t.Errorf("%s waits for %q, want %q", expression, got, want)
		}
	}
}

func TestAnErrorWaitsAndIsReported(t *testing.T) {
	for expression, want := range map[string]string{
		`facts["t"].price > 3`:                          "no such overload", // 1 has no fields
		`facts["t"] + "x" == "1x"`:                      "no such overload",
		`1 / (facts["t"] - 1) == 3`:                     "division by zero",
		`facts["t"]`:                                    "not a truth but int",
		`after(facts["t"])`:                             "no such overload: after",
		`at_least(facts["t"] - 1, "t", duration("1s"))`: "at_least wants",
		`size(latest(facts["t"] - 1, "t", action.at, duration("1s"))) == 0`: "latest wants 1 to 256",
	} {
		got := evaluate(t, expression)
		if got.Truth != Unknown || got.Err == nil || got.Moot {
			t.Errorf("%s is %v (%v), want unknown with an error", expression, got.Truth, got.Err)
		} else if !strings.Contains(got.Err.Error(), want) && want != "no such overload" {
			t.Errorf("%s: %v, want %q", expression, got.Err, want)
		}
	}
	for expression, want := range map[string]Truth{`facts["t"] == 1 || 1 / 0 == 1`: True,
		`1 / 0 == 1 || facts["t"] == 1`: True, `1 / 0 == 1 && facts["t"] == 2`: False} {
		if got := evaluate(t, expression); got.Truth != want || got.Err != nil {
			t.Errorf("%s is %v (%v), want %v: the error is absorbed", expression, got.Truth, got.Err, want)
		}
	}
}

func TestReadingsAndKeysAreTheSameEveryTime(t *testing.T) {
	expression := `facts["t"] == 1 && (facts["u" + string(facts["t"])] == 1 || !seen("z") || plan.status == "open")`
	want := fmt.Sprint(evaluate(t, expression))
	for range 50 {
		if got := fmt.Sprint(evaluate(t, expression)); got != want {
			t.Fatalf("got %s, then %s", want, got)
		}
	}
	result := evaluate(t, expression)
	if got := fmt.Sprint(result.Keys); got != "[t u1 z]" {
		t.Errorf("keys %s", got)
	}
	var readings []string
	for _, r := range result.Readings {
		readings = append(readings, fmt.Sprintf("%s=%s@%d", r.Name, r.Value, r.Sequence))
	}
	if got := strings.Join(readings, " "); got != `facts["t"]=1@1 facts["u1"]=@0 plan.status="open"@0 seen("z")=@0` {
		t.Errorf("readings %s", got)
	}
}

// away is a View whose values are elsewhere, and which may fail.
type away struct {
	*memory
	loads []string
	fail  string
}

func (v *away) Fact(key string) *Fact {
	had := v.memory.Fact(key)
	if had == nil {
		return nil
	}
	f, value := *had, had.Value
	f.Value, f.Load = nil, func() json.RawMessage {
		if key == v.fail {
			panic("view: " + key)
		}
		v.loads = append(v.loads, key)
		return value
	}
	return &f
}

// TestAValueIsLoadedOnlyToBeRead: whether a fact is there, and since when, is asked
// without its value.
func TestAValueIsLoadedOnlyToBeRead(t *testing.T) {
	for _, c := range []struct {
		expression string
		want       Truth
		loads      string
	}{
		{`"a" in facts`, True, "[]"},
		{`!("b" in facts)`, True, "[]"},
		{`at("a") == since("a")`, True, "[]"},
		{`seen("a") && count("a", duration("9s")) == 1`, True, "[]"},
		{`"a" in facts || facts.a == 7`, True, "[]"},
		{`facts.a == 7`, True, "[a]"},
		{`facts.a == 7 && facts["a"] != 8`, True, "[a]"},
		{`facts[?"a"].orValue(1) == 7`, True, "[a]"},
		{`has(facts["b"].x)`, False, "[]"},
		{`facts.b == 7`, Unknown, "[]"},
	} {
		condition, err := NewCache(1).Condition(c.expression)
		if err != nil {
			t.Fatal(err)
		}
		v := &away{memory: newMemory(t)}
		v.assert("a", `7`, start+second)
		v.now = start + 2*second
		got := condition.Evaluate(Scope{NowNs: v.now, ArmedNs: start}, v)
		if got.Truth != c.want || fmt.Sprint(v.loads) != c.loads {
			t.Errorf("%s: %s, loaded %v", c.expression, got.Truth, v.loads)
		}
		for _, r := range got.Readings {
			if r.Name == `facts["a"]` && (string(r.Value) == "7") != (len(v.loads) > 0) {
				t.Errorf("%s: reading %+v", c.expression, r)
			}
		}
	}
}

// TestAViewThatFailsIsNoAnswer: its panic passes through the evaluation.
func TestAViewThatFailsIsNoAnswer(t *testing.T) {
	condition, err := NewCache(1).Condition(`facts.a == 7 || true`)
	if err != nil {
		t.Fatal(err)
	}
	v := &away{memory: newMemory(t), fail: "a"}
	v.assert("a", `7`, start)
	defer func() {
		if r := recover(); r != "view: a" {
			t.Errorf("got %v", r)
		}
	}()
	result := condition.Evaluate(Scope{NowNs: start}, v)
	t.Errorf("answered %+v", result)
}

// brokenStore fails whatever it is asked.
type brokenStore struct{}

func (brokenStore) Fact(string) *Fact                     { panic("store") }
func (brokenStore) Under(string) iter.Seq2[string, *Fact] { panic("store") }
func (brokenStore) Occurrences(_ string, _, to int64) iter.Seq[int64] {
	return func(yield func(int64) bool) { yield(to) }
}

// TestAStoreThatFailsIsNoAnswerOfAFunctionOfTime: of none of them.
func TestAStoreThatFailsIsNoAnswerOfAFunctionOfTime(t *testing.T) {
	for _, expression := range []string{
		`last_at("k") > timestamp("2020-01-01T00:00:00Z")`, `at("k") > timestamp("2020-01-01T00:00:00Z")`,
		`since("k") > timestamp("2020-01-01T00:00:00Z")`, `"k" in facts`, `has(facts["k"].x)`, `facts[?"k"].orValue(1) == 1`,
	} {
		condition, err := Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: a failing store became an answer", expression)
				}
			}()
			condition.Hold(Scope{ArmedNs: 1}).Ask(new(Scratch), start, brokenStore{})
		}()
	}
}
