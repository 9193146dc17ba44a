// Package value is what becomes of the values of a caller before they are recorded.
package value

import (
	"bytes"
	"encoding/json"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Encode returns the JSON of an input or output: nil for none.
func Encode(field string, value any) (json.RawMessage, error) {
	if value == nil {
		return nil, nil
	}
	if raw, ok := value.(json.RawMessage); ok {
		if len(raw) > 0 && !json.Valid(raw) {
			return nil, ledger.Refuse(field, "not JSON", "one JSON value")
		}
		return bytes.Clone(raw), nil // it is read after the call has returned
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil, ledger.Refuse(field, err.Error(), "a value that encoding/json takes")
	}
	return data, nil
}
