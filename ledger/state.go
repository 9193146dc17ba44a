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
	// Of a plan that delivers what is staged in a committed one, instead of unwinding and compensated.
	StateDelivering = "delivering"
	StateDelivered  = "delivered"
)

// HasEnded reports whether a plan in a state has come to an end, which an undo, or its owner's
// word, may still change. One that waits for its agent, or is under way, has not.
func HasEnded(state string) bool {
	switch state {
	case "", StateOpen, StateCommitting, StateUnwinding, StateDelivering:
		return false
	default:
		return true
	}
}

// MayUnwind reports whether a plan in a state may be undone: of a committed one, what has an undo
// window that is open.
func MayUnwind(state string) bool {
	return state == StateOpen || state == StateCommitting || state == StateCommitted
}

// NoteNotAsked is the note of an action of a committed plan that stays as it is in what undoes a
// part of that plan.
const NoteNotAsked = "not asked to be undone"
