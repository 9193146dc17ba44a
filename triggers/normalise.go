package triggers

import "strings"

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
	return c == '_' || c == '"' || c == '\'' || c == '`' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
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
