package exact

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Same reports whether two values of JSON are one value: numbers by value, objects whatever the
// order of their members, texts whatever their escapes. An object that has a name twice is the same
// as itself only, as it is written: readers differ about which of the two counts.
func Same(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if differs(&cursor{data: a}, &cursor{data: b}) == different {
		return false
	}
	one, ok := Canonical(a)
	other, is := Canonical(b)
	return ok && is && bytes.Equal(one, other)
}

// Canonical is the one spelling of a value of JSON. false: it cannot be read, has a name twice, or
// a number with an exponent that is beyond any use; such values are the same if their bytes are.
func Canonical(value []byte) ([]byte, bool) {
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	out, ok := canonical(make([]byte, 0, len(value)), d)
	return out, ok && !d.More()
}

func canonical(out []byte, d *json.Decoder) ([]byte, bool) {
	token, err := d.Token()
	if err != nil {
		return nil, false
	}
	switch v := token.(type) {
	case json.Number:
		n, ok := Parse(string(v))
		return append(out, n.String()...), ok
	case json.Delim:
		ok := true
		out = append(out, byte(v))
		if v == '{' {
			out, ok = members(out, d)
		}
		for first := true; ok && d.More(); first = false {
			if !first {
				out = append(out, ',')
			}
			out, ok = canonical(out, d)
		}
		if !ok {
			return nil, false
		}
		_, err := d.Token()
		return append(out, byte(v)+2), err == nil // ] and } come two after [ and {
	default: // a text or a word
		return append(out, quoted(v)...), true
	}
}

// members writes those of an object in the order of their names.
func members(out []byte, d *json.Decoder) ([]byte, bool) {
	type member struct {
		name  string
		value []byte
	}
	var list []member
	for d.More() {
		name, err := d.Token()
		text, is := name.(string)
		value, ok := canonical(nil, d)
		if err != nil || !is || !ok {
			return nil, false
		}
		list = append(list, member{text, value})
	}
	slices.SortFunc(list, func(a, b member) int { return strings.Compare(a.name, b.name) })
	for i, m := range list {
		if i > 0 {
			if m.name == list[i-1].name {
				return nil, false
			}
			out = append(out, ',')
		}
		out = append(append(append(out, quoted(m.name)...), ':'), m.value...)
	}
	return out, true
}

func quoted(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("exact: cannot encode: " + err.Error()) // nothing but JSON gets here
	}
	return text
}

// verdict is what a look at two values side by side says.
type verdict byte

const (
	unsure    verdict = iota // they have to be read
	different                // they are two values
	alike                    // they are one value, but for names that are there twice
)

// cursor is a place in JSON that is valid.
type cursor struct {
	data []byte
	at   int
}

// next is the byte of the next token; 0: there is none.
func (c *cursor) next() byte {
	for ; c.at < len(c.data); c.at++ {
		switch b := c.data[c.at]; b {
		case ' ', '\t', '\n', '\r', ',', ':':
		default:
			return b
		}
	}
	return 0
}

// text takes a string; plain says that it has no escapes.
func (c *cursor) text() (raw []byte, plain bool) {
	from := c.at
	plain = true
	for c.at++; c.at < len(c.data) && c.data[c.at] != '"'; c.at++ {
		if c.data[c.at] == '\\' {
			plain = false
			c.at++
		}
	}
	c.at = min(c.at+1, len(c.data))
	return c.data[from:c.at], plain
}

// word takes a number or a word.
func (c *cursor) word() []byte {
	from := c.at
	for c.at < len(c.data) && !bytes.ContainsRune([]byte(" \t\n\r,:]}"), rune(c.data[c.at])) {
		c.at++
	}
	return c.data[from:c.at]
}

// differs looks at two values side by side, as far as their members come in one order: most facts
// that change are written by one program.
func differs(a, b *cursor) verdict {
	x, y := a.next(), b.next()
	if kindOf(x) != kindOf(y) {
		return different
	}
	switch kindOf(x) {
	case '{', '[':
		return differWithin(a, b, x)
	case '"':
		one, plain := a.text()
		other, is := b.text()
		switch {
		case bytes.Equal(one, other):
			return alike
		case plain && is:
			return different
		}
		return unsure
	}
	one, other := a.word(), b.word()
	if bytes.Equal(one, other) {
		return alike
	}
	n, ok := Parse(string(one))
	m, is := Parse(string(other))
	switch {
	case ok && is && n == m:
		return alike
	case kindOf(x) == 'w', ok && is:
		return different
	}
	return unsure
}

// differWithin is differs of two objects or two lists.
func differWithin(a, b *cursor, open byte) verdict {
	a.at, b.at = a.at+1, b.at+1
	for {
		x, y := a.next(), b.next()
		switch ends := open + 2; {
		case x == 0 || y == 0:
			return unsure
		case x == ends && y == ends:
			a.at, b.at = a.at+1, b.at+1
			return alike
		case x == ends || y == ends:
			return different
		}
		if open == '{' {
			one, plain := a.text()
			other, is := b.text()
			if !plain || !is || !bytes.Equal(one, other) {
				return unsure
			}
			a.next()
			b.next()
		}
		if v := differs(a, b); v != alike {
			return v
		}
	}
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
