package ledger

// States of a plan as people and triggers read them.
const (
	StateOpen        = "open"
	StateCommitting  = "committing" // its commit waits for actions in doubt
	StateCommitted   = "committed"
	StateUnwinding   = "unwinding"
	StateCompensated = "compensated"
	StateQuarantined = "quarantined"
	StateFailed      = "failed"
	StateResolved    = "resolved"
)
