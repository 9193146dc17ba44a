package mcp

import (
	"encoding/json"
	"testing"

	"github.com/sagenbaum/sagenbaum/triggers"
)

// TestAConditionThatReadsWhatIsNotThereHasNoAnswer: of a call in doubt there is no output, and
// no item is like one without an id.
func TestAConditionThatReadsWhatIsNotThereHasNoAnswer(t *testing.T) {
	t.Parallel()
	x := newExpressions()
	vars := triggers.BindingVars{Output: json.RawMessage(`null`),
		Probe: json.RawMessage(`{"notes":[{"id":"n1"}]}`)}
	if done, err := x.holds(`!probe.notes.exists(n, n.id == output.result.id)`, vars); done || err == nil {
		t.Errorf("%v, %v", done, err)
	}
	if done, err := x.holds(`probe.notes.size() == 0`, vars); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
}
