package view

import (
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// PulseOf reads the counters off the head of a state.
func PulseOf(m *rowspb.Meta) api.Pulse {
	return api.Pulse{
		Applied: m.Applied.GetSequence(), Records: m.Records, Held: m.Held,
		Open: m.Open, Unwinding: m.Unwinding, Quarantined: m.Quarantined, Ended: m.Ended,
		Reviews: m.Reviews,
	}
}

// Pulse reads the counters of the state.
func (r *Reader) Pulse() api.Pulse { return PulseOf(r.core.Meta()) }
