package triggers

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
)

// ListFilter is a CEL expression that picks entries of a list for a person who reads:
// plans, facts, hosts. It decides nothing; triggers are another language.
type ListFilter struct {
	name    string
	program cel.Program
}

// CompileListFilter compiles a filter that reads an entry under a name, as in
// plan.held > 3, and now. The error is an *Error.
func CompileListFilter(name, expression string) (*ListFilter, error) {
	d := dialect{names: []string{name, "now"}, reads: "a filter reads the fields of " + name + ", as -o json prints them, and now"}
	program, err := compileFilter(expression, name+`.state == "open"`, d, []cel.EnvOption{cel.Variable(name, cel.MapType(cel.StringType, cel.DynType)), cel.Variable("now", cel.TimestampType)})
	if err != nil {
		return nil, err
	}
	return &ListFilter{name, program}, nil
}

// Matches reports whether a filter picks an entry, which is JSON, at an instant (unix
// ns). What it cannot answer of one, as about a field that the entry does not have, is
// no; so is an entry that is no JSON object.
func (f *ListFilter) Matches(entry []byte, nowNs int64) bool {
	decoder := json.NewDecoder(strings.NewReader(string(entry)))
	decoder.UseNumber()
	var fields map[string]any
	if decoder.Decode(&fields) != nil {
		return false
	}
	value, _, err := f.program.Eval(map[string]any{f.name: numbers(fields), "now": types.Timestamp{Time: time.Unix(0, nowNs).UTC()}})
	return err == nil && value == types.True
}

// numbers gives the numbers of a JSON value the types that CEL has: whole ones are
// int, so that they can be compared with literals.
func numbers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			out[key] = numbers(v[key])
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = numbers(v[i])
		}
		return out
	case json.Number:
		if whole, err := v.Int64(); err == nil {
			return whole
		}
		if real, err := v.Float64(); err == nil {
			return real
		}
		return math.NaN()
	default:
		return value
	}
}
