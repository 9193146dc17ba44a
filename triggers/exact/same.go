package exact

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// Same reports whether two values of JSON are one value: numbers by value, objects whatever the
// order of their members, of which the last of a name counts, texts whatever their escapes.
func Same(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, y := bytes.TrimSpace(a), bytes.TrimSpace(b)
	if len(x) == 0 || len(y) == 0 || kindOf(x[0]) != kindOf(y[0]) {
		return false
	}
	switch kindOf(x[0]) {
	case '"':
		plain := bytes.IndexByte(x, '\\') < 0 && bytes.IndexByte(y, '\\') < 0
		if plain {
			return bytes.Equal(x, y)
		}
	case '0':
		n, ok := Parse(string(x))
		m, fits := Parse(string(y))
		return ok && fits && n == m || bytes.Equal(x, y)
	case 'w':
		return bytes.Equal(x, y)
	}
	one, ok := Canonical(a)
	other, is := Canonical(b)
	return ok && is && bytes.Equal(one, other)
}

// kindOf is the kind of a value by its first byte: an object, a list, a text, a word or a number.
func kindOf(first byte) byte {
	switch first {
	case '{', '[', '"':
		return first
	case 't', 'f', 'n':
		return 'w'
	default:
		return '0'
	}
}

// Canonical is the one spelling of a value of JSON. false: it cannot be read, or has a number with
// an exponent that is beyond any use; such values are the same if their bytes are.
func Canonical(value []byte) ([]byte, bool) {
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || d.More() {
		return nil, false
	}
	return canonical(make([]byte, 0, len(value)), v)
}

func canonical(out []byte, value any) ([]byte, bool) {
	switch v := value.(type) {
	case json.Number:
		n, ok := Parse(string(v))
		return append(out, n.String()...), ok
	case []any:
		out = append(out, '[')
		for i, item := range v {
			if i > 0 {
				out = append(out, ',')
			}
			var ok bool
			if out, ok = canonical(out, item); !ok {
				return nil, false
			}
		}
		return append(out, ']'), true
	case map[string]any:
		out = append(out, '{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(append(out, quoted(name)...), ':')
			var ok bool
			if out, ok = canonical(out, v[name]); !ok {
				return nil, false
			}
		}
		return append(out, '}'), true
	default: // a text or a word
		return append(out, quoted(v)...), true
	}
}

func quoted(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("exact: cannot encode: " + err.Error()) // nothing but JSON gets here
	}
	return text
}
