package triggers

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func elementVars() BindingVars {
	return BindingVars{
		Input:   json.RawMessage(`{"of":"order","currency":"eur"}`),
		Before:  json.RawMessage(`{"sku":"s1"}`),
		Plan:    json.RawMessage(`{"id":"p","input":{"shop":"north"}}`),
		Actions: json.RawMessage(`{"order":{"output":{"id":"o-1","total":10.10}},"pay":{"input":{}}}`),
		Facts:   json.RawMessage(`{"rate/eur":1.10,"shop/north":{"till":7}}`),
	}
}

func TestBindingsReadOtherActionsAndFacts(t *testing.T) {
	for expression, want := range map[string]string{
		`actions["order"].output.id`:                          `"o-1"`,
		`actions.order.output.total`:                          `10.10`,
		`actions["pay"].output.id`:                            `null`,
		`actions["none"].output.id`:                           `null`,
		`"o/" + actions["order"].output.id`:                   `"o/o-1"`,
		`"o/" + actions["none"].output.id`:                    `null`,
		`has(actions["order"].output.id) ? 1 : 2`:             `1`,
		`has(actions["none"].output.id) ? 1 : 2`:              `2`,
		`actions["none"].?output.id.orValue("none")`:          `"none"`,
		`facts["rate/eur"]`:                                   `1.10`,
		`{"rate": facts["rate/eur"], "at": facts["rate/us"]}`: `{"rate":1.10,"at":null}`,
		`plan.input.shop`:                                     `"north"`,
	} {
		b, err := CompileBinding(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if got, err := b.Evaluate(elementVars()); err != nil || string(got) != want {
			t.Errorf("%s is %s (%v), want %s", expression, got, err, want)
		}
		if got, err := b.Evaluate(BindingVars{}); err != nil || !json.Valid(got) {
			t.Errorf("%s of nothing is %s (%v), want null or a value", expression, got, err)
		}
	}
}

func TestWhichElementsABindingReads(t *testing.T) {
	b, err := CompileReader(`actions["b"].output.x + facts["f/x"] + actions.a.input.y + actions["b"].input.z +
		facts.?g.orValue(1) + [{"no": 1}].map(facts, facts.no)[0] + [{"i": 1}].map(actions, [2].map(facts, actions.i + facts)[0])[0]`)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(b.Keys("actions"), b.Keys("facts"), b.Keys("plan")); got != "[a b] [f/x g] []" {
		t.Error(got)
	}
}

// A loop variable may be called as one of them, as it could before they were.
func TestALoopVariableIsNoElement(t *testing.T) {
	for expression, want := range map[string]string{
		`[1, 2].map(facts, facts + 1)`:                           `[2,3]`,
		`[{"a": 1}].map(actions, actions.a)`:                     `[1]`,
		`[{"a": 1}].map(actions, [2].map(actions, actions * 2))`: `[[4]]`,
		`[1].exists(facts, facts == 1) ? facts["rate/eur"] : 0`:  `1.10`,
		`[{"rate/eur": 2}].map(facts, facts["rate/eur"])`:        `[2]`,
		`[facts["rate/eur"]].map(facts, facts)`:                  `[1.10]`,
		`[1].map(x, [2].exists(facts, facts == 2))`:              `[true]`,
	} {
		b, err := CompileReader(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if got, err := b.Evaluate(elementVars()); err != nil || string(got) != want {
			t.Errorf("%s is %s (%v), want %s", expression, got, err, want)
		}
		c := NewCache(10)
		if err := c.CheckOwn(expression, true); (err == nil) != (b.Keys("facts") == nil) {
			t.Errorf("%s: without elements %v", expression, err)
		}
	}
}

// Which element is read must be known at the registration.
func TestElementsAreNamed(t *testing.T) {
	for expression, want := range map[string]string{
		`actions`:                        "1:1: all of actions at once; name one",
		`{"a": facts}`:                   "all of facts at once",
		`facts.exists(k, k == "a")`:      "all of facts at once",
		`"a" in facts`:                   "all of facts at once",
		`size(actions)`:                  "all of actions at once",
		`facts[output.key]`:              `which of facts is computed; name one, as in actions["order"]`,
		`actions[input.of].output`:       "which of actions is computed",
		`facts[1]`:                       "which of facts is computed",
		`input.l.map(i, facts["a" + i])`: "which of facts is computed",
		`facts[facts["a"]]`:              "which of facts is computed",
	} {
		if _, err := CompileReader(expression); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", expression, err, want)
		}
	}
}

func TestAnElementThatWasNotKept(t *testing.T) {
	vars := elementVars()
	vars.Partial = [][]string{{"actions", "order", "output"}, {"actions", "pay", "external_ref"}, {"facts", "large"}}
	for expression, want := range map[string]string{
		`actions["order"].output.id`:                     "",
		`actions["order"].output.other`:                  "actions.order.output.other",
		`"a" + actions["order"].output.other`:            "actions.order.output.other",
		`actions["order"].output.?other.orValue("none")`: "",
		`actions["order"].output`:                        "actions.order.output",
		`actions["order"]`:                               "actions.order",
		`actions["pay"].output.id`:                       "",
		`actions["pay"].external_ref`:                    "actions.pay.external_ref",
		`actions["order"].before`:                        "",
		`actions["order"].external_ref`:                  "",
		`actions["order"].output.none.x`:                 "actions.order.output.none.x",
		`facts["large"]`:                                 "facts.large",
		`facts["large"].x`:                               "facts.large.x",
		`facts["rate/eur"]`:                              "",
	} {
		b, err := CompileBinding(expression)
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Evaluate(vars)
		var lost *Missing
		if errors.As(err, &lost) != (want != "") || lost != nil && strings.Join(lost.Path, ".") != want {
			t.Errorf("%s: %v, want %q", expression, err, want)
		}
		if want != "" && err != nil && !strings.Contains(err.Error(), " to be kept") &&
			!strings.Contains(err.Error(), " could not be kept (") {
			t.Errorf("%s: %v", expression, err)
		}
	}
}

// Before there were elements, their variables were none.
func TestCheckOwn(t *testing.T) {
	c := NewCache(10)
	const reads = "it may read input, output, before, plan and meta"
	for expression, want := range map[string]string{
		`output.id`:       "",
		`facts["x"]`:      `1:1: undeclared name "facts"; ` + reads,
		`actions`:         `1:1: undeclared name "actions"; ` + reads,
		`1 + probe.x`:     `1:5: undeclared name "probe"; ` + reads,
		`actions[meta.k]`: `1:1: undeclared name "actions"; ` + reads,
	} {
		if err := c.CheckOwn(expression, false); (err == nil) != (want == "") ||
			err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", expression, err, want)
		}
	}
	err := c.CheckOwn("facts.x", true)
	if err == nil || !strings.HasSuffix(err.Error(), "probe, verify, result and error") {
		t.Error(err)
	}
	if err := c.CheckOwn("probe.x", true); err != nil {
		t.Error(err)
	}
}

func TestAnElementThatIsNotThereNamesNoEffect(t *testing.T) {
	for expression, want := range map[string]bool{
		`actions["order"].output.id`: false, `actions["none"].output.id`: true,
		`facts["rate/eur"]`: false, `facts["none"]`: true, `plan.input.none`: false,
	} {
		b, err := CompileBinding(expression)
		if err != nil {
			t.Fatal(err)
		}
		chosen, err := CompileBinding("plan.input.shop")
		if err != nil {
			t.Fatal(err)
		}
		for _, checked := range []bool{false, true} {
			vars := func(...*Binding) BindingVars {
				v := elementVars()
				v.Checked = checked
				return v
			}
			if got := Nameless([]*Binding{b}, vars); got != want {
				t.Errorf("%s: nameless %v", expression, got)
			}
			if Nameless([]*Binding{b, chosen}, vars) {
				t.Errorf("%s is nameless beside plan.input", expression)
			}
		}
	}
}

// TestWhatIsUnknownIsWhatAnEvaluationSays, in a few steps or many, and asking changes nothing.
func TestWhatIsUnknownIsWhatAnEvaluationSays(t *testing.T) {
	asks := func(change func(*BindingVars)) BindingVars {
		v := elementVars()
		v.Output, v.Meta = json.RawMessage(`{"id":"x","none":null}`), json.RawMessage(`{"external_ref":"r"}`)
		change(&v)
		return v
	}
	for name, vars := range map[string]BindingVars{
		"as it is":   asks(func(*BindingVars) {}),
		"checked":    asks(func(v *BindingVars) { v.Checked = true }),
		"incomplete": asks(func(v *BindingVars) { v.Checked, v.Incomplete = true, true }),
		"unnamed":    asks(func(v *BindingVars) { v.Checked, v.Unnamed, v.Meta = true, true, json.RawMessage(`{}`) }),
		"partial": asks(func(v *BindingVars) {
			v.Checked, v.Partial = true, [][]string{{"actions", "order", "output"}, {"facts", "large"}}
		}),
		"nothing": {Checked: true},
		"no JSON": asks(func(v *BindingVars) { v.Output = json.RawMessage(`{"id":`) }),
	} {
		for _, expression := range []string{"output", "output.id", "output.none", "output.other", `"a" + output.other`,
			"meta.external_ref", `output.?id.orValue("x")`, `actions["order"].output.id`, `actions["order"].output.other`,
			`facts["large"]`, `facts["rate/eur"]`, "input.of", "plan.input.none"} {
			b, err := CompileBinding(expression)
			if err != nil {
				t.Fatal(err)
			}
			value, err := b.Evaluate(vars)
			strict := vars
			strict.Strict = true
			_, missing := b.Evaluate(strict)
			want := err == nil && string(value) == "null" && errors.Is(missing, ErrNotThere)
			for range 2 {
				if got := b.unknown(&vars); got != want || vars.Strict {
					t.Errorf("%s, %s: unknown %v, want %v", name, expression, got, want)
				}
			}
		}
	}
}
