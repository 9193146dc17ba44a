package triggers

import (
	"encoding/json"
	"slices"
)

// follow returns the bytes at the end of a path as they are, which is a part of the
// variable and must not be changed; where it leads nowhere, null and false. Evaluate has
// checked that the variables are JSON. Nothing is decoded on the way: of names that are
// there twice the last counts, as where all is decoded.
func follow(vars *BindingVars, path []any) (json.RawMessage, bool) {
	value := trimSpace(vars.of(path[0].(string)))
	for _, step := range path[1:] {
		switch s := step.(type) {
		case string:
			value = member(value, s)
		case int64:
			value = element(value, s)
		}
	}
	if len(value) == 0 {
		return json.RawMessage("null"), false
	}
	return value, true
}

// member is the value of a name in a JSON object; nil: it is not there, or this is none.
func member(object []byte, name string) (value []byte) {
	if len(object) == 0 || object[0] != '{' {
		return nil
	}
	for rest := trimSpace(object[1:]); rest[0] != '}'; {
		key := rest[:valueLen(rest)]
		rest = trimSpace(rest[len(key):])
		rest = trimSpace(rest[1:]) // the colon
		n := valueLen(rest)
		if isName(key, name) {
			value = rest[:n:n]
		}
		rest = pastComma(rest[n:])
	}
	return value
}

// element is the value at a place of a JSON array, from 0; nil: it is not there, or this
// is none.
func element(array []byte, at int64) []byte {
	if len(array) == 0 || array[0] != '[' || at < 0 {
		return nil
	}
	for rest := trimSpace(array[1:]); rest[0] != ']'; at-- {
		n := valueLen(rest)
		if at == 0 {
			return rest[:n:n]
		}
		rest = pastComma(rest[n:])
	}
	return nil
}

// pastComma is what follows a value of an object or array: the next one, or its end.
func pastComma(rest []byte) []byte {
	if rest = trimSpace(rest); rest[0] == ',' {
		rest = trimSpace(rest[1:])
	}
	return rest
}

// isName reports whether a JSON string is this name.
func isName(quoted []byte, name string) bool {
	for _, c := range quoted {
		if c == '\\' || c >= 0x80 { // what it means is the decoder's to say
			var text string
			return json.Unmarshal(quoted, &text) == nil && text == name
		}
	}
	return string(quoted[1:len(quoted)-1]) == name
}

// valueLen is how many bytes the value takes that valid JSON begins with.
func valueLen(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth--; depth < 0 {
				return i // the end of what a number or a word is in
			}
		case ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i // the end of a number or a word
			}
			continue
		default:
			continue // of a number or a word
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(text)
}

// trimSpace is the text without the space of JSON around it.
func trimSpace(text []byte) []byte {
	space := func(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
	for len(text) > 0 && space(text[0]) {
		text = text[1:]
	}
	for len(text) > 0 && space(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	return text
}

// losePartial is lose for what is below actions and facts.
func (r *bindingRun) losePartial(reads []Read) {
	for _, read := range reads {
		if r.lost == nil && isBelow(r.vars.Partial, read.Path) &&
			!leads(r.vars.of(read.Path[0]), read.Path[1:]) {
			r.lost = &Missing{read.Path}
		}
	}
}

// isBelow reports whether a path leads into one of others.
func isBelow(others [][]string, path []string) bool {
	return slices.ContainsFunc(others, func(other []string) bool {
		return len(path) > len(other) && slices.Equal(path[:len(other)], other)
	})
}

// takesPartial finds a path that takes the whole of what was not kept as a whole.
func (b *Binding) takesPartial(partial [][]string) *Missing {
	for _, read := range b.paths {
		for _, p := range partial {
			if len(read.Path) <= len(p) && slices.Equal(read.Path, p[:len(read.Path)]) {
				return &Missing{read.Path}
			}
		}
	}
	return nil
}
