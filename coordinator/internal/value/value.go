// Package value is what becomes of the values of a caller before they are recorded.
package value

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"

	"github.com/sagenbaum/sagenbaum/ledger"
)

const wantValue = "a value that encoding/json takes"

// Encode returns the JSON of an input or output: nil for none. The error is a *ledger.Refused that
// names the field. Where text is no UTF-8, or a name is given twice, it comes with the JSON; Whole
// says of a part of it whether that may be read.
func Encode(field string, value any) (encoded json.RawMessage, err error) {
	defer func() {
		if r := recover(); r != nil { // in a method of the caller's type
			encoded, err = nil, ledger.Refuse(field,
				fmt.Sprintf("%T panics when it is encoded: %v", value, r), wantValue)
		}
	}()
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
	var refused *ledger.Refused
	switch {
	case errors.As(err, &refused): // by the value itself, which knows what would be right
		return nil, refused
	case err != nil:
		return nil, ledger.Refuse(field, err.Error(), wantValue)
	}
	return data, exact(field, data, value)
}

// replaced is what encoding/json writes in place of a byte that is no UTF-8. It writes U+FFFD
// itself as it is.
const replaced = `\ufffd`

// Whole reports whether a part of the JSON of Encode is what it was, to every reader: no name is
// twice in all of it, and the part has no text that is another one.
func Whole(encoded, part json.RawMessage) bool {
	_, twice := ledger.NameTwice(encoded)
	return !twice && ledger.ExactJSON(part) && !bytes.Contains(part, []byte(replaced))
}

// Check refuses JSON that is another value to some readers. The error is a *ledger.Refused.
func Check(field string, encoded json.RawMessage) error { return exact(field, encoded, nil) }

// exact refuses JSON that is another value than what it was made of, or to some readers. It says
// where, and not what: the value may be secret.
func exact(field string, data []byte, from any) error {
	at, found := "", false
	if bytes.Contains(data, []byte(replaced)) {
		at, found = broken(reflect.ValueOf(from))
	}
	if found || !ledger.ExactJSON(data) {
		if at != "" {
			at = " at " + at
		}
		return ledger.Refuse(field, "it has text that is no UTF-8, or half a surrogate pair"+at,
			ledger.WantExact+", as []byte is")
	}
	if place, twice := ledger.NameTwice(data); twice {
		return ledger.Refuse(field, fmt.Sprintf("a name is given twice at %.64q", place),
			"each name once")
	}
	return nil
}

// broken finds text that is no UTF-8 in a value that encoding/json has taken, where it looks: it
// has no circles there. at is the path to it.
func broken(v reflect.Value) (at string, found bool) {
	if !v.IsValid() {
		return "", false
	}
	if found, own := marshals(v); own {
		return "", found
	}
	switch v.Kind() {
	case reflect.String:
		return "", !utf8.ValidString(v.String())
	case reflect.Interface, reflect.Pointer:
		return broken(v.Elem())
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
			return "", false // base64
		}
		for i := range v.Len() {
			if at, found = broken(v.Index(i)); found {
				return fmt.Sprintf("[%d]%s", i, at), true
			}
		}
	case reflect.Map:
		return brokenEntry(v)
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() && !f.Anonymous || f.Tag.Get("json") == "-" {
				continue
			}
			if at, found = broken(v.Field(i)); found {
				return "." + f.Name + at, true
			}
		}
	}
	return "", false
}

func brokenEntry(v reflect.Value) (at string, found bool) {
	for _, key := range v.MapKeys() {
		if key.Kind() == reflect.String { // before it is asked to make its own text
			found = !utf8.ValidString(key.String())
		} else {
			_, found = broken(key)
		}
		if found {
			return "a key", true
		}
		if at, found = broken(v.MapIndex(key)); found {
			return fmt.Sprintf("[%.32q]%s", fmt.Sprint(key), at), true
		}
	}
	return "", false
}

// marshals reports whether a value makes its JSON itself, and whether that has text which is
// another one, or cannot be told from it.
func marshals(v reflect.Value) (found, own bool) {
	if !v.CanInterface() || v.Kind() == reflect.Pointer && v.IsNil() {
		return false, false
	}
	value := v.Interface()
	if v.CanAddr() {
		value = v.Addr().Interface()
	}
	switch of := value.(type) {
	case *json.RawMessage, json.RawMessage:
		return false, true // it is what the caller wrote
	case json.Marshaler:
		text, err := of.MarshalJSON()
		return err == nil && bytes.Contains(text, []byte(replaced)), true
	case encoding.TextMarshaler:
		text, err := of.MarshalText()
		return err == nil && !utf8.Valid(text), true
	}
	return false, false
}
