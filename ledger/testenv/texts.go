package testenv

import (
	"encoding/json"
	"testing"
)

// Texts are all texts in a JSON value, but for the names of its members.
func Texts(t testing.TB, raw json.RawMessage) (list []string) {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	var add func(v any)
	add = func(v any) {
		switch v := v.(type) {
		case string:
			list = append(list, v)
		case []any:
			for _, item := range v {
				add(item)
			}
		case map[string]any:
			for _, item := range v {
				add(item)
			}
		}
	}
	add(v)
	return list
}
