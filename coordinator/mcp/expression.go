package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/rawjson"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// expressions compiles the CEL of packs and recipes, each text once.
type expressions struct {
	mu      sync.Mutex // the cache is not safe for concurrent use
	readers map[string]*triggers.Binding
}

func newExpressions() *expressions { return &expressions{readers: map[string]*triggers.Binding{}} }

func (x *expressions) reader(text string) (*triggers.Binding, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b := x.readers[text]; b != nil {
		return b, nil
	}
	b, err := triggers.CompileReader(strings.TrimPrefix(text, "="))
	if err != nil {
		return nil, err
	}
	if len(x.readers) >= readersMax {
		clear(x.readers)
	}
	x.readers[text] = b
	return b, nil
}

// value resolves an argument: a text that begins with '=' is CEL, also inside lists and maps.
func (x *expressions) value(with any, vars triggers.BindingVars) (json.RawMessage, error) {
	switch v := with.(type) {
	case string:
		if !strings.HasPrefix(v, "=") {
			return encode(v)
		}
		b, err := x.reader(v)
		if err != nil {
			return nil, err
		}
		raw, err := b.Evaluate(vars)
		if len(raw) == 0 && err == nil {
			raw = json.RawMessage("null")
		}
		return raw, err
	case []any:
		out := []byte{'['}
		for i, item := range v {
			raw, err := x.value(item, vars)
			if err != nil {
				return nil, err
			}
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, raw...)
		}
		return append(out, ']'), nil
	case map[string]any:
		return x.object(v, vars)
	default:
		return encode(v)
	}
}

// object resolves a map of arguments, in the order of their names.
func (x *expressions) object(
	with map[string]any,
	vars triggers.BindingVars,
) (json.RawMessage, error) {
	out := []byte{'{'}
	for i, name := range sortedKeys(with) {
		raw, err := x.value(with[name], vars)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		key, err := encode(name)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, key...), ':'), raw...)
	}
	return append(out, '}'), nil
}

// holds evaluates a condition of an undo; an empty one holds. One that reads what is not there
// has no answer, and that is an error: with a null in its place it could say that nothing is
// left to undo.
func (x *expressions) holds(text string, vars triggers.BindingVars) (bool, error) {
	if text == "" {
		return true, nil
	}
	b, err := x.reader(text)
	if err != nil {
		return false, err
	}
	vars.Strict = true
	raw, err := b.Evaluate(vars)
	if err != nil {
		return false, fmt.Errorf("%q: %w", text, err)
	}
	switch string(raw) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%q gives %.64s, and not true or false", text, raw)
}

// check compiles every expression of a value, so that an error names its place. more as of
// checkCondition.
func (x *expressions) check(field string, with any, more ...string) error {
	switch v := with.(type) {
	case string:
		if !strings.HasPrefix(v, "=") {
			return nil
		}
		return x.checkCondition(field, v, more...)
	case []any:
		for i, item := range v {
			if err := x.check(fmt.Sprintf("%s[%d]", field, i), item, more...); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, name := range sortedKeys(v) {
			if err := x.check(field+"."+name, v[name], more...); err != nil {
				return err
			}
		}
	}
	return nil
}

// resultVariable is what a call has answered: output has it for what undoes the call.
const resultVariable = "result"

// checkCondition refuses CEL that reads what it is never given, which would be null: all but input,
// output, before, probe and more.
func (x *expressions) checkCondition(field, text string, more ...string) error {
	if text == "" {
		return nil
	}
	want := "CEL over " + strings.Join(append([]string{"input", "output", "before", "probe"}, more...),
		", ")
	b, err := x.reader(text)
	if err != nil {
		return ledger.Refuse(field, err.Error(), want)
	}
	for _, variable := range []string{"meta", "plan", "actions", "facts", "verify", resultVariable,
		"error"} {
		switch {
		case !b.Reads(variable) || slices.Contains(more, variable):
		case variable == "meta" && (b.ReadsField("meta", "key") || b.ReadsField("meta", "forward_key")):
			return ledger.Refuse(field, fmt.Sprintf("%q reads meta, which is not there", text),
				want+"; key: ARGUMENT gives a tool, or a step of undo, its idempotency key")
		default:
			return ledger.Refuse(field, fmt.Sprintf("%q reads %s, which is not there", text, variable), want)
		}
	}
	return nil
}

// works refuses expressions of a tool that can never give an answer: a condition that is no truth,
// and one that reads a probe which is not asked.
func (x *expressions) works(field string, t Tool) error {
	conditions := map[string]string{"effectless_when": t.EffectlessWhen, "not_taken": t.NotTaken,
		"done": t.Done}
	for part, guards := range map[string][]Guard{"stop": t.Stop, "refuse": t.Refuse} {
		for i, guard := range guards {
			conditions[fmt.Sprintf("%s[%d].when", part, i)] = guard.When
		}
	}
	for i, step := range t.Undo {
		conditions[fmt.Sprintf("undo[%d].when", i)] = step.When
	}
	for _, part := range sortedKeys(conditions) {
		text := conditions[part]
		if text == "" {
			continue
		}
		b, err := x.reader(text)
		switch {
		case err != nil:
			return err
		case !mayHold(b):
			return ledger.Refuse(field+"."+part, fmt.Sprintf("%q is never true or false", text),
				"CEL that gives true or false")
		case t.Probe == nil && b.Reads("probe"):
			return ledger.Refuse(field+"."+part, "it reads probe, and nothing is asked",
				"probe, the question whose answer it reads; or none of it")
		}
	}
	return nil
}

// mayHold reports whether an expression may be true. Of no variable the type is known, but input
// and output are objects.
func mayHold(b *triggers.Binding) bool {
	for _, read := range b.Paths() {
		if read.Copied && len(read.Path) == 1 && (read.Path[0] == "input" || read.Path[0] == "output") {
			return false
		}
	}
	return b.Type() == "bool" || b.Type() == "dyn"
}

// encode writes JSON without escapes for HTML.
func encode(v any) (json.RawMessage, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// anonymous is a call of which nothing says what effect it is about.
type anonymous struct {
	arguments []string   // that would name it, quoted
	is        string     // what the first of them is that was given; empty: none was
	paths     [][]string // that they read of the output
}

func (u *anonymous) stop(call string) error {
	is := "is not known"
	if u.is != "" {
		is = "is " + u.is
	}
	return &stopped{codeUnnamed, fmt.Sprintf("nothing names the effect: what argument %s of %s reads "+
		"%s, so it was not called", strings.Join(u.arguments, " and "), call, is)}
}

// anonymous says of what an output has whether it names the effect of a call; nil: it does, or
// something else does. more are variables that may name it, too.
func (x *expressions) anonymous(with map[string]any, schema json.RawMessage,
	vars triggers.BindingVars, more ...string) (*anonymous, error) {
	u, known := new(anonymous), vars
	err := x.each(with, schema, func(b *triggers.Binding, schema json.RawMessage) {
		if !b.Reads(outputRead) {
			return
		}
		value, err := b.Evaluate(vars)
		if len(value) == 0 {
			value = json.RawMessage("null")
		}
		if err != nil {
			return // its call hears of that
		}
		is := noName(value, schema)
		if is == "" {
			return
		}
		for _, read := range b.Paths() {
			if read.Path[0] != outputRead || len(read.Path) == 1 {
				continue
			}
			u.paths = append(u.paths, read.Path)
			if left, was := without(known.Output, read.Path[1:]); was {
				known.Output = left
				if u.is == "" {
					u.is = is
				}
			}
		}
	})
	if err != nil {
		return nil, err
	}
	u.arguments, err = x.nameless(with,
		func(...*triggers.Binding) triggers.BindingVars { return known }, more...)
	if err != nil || len(u.arguments) == 0 {
		return nil, err
	}
	return u, nil
}

// nameless lists the arguments of a call for want of which nothing names its effect
// (triggers.Nameless).
func (x *expressions) nameless(with map[string]any,
	vars func(...*triggers.Binding) triggers.BindingVars, more ...string) (missing []string,
	err error) {
	var all []*triggers.Binding
	of := map[string][]*triggers.Binding{}
	for _, name := range sortedKeys(with) {
		if of[name], err = x.within(with[name], nil); err != nil {
			return nil, err
		}
		all = append(all, of[name]...)
	}
	if !triggers.Nameless(all, vars, more...) {
		return nil, nil
	}
	for _, name := range sortedKeys(of) {
		if triggers.Nameless(of[name], vars, more...) {
			missing = append(missing, fmt.Sprintf("%q", name))
		}
	}
	return missing, nil
}

// within are the expressions of an argument.
func (x *expressions) within(with any, found []*triggers.Binding) ([]*triggers.Binding, error) {
	err := x.each(with, nil, func(b *triggers.Binding, _ json.RawMessage) { found = append(found, b) })
	return found, err
}

// each visits the expressions of an argument, with the schema of the place of each.
func (x *expressions) each(with any, schema json.RawMessage,
	visit func(*triggers.Binding, json.RawMessage)) error {
	switch v := with.(type) {
	case string:
		if !strings.HasPrefix(v, "=") {
			return nil
		}
		b, err := x.reader(v)
		if err == nil {
			visit(b, schema)
		}
		return err
	case []any:
		for _, item := range v {
			if err := x.each(item, memberOf(schema, "items"), visit); err != nil {
				return err
			}
		}
	case map[string]any:
		of := memberOf(schema, "properties")
		for _, name := range sortedKeys(v) {
			if err := x.each(v[name], memberOf(of, name), visit); err != nil {
				return err
			}
		}
	}
	return nil
}

// without leaves a value out of an object, and reports whether it was there. Of a list all goes.
func without(object json.RawMessage, path []string) (left json.RawMessage, was bool) {
	value := memberOf(object, path[0])
	if len(value) == 0 {
		return object, false
	}
	var err error
	if _, failed := members(value); len(path) > 1 && failed == nil {
		if value, was = without(value, path[1:]); !was {
			return object, false
		}
		left, err = withValue(object, path[0], value)
	} else {
		left, err = withoutMembers(object, func(name string) bool { return name == path[0] })
	}
	return left, err == nil
}

// noName says what a value is that names nothing, or that its schema refuses; empty: it may be a
// name. A list where the tool takes one names so many effects as it has items, also none.
func noName(value, schema json.RawMessage) string {
	kind := kindOf(value)
	var types []string
	if takes := memberOf(schema, "type"); json.Unmarshal(takes, &types) != nil {
		var one string
		if json.Unmarshal(takes, &one) == nil {
			types = []string{one}
		}
	}
	fits := slices.Contains(types, kind) || kind == "integer" && slices.Contains(types, "number")
	switch {
	case kind == "null":
		return kind
	case isEmpty(value) && (kind != "array" || !fits):
		return "an empty " + kind
	case len(types) > 0 && !fits:
		return "of type " + kind + ", and it takes " + strings.Join(types, " or ")
	}
	var items []json.RawMessage
	if kind != "array" || json.Unmarshal(value, &items) != nil {
		return ""
	}
	for _, item := range items {
		if is := noName(item, memberOf(schema, "items")); is != "" {
			return "a list with an item that is " + is
		}
	}
	return ""
}

// isEmpty reports whether a value has nothing in it.
func isEmpty(value json.RawMessage) bool {
	var v any
	if json.Unmarshal(value, &v) != nil {
		return false
	}
	switch v := v.(type) {
	case string:
		return strings.TrimSpace(v) == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// kindOf is the type of a value, as a schema names it.
func kindOf(value json.RawMessage) string {
	switch text := rawjson.TrimSpace(value); text[0] {
	case 'n':
		return "null"
	case 't', 'f':
		return "boolean"
	case '"':
		return "string"
	case '[':
		return "array"
	case '{':
		return "object"
	default:
		if bytes.ContainsAny(text, ".eE") {
			return "number"
		}
		return "integer"
	}
}
