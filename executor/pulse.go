package executor

// Pulse is where the fold of a tenant stands: its counters.
type Pulse struct {
	Applied     uint64 `json:"applied"` // last sequence folded
	Records     uint64 `json:"records"`
	Held        uint64 `json:"held"`
	Open        uint64 `json:"open"`
	Unwinding   uint64 `json:"unwinding"`
	Quarantined uint64 `json:"quarantined"`
	Ended       uint64 `json:"ended"`
}

// Pulse reads the counters of a state.
func (s *State) Pulse() Pulse {
	m := s.meta
	return Pulse{
		Applied: m.Applied.GetSequence(), Records: m.Records, Held: m.Held,
		Open: m.Open, Unwinding: m.Unwinding, Quarantined: m.Quarantined, Ended: m.Ended,
	}
}
