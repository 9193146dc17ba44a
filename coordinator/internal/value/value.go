// Package value is what becomes of the values and texts of a caller before they are recorded.
package value

import (
	"bytes"
	"encoding/json"
	"strings"

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

// Clip shortens a text to what a record takes.
func Clip(text string) string { return ClipTo(text, ledger.TextMax) }

// ClipTo shortens a text to so many bytes, or a few less.
func ClipTo(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}
