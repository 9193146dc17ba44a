package ledger

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/sagenbaum/sagenbaum/triggers/nearest"
)

// ReadRequest reads one JSON object into a struct, of a program or a person that asks for
// something; at names it in refusals, as in "request". encoding/json takes a name in other letters
// for a field, the last of two values, and null for nothing: what someone meant to say would be
// lost without a word, and other parsers take another value. The error is a *Refused that names
// the field.
func ReadRequest(body []byte, into any, at string) error {
	if err := CheckShape(body, into, at); err != nil {
		return err
	}
	var wrong *json.UnmarshalTypeError
	switch err := json.Unmarshal(body, into); {
	case errors.As(err, &wrong) && wrong.Field != "":
		return Refuse(at+"."+wrong.Field, "a JSON "+wrong.Value, "a value for "+wrong.Type.String())
	case err != nil:
		return Refuse(at, err.Error(), "one JSON object")
	}
	return nil
}

// CheckShape refuses JSON that is no object, or has at some depth a name that into has not in
// these letters, a name twice, or null in place of a value. What is any JSON there may have null.
func CheckShape(body []byte, into any, at string) error {
	if !json.Valid(body) {
		return Refuse(at, notJSON(body), "one JSON object")
	}
	if kind := kindOfJSON(body); kind != "an object" {
		return Refuse(at, "it is "+kind, "a JSON object")
	}
	return checkShape(body, reflect.TypeOf(into).Elem(), at)
}

func notJSON(body []byte) string {
	var any json.RawMessage
	return fmt.Sprintf("not JSON: %v", json.Unmarshal(body, &any))
}

// kindOfJSON says what a JSON value is.
func kindOfJSON(raw json.RawMessage) string {
	switch text := bytes.TrimSpace(raw); text[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return string(text)
	case 'n':
		return "null"
	}
	return "a number"
}

var (
	anyJSON  = reflect.TypeFor[json.RawMessage]()
	readsOwn = []reflect.Type{
		reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](),
	}
)

func checkShape(raw json.RawMessage, of reflect.Type, at string) error {
	if of == anyJSON || of.Kind() == reflect.Interface {
		return nil
	}
	if string(raw) == "null" {
		return Refuse(at, "null", "a value; leave out what has none")
	}
	for _, own := range readsOwn {
		if reflect.PointerTo(of).Implements(own) {
			return nil
		}
	}
	switch of.Kind() {
	case reflect.Pointer:
		return checkShape(raw, of.Elem(), at)
	case reflect.Struct, reflect.Map:
		return checkMembers(raw, of, at)
	case reflect.Slice:
		var items []json.RawMessage
		if of.Elem().Kind() == reflect.Uint8 || json.Unmarshal(raw, &items) != nil {
			return nil // who reads it says what is wrong
		}
		for i, item := range items {
			if err := checkShape(item, of.Elem(), fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkMembers looks at the members of a struct, or of a map, which has any name once.
func checkMembers(raw json.RawMessage, of reflect.Type, at string) error {
	var fields []reflect.StructField
	if of.Kind() == reflect.Struct {
		fields = reflect.VisibleFields(of)
	}
	seen := map[string]bool{}
	err := members(raw, func(name string, value json.RawMessage) error {
		place := at + "." + TextTo(name, 80)
		item, known := reflect.Type(nil), true
		if of.Kind() == reflect.Map {
			item = of.Elem()
		} else {
			item, known = memberOf(fields, name)
		}
		switch {
		case !known:
			return Refuse(place, "there is no such field", wantedOf(of, name))
		case seen[name]:
			return Refuse(place, "given twice", "each field once")
		}
		seen[name] = true
		return checkShape(value, item, place)
	})
	if err == errNoObject {
		return nil // who reads it says what is wrong
	}
	return err
}

// memberOf is the type of one of a struct's fields by its name in JSON.
func memberOf(fields []reflect.StructField, name string) (reflect.Type, bool) {
	for _, f := range fields {
		if jsonName(f) == name && name != "" {
			return f.Type, true
		}
	}
	return nil, false
}

// jsonName is what a field is called in JSON, or "".
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case name == "-" || !f.IsExported() || f.Anonymous && name == "":
		return ""
	case name == "":
		return f.Name
	}
	return name
}

// wantedOf says which fields a struct has, or which one was meant.
func wantedOf(of reflect.Type, name string) string {
	var names []string
	for _, f := range reflect.VisibleFields(of) {
		if n := jsonName(f); n != "" {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return "{}"
	}
	if want := nearest.DidYouMean(strings.ToLower(name), names); want != "" {
		return want
	}
	return strings.Join(names, ", ")
}
