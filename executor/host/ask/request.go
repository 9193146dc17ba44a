package ask

import (
	"reflect"
	"sync"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// shapes has those of the types of requests that came, by reflect.Type: they are made once.
var shapes sync.Map

func shapeOf(of reflect.Type) *ledger.Shape {
	s, known := shapes.Load(of)
	if !known {
		s, _ = shapes.LoadOrStore(of, ledger.ShapeOf(of))
	}
	return s.(*ledger.Shape)
}

// decodeStrict reads the body of a request: nothing, or one JSON object that has no other
// fields than into. The error is a *ledger.Refused that names the field.
func decodeStrict(body []byte, into any) error {
	if len(body) == 0 {
		return nil
	}
	return shapeOf(reflect.TypeOf(into).Elem()).Read(body, into, "request")
}

// decode is decodeStrict, and what it refuses is counted: the error is an *api.Problem.
func (d *Desk) decode(body []byte, into any) error {
	if err := decodeStrict(body, into); err != nil {
		return d.refuse(err)
	}
	return nil
}
