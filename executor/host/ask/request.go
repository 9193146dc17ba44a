package ask

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// decodeStrict reads the body of a request: nothing, or one JSON object that has no other
// fields than into. The error is a *ledger.Refused that names the field.
func decodeStrict(body []byte, into any) error {
	if len(body) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return bodyRefusal(err, into)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return ledger.Refuse("request", "something follows the JSON object", "one JSON object")
	}
	return nil
}

// unknownField is how encoding/json begins to say that a field is not known.
const unknownField = `json: unknown field `

func bodyRefusal(err error, into any) error {
	var wrong *json.UnmarshalTypeError
	name, unknown := strings.CutPrefix(err.Error(), unknownField)
	switch {
	case unknown:
		field := "request." + strings.Trim(name, `"`)
		return ledger.Refuse(field, "no field of this request", fieldsOf(into))
	case errors.As(err, &wrong) && wrong.Field != "":
		want := "a value for " + wrong.Type.String()
		return ledger.Refuse("request."+wrong.Field, "a JSON "+wrong.Value, want)
	case errors.As(err, &wrong):
		return ledger.Refuse("request", "a JSON "+wrong.Value, "a JSON object")
	}
	return ledger.Refuse("request", "not JSON: "+err.Error(), "one JSON object")
}

// fieldsOf lists the fields that a request may have.
func fieldsOf(into any) string {
	of := reflect.TypeOf(into).Elem()
	var names []string
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	if len(names) == 0 {
		return "{}"
	}
	return strings.Join(names, ", ")
}
