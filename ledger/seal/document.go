package seal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Path says which values of a payload are sealed: input, output or before, and names
// below it; "*" is each item of a list, or each field of an object.
type Path []string

// PathsMax bounds the paths of one contract; PathDepthMax the names of one.
const (
	PathsMax     = 64
	PathDepthMax = 16
)

// ParsePath reads "input.card", "output", "before.items.*.token". The error says what
// would be right.
func ParsePath(text string) (Path, error) {
	p := Path(strings.Split(text, "."))
	switch {
	case !slices.Contains([]string{"input", "output", "before"}, p[0]):
		return nil, fmt.Errorf("%q begins with none of input, output and before, as in input.card",
			text)
	case slices.Contains(p, ""):
		return nil,
			fmt.Errorf("%q has an empty name; write names between the dots, as in input.card", text)
	case len(p) > PathDepthMax:
		return nil, fmt.Errorf("%q has %d names, at most %d", text, len(p), PathDepthMax)
	case strings.ContainsAny(text, "/\"\\"):
		return nil, fmt.Errorf("%q has a character that no path may have: / \" or \\", text)
	}
	return p, nil
}

// String is what ParsePath reads.
func (p Path) String() string { return strings.Join(p, ".") }

// Overlaps reports whether one of two paths leads to, or into, what the other names.
func (p Path) Overlaps(other []string) bool {
	for i := range min(len(p), len(other)) {
		if p[i] != other[i] && p[i] != "*" && other[i] != "*" {
			return false
		}
	}
	return true
}

// Inside reports whether a path leads into a value that p names: to a part of it.
func (p Path) Inside(other []string) bool { return len(other) > len(p) && p.Overlaps(other) }

// Document seals the values of one payload field (root is input, output or before) that
// paths name. What is not there is left out; a value that is sealed already stays. It
// returns the document as it was when nothing is to be sealed.
func Document(
	key Key, at Place, root string, paths []Path, document json.RawMessage,
) json.RawMessage {
	for _, path := range paths {
		if path[0] != root || len(document) == 0 {
			continue
		}
		document = replace(document, path[1:], root,
			func(field string, value json.RawMessage) json.RawMessage {
				if _, ok := parse(value); ok || bytes.Equal(value, []byte("null")) {
					return value
				}
				place := at
				place.Field = field
				return Seal(key, place, value)
			})
	}
	return document
}

// replace changes the values at a path, and keeps every other byte.
func replace(
	raw json.RawMessage, path []string, field string,
	with func(field string, value json.RawMessage) json.RawMessage,
) json.RawMessage {
	raw = bytes.TrimSpace(raw)
	if _, ok := parse(raw); ok || len(path) == 0 {
		return with(field, raw)
	}
	return rebuild(raw, func(name string, value json.RawMessage) json.RawMessage {
		if path[0] != "*" && path[0] != name {
			return value
		}
		return replace(value, path[1:], field+"."+name, with)
	})
}

// rebuild passes the members of an object, or the items of a list, through a function;
// the order of the members stays. Other values are returned as they are.
func rebuild(
	raw json.RawMessage, each func(name string, value json.RawMessage) json.RawMessage,
) json.RawMessage {
	if len(raw) == 0 || raw[0] != '{' && raw[0] != '[' {
		return raw
	}
	in := json.NewDecoder(bytes.NewReader(raw))
	if _, err := in.Token(); err != nil {
		return raw
	}
	out := []byte{raw[0]}
	changed := false
	for n := 0; in.More(); n++ {
		name := fmt.Sprint(n)
		if n > 0 {
			out = append(out, ',')
		}
		if raw[0] == '{' {
			token, err := in.Token()
			if err != nil {
				return raw
			}
			name = token.(string)
			out = append(append(out, quote(name)...), ':')
		}
		var value json.RawMessage
		if in.Decode(&value) != nil {
			return raw
		}
		next := each(name, value)
		changed = changed || !bytes.Equal(next, value)
		out = append(out, next...)
	}
	if !changed {
		return raw
	}
	return append(out, raw[0]+2) // '}' is '{' + 2, and ']' is '[' + 2
}

func quote(name string) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(name); err != nil {
		panic("seal: a name that is no JSON: " + err.Error())
	}
	return bytes.TrimSpace(out.Bytes())
}

// Sealed reports whether there may be a sealed value in a document.
func Sealed(document []byte) bool { return bytes.Contains(document, []byte(Mark)) }

// Open opens every sealed value of a document by a function, which decides whose keys
// may be used. The first error ends it. It returns the values that were opened, so that
// they can be kept out of what is said of them.
func Open(
	document json.RawMessage, open func(Value) (json.RawMessage, error),
) (out json.RawMessage, opened []json.RawMessage, err error) {
	if !Sealed(document) {
		return document, nil, nil
	}
	out = each(document, func(v Value, raw json.RawMessage) json.RawMessage {
		if err != nil {
			return raw
		}
		value, problem := open(v)
		if problem != nil {
			err = fmt.Errorf("cannot open %s: %w", v.Field, problem)
			return raw
		}
		opened = append(opened, value)
		return value
	})
	if err != nil {
		return nil, nil, err
	}
	return out, opened, nil
}

// each passes every sealed value of a document through a function.
func each(raw json.RawMessage, with func(Value, json.RawMessage) json.RawMessage) json.RawMessage {
	raw = bytes.TrimSpace(raw)
	if v, ok := parse(raw); ok {
		return with(v, raw)
	}
	if !Sealed(raw) {
		return raw
	}
	return rebuild(raw, func(_ string, value json.RawMessage) json.RawMessage {
		return each(value,
			with)
	})
}

// Values are the sealed values of a document, in order.
func Values(document json.RawMessage) (list []Value) {
	if Sealed(document) {
		each(document, func(v Value, raw json.RawMessage) json.RawMessage {
			list = append(list,
				v)
			return raw
		})
	}
	return list
}

// Pointers say where the sealed values of a document are, in order (RFC 6901).
func Pointers(document json.RawMessage) (list []string) {
	if Sealed(document) {
		walk("", document, func(pointer string, value json.RawMessage) bool {
			_, sealed := parse(value)
			if sealed {
				list = append(list, pointer)
			}
			return !sealed
		})
	}
	return list
}

// Closed returns the path of a sealed value of a document that an expression would have to open,
// with dots; "": there is no such value. It reads the document at a path: copied, it takes sealed
// values as they are, but no part of one; else it computes from what is there.
func Closed(document json.RawMessage, path []string, copied bool) string {
	for i, step := range path {
		if _, sealed := parse(bytes.TrimSpace(document)); sealed {
			return strings.Join(path[:i], ".")
		}
		var fields map[string]json.RawMessage
		var items []json.RawMessage
		at, err := strconv.Atoi(step)
		switch {
		case json.Unmarshal(document, &fields) == nil:
			document = fields[step]
		case err == nil && json.Unmarshal(document, &items) == nil && at >= 0 && at < len(items):
			document = items[at]
		default:
			return ""
		}
	}
	if !copied && Sealed(document) {
		return strings.Join(path, ".")
	}
	return ""
}

// At are the values of a document at these pointers, as far as there are any, in order.
func At(document json.RawMessage, pointers []string) (values []json.RawMessage) {
	if len(pointers) > 0 {
		walk("", document, func(pointer string, value json.RawMessage) bool {
			found := slices.Contains(pointers, pointer)
			if found {
				values = append(values, value)
			}
			return !found
		})
	}
	return values
}

// walk passes every value of a document with its place; false: not what is in it.
func walk(
	pointer string, raw json.RawMessage, each func(pointer string, value json.RawMessage) bool,
) {
	raw = bytes.TrimSpace(raw)
	if each(pointer, raw) {
		rebuild(raw, func(name string, value json.RawMessage) json.RawMessage {
			walk(pointer+"/"+escapePointer.Replace(name), value, each)
			return value
		})
	}
}

var escapePointer = strings.NewReplacer("~", "~0", "/", "~1")

// Redact puts a name in the place of every sealed value, for people: "[sealed input.card]".
func Redact(document json.RawMessage) json.RawMessage {
	if !Sealed(document) {
		return document
	}
	return each(document, func(v Value,
		_ json.RawMessage) json.RawMessage {
		return quote(v.Name())
	})
}

// scrubMin is the shortest text that Scrub looks for, in bytes: shorter ones stand
// everywhere.
const scrubMin = 4

// Scrub takes the texts of opened values out of what someone says of them: an error, a
// log line. Texts and numbers of four bytes and more are looked for, also within the
// values.
func Scrub(text string, opened []json.RawMessage) string { return scrub(text, secrets(opened)) }

func scrub(text string, secrets []string) string {
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, "[sealed]")
	}
	return text
}

// ScrubReply is Scrub for all that a worker says.
func ScrubReply(r api.Reply, opened []json.RawMessage) api.Reply {
	list := secrets(opened)
	r.Code, r.Message, r.ExternalRef = scrub(r.Code, list), scrub(r.Message, list),
		scrub(r.ExternalRef, list)
	if output := scrub(string(r.Output), list); output != string(r.Output) {
		if r.Output = json.RawMessage(output); !json.Valid(r.Output) { // a number was taken out
			r.Output = nil
		}
	}
	return r
}

// secrets are the texts and numbers within values, the longest first.
func secrets(opened []json.RawMessage) (list []string) {
	for _, raw := range opened {
		walk("", raw, func(_ string, value json.RawMessage) bool {
			var text string
			switch {
			case len(value) == 0:
			case value[0] == '"' && json.Unmarshal(value, &text) == nil:
				escaped, _ := json.Marshal(text) // of a text
				list = append(list, text, string(value[1:len(value)-1]),
					string(escaped[1:len(escaped)-1]))
			case value[0] == '-' || value[0] >= '0' && value[0] <= '9':
				list = append(list, string(value))
			}
			return true
		})
	}
	list = slices.DeleteFunc(list, func(s string) bool { return len(s) < scrubMin })
	slices.SortFunc(list, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(list)
}
