package ask

import (
	"github.com/sagenbaum/sagenbaum/ledger"
)

// decodeStrict reads the body of a request: nothing, or one JSON object that has no other
// fields than into. The error is a *ledger.Refused that names the field.
func decodeStrict(body []byte, into any) error {
	if len(body) == 0 {
		return nil
	}
	return ledger.ReadRequest(body, into, "request")
}

// decode is decodeStrict, and what it refuses is counted: the error is an *api.Problem.
func (d *Desk) decode(body []byte, into any) error {
	if err := decodeStrict(body, into); err != nil {
		return d.refuse(err)
	}
	return nil
}
