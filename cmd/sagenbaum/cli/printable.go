package cli

import (
	"encoding/json"
	"reflect"

	"github.com/sagenbaum/sagenbaum/ledger/seal"
	"github.com/sagenbaum/sagenbaum/ledger/verify"
)

// Printable is verify.Printable.
func Printable(text string) string { return verify.Printable(text) }

// ForPeople returns a copy of an answer in which every string is printable,
// whatever its field, and every sealed value its name, so that none can be forgotten.
// JSON never goes through it.
func ForPeople[T any](v T) T {
	from := reflect.ValueOf(&v).Elem()
	to := reflect.New(from.Type()).Elem()
	copyPrintable(to, from)
	return to.Interface().(T)
}

func copyPrintable(to, from reflect.Value) {
	switch from.Kind() {
	case reflect.String:
		to.SetString(Printable(from.String()))
	case reflect.Struct:
		for i := range from.NumField() {
			copyPrintable(to.Field(i), from.Field(i))
		}
	case reflect.Slice:
		if from.IsNil() {
			return
		}
		switch {
		case from.Type() == reflect.TypeFor[json.RawMessage](): // it is shown as text
			to.SetBytes([]byte(Printable(string(seal.Redact(from.Bytes())))))
			return
		case from.Type().Elem().Kind() == reflect.Uint8: // a hash, which is shown in hex
			to.Set(from)
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
			key := reflect.New(from.Type().Key()).Elem()
			value := reflect.New(from.Type().Elem()).Elem()
			copyPrintable(key, entry.Key())
			copyPrintable(value, entry.Value())
			to.SetMapIndex(key, value)
		}
	default:
		to.Set(from)
	}
}
