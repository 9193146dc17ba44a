package jetstream

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
)

func TestWhatAServerSaysOfItselfIsChecked(t *testing.T) {
	for _, c := range []struct {
		answer, field string
		lossy         bool
	}{
		{`{"server":{"ver":"2.15.2"},"data":{"config":{"sync_always":true,"strict":true}}}`, "", false},
		{`{"server":{"ver":"2.14.2"},"data":{"config":{"sync_always":true,"strict":true}}}`, "server", false},
		{`{"server":{"ver":"2.12.11"},"data":{"config":{"sync_always":true,"strict":true}}}`, "server", true},
		{`{"server":{"ver":"2.15.2"},"data":{"config":{"sync_always":true}}}`, "strict", false},
		{`{"server":{"ver":"2.15.2"},"data":{"config":{"sync_always":true}}}`, "strict", true},
		{`{"server":{"ver":"2.15.2"},"data":{"config":{"strict":true}}}`, "sync_interval", false},
		{`{"server":{"ver":"2.15.2"},"data":{"config":{"strict":true}}}`, "", true},
		{`{}`, "server", true},
	} {
		var answer serverAnswer
		if err := json.Unmarshal([]byte(c.answer), &answer); err != nil {
			t.Fatal(err)
		}
		var refused *ledger.Refused
		field, err := "", answer.check(c.lossy)
		if errors.As(err, &refused) {
			field = refused.Field
		}
		if field != c.field {
			t.Errorf("%s, lossy %v: %v, want a refusal of %q", c.answer, c.lossy, err, c.field)
		}
	}
}
