// Package value is what becomes of the values of a caller before they are recorded.
package value

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"unicode/utf8"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Encode returns the JSON of an input or output: nil for none. The error is a *ledger.Refused that
// names the field. Where text is no UTF-8 it comes with the JSON, in which that text is another
// one; Whole says of a part of it that it is not.
func Encode(field string, value any) (json.RawMessage, error) {
	if value == nil {
		return nil, nil
	}
	if raw, ok := value.(json.RawMessage); ok {
		if len(raw) > 0 && !json.Valid(raw) {
			return nil, ledger.Refuse(field, "not JSON", "one JSON value")
		}
		return bytes.Clone(raw), exact(field, raw, nil) // it is read after the call has returned
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil, ledger.Refuse(field, err.Error(), "a value that encoding/json takes")
	}
	return data, exact(field, data, value)
}

// replaced is what encoding/json writes in place of a byte that is no UTF-8. It writes U+FFFD
// itself as it is.
const replaced = `\ufffd`

// Whole reports whether a part of the JSON of Encode has no text that is another one.
func Whole(part json.RawMessage) bool {
	return ledger.ExactJSON(part) && !bytes.Contains(part, []byte(replaced))
}

// exact refuses JSON that is another value than what it was made of, or to some readers.
func exact(field string, data []byte, from any) error {
	text, found := "", false
	if bytes.Contains(data, []byte(replaced)) {
		text, found = broken(reflect.ValueOf(from))
	}
	switch {
	case found:
		return ledger.Refuse(field, fmt.Sprintf("%.64q is no UTF-8", text), wantExact)
	case !ledger.ExactJSON(data):
		return ledger.Refuse(field, "it has text that is no Unicode", wantExact)
	}
	return nil
}

const wantExact = "UTF-8, without half a surrogate pair; other bytes as []byte, which is base64"

// broken finds a string that is no UTF-8 in a value that encoding/json has taken: it has no
// circles. What makes its JSON itself is looked at as JSON.
func broken(v reflect.Value) (text string, found bool) {
	if !v.IsValid() || v.CanInterface() && marshals(v.Interface()) {
		return "", false
	}
	switch v.Kind() {
	case reflect.String:
		return v.String(), !utf8.ValidString(v.String())
	case reflect.Interface, reflect.Pointer:
		return broken(v.Elem())
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
			return "", false // base64
		}
		for i := 0; i < v.Len() && !found; i++ {
			text, found = broken(v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if text, found = broken(key); !found {
				text, found = broken(v.MapIndex(key))
			}
			if found {
				break
			}
		}
	case reflect.Struct:
		for i := 0; i < v.NumField() && !found; i++ {
			if v.Type().Field(i).Tag.Get("json") != "-" {
				text, found = broken(v.Field(i))
			}
		}
	}
	return text, found
}

// marshals reports whether a value makes its JSON itself.
func marshals(value any) bool {
	if _, ok := value.(json.Marshaler); ok {
		return true
	}
	_, ok := value.(encoding.TextMarshaler)
	return ok
}
