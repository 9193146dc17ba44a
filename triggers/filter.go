package triggers

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
)

// RecordView is what a Filter may read of a record.
type RecordView struct {
	Sequence, Index int64
	TimeNs          int64  // the store's stamp, unix ns
	Kind            string // as in "plan_opened"; empty: it is no record
	Plan, Action    string
	Class, Name     string // who wrote it
	Subject         string
	Verdict         string         // of verdict_given: allow, block or redirect
	Refused         string         // why it is malformed; empty: it is not
	Record          map[string]any // as protojson has it
}

// Filter is a CEL expression that picks records of a ledger for a person who reads. It
// decides nothing: triggers are another language.
type Filter struct{ program cel.Program }

// filterVariables are what a filter may read, with the JSON of the record beside.
var filterVariables = []struct {
	name string
	kind *cel.Type
}{
	{"sequence", cel.IntType}, {"index", cel.IntType}, {"time", cel.TimestampType}, {"kind",
		cel.StringType}, {"plan", cel.StringType},
	{"action", cel.StringType}, {"class", cel.StringType}, {"name", cel.StringType}, {"subject",
		cel.StringType}, {"verdict", cel.StringType},
	{"refused", cel.StringType}, {"record", cel.MapType(cel.StringType, cel.DynType)},
}

// CompileFilter compiles a filter. The error is an *Error.
func CompileFilter(expression string) (*Filter, error) {
	var variables []cel.EnvOption
	d := dialect{reads: "a filter reads kind, plan, action, class, name, subject, verdict, refused, " +
		"sequence, index, time and record"}
	for _, v := range filterVariables {
		variables = append(variables, cel.Variable(v.name, v.kind))
		d.names = append(d.names, v.name)
	}
	program, err := compileFilter(expression, `kind == "plan_opened"`, d, variables)
	if err != nil {
		return nil, err
	}
	return &Filter{program}, nil
}

// compileFilter compiles what a person reads by. example is one that would be right.
func compileFilter(expression, example string, d dialect, variables []cel.EnvOption) (cel.Program,
	error) {
	if len(expression) > textMax || !utf8.ValidString(expression) ||
		strings.TrimSpace(expression) == "" {
		return nil, &Error{Line: 1, Column: 1, Message: "no expression",
			Hint: fmt.Sprintf("1 to %d bytes, as in %s", textMax, example)}
	}
	env := newEnvironment(append([]cel.EnvOption{
		cel.StrictTimestampParsing(true), cel.DefaultUTCTimeZone(true), cel.ParserExpressionSizeLimit(
			textMax),
		cel.ParserRecursionLimit(parseMax), cel.ExpressionNodeLimit(nodesMax), cel.RegexProgramSizeLimit(
			regexMax),
	}, variables...))
	checked, issues := env.Compile(expression)
	if len(issues.Errors()) > 0 {
		return nil, issueError(issues, d, expression, briefCheck)
	}
	if checked.OutputType() != cel.BoolType && checked.OutputType() != cel.DynType {
		return nil, &Error{Line: 1, Column: 1, Message: "it is " + checked.OutputType().String(),
			Hint: "a filter is true or false, as in " + example}
	}
	program, err := env.Program(checked, cel.CostLimit(costMax))
	if err != nil {
		return nil, planError(err)
	}
	return program, nil
}

// Matches reports whether a filter picks a record. What it cannot answer of one, as a
// field that the record does not have, is no, and the error says why.
func (f *Filter) Matches(r RecordView) (bool, error) {
	record := r.Record
	if record == nil {
		record = map[string]any{}
	}
	value, _, err := f.program.Eval(map[string]any{
		"sequence": r.Sequence, "index": r.Index, "time": types.Timestamp{Time: time.Unix(0,
			r.TimeNs).UTC()}, "kind": r.Kind, "plan": r.Plan,
		"action": r.Action, "class": r.Class, "name": r.Name, "subject": r.Subject, "verdict": r.Verdict,
		"refused": r.Refused, "record": record,
	})
	return err == nil && value == types.True, err
}

// ListFilter is a CEL expression that picks entries of a list for a person who reads:
// plans, facts, hosts. It decides nothing; triggers are another language.
type ListFilter struct {
	name    string
	program cel.Program
}

// CompileListFilter compiles a filter that reads an entry under a name, as in
// plan.held > 3, and now. The error is an *Error.
func CompileListFilter(name, expression string) (*ListFilter, error) {
	d := dialect{names: []string{name, "now"}, reads: "a filter reads the fields of " + name +
		", as -o json prints them, and now"}
	program, err := compileFilter(expression, name+`.state == "open"`, d,
		[]cel.EnvOption{cel.Variable(name, cel.MapType(cel.StringType, cel.DynType)),
			cel.Variable("now", cel.TimestampType)})
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
	value, _, err := f.program.Eval(map[string]any{f.name: numbers(fields),
		"now": types.Timestamp{Time: time.Unix(0, nowNs).UTC()}})
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
