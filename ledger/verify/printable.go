package verify

import (
	"fmt"
	"strings"
	"unicode"
)

// Printable makes a text safe for a terminal. Labels, reasons and messages come
// from agents and workers, and a terminal obeys what it is sent: control
// characters, also those of C1, overrides of the writing direction and characters
// without a width become visible escapes, as \u202e. White space becomes a space.
func Printable(text string) string {
	if strings.IndexFunc(text, unprintable) < 0 {
		return strings.ToValidUTF8(text, "\uFFFD")
	}
	var out strings.Builder
	for _, r := range text { // bytes that are no UTF-8 come as U+FFFD
		switch {
		case !unprintable(r):
			out.WriteRune(r)
		case unicode.IsSpace(r):
			out.WriteByte(' ')
		case r < 0x100:
			fmt.Fprintf(&out, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			fmt.Fprintf(&out, `\U%08x`, r)
		}
	}
	return out.String()
}

// unprintable are all characters that Unicode does not call letters, marks,
// numbers, punctuation, symbols or the space, and the fillers, which are letters
// that show nothing.
func unprintable(r rune) bool {
	switch r {
	case '\u034f', '\u115f', '\u1160', '\u17b4', '\u17b5', '\u3164', '\uffa0':
		return true
	}
	return !unicode.IsPrint(r)
}
