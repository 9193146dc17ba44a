package triggers

import (
	"slices"
	"strings"
)

// Normalise returns the text of a checked expression without comments and
// without the space that separates nothing. Two texts with one normal form are
// the same sequence of tokens. It depends on the grammar of CEL only, so that a
// digest outlives any version of cel-go.
func Normalise(expression string) string {
	var out strings.Builder
	gap := false
	for i := 0; i < len(expression); {
		c := expression[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f':
			gap = true
			i++
		case strings.HasPrefix(expression[i:], "//"):
			gap = true
			for i < len(expression) && expression[i] != '\n' {
				i++
			}
		default:
			end := tokenEnd(expression, i)
			if gap && out.Len() > 0 && wordByte(lastByte(&out)) && wordByte(c) {
				out.WriteByte(' ')
			}
			gap = false
			out.WriteString(expression[i:end])
			i = end
		}
	}
	return out.String()
}

func lastByte(b *strings.Builder) byte {
	s := b.String()
	return s[len(s)-1]
}

func wordByte(c byte) bool {
	return c == '_' || c == '"' || c == '\'' || c == '`' || c >= '0' && c <= '9' || c >= 'a' &&
		c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// tokenEnd returns where the token at i ends: a string with its prefix, a word,
// or one byte of anything else.
func tokenEnd(s string, i int) int {
	j := i
	for j < len(s) && wordByte(s[j]) && s[j] != '"' && s[j] != '\'' && s[j] != '`' {
		j++
	}
	if j < len(s) && (s[j] == '"' || s[j] == '\'') && stringPrefix(s[i:j]) {
		return stringEnd(s, j, strings.ContainsAny(s[i:j], "rR"))
	}
	if j > i {
		return j
	}
	if s[i] == '`' {
		return stringEnd(s, i, true)
	}
	return i + 1
}

// stringPrefix reports whether word makes the quote after it raw or bytes.
func stringPrefix(word string) bool {
	switch strings.ToLower(word) {
	case "", "r", "b", "br", "rb":
		return true
	}
	return false
}

// stringEnd returns the index after the string that opens at i.
func stringEnd(s string, i int, raw bool) int {
	quote := s[i : i+1]
	if strings.HasPrefix(s[i:], quote+quote+quote) {
		quote = s[i : i+3]
	}
	for j := i + len(quote); j < len(s); j++ {
		if s[j] == '\\' && !raw {
			j++
			continue
		}
		if strings.HasPrefix(s[j:], quote) {
			return j + len(quote)
		}
	}
	return len(s)
}

// Spaced returns the text of an expression with spaces where people expect them.
// It is for the eye: Normalise gives the same for it as for the expression.
func Spaced(expression string) string {
	w := spacer{}
	text := Normalise(expression)
	for i := 0; i < len(text); {
		end := tokenEnd(text, i)
		if end-i == 1 && slices.Contains(twins, text[i:min(i+2, len(text))]) {
			end = i + 2
		}
		if text[i] == ' ' {
			end = i + 1
		}
		w.token(text[i:end])
		i = end
	}
	return w.out.String()
}

// twins are the operators of two characters, which are two tokens of Normalise.
var twins = []string{"==", "!=", "<=", ">=", "&&", "||"}

// spacer writes tokens one after the other.
type spacer struct {
	out  strings.Builder
	last string   // token
	open []string // brackets and '?' that are not closed
}

func (w *spacer) token(token string) {
	switch {
	case token == " ":
		w.gap()
	case token == ",":
		w.out.WriteString(", ")
	case token == "?" && slices.Contains([]string{".", "[", "{", ",", ""}, w.last):
		w.out.WriteString(token) // of an optional field, as in a.?b, a[?b] and [?b]
	case token == "?":
		w.open = append(w.open, token)
		w.spaced(token)
	case token == ":" && w.top() == "?":
		w.open = w.open[:len(w.open)-1]
		w.spaced(token)
	case token == ":":
		w.out.WriteString(": ")
	case strings.Contains("([{", token):
		w.open = append(w.open, token)
		w.out.WriteString(token)
	case strings.Contains(")]}", token):
		for w.top() == "?" {
			w.open = w.open[:len(w.open)-1]
		}
		w.open = w.open[:max(len(w.open)-1, 0)]
		w.out.WriteString(token)
	case slices.Contains(twins, token), strings.Contains("<>+*/%", token), token == "-" &&
		w.afterOperand(), token == "in" && w.last != ".":
		w.spaced(token)
	default:
		w.out.WriteString(token)
	}
	if token != " " {
		w.last = token
	}
}

func (w *spacer) top() string {
	if len(w.open) == 0 {
		return ""
	}
	return w.open[len(w.open)-1]
}

func (w *spacer) gap() {
	if s := w.out.String(); s != "" && !strings.HasSuffix(s, " ") {
		w.out.WriteByte(' ')
	}
}

func (w *spacer) spaced(token string) {
	w.gap()
	w.out.WriteString(token + " ")
}

// afterOperand reports whether a minus sign here subtracts.
func (w *spacer) afterOperand() bool {
	if w.last == "" || w.last == "in" {
		return false
	}
	last := w.last[len(w.last)-1]
	return wordByte(last) || last == ')' || last == ']' || last == '}'
}
