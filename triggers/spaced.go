package triggers

import (
	"slices"
	"strings"
)

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
	case slices.Contains(twins, token), strings.Contains("<>+*/%", token), token == "-" && w.afterOperand(), token == "in" && w.last != ".":
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
