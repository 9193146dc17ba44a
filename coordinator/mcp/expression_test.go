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

func TestListsOfAProbe(t *testing.T) {
	t.Parallel()
	x := newExpressions()
	vars := triggers.BindingVars{
		Input:  json.RawMessage(`{"add":[{"to":"a","facts":["x","y","y"]},{"to":"b","facts":[]}],"names":["a"]}`),
		Before: json.RawMessage(`{"things":[{"name":"a","facts":["y"]}]}`),
	}
	const things = `{"things":[{"name":"a","facts":["y","x"],"n":10.10},{"name":"b","facts":["z"]}]}`
	for _, test := range []struct {
		rules []List
		want  string // of the last of them; empty: an error
	}{
		{[]List{{Of: "probe.things", Like: "input.names", Any: []string{"name"}}},
			`[{"name":"a","facts":["y","x"],"n":10.10}]`},
		{[]List{{Of: "=probe.things", Unlike: "=input.add", By: []string{"name"}, As: []string{"to"}}}, `[]`},
		{[]List{{Of: "=probe.things", Unlike: "=before.things", By: []string{"name"},
			Shape: map[string]any{"it": "name", "in": []any{"facts"}}}}, `[{"in":[["z"]],"it":"b"}]`},
		{[]List{{Of: `=json('[{"name":"a","facts":["x","y"]},{"name":"a","facts":["x"]}]')`, Like: "=probe.things",
			By: []string{"name", "facts"}}}, `[{"name":"a","facts":["x","y"]}]`},
		{[]List{{Name: "said", Of: "=input.add", Each: "facts"}, {Of: "=probe.said", Unlike: "=probe.had",
			By: []string{"to", "facts"}, As: []string{"name", "facts"}}}, ""},
		{[]List{{Name: "said", Of: "=input.add", Each: "facts"}, {Name: "had", Of: "=before.things", Each: "facts"},
			{Of: "=probe.said", Unlike: "=probe.had", By: []string{"to", "facts"}, As: []string{"name", "facts"}}},
			`[{"facts":"x","to":"a"}]`},
		{[]List{{Of: "=input.add", Each: "facts", Shape: map[string]any{"it": "to", "in": []any{"facts"}}}},
			`[{"in":["x","y","y"],"it":"a"}]`},
		{[]List{{Of: "=input.add", Each: "facts", Shape: map[string]any{"it": "to"}}},
			`[{"it":"a"},{"it":"a"},{"it":"a"}]`},
		{[]List{{Of: "=probe.things", Each: "name"}}, ""},
		{[]List{{Of: `=[{"n":1,"x":1},{"n":1,"x":2},{"n":2,"x":1}]`, First: []string{"n"}}}, `[{"n":1,"x":1},{"n":2,"x":1}]`},
		{[]List{{Of: `=[{"n":1,"x":1},{"n":1,"x":1}]`, First: []string{"n", "x"}}}, `[{"n":1,"x":1}]`},
		{[]List{{Of: "=probe.things", First: []string{"nmae"}}}, ""},
		{[]List{{Of: "=input.names", First: []string{"name"}}}, ""},
		{[]List{{Of: "=input.none"}}, ""},
	} {
		vars.Probe = json.RawMessage(things)
		test.rules[len(test.rules)-1].Name = "last"
		err := x.lists(test.rules, &vars)
		var probe struct{ Last json.RawMessage }
		if test.want != "" && err == nil {
			err = json.Unmarshal(vars.Probe, &probe)
		}
		if (err != nil) != (test.want == "") || string(probe.Last) != test.want {
			t.Errorf("%+v: %s, %v; want %s", test.rules, probe.Last, err, test.want)
		}
	}
}
