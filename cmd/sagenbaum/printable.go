package main

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
)

// printable makes a text safe for a terminal. Labels, reasons and messages come
// from agents and workers, and a terminal obeys what it is sent: control
// characters, also those of C1, overrides of the writing direction and characters
// without a width become visible escapes, as \u202e. White space becomes a space.
func printable(text string) string {
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

// forPeople returns a copy of an answer in which every string is printable,
// whatever its field, so that none can be forgotten. JSON never goes through it.
func forPeople[T any](v T) T {
	from := reflect.ValueOf(&v).Elem()
	to := reflect.New(from.Type()).Elem()
	copyPrintable(to, from)
	return to.Interface().(T)
}

func copyPrintable(to, from reflect.Value) {
	switch from.Kind() {
	case reflect.String:
		to.SetString(printable(from.String()))
	case reflect.Struct:
		for i := range from.NumField() {
			copyPrintable(to.Field(i), from.Field(i))
		}
	case reflect.Slice:
		if from.IsNil() {
			return
		}
		if from.Type().Elem().Kind() == reflect.Uint8 { // JSON that is shown as text
			to.SetBytes([]byte(printable(string(from.Bytes()))))
			return
		}
		to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			copyPrintable(to.Index(i), from.Index(i))
		}
	case reflect.Map:
		if from.IsNil() {
			return
		}
		to.Set(reflect.MakeMapWithSize(from.Type(), from.Len()))
		for entry := from.MapRange(); entry.Next(); {
			key, value := reflect.New(from.Type().Key()).Elem(), reflect.New(from.Type().Elem()).Elem()
			copyPrintable(key, entry.Key())
			copyPrintable(value, entry.Value())
			to.SetMapIndex(key, value)
		}
	default:
		to.Set(from)
	}
}
