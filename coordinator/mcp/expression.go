package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/sagenbaum/sagenbaum/ledger"
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
