package triggers

import (
	"fmt"
	"strings"
	"testing"
)

// TestBindingPathsTellCopiesFromComputations: what only moves may be a value that
// no one can read; what is computed from may not.
func TestBindingPathsTellCopiesFromComputations(t *testing.T) {
	for text, want := range map[string]string{
		`input.card`:                             "=input.card",
		`input`:                                  "=input",
		`input["card"]`:                          "=input.card",
		`{"a": input.card, "b": [output.id, 1]}`: "=input.card =output.id",
		`input.items[0].token`:                   "=input.items.0.token",
		`input.card + "x"`:                       "input.card",
		`input.big ? input.card : output.id`:     "input.big =input.card =output.id",
		`size(input.card) > 3`:                   "input.card",
		`input.items.map(x, x.token)`:            "input.items",
		`"card" in input`:                        "input",
		`input.x == null ? {} : {"c": before.old.secret}`: "input.x =before.old.secret",
		`input[plan.id]`: "input plan.id",
		`"a"`:            "",
	} {
		b, err := CompileBinding(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got []string
		for _, read := range b.Paths() {
			name := strings.Join(read.Path, ".")
			if read.Copied {
				name = "=" + name
			}
			got = append(got, name)
		}
		if fmt.Sprint(strings.Join(got, " ")) != want {
			t.Errorf("%s reads %q, want %q", text, got, want)
		}
	}
}
