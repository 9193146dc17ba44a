package ledger

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/triggers/nearest"
)

// ReadRequest reads one JSON object into a struct, of a program or a person that asks for
// something; at names it in refusals, as in "request". encoding/json takes a name in other letters
// for a field, the last of two values, and null for nothing: what someone meant to say would be
// lost without a word, and other parsers take another value. The error is a *Refused that names
// the field.
func ReadRequest(body []byte, into any, at string) error {
	return ShapeOf(reflect.TypeOf(into).Elem()).Read(body, into, at)
}

// CheckShape refuses JSON that is no object, or has at some depth a name that into has not in
// these letters, a name twice, or null in place of a value. What is any JSON there may have null.
func CheckShape(body []byte, into any, at string) error {
	return ShapeOf(reflect.TypeOf(into).Elem()).checkObject(body, at)
}

// Shape says which JSON a type of Go is read from. It is made once for requests that come often.
// It is not changed, and may be used by several goroutines.
type Shape struct {
	of      reflect.Type
	any     bool              // any JSON, also null
	own     bool              // the type reads its JSON itself, or is no struct, map or list of values
	members map[string]*Shape // of a struct, by their names in JSON
	item    *Shape            // of a map, a list, or what a pointer points to
}

// ShapeOf is the shape of a type.
func ShapeOf(of reflect.Type) *Shape { return shapeOf(of, map[reflect.Type]*Shape{}) }

// shapeOf is ShapeOf within a type that has itself at some depth, or may have.
func shapeOf(of reflect.Type, known map[reflect.Type]*Shape) *Shape {
	if s := known[of]; s != nil {
		return s
	}
	s := &Shape{of: of, any: of == anyJSON || of.Kind() == reflect.Interface}
	known[of] = s
	s.own = slices.ContainsFunc(readsOwn, reflect.PointerTo(of).Implements)
	if s.any || s.own {
		return s
	}
	switch of.Kind() {
	case reflect.Struct:
		s.members = map[string]*Shape{}
		for _, f := range reflect.VisibleFields(of) {
			if name := jsonName(f); name != "" && s.members[name] == nil {
				s.members[name] = shapeOf(f.Type, known)
			}
		}
	case reflect.Map, reflect.Pointer:
		s.item = shapeOf(of.Elem(), known)
	case reflect.Slice:
		if s.own = of.Elem().Kind() == reflect.Uint8; !s.own {
			s.item = shapeOf(of.Elem(), known)
		}
	default:
		s.own = true
	}
	return s
}

// Read is ReadRequest into a value of the shape's type.
func (s *Shape) Read(body []byte, into any, at string) error {
	if err := s.checkObject(body, at); err != nil {
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

func (s *Shape) checkObject(body []byte, at string) error {
	if !json.Valid(body) {
		return Refuse(at, notJSON(body), "one JSON object")
	}
	if kind := kindOfJSON(body); kind != "an object" {
		return Refuse(at, "it is "+kind, "a JSON object")
	}
	return s.check(body, at)
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

// plain reports whether a value has nothing in it that is to be looked at.
func (s *Shape) plain(raw json.RawMessage) bool { return s.any || s.own && string(raw) != "null" }

func (s *Shape) check(raw json.RawMessage, at string) error {
	switch {
	case s.plain(raw):
		return nil
	case string(raw) == "null":
		return Refuse(at, "null", "a value; leave out what has none")
	case s.of.Kind() == reflect.Pointer:
		return s.item.check(raw, at)
	case s.of.Kind() != reflect.Slice:
		return s.checkMembers(raw, at)
	}
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		return nil // who reads it says what is wrong
	}
	for i, item := range items {
		if err := s.item.check(item, fmt.Sprintf("%s[%d]", at, i)); err != nil {
			return err
		}
	}
	return nil
}

// checkMembers looks at the members of a struct, or of a map, which has any name once.
func (s *Shape) checkMembers(raw json.RawMessage, at string) error {
	seen := map[string]bool{}
	err := members(raw, func(name string, value json.RawMessage) error {
		item := s.item
		if s.members != nil {
			item = s.members[name]
		}
		twice := seen[name]
		seen[name] = true
		if item != nil && !twice && item.plain(value) {
			return nil // most are, and need no text that names them
		}
		place := at + "." + TextTo(name, 80)
		switch {
		case item == nil:
			return Refuse(place, "there is no such field", wantedOf(s.of, name))
		case twice:
			return Refuse(place, "given twice", "each field once")
		}
		return item.check(value, place)
	})
	if err == errNoObject {
		return nil // who reads it says what is wrong
	}
	return err
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
