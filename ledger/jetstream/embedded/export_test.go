package embedded

import (
	"log/slog"

	"github.com/sagenbaum/sagenbaum/ledger/access"
)

// TryProbe sets how often Probe asks while what it finds may pass.
func (s *Server) TryProbe(times int) { s.tries = times }

// Sweeps is one look of a server at its file of users after another.
func Sweeps(users *access.Directory, log *slog.Logger) (look func()) {
	gate, said := newGate(Config{Users: users, Logger: log}), ""
	return func() { said = gate.refresh(said) }
}
