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
