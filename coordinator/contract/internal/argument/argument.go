// Package argument is the text of a contract's arguments and expressions: literals of JSON,
// CEL after '=', and paths. It knows nothing of the contract that they are in.
package argument

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/triggers"
)

// Encode writes a value as JSON, without escapes for HTML.
func Encode(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// Decode reads a JSON value and keeps numbers as they are written.
func Decode(text []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var v any
	err := decoder.Decode(&v)
	return v, err
}

// Expression returns the normal form of a field that is always CEL.
func Expression(text string) string { return triggers.Normalise(CEL(text)) }

// CEL takes the '=' from an expression that has one. No CEL begins with it.
func CEL(text string) string {
	return strings.TrimPrefix(strings.TrimLeft(text, " \t\r\n"), "=")
}

// DepthMax bounds the nesting of a literal argument.
const DepthMax = 32

// Refuse gets what is wrong with an argument: its field, the problem, and what would be right.
type Refuse func(field, problem, want string)

// Normal normalises argument values: JSON, numbers as they are written, paths translated,
// expressions in their normal form. What is refused is left out.
func Normal(field string, with map[string]any, refuse Refuse) map[string]any {
	out := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(with)) {
		place := field + "." + name
		text, err := Encode(with[name])
		if err != nil {
			refuse(place, err.Error(), "a JSON value, or CEL after '='")
			continue
		}
		value, err := Decode(text)
		if err != nil {
			refuse(place, err.Error(), "a JSON value, or CEL after '='")
			continue
		}
		out[name] = refuse.value(place, value, 0)
	}
	return out
}

func (refuse Refuse) value(field string, value any, depth int) any {
	if depth > DepthMax {
		refuse(field, fmt.Sprintf("nested deeper than %d", DepthMax), "a flatter value")
		return nil
	}
	switch v := value.(type) {
	case string:
		if text, ok := strings.CutPrefix(v, "="); ok {
			return "=" + triggers.Normalise(text)
		}
	case []any:
		for i := range v {
			v[i] = refuse.value(fmt.Sprintf("%s[%d]", field, i), v[i], depth+1)
		}
	case map[string]any:
		if path, ok := PathIn(v); ok {
			text, err := Translate(path)
			if err != nil {
				refuse(field+".from", err.Error(), "a path as in $.output.id or $.input.items[0].sku")
				return nil
			}
			return "=" + text
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			v[name] = refuse.value(field+"."+name, v[name], depth+1)
		}
	}
	return value
}
