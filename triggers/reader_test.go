package triggers

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestReadersReadAnswers(t *testing.T) {
	vars := BindingVars{
		Input: json.RawMessage(`{"id":"i"}`), Output: json.RawMessage(`{"id":"o"}`), Before: json.RawMessage(`{"sha":"s1"}`),
		Plan: json.RawMessage(`{"id":"p"}`), Meta: json.RawMessage(`{"key":"k"}`), Probe: json.RawMessage(
			`{"hits":[{"id":"o"},{"id":"x"}]}`),
		Verify: json.RawMessage(`{"sha":"s1"}`), Result: json.RawMessage(`{"ok":true}`), Error: json.RawMessage(
			`{"code":"gone","message":"m"}`),
	}
	for expression, want := range map[string]string{
		`size(probe.hits) > 1 ? "duplicate" : "absent"`:      `"duplicate"`,
		`probe.hits.filter(h, h.id != output.id)[0].id`:      `"x"`,
		`verify.sha == before.sha && result.ok`:              `true`,
		`error.code in ["gone", "deleted"]`:                  `true`,
		`error.nothing == null`:                              `true`,
		`[input.id, output.id, plan.id, meta.key, probe.no]`: `["i","o","p","k",null]`,
		`error`: `{"code":"gone","message":"m"}`,
	} {
		r, err := CompileReader(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if got, err := r.Evaluate(vars); err != nil || string(got) != want {
			t.Errorf("%s is %s (%v), want %s", expression, got, err, want)
		}
		if got, err := r.Evaluate(BindingVars{}); err != nil || !json.Valid(got) {
			t.Errorf("%s of nothing is %s (%v), want null or a value", expression, got, err)
		}
	}
}

func TestArgumentsReadWhatIsKnownBeforeTheCall(t *testing.T) {
	const reads = "it may read input, output, before, plan, meta, actions and facts"
	for expression, want := range map[string]string{
		`probe.id`: `1:1: undeclared name "probe"; ` + reads, `1 + verify`: `1:5: undeclared name "verify"; ` + reads,
		`result.x`: `undeclared name "result"; ` + reads, `error.code`: `undeclared name "error"; ` + reads,
		`befor.x`: `undeclared name "befor"; did you mean before?`,
	} {
		if _, err := CompileBinding(expression); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", expression, err, want)
		}
	}
	if _, err := CompileReader("action.x"); err == nil ||
		!strings.Contains(err.Error(), "did you mean actions?") {
		t.Errorf("a reader refuses action with %v", err)
	}
	b, err := CompileBinding("before.sha")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.Evaluate(BindingVars{Before: json.RawMessage(`{"sha":"s1"}`)}); err != nil || string(got) != `"s1"` ||
		!b.Reads("before") || b.Reads("input") {
		t.Errorf("before.sha is %s (%v)", got, err)
	}
}

func TestReadersAndArgumentsAreCachedApart(t *testing.T) {
	cache := NewCache(8)
	if _, err := cache.Reader("probe.x"); err != nil {
		t.Error(err)
	}
	if _, err := cache.Binding("probe.x"); err == nil {
		t.Error("an argument reads the probe, because a reader did")
	}
	first, err := cache.Reader("probe.x")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := cache.Reader("probe.x"); err != nil || again != first {
		t.Errorf("compiled again (%v)", err)
	}
}

func TestJSONLiteralsStandAsTheyAre(t *testing.T) {
	for expression, want := range map[string]string{
		`json('10.10')`: `10.10`,
		`{"amount": json("1e2"), "n": [json('123456789012345678901234567890')]}`: `{"amount":1e2,"n":[123456789012345678901234567890]}`,
		`input.x == null ? json('2.0') : 3`:                                      `2.0`,
		`json('10.10') + 1.0`:                                                    `11.1`,
		`json('{"a":[1]}').a[0]`:                                                 `1`,
	} {
		b, err := CompileBinding(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if got, err := b.Evaluate(BindingVars{}); err != nil || string(got) != want {
			t.Errorf("%s is %s (%v), want %s", expression, got, err, want)
		}
	}
	for _, expression := range []string{`json("{")`, `json(input.x)`, `json("1 2")`, `json("` + strings.Repeat("[", 300) +
		strings.Repeat("]", 300) + `")`, `json("1e999")`} {
		if _, err := CompileBinding(expression); err == nil ||
			!strings.Contains(err.Error(), "write one JSON value in quotes") {
			t.Errorf("%.40s: %v", expression, err)
		}
	}
	if _, err := Compile(`json("true") == true`); err == nil {
		t.Error("a condition knows json()")
	}
}

func TestWhatIsKnownOfAValue(t *testing.T) {
	for expression, want := range map[string]string{
		`input.x`: `dyn []`, `input.x == 1`: `bool []`, `"a"`: `string ["a"]`, `7`: `int [7]`, `[1]`: `list(int) []`,
		`input.x ? "a" : input.y ? "b" : "c"`: `string ["a" "b" "c"]`, `timestamp(input.x)`: `google.protobuf.Timestamp []`,
		`input.x ? "a" : input.y`: `dyn ["a"]`,
	} {
		b, err := CompileReader(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if got := fmt.Sprintf("%s %s", b.Type(), b.Literals()); got != want {
			t.Errorf("%s is %s, want %s", expression, got, want)
		}
	}
}
