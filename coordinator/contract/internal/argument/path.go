package argument

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// PathIn returns the path of {from: "$.output.id"}, the way in which some other
// systems bind an argument.
func PathIn(value map[string]any) (string, bool) {
	text, ok := value["from"].(string)
	return text, ok && len(value) == 1 &&
		(strings.HasPrefix(text, "$.") || strings.HasPrefix(text, "$["))
}

// Roots are what a path may start with.
var Roots = []string{"input", "output", "before", "plan", "meta", "actions", "facts"}

// Translate turns "$.output.items[0]['a b']" into CEL.
func Translate(path string) (string, error) {
	rest := strings.TrimPrefix(path, "$")
	var out strings.Builder
	for first := true; rest != ""; first = false {
		step, index, after, err := nextStep(rest)
		if err != nil {
			return "", fmt.Errorf("%q: %w", path, err)
		}
		rest = after
		switch {
		case first && (step == "steps" || step == "step"):
			return "", fmt.Errorf("%q: another action is read as $.actions['order'].output.id", path)
		case first && !slices.Contains(Roots, step):
			return "", fmt.Errorf("%q: no %q; there is %s", path, step, strings.Join(Roots, ", "))
		case first:
			out.WriteString(step)
		case index:
			out.WriteString("[" + step + "]")
		case identifier(step):
			out.WriteString("." + step)
		default:
			out.WriteString("[" + Quote(step) + "]")
		}
	}
	if out.Len() == 0 {
		return "", fmt.Errorf("%q: empty", path)
	}
	return out.String(), nil
}

// nextStep takes ".name", "[0]" or "['name']" off the front of a path.
func nextStep(path string) (step string, index bool, rest string, err error) {
	if strings.HasPrefix(path, ".") {
		end := strings.IndexAny(path[1:], ".[")
		if end < 0 {
			end = len(path) - 1
		}
		if end == 0 {
			return "", false, "", fmt.Errorf("a step without a name")
		}
		return path[1 : 1+end], false, path[1+end:], nil
	}
	for _, Quote := range []string{"'", `"`} {
		if inner, ok := strings.CutPrefix(path, "["+Quote); ok {
			name, rest, closed := strings.Cut(inner, Quote+"]")
			if !closed || strings.Contains(name, `\`) {
				return "", false, "", fmt.Errorf("no end of [%s", Quote)
			}
			return name, false, rest, nil
		}
	}
	inner, rest, closed := strings.Cut(strings.TrimPrefix(path, "["), "]")
	n, err := strconv.Atoi(inner)
	if !strings.HasPrefix(path, "[") || !closed || err != nil || n < 0 {
		return "", false, "", fmt.Errorf("no number in [%s]", inner)
	}
	return strconv.Itoa(n), true, rest, nil
}

// reserved are the words that CEL takes for no name.
var reserved = []string{"as", "break", "const", "continue", "else", "false", "for", "function",
	"if", "import",
	"in", "let", "loop", "namespace", "null", "package", "return", "true", "var", "void", "while"}

func identifier(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && !slices.Contains(reserved, name)
}
