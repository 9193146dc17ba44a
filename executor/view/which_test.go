package view

import (
	"errors"
	"slices"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// TestATextMeansOneAction: of an agent's ids and of the numbers in the plan, which may be the same.
func TestATextMeansOneAction(t *testing.T) {
	ids := []string{"3", "2", "pay", "1"} // of the numbers 1 to 4
	has := func(id string) bool { return slices.Contains(ids, id) }
	named := func(n int) string {
		if n > len(ids) {
			return ""
		}
		return ids[n-1]
	}
	for text, want := range map[string]string{"pay": "pay", "2": "2", "4": "1", "id:3": "3", "number:3": "pay",
		"id:pay": "pay", "number:1": "3", "id:4": "", "number:5": "", "number:pay": "", "5": "", "0": "", "": "",
		"number:": "", "id:": "", "number:0": "", "nope": ""} {
		if got, err := Which(text, has, named); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	for text, number := range map[string]string{"3": "pay", "1": "3"} {
		got, err := Which(text, has, named)
		var refused *ledger.Refused
		if !errors.As(err, &refused) || got != "" || refused.Field != "action" ||
			refused.Problem != text+" is the id of an action, and the number of action "+number ||
			refused.Want != "id:"+text+" or number:"+text {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
