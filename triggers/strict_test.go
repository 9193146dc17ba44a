package triggers

import (
	"encoding/json"
	"errors"
	"testing"
)

// TestAStrictConditionHasNoAnswerWithoutWhatItReads: where null would pass for one.
func TestAStrictConditionHasNoAnswerWithoutWhatItReads(t *testing.T) {
	vars := BindingVars{Input: json.RawMessage(`{"text":null}`),
		Probe: json.RawMessage(`{"notes":[{"id":"n1"}]}`)}
	for expression, there := range map[string]bool{
		`!probe.notes.exists(n, n.id == output.result.id)`:          false,
		`!(input.texts in probe.notes)`:                             false,
		`input.texts == null ? false : true`:                        false,
		`input.other`:                                               false,
		`input.text == null`:                                        true, // given, as null
		`has(output.result) && probe.notes.exists(n, n.id == "n1")`: true,
		`output.?result.?id.hasValue()`:                             true,
		`probe.notes.exists(n, n.id == "n1")`:                       true,
	} {
		b, err := CompileReader(expression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Evaluate(vars); err != nil {
			t.Errorf("%s: %v", expression, err)
		}
		strict := vars
		strict.Strict = true
		if _, err := b.Evaluate(strict); errors.Is(err, ErrNotThere) == there {
			t.Errorf("%s, strict: %v", expression, err)
		}
	}
}

// TestWhatIsComputedFromWhatIsNotThereIsNotKnown: an answer that says nothing says neither
// one thing nor the other, whatever its reader does with the path.
func TestWhatIsComputedFromWhatIsNotThereIsNotKnown(t *testing.T) {
	for _, expression := range []string{
		`probe.state == "active" ? "present" : "absent"`,
		`probe.state != "active" ? "absent" : "present"`,
		`!(probe.state == "active") ? "absent" : "present"`,
		`probe.state == null ? "absent" : "present"`,
		`probe.state in ["active"] ? "present" : "absent"`,
		`"active" in probe.states ? "present" : "absent"`,
		`"active" in probe.items.map(i, i.state) ? "present" : "absent"`,
		`probe.items.exists(i, i.state == "active") ? "present" : "absent"`,
		`probe.items.exists_one(i, i.state == "active") ? "present" : "absent"`,
		`probe.items.all(i, i.state != "active") ? "absent" : "present"`,
		`size(probe.items.filter(i, i.state == "active")) == 0 ? "absent" : "present"`,
		`["active"].exists(x, x == probe.state) ? "present" : "absent"`,
		`[probe.state] == ["active"] ? "present" : "absent"`,
		`{"s": probe.state} == {"s": "active"} ? "present" : "absent"`,
		`type(probe.state) == string ? "present" : "absent"`,
		`string(probe.state) == "x" ? "present" : "absent"`,
		`probe.n + 1 > 1 ? "present" : "absent"`,
		`probe.items[probe.n].state == "active" ? "present" : "absent"`,
		`timestamp(probe.t) < timestamp("2026-01-01T00:00:00Z") ? "present" : "absent"`,
		`{"active": "present"}[probe.state]`,
		`probe.state == "active" && input.n == 1 ? "present" : "absent"`,
		`probe.state == "active" || input.n == 2 ? "present" : "absent"`,
		`optional.of(probe.state).hasValue() ? "present" : "absent"`,
	} {
		b, err := CompileReader(expression)
		if err != nil {
			t.Fatal(err)
		}
		for _, answer := range []string{``, `null`, `{}`, `{"error":"rate limited"}`, `{"items":[{}]}`} {
			got, err := b.Evaluate(BindingVars{Input: json.RawMessage(`{"n":1}`),
				Probe: json.RawMessage(answer), Strict: true})
			if !errors.Is(err, ErrNotThere) {
				t.Errorf("%s of %q is %s (%v)", expression, answer, got, err)
			}
		}
	}
}

// TestAnAnswerThatIsNullIsNone: there is nothing to compare.
func TestAnAnswerThatIsNullIsNone(t *testing.T) {
	b, err := CompileReader(`probe == null ? "absent" : "present"`)
	if err != nil {
		t.Fatal(err)
	}
	for _, answer := range []string{"", "null"} {
		got, err := b.Evaluate(BindingVars{Probe: json.RawMessage(answer), Strict: true})
		if !errors.Is(err, ErrNotThere) {
			t.Errorf("%q: %s (%v)", answer, got, err)
		}
	}
}

// TestAStrictConditionIsDecidedByWhatIsThere: what decides alone does; has() asks.
func TestAStrictConditionIsDecidedByWhatIsThere(t *testing.T) {
	vars := BindingVars{Probe: json.RawMessage(`{"code":404,"none":null,"items":[{"id":1},{"state":"active"}]}`),
		Strict: true}
	for expression, want := range map[string]string{
		`probe.state == "gone" || probe.code == 404`:       `true`,
		`probe.state == "gone" && probe.code == 200`:       `false`,
		`probe.items.exists(i, i.state == "active")`:       `true`,
		`probe.items.all(i, i.state == "gone")`:            `false`,
		`has(probe.state) && probe.state == "gone"`:        `false`,
		`probe.?state.orValue("gone") == "gone"`:           `true`,
		`probe.items.filter(i, has(i.id)).map(i, i.id)`:    `[1]`,
		`[probe.code, probe.state, probe.state == "gone"]`: `[404,null,null]`,
		`probe == null`:      `false`,
		`probe.none == null`: `true`, // given, as null
		`(has(output.id) ? [output.id] : []) + [probe.code]`: `[404]`,
	} {
		b, err := CompileReader(expression)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := b.Evaluate(vars); err != nil || string(got) != want {
			t.Errorf("%s is %s (%v), want %s", expression, got, err, want)
		}
	}
}

// TestWhatIsNotThereIsNamed: the owner sees which field the answer lacked.
func TestWhatIsNotThereIsNamed(t *testing.T) {
	for expression, want := range map[string]string{
		`probe.order.state == input.want`: "cannot evaluate binding: it reads what is not there: probe.order.state",
		`probe.items[1].id`:               "cannot evaluate binding: it reads what is not there: probe.items.1.id",
		`input.items.exists(i, i.x == 1)`: "cannot evaluate binding: it reads what is not there",
	} {
		b, err := CompileReader(expression)
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Evaluate(BindingVars{Input: json.RawMessage(`{"want":"a","items":[{}]}`), Strict: true})
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v", expression, err)
		}
	}
}
