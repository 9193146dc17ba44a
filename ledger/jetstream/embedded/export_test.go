package embedded

// TryProbe sets how often Probe asks while what it finds may pass.
func (s *Server) TryProbe(times int) { s.tries = times }
