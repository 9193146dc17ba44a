package triggers

import (
	"strconv"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// Agents write the names of their orders into conditions. Texts that differ in
// such literals only have one shape: it is compiled once, and the literals are its
// parameters. Taking them out of a text needs no parser, only its tokens.

// literalKind is the kind of a literal that may become a parameter.
type literalKind byte

const (
	stringLiteral literalKind = 's'
	intLiteral    literalKind = 'i'
	doubleLiteral literalKind = 'd'
)

// literal is one literal of a text.
type literal struct {
	at    int // where it begins, in bytes
	kind  literalKind
	value ref.Val
}

// lifter takes literals out of a text.
type lifter struct {
	text     string
	key      strings.Builder
	literals []literal
	open     []byte // brackets that are open: ( [ {, or 'k' where literals are kept
	word     string // the last word, when nothing is between it and here
	operand  bool   // what is before is an operand, so that [ is an index
	last     byte
}

// lift returns the text with its plain literals replaced by marks, and the
// literals. Two texts with one key are the same tokens but for these. What is not
// plain stays: a string with an escape, a number with an exponent, whatever is
// in a list or a map, a regular expression, a time zone.
func lift(text string) (key string, literals []literal) {
	for i := range len(text) {
		if text[i] >= 0x80 {
			return Normalise(text), nil // places are counted in characters
		}
	}
	l := &lifter{text: text}
	l.key.Grow(len(text))
	gap := false
	for i := 0; i < len(text); {
		c := text[i]
		if c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' {
			gap = true
			i++
			continue
		}
		if strings.HasPrefix(text[i:], "//") {
			gap = true
			for i < len(text) && text[i] != '\n' {
				i++
			}
			continue
		}
		if gap && l.last != 0 && wordByte(l.last) && wordByte(c) {
			l.key.WriteByte(' ')
		}
		gap = false
		i = l.token(i)
	}
	return l.key.String(), l.literals
}

// token takes the token at i and returns where the next begins.
func (l *lifter) token(i int) int {
	c := l.text[i]
	switch {
	case c == '"' || c == '\'':
		end := stringEnd(l.text, i, false)
		plain := end-i >= 2 &&
			(end-i == 2 || !strings.HasPrefix(l.text[i:], strings.Repeat(string(c), 3))) &&
			l.text[end-1] == c && !strings.ContainsAny(l.text[i:end], "\\\n\r")
		if plain && l.lifts() {
			l.mark(literal{at: i, kind: stringLiteral, value: types.String(l.text[i+1 : end-1])})
		} else {
			l.write(i, end)
		}
		l.word, l.operand = "", true
		return end
	case c >= '0' && c <= '9' && l.last != '.':
		return l.number(i)
	}
	end := tokenEnd(l.text, i)
	l.write(i, end)
	l.bracket(c)
	l.word = ""
	if wordByte(c) {
		l.word = l.text[i:end]
	}
	l.operand = wordByte(c) && l.word != "in" || c == ')' || c == ']' || c == '}'
	return end
}

// number takes digits, or digits with a fraction; what else begins with a digit
// stays.
func (l *lifter) number(i int) int {
	digits := func(j int) int {
		for j < len(l.text) && l.text[j] >= '0' && l.text[j] <= '9' {
			j++
		}
		return j
	}
	end, kind := digits(i), intLiteral
	if end+1 < len(l.text) && l.text[end] == '.' && l.text[end+1] >= '0' && l.text[end+1] <= '9' {
		end, kind = digits(end+1), doubleLiteral
	}
	if whole := tokenEnd(l.text, end-1); whole > end { // 1u, 0x1f, 1e9
		l.write(i, whole)
		l.word, l.operand = "", true
		return whole
	}
	var value ref.Val
	if n, err := strconv.ParseInt(l.text[i:end], 10, 64); kind == intLiteral && err == nil {
		value = types.Int(n)
	} else if d, err := strconv.ParseFloat(l.text[i:end], 64); kind == doubleLiteral && err == nil {
		value = types.Double(d)
	}
	if value != nil && l.lifts() {
		l.mark(literal{at: i, kind: kind, value: value})
	} else {
		l.write(i, end)
	}
	l.word, l.operand = "", true
	return end
}

func (l *lifter) lifts() bool { return len(l.open) == 0 || l.open[len(l.open)-1] != 'k' }

func (l *lifter) mark(v literal) {
	l.key.WriteByte('$')
	l.key.WriteByte(byte(v.kind))
	l.literals = append(l.literals, v)
	l.last = byte(v.kind)
}

func (l *lifter) write(from, to int) {
	l.key.WriteString(l.text[from:to])
	l.last = l.text[to-1]
}

// bracket follows the brackets: literals are kept in those of a list, a map, and a
// call that wants a constant.
func (l *lifter) bracket(c byte) {
	switch {
	case c == '[' && l.operand, c == '(' && l.word != "matches" && !strings.HasPrefix(l.word, "get"):
		l.open = append(l.open, c)
	case c == '[', c == '(', c == '{':
		l.open = append(l.open, 'k')
	case (c == ']' || c == ')' || c == '}') && len(l.open) > 0:
		l.open = l.open[:len(l.open)-1]
	}
}
