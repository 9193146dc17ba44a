package ledger

import (
	"errors"
	"fmt"
	"strings"
)

// The three outcomes of an append are: appended (no error), refused (an error
// that says why; nothing is stored) and in doubt (ErrInDoubt).
var (
	// ErrInDoubt means that the records may or may not be stored: the reply was
	// lost, or never sent. Append again with the same commit id; the fold keeps
	// the first record of every id, so that a second copy changes nothing.
	ErrInDoubt = errors.New("append in doubt")

	// ErrConflict means that a fenced append was refused because the fence moved:
	// another holder has started a term. Stop; do not retry.
	ErrConflict = errors.New("append fenced by a newer term")

	// ErrBusy means that the store could not take an append at this moment: a
	// replicated stream under concurrent fences, or a server that is not there yet.
	// Nothing is stored; try again.
	ErrBusy = errors.New("append refused for the moment: stream busy")

	// ErrFull means that the ledger has no room: its bound, its account's or the
	// server's is reached. Nothing is stored. It is an ErrBusy: an operator can make
	// room, and what is tried again is stored then.
	ErrFull = fmt.Errorf("no room in the ledger: %w", ErrBusy)
)

// Fenced is an ErrConflict that says where the fence is.
type Fenced struct {
	Last uint64 // sequence of the last record of the fence's subject; 0: there is none
}

// Error reads as ErrConflict, with the sequence.
func (e *Fenced) Error() string { return fmt.Sprintf("%v, at %d", ErrConflict, e.Last) }

// Unwrap makes it an ErrConflict.
func (e *Fenced) Unwrap() error { return ErrConflict }

// Refused says which field of an input breaks which rule. Nothing was stored.
type Refused struct {
	Field   string // path of the field, as in "forward_registered.class"
	Problem string // what is wrong with it
	Want    string // what would be right
}

// Error reads "refused: forward_registered.class: undeclared; want ...".
func (e *Refused) Error() string {
	text := "refused: " + e.Field + ": " + e.Problem
	if e.Want != "" {
		text += wants + e.Want
	}
	return text
}

const wants = "; want "

// WhyRefused is what an error of a refusal, or the reason of a refused record, says after the word
// refused, for those who say that themselves.
func WhyRefused(reason string) string { return strings.TrimPrefix(reason, "refused: ") }

// Refuse returns a *Refused for field; problem and want are as in Refused.
func Refuse(field, problem, want string) error {
	return &Refused{Field: field, Problem: problem, Want: want}
}

// Halted says that a guard found the stream to contradict itself or what was
// folded before. Nothing may be dispatched until it is repaired.
type Halted struct {
	Guard    string // "G1" to "G5", "reader" or "core", as in docs/architecture.md
	Sequence uint64 // where
	Problem  string
}

// Error reads "halted by G1 at sequence 7: ...".
func (e *Halted) Error() string {
	return fmt.Sprintf("halted by %s at sequence %d: %s", e.Guard, e.Sequence, e.Problem)
}
