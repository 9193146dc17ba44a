// Package rawjson takes valid JSON (RFC 8259) apart without decoding it: what its callers pass on,
// compare or look one member up in stays as it was written. Of text that is not valid JSON nothing
// is promised, not even that a function returns: [encoding/json.Valid] comes first.
package rawjson

import (
	"encoding/json"
	"iter"
	"strconv"
	"unicode/utf8"
)

// Members are the names of an object with their values, in the order in which they are written, a
// name that is given twice twice. Of a value that is no object there are none. A name may be a part
// of the object, and so is each value.
func Members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		if object = TrimSpace(object); len(object) == 0 || object[0] != '{' {
			return
		}
		for rest := TrimSpace(object[1:]); rest[0] != '}'; {
			var key, value []byte
			key, value, rest = Member(rest)
			name, err := Name(key)
			if err != nil || !yield(name, value) {
				return
			}
		}
	}
}

// Member is the first member of those that an object goes on with, its name as it is written, and
// what follows: the next member, or the end of the object.
func Member(members []byte) (key, value, rest []byte) {
	key = members[:ValueLen(members)]
	rest = TrimSpace(members[len(key):])
	rest = TrimSpace(rest[1:]) // the colon
	n := ValueLen(rest)
	return key, rest[:n:n], PastComma(rest[n:])
}

// PastComma is what follows a value of an object or array: the next one, or its end.
func PastComma(rest []byte) []byte {
	if rest = TrimSpace(rest); rest[0] == ',' {
		rest = TrimSpace(rest[1:])
	}
	return rest
}

// Twice finds a name that an object within a value has twice, and says where, as in .a[1].b: some
// readers take the first one, and others the last.
func Twice(value []byte) (place string, found bool) {
	place, _, found = twice(TrimSpace(value))
	return place, found
}

// twice is Twice of the value that a text begins with; rest is what follows that.
func twice(text []byte) (place string, rest []byte, found bool) {
	if len(text) == 0 || text[0] != '{' && text[0] != '[' {
		return "", text[ValueLen(text):], false
	}
	var names seen
	rest = TrimSpace(text[1:])
	for i := 0; rest[0] != '}' && rest[0] != ']'; i++ {
		var name []byte
		if text[0] == '{' {
			key := rest[:ValueLen(rest)]
			name, _ = Name(key) // valid JSON has no other keys
			if names.has(name) {
				return "." + string(name), nil, true
			}
			rest = TrimSpace(TrimSpace(rest[len(key):])[1:])
		}
		switch place, rest, found = twice(rest); {
		case found && text[0] == '{':
			return "." + string(name) + place, nil, true
		case found:
			return "[" + strconv.Itoa(i) + "]" + place, nil, true
		}
		rest = PastComma(rest)
	}
	return "", rest[1:], false
}

// seen are the names of an object: most have a few, for which no map is made.
type seen struct {
	few  [8][]byte
	n    int
	more map[string]bool
}

// has reports whether a name was there before, and keeps it.
func (s *seen) has(name []byte) bool {
	for _, other := range s.few[:s.n] {
		if string(other) == string(name) {
			return true
		}
	}
	switch {
	case s.n < len(s.few):
		s.few[s.n] = name
		s.n++
		return false
	case s.more == nil:
		s.more = map[string]bool{}
	}
	if s.more[string(name)] {
		return true
	}
	s.more[string(name)] = true
	return false
}

// Is reports whether a string is this text.
func Is(quoted []byte, text string) bool {
	if isPlain(quoted) {
		return string(quoted[1:len(quoted)-1]) == text
	}
	got, err := Text(quoted)
	return err == nil && got == text
}

// Name is Text without a copy of a string that says just the bytes between its quotes.
func Name(quoted []byte) ([]byte, error) {
	if isPlain(quoted) {
		return quoted[1 : len(quoted)-1 : len(quoted)-1], nil
	}
	text, err := Text(quoted)
	return []byte(text), err
}

// Text is what a string says. It may be asked of any text: the error is that of the decoder, where
// that is no string.
func Text(quoted []byte) (text string, err error) {
	if isPlain(quoted) {
		return string(quoted[1 : len(quoted)-1]), nil
	}
	err = json.Unmarshal(quoted, &text)
	return text, err
}

// isPlain reports whether a text is a string that says just the bytes between its quotes. What
// another one says is for the decoder to tell.
func isPlain(quoted []byte) bool {
	if len(quoted) < 2 || quoted[0] != '"' || quoted[len(quoted)-1] != '"' {
		return false
	}
	for _, c := range quoted[1 : len(quoted)-1] {
		if c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// ValueLen is how many bytes the value takes that valid JSON begins with.
func ValueLen(text []byte) int {
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

// TrimSpace is the text without the space of JSON around it.
func TrimSpace(text []byte) []byte {
	space := func(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
	for len(text) > 0 && space(text[0]) {
		text = text[1:]
	}
	for len(text) > 0 && space(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	return text
}
