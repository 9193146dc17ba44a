package view

import "github.com/sagenbaum/sagenbaum/executor/rowspb"

// Pulse is how far the fold of a tenant is, and its counters.
type Pulse struct {
	Applied     uint64 `json:"applied"` // last sequence folded
	Records     uint64 `json:"records"`
	Held        uint64 `json:"held"`
	Open        uint64 `json:"open"`
	Unwinding   uint64 `json:"unwinding"`
	Quarantined uint64 `json:"quarantined"`
	Ended       uint64 `json:"ended"`
}

// PulseOf reads the counters off the head of a state.
func PulseOf(m *rowspb.Meta) Pulse {
	return Pulse{
		Applied: m.Applied.GetSequence(), Records: m.Records, Held: m.Held,
		Open: m.Open, Unwinding: m.Unwinding, Quarantined: m.Quarantined, Ended: m.Ended,
	}
}

// Pulse reads the counters of the state.
func (r *Reader) Pulse() Pulse { return PulseOf(r.core.Meta()) }
