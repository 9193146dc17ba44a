package ask

import (
	"reflect"
	"sync"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// requests reads the bodies of one kind of request: nothing, or one JSON object that has no other
// fields than Q. What it refuses is counted: the error is an *api.Problem that names the field.
func requests[Q any]() func(*Desk, []byte) (Q, error) {
	shape := sync.OnceValue(func() *ledger.Shape { return ledger.ShapeOf(reflect.TypeFor[Q]()) })
	return func(d *Desk, body []byte) (q Q, err error) {
		if len(body) == 0 {
			return q, nil
		}
		if err := shape().Read(body, &q, "request"); err != nil {
			return q, d.refuse(err)
		}
		return q, nil
	}
}
