package triggers

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// TestWhatWasNotKeptIsNoNull: a path below an incomplete output that leads nowhere is an
// error that names it, unless the expression reckons with it.
func TestWhatWasNotKeptIsNoNull(t *testing.T) {
	const output = `{"id":7,"none":null,"deep":{"a":1},"items":[null,{"id":"x"}]}`
	for _, c := range []struct{ expression, want, lost string }{
		{"output.id", "7", ""},
		{"output.none", "null", ""},
		{"output.deep.a", "1", ""},
		{"output.items[1].id", `"x"`, ""},
		{"output.id + 1", "8", ""},
		{`{"a": output.id, "b": [output.deep]}`, `{"a":7,"b":[{"a":1}]}`, ""},
		{"input.missing", "null", ""},
		{"meta.missing == null ? output.id : output.gone", "7", ""},

		{"output.gone", "", "output.gone"},
		{`output["gone"]`, "", "output.gone"},
		{"output.none.x", "", "output.none.x"},
		{"output.deep.b", "", "output.deep.b"},
		{"output.items[2]", "", "output.items.2"},
		{"output.items[0].id", "", "output.items.0.id"},
		{"output.gone + 1", "", "output.gone"},
		{`string(output.id) + output.deep.b`, "", "output.deep.b"},
		{`{"a": output.id, "b": [output.gone]}`, "", "output.gone"},
		{"output.gone == 1 ? 1 : 2", "", "output.gone"},
		{"output.gone.map(x, x.id)", "", "output.gone"},
		{"output", "", "output"},
		{"size(output)", "", "output"},
		{"output[input.key]", "", "output"},

		{"output.?gone", "null", ""},
		{"output.?gone.orValue(3)", "3", ""},
		{"has(output.gone) ? 1 : 2", "2", ""},
		{"output.deep.?b", "null", ""},
	} {
		b, err := CompileBinding(c.expression)
		if err != nil {
			t.Fatalf("%s: %v", c.expression, err)
		}
		vars := BindingVars{Input: json.RawMessage(`{"key":"id"}`), Output: json.RawMessage(output),
			Meta: json.RawMessage(`{}`), Incomplete: true}
		got, err := b.Evaluate(vars)
		var lost *Missing
		if errors.As(err, &lost) != (c.lost != "") || string(got) != c.want || lost != nil &&
			strings.Join(lost.Path, ".") != c.lost {
			t.Errorf("%s: %s, %v; want %s%s", c.expression, got, err, c.want, c.lost)
		}
		if lost != nil && !strings.Contains(err.Error(), c.lost+" is not there") {
			t.Errorf("%s: %v", c.expression, err)
		}
		vars.Incomplete = false
		if _, err := b.Evaluate(vars); errors.As(err, &lost) { // as ever, of a whole output
			t.Errorf("%s: %v", c.expression, err)
		}
	}
	b, err := CompileBinding("output.id")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Evaluate(BindingVars{Incomplete: true}); err == nil { // nothing was kept
		t.Error("no error without any output")
	}
}

// TestProjectKeepsWhatIsRead: every path leads to the same bytes as before, and nothing
// else is there.
func TestProjectKeepsWhatIsRead(t *testing.T) {
	const document = `{"id":10.10,"big":"zzzz","deep":{"a":[1,2,{"b":"x","c":"y"}],"z":1},"list":[{"id":1,"p":2},{"id":3}],"null":null}`
	for _, c := range []struct{ paths, want string }{
		{"id", `{"id":10.10}`},
		{"id deep.a.2.b", `{"deep":{"a":[null,null,{"b":"x"}]},"id":10.10}`},
		{"deep deep.a.0", `{"deep":{"a":[1,2,{"b":"x","c":"y"}],"z":1}}`},
		{"list.1.id list.0.p", `{"list":[{"p":2},{"id":3}]}`},
		{"null", `{"null":null}`},
		{"gone deep.q id.x list.7 list.x", ""},
		{"", document},
	} {
		var paths [][]string
		for text := range strings.SplitSeq(c.paths, " ") {
			path := strings.Split(text, ".")
			if text == "" {
				path = nil
			}
			paths = append(paths, path)
		}
		if got := string(Project(json.RawMessage(document), paths)); got != c.want {
			t.Errorf("%s: %s, want %s", c.paths, got, c.want)
		}
	}
	if got := string(Project(json.RawMessage(`[1,[2,3]]`), [][]string{{"1", "0"}})); got != `[null,[2]]` {
		t.Error(got)
	}
}
