package triggers

import (
	"encoding/json"
	"strings"
	"testing"
)

// followDecoded is follow by decoding: obvious, and slow.
func followDecoded(raw json.RawMessage, path []any) (string, bool) {
	for _, step := range path {
		switch s := step.(type) {
		case string:
			var fields map[string]json.RawMessage
			if json.Unmarshal(raw, &fields) != nil {
				return "null", false
			}
			raw = fields[s]
		case int64:
			var items []json.RawMessage
			if json.Unmarshal(raw, &items) != nil || s < 0 || s >= int64(len(items)) {
				return "null", false
			}
			raw = items[s]
		}
	}
	if trimmed := strings.TrimSpace(string(raw)); trimmed != "" {
		return trimmed, true
	}
	return "null", false
}

// pathOf reads a path of a test: names and numbers between dots.
func pathOf(t *testing.T, text string) (path []any) {
	for step := range strings.SplitSeq(text, ".") {
		if n := json.Number(step); step != "" && strings.Trim(step, "-0123456789") == "" {
			at, err := n.Int64()
			if err != nil {
				t.Skip()
			}
			path = append(path, at)
			continue
		}
		path = append(path, step)
	}
	return path
}

// FuzzAPathIsFollowedAsIfDecoded: whatever the JSON, a path leads where it leads in what is
// decoded, to the same bytes.
func FuzzAPathIsFollowedAsIfDecoded(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"a":{"b":[1,{"c":"x"}]}}`, "a.b.1.c"}, {`{"a":1,"a":2}`, "a"}, {`{}`, "a"}, {`[]`, "0"},
		{`{"a":null}`, "a"}, {`{"a":null}`, "a.b"}, {`{"a":null}`, "a.0"}, {`null`, "a"}, {`null`, "0"},
		{` { "a" : 1.50e3 , "b" : [ ] } `, "a"}, {`[ 1 , [ 2,3 ] , "}]," ]`, "1.1"}, {`[1,2]`, "2"},
		{`[1,2]`, "-1"}, {`"text"`, "a"}, {`12`, "0"}, {`{"\u0061":1}`, "a"}, {`{"a\"b":true}`, `a"b`},
		{`{"é":"\\"}`, "é"}, {"{\"\xff\":1}", "\ufffd"}, {`{"":{"":0}}`, "."}, {`[[[7]]]`, "0.0.0"},
		{`{"x":"{\"a\":1}","a":false}`, "a"}, {`{"b":{"a":1},"a":{"b":2}}`, "a.b"}, {`{"A":1}`, "a"},
		{"\t[\r\n1\n,\n2\n]\n", "1"}, {`{"a":[1,2],"b":3}`, "b"}, {`{"a":"\\\"","b":3}`, "b"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, text, steps string) {
		if !json.Valid([]byte(text)) {
			t.Skip()
		}
		path := pathOf(t, steps)
		want, wantFound := followDecoded(json.RawMessage(text), path)
		vars := &BindingVars{Output: json.RawMessage(text)}
		got, found := follow(vars, append([]any{outputVariable}, path...))
		if string(got) != want || found != wantFound {
			t.Fatalf("%q of %q: %q %v, want %q %v", steps, text, got, found, want, wantFound)
		}
		if string(vars.Output) != text {
			t.Fatal("the variable was changed")
		}
	})
}

// TestAPathIsFollowedWithoutDecoding: what is beside it costs no memory.
func TestAPathIsFollowedWithoutDecoding(t *testing.T) {
	vars := &BindingVars{Output: json.RawMessage(`{"a":[{"x":1,"y":[1,2,3]}],"b":{"c":"d"}}`)}
	path := []any{outputVariable, "b", "c"}
	if n := testing.AllocsPerRun(100, func() {
		if value, _ := follow(vars, path); string(value) != `"d"` {
			t.Fatalf("%s", value)
		}
	}); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
}
