package cli

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// YAML says the same as JSON: names, order, and every text exactly, whatever it looks
// like to a reader of YAML.
func TestYAMLSaysWhatJSONSays(t *testing.T) {
	value := map[string]any{
		"texts": []string{"", "yes", "NO", "on", "null", "1e3", "0x10", "2026-01-01", "- a", "a: b", "#no",
			"two\nlines\n", "\t", " edge ", "\x1b[31m", "é\u202e日本😀", "'\"\\"},
		"raw": json.RawMessage(
			`{"b": 1, "a": [1.50, 12345678901234567890, -3, 1e400, true, null], "empty": {}, "none": [], "u": "\ud83d\ude00"}`),
	}
	var out bytes.Buffer
	y := &YamlOut{Writer: &out}
	if err := PrintJSON(y, value); err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := yaml.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatalf("%v in\n%s", err, &out)
	}
	for i, text := range value["texts"].([]string) {
		if got := back["texts"].([]any)[i]; got != text {
			t.Errorf("%q comes back as %q (%T)", text, got, got)
		}
	}
	text := out.String()
	if !strings.Contains(text, `- "yes"`) || !strings.Contains(text, "- 1.50\n") ||
		!strings.Contains(text, "12345678901234567890\n") || !strings.Contains(text, "1e400\n") ||
		strings.Index(text, "b: 1") > strings.Index(text, "a:\n") || !strings.Contains(text, "empty: {}") ||
		!strings.Contains(text, "none: []") {
		t.Errorf("numbers as they are written, and the order of the fields, in\n%s", text)
	}
	if !reflect.DeepEqual(back["raw"].(map[string]any)["u"], "😀") {
		t.Errorf("%q", back["raw"])
	}
	out.Reset()
	if err := PrintLine(y, "next"); err != nil || out.String() != "---\nnext\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestATableFitsItsTerminal(t *testing.T) {
	table := func() *Table {
		v := &Table{Head: []string{"PLAN", "LABEL", "OWNER", "NOTE"}, Elastic: []string{"LABEL"},
			Spare: []string{"NOTE"}}
		v.Add("01JD3BX7ABCDEFGH", "book a very long trip to 日本 and back", "-", "x")
		v.Add("01JD3BX8ABCDEFGH", "short", "-", "y")
		return v
	}
	for room, want := range map[int]string{
		0: "PLAN              LABEL                                   OWNER  NOTE\n01JD3BX7ABCDEFGH  book a very " +
			"long trip to 日本 and back  -      x\n01JD3BX8ABCDEFGH  short                                   -      y\n",
		62: "PLAN              LABEL                                   NOTE\n01JD3BX7ABCDEFGH  book a very long trip " +
			"to 日本 and back  x\n01JD3BX8ABCDEFGH  short                                   y\n",
		50: "PLAN              LABEL                       NOTE\n01JD3BX7ABCDEFGH  book a very long trip to …  " +
			"x\n01JD3BX8ABCDEFGH  short                       y\n",
		10: "PLAN              LABEL\n01JD3BX7ABCDEFGH  book a …\n01JD3BX8ABCDEFGH  short\n",
	} {
		v := table()
		widths, left := v.fit(room)
		var out strings.Builder
		for _, row := range append([][]string{v.Head}, v.Rows...) {
			line := ""
			for i, cell := range row {
				if !left[i] {
					cell = Shorten(cell, widths[i])
					line += cell + strings.Repeat(" ", widths[i]-cells(cell)+2)
				}
			}
			out.WriteString(strings.TrimRight(line, " ") + "\n")
		}
		if out.String() != want {
			t.Errorf("in %d columns:\n%swant\n%s", room, out.String(), want)
		}
		for line := range strings.Lines(out.String()) {
			if room >= 50 && cells(strings.TrimSuffix(line, "\n")) > room {
				t.Errorf("%q is wider than %d", line, room)
			}
		}
	}
	for text, n := range map[string]int{"": 0, "ab": 2, "日本": 4, "e\u0301": 1, "é": 1, "…": 1} {
		if got := cells(text); got != n {
			t.Errorf("%q takes %d columns, want %d", text, got, n)
		}
	}
}

func TestWhatDidNotChangeIsNotDrawnAgain(t *testing.T) {
	var out bytes.Buffer
	r := newRedraw(&out)
	for _, text := range []string{"a in 56m44s\n", "a in 56m43s\n", "b 3.4s ago\n", "b 1m02s ago\n"} {
		r.out().Write([]byte(text))
		r.draw()
	}
	if out.String() != "a in 56m44s\n\nb 3.4s ago\n" {
		t.Errorf("%q", out.String())
	}
	out.Reset()
	y := newRedraw(&YamlOut{Writer: &out})
	if err := PrintJSON(y.out(), map[string]int{"number": 1}); err != nil {
		t.Fatal(err)
	}
	y.draw()
	if out.String() != "number: 1\n" {
		t.Errorf("%q", out.String())
	}
}

// TestACommandLineIsReadByAShellAsItWasMeant, whatever is in its words.
func TestACommandLineIsReadByAShellAsItWasMeant(t *testing.T) {
	for _, word := range []string{"", "a", "a b", "$HOME", "`id`", "it's", `"`, `\`, "*", "a=b", "~", "!x", "é ü", "#"} {
		got, err := exec.Command("sh", "-c", CommandLine("printf", "%s|", word, word)).Output()
		if want := word + "|" + word + "|"; err != nil || string(got) != want {
			t.Errorf("%q is read as %q, %v", word, got, err)
		}
	}
	if got := CommandLine("a", "it's\x1b[31m\n"); got != `a $'it\'s\x1b[31m\n'` {
		t.Errorf("what a terminal takes for its own: %s", got)
	}
}
