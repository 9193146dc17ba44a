package triggers

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// bindings are expressions and their values.
func bindings(vars BindingVars) map[string]string {
	return map[string]string{
		`input.amount`:                            `10.10`,
		`input.big`:                               `9007199254740993`,
		`input.big + 1`:                           `9007199254740994`,
		`input.huge`:                              `123456789012345678901234567890`,
		`string(input.huge)`:                      `"123456789012345678901234567890"`,
		`"id/" + string(input.huge)`:              `"id/123456789012345678901234567890"`,
		`input.huge == input.next`:                `false`,
		`input.huge == input.again`:               `true`,
		`[input.huge].filter(i, i != input.next)`: `[123456789012345678901234567890]`,
		`[input.next].filter(i, i == input.huge)`: `[]`,
		`input.next in [input.huge]`:              `false`,
		`input.huge > 5 && !(input.huge < 5)`:     `true`,
		`has(input.huge)`:                         `true`,
		`input["items"][1].price`:                 `2e2`,
		`input.items[0]`:                          `{"sku":"a","price":0.10}`,
		`output.nested.a[1][0]`:                   `2.50`,
		`input["null"]`:                           `null`,
		`input.nothing`:                           `null`,
		`input.nothing.at.all[3].x`:               `null`,
		`input.text.nothing`:                      `null`,
		`input.items[7].sku`:                      `null`,
		`input.items["x"]`:                        `null`,
		`input.items[-1]`:                         `null`,
		`output.ref`:                              `"ch_1"`,
		`"refund-" + output.ref`:                  `"refund-ch_1"`,
		`"refund-" + output.nothing`:              `null`,
		`input.nothing + 1`:                       `null`,
		`input.nothing == null`:                   `true`,
		`output.nothing == null ? input.amount : output.ref`: `10.10`,
		`has(output.ref) ? output.ref : "none"`:              `"ch_1"`,
		`has(output.a.b.c)`:                                  `false`,
		`has(input["null"])`:                                 `true`,
		`output.?nothing.orValue("d")`:                       `"d"`,
		`output.nested.?nothing.orValue(input.n)`:            `3`,
		`{"amount": input.amount, "ids": [output.ref, input.nothing], "k": meta.key, "c": 1}`: `{"amount":10.10,"ids":["ch_1",null],"k":"k1","c":1}`,
		`[input.amount, 1, "x", null, true, 1.5]`:                                             `[10.10,1,"x",null,true,1.5]`,
		`{}`:                                `{}`,
		`[]`:                                `[]`,
		`"literal"`:                         `"literal"`,
		`7`:                                 `7`,
		`null`:                              `null`,
		`input`:                             string(vars.Input),
		`plan.label + "/" + plan.id`:        `"trip/p1"`,
		`meta.attempt`:                      `2`,
		`input.n * 2`:                       `6`,
		`input.n * input.x`:                 `4.5`,
		`input.half`:                        `2.0`,
		`-input.n`:                          `-3`,
		`input.items.map(i, i.sku)`:         `["a","b"]`,
		`input.items.map(i, i.nothing)`:     `[null,null]`,
		`input.nothing.map(i, i.sku)`:       `null`,
		`input.items[meta.attempt - 1].sku`: `"b"`,
		`input.items[meta.attempt].sku`:     `null`,
		`input.items[input.nothing].sku`:    `null`,
		`size(input.items)`:                 `2`,
		`input.text`:                        `"<é\u0000>"`,
		`input.text + "<"`:                  `"<é\u0000><"`,
		`string(input.n)`:                   `"3"`,
		`input.flag && has(output.ref)`:     `true`,
		`timestamp("2026-01-01T00:00:00Z")`: `"2026-01-01T00:00:00Z"`,
		`duration("90s")`:                   `"90s"`,
		`{"b": 1, "a": input.n}`:            `{"b":1,"a":3}`,
		`dyn({"b": 1, "a": input.n})`:       `{"a":3,"b":1}`,
	}
}

func TestBindings(t *testing.T) {
	vars := BindingVars{
		Input: json.RawMessage(
			`{"amount":10.10,"big":9007199254740993,"huge":123456789012345678901234567890,"next":123456789012345678901234567891,"again":123456789012345678901234567890,"n":3,"x":1.5,"items":[{"sku":"a","price":0.10},{"sku":"b","price":2e2}],"null":null,"text":"<é\u0000>","flag":true,"half":2.0}`),
		Output: json.RawMessage(`{"ref":"ch_1","nested":{"a":[1,[2.50]]}}`),
		Plan:   json.RawMessage(`{"id":"p1","label":"trip"}`),
		Meta:   json.RawMessage(`{"attempt":2,"key":"k1","blind_cleanup":false}`),
	}
	for expression, want := range bindings(vars) {
		b, err := CompileBinding(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if got, err := b.Evaluate(vars); err != nil || string(got) != want {
			t.Errorf("%s is %s (%v), want %s", expression, got, err, want)
		}
		// Without an output, and without anything, every path is null and nothing fails for it.
		for _, empty := range []BindingVars{{Input: vars.Input, Plan: vars.Plan, Meta: vars.Meta}, {}} {
			got, err := b.Evaluate(empty)
			if err != nil || !json.Valid(got) {
				t.Errorf("%s of nothing is %s (%v), want null or a value", expression, got, err)
			}
		}
	}
}

func TestBindingsSayWhichFieldsTheyRead(t *testing.T) {
	b, err := CompileReader(
		`plan.label + meta["key"] + plan.?id.orValue("") + input.plan.x + string(has(plan.owner)) + [1].map(m, meta.x)[0] + plan.id`)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(b.Fields("plan"), b.Fields("meta"), b.Fields("input"),
		b.Fields("error")); got != "[id label owner] [key x] [plan] []" {
		t.Error(got)
	}
}

func TestBindingErrors(t *testing.T) {
	for expression, want := range map[string]string{
		`input.`:             "Syntax error",
		`inptu.a`:            `undeclared name "inptu"`,
		`"a" + 1`:            "found no matching overload",
		`size(1)`:            "found no matching overload",
		`{"a": 1}.b.c + "x"`: "",
		`after(plan.x)`:      `undeclared name "after"`,
	} {
		_, err := CompileBinding(expression)
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", expression, err, want)
		}
	}
	for expression, want := range map[string]string{
		`input.a + 1`:        "no such overload",
		`1 / input.zero`:     "division by zero",
		`input.zero ? 1 : 2`: "not a truth",
		`{input.zero: 1}`:    "a key of a JSON object is a string",
		`type(input.a)`:      "no JSON",
		`input.list.?id`:     "unsupported index type",
	} {
		b, err := CompileBinding(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if got, err := b.Evaluate(BindingVars{Input: json.RawMessage(`{"a":"x","zero":0,"list":[1]}`)}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s is %s (%v), want %q", expression, got, err, want)
		}
	}
	b, err := CompileBinding(`input.a`)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.Evaluate(BindingVars{Input: json.RawMessage(`{"a":`)}); err == nil {
		t.Errorf("bytes that are no JSON give %s", got)
	}
}
