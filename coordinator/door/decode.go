package door

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/triggers/nearest"
)

// Duration is a time as in "90s" or "2h".
type Duration time.Duration

// Instant is a point in time, in RFC 3339.
type Instant struct{ time.Time }

// Requests are structs of these types: string, bool, int, []string, map[string]string,
// json.RawMessage, Duration and Instant. Tags: json (the name), doc, req (it must be there), and
// enum (the values that a string may have). null is as if the field was not there, but for a
// json.RawMessage, of which it is a value.

// decode reads a request into a struct. The error is a *ledger.Refused.
func decode(body []byte, into any) error {
	if len(body) > BodyMax {
		return ledger.Refuse("body", fmt.Sprintf("%d bytes", len(body)),
			fmt.Sprintf("at most %d bytes; pass larger values by reference", BodyMax))
	}
	if !json.Valid(body) {
		var raw json.RawMessage
		return ledger.Refuse("body", fmt.Sprintf("not JSON: %v", json.Unmarshal(body, &raw)),
			"one JSON object")
	}
	given, err := members(body, "")
	if err != nil {
		return err
	}
	v := reflect.ValueOf(into).Elem()
	fields := fieldsOf(v.Type())
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.ContainsFunc(fields, func(f field) bool { return f.name == name }) {
			var names []string
			for _, f := range fields {
				names = append(names, f.name)
			}
			want := nearest.DidYouMean(name, names)
			if want == "" {
				want = "one of " + strings.Join(names, ", ")
			}
			return ledger.Refuse(clip(name), "there is no such field", want)
		}
	}
	for _, f := range fields {
		value, there := given[f.name]
		null := bytes.Equal(value, []byte("null")) && f.kind != kindJSON
		switch {
		case (!there || null) && f.required:
			return ledger.Refuse(f.name, "missing", f.want())
		case !there || null:
			continue
		}
		if err := f.set(v.Field(f.index), value); err != nil {
			return err
		}
	}
	return nil
}

// members are those of a JSON object, with their bytes; at names it in refusals.
func members(raw json.RawMessage, at string) (map[string]json.RawMessage, error) {
	name := at
	if name == "" {
		name = "body"
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, ledger.Refuse(name, "it is "+typeOf(raw), "an object")
	}
	found := map[string]json.RawMessage{}
	for d.More() {
		token, err := d.Token()
		key, ok := token.(string)
		var value json.RawMessage
		if err == nil && ok {
			err = d.Decode(&value)
		}
		if err != nil || !ok {
			return nil, ledger.Refuse(name, "not JSON", "an object")
		}
		if _, twice := found[key]; twice {
			return nil, ledger.Refuse(strings.TrimPrefix(at+"."+clip(key), "."), "given twice",
				"each field once")
		}
		found[key] = value
	}
	return found, nil
}

// kind is what a field takes.
type kind uint8

const (
	kindText kind = iota
	kindBool
	kindInt
	kindList
	kindMap
	kindJSON
	kindDuration
	kindInstant
)

// kinds are the Go types of fields.
var kinds = map[reflect.Type]kind{
	reflect.TypeFor[string](): kindText, reflect.TypeFor[bool](): kindBool,
	reflect.TypeFor[int](): kindInt, reflect.TypeFor[[]string](): kindList,
	reflect.TypeFor[map[string]string](): kindMap, reflect.TypeFor[json.RawMessage](): kindJSON,
	reflect.TypeFor[Duration](): kindDuration, reflect.TypeFor[Instant](): kindInstant,
}

// texts say what a field of each kind takes.
var texts = [...]string{"a string", "true or false", "a whole number of at least 0",
	"a list of strings", "an object of strings", "a JSON value", `a duration, as in "90s" or "2h"`,
	`a time, as in "2027-01-31T12:00:00Z"`}

// spanWanted is what is right in place of a duration of 0.
const spanWanted = "at least 1ms, or no such field"

// field is one of a request.
type field struct {
	name     string
	doc      string
	index    int
	kind     kind
	required bool
	zero     bool // a duration of 0 may be given
	enum     []string
}

func (f field) want() string {
	if len(f.enum) > 0 {
		return "one of " + strings.Join(f.enum, ", ")
	}
	return texts[f.kind]
}

// known are the fields of requests, by their type.
var known sync.Map

func fieldsOf(t reflect.Type) (fields []field) {
	if found, ok := known.Load(t); ok {
		return found.([]field)
	}
	defer func() { known.Store(t, fields) }()
	for i := range t.NumField() {
		at := t.Field(i)
		name, _, _ := strings.Cut(at.Tag.Get("json"), ",")
		f := field{name: name, doc: at.Tag.Get("doc"), index: i, kind: kinds[at.Type],
			required: at.Tag.Get("req") != "", zero: at.Tag.Get("zero") != ""}
		if enum := at.Tag.Get("enum"); enum != "" {
			f.enum = strings.Split(enum, ",")
		}
		fields = append(fields, f)
	}
	return fields
}

// set decodes one value into its field.
func (f field) set(to reflect.Value, raw json.RawMessage) error {
	switch f.kind {
	case kindJSON:
		to.SetBytes(bytes.TrimSpace(raw))
		if f.name == "output" { // it has happened, and is told however its tool writes it
			return nil
		}
		if place, found := ledger.NameTwice(raw); found {
			return ledger.Refuse(clip(f.name+place), "given twice", "each name once")
		}
		return nil
	case kindBool:
		value, ok := map[string]bool{"true": true, "false": false}[string(raw)]
		if !ok {
			return f.wrong(raw)
		}
		to.SetBool(value)
		return nil
	case kindInt:
		n, err := strconv.ParseUint(string(raw), 10, 31)
		if err != nil {
			return f.wrong(raw)
		}
		to.SetInt(int64(n))
		return nil
	case kindList:
		return f.setList(to, raw)
	case kindMap:
		return f.setMap(to, raw)
	}
	value, err := f.text(f.name, raw)
	if err != nil {
		return err
	}
	switch f.kind {
	case kindDuration:
		d, err := time.ParseDuration(value)
		if err != nil {
			return ledger.Refuse(f.name, fmt.Sprintf("%q is none", clip(value)), f.want())
		}
		switch { // 0 would pass for a field that is not given
		case d == 0 && f.zero:
			d = ledger.DurationMin
		case d == 0:
			return ledger.Refuse(f.name, "no time at all", spanWanted)
		}
		if err := ledger.CheckSpan(f.name, d, ledger.DurationMax); err != nil {
			return err
		}
		to.SetInt(int64(d))
	case kindInstant:
		at, err := time.Parse(time.RFC3339Nano, value)
		if err != nil {
			return ledger.Refuse(f.name, fmt.Sprintf("%q is none", clip(value)), f.want())
		}
		if _, err := ledger.InstantNs(f.name, at); err != nil {
			return err
		}
		to.Set(reflect.ValueOf(Instant{at}))
	default:
		if len(f.enum) > 0 && !slices.Contains(f.enum, value) {
			return ledger.Refuse(f.name, fmt.Sprintf("%q", clip(value)), f.want())
		}
		to.SetString(value)
	}
	return nil
}

func (f field) setList(to reflect.Value, raw json.RawMessage) error {
	var items []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &items) != nil {
		return f.wrong(raw)
	}
	list := make([]string, len(items))
	for i, item := range items {
		text, err := f.text(fmt.Sprintf("%s[%d]", f.name, i), item)
		if err != nil {
			return err
		}
		list[i] = text
	}
	to.Set(reflect.ValueOf(list))
	return nil
}

func (f field) setMap(to reflect.Value, raw json.RawMessage) error {
	if raw[0] != '{' {
		return f.wrong(raw)
	}
	if err := ledger.CheckExact(f.name, raw); err != nil {
		return err
	}
	given, err := members(raw, f.name)
	if err != nil {
		return err
	}
	found := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		text, err := f.text(f.name+"."+clip(key), given[key])
		if err != nil {
			return err
		}
		found[key] = text
	}
	to.Set(reflect.ValueOf(found))
	return nil
}

// text decodes a string. Bytes that are no UTF-8, and half a surrogate pair, are none:
// encoding/json puts another character in their place. That is right for a text that people read.
// The name of an effect that has happened is passed on as no text, and left out of its record.
func (f field) text(at string, raw json.RawMessage) (text string, err error) {
	if raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
		return "", ledger.Refuse(at, "it is "+typeOf(raw), f.element())
	}
	err = ledger.CheckExact(at, raw)
	switch {
	case err == nil, slices.Contains(forPeople, f.name):
		return text, nil
	case f.name == "external_ref":
		return text + "\xff", nil
	default:
		return "", err
	}
}

// forPeople are the fields that people read and nothing else does.
var forPeople = []string{"label", "message", "reason"}

// element is what the field takes, or each of its elements does.
func (f field) element() string {
	if f.kind == kindList || f.kind == kindMap {
		return texts[kindText]
	}
	return f.want()
}

func (f field) wrong(raw json.RawMessage) error {
	return ledger.Refuse(f.name, "it is "+typeOf(raw), f.want())
}

// typeOf names a JSON value for people.
func typeOf(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "the number " + clip(string(raw))
}

// clip shortens what was given for a refusal.
func clip(text string) string { return ledger.TextTo(text, 64) }
