package coordinator

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Recorded is what is recorded of an action of an earlier process. Do returns it for one
// that had failed, that was undone, or whose outcome is not known: the same for errors.Is as the
// first time, as far as the coordinator's own errors and ctx's go. One that was undone is an
// ErrPartUndone.
//
// It is also beside ErrBlocked, ErrNoVerdict and ErrNotStarted, in doubt, where an earlier process
// may have run the forward that this one must not run.
type Recorded struct {
	Action     string
	Capability string
	// completed, failed, in_doubt, or unknown: its process has not said what happened
	Outcome       string
	Code, Message string // of one that failed or is in doubt
	By            string // the supervisor who gave the last verdict on it; empty: none has
	Output        json.RawMessage
	ExternalRef   string
	Input         []byte // SHA-256 of it, as it is recorded; none: no input
	Staged        bool   // it is made once the plan has been committed, and by no process of the agent
	// in a part of the plan after which it went on: what the action did is not there any more
	Undone bool
	// of one that completed, what it is told to have completed with otherwise: output or external_ref
	Differs string
}

// Error reads "action a: not_taken: no room (as recorded)".
func (r *Recorded) Error() string {
	if r.Undone {
		return "action " + r.Action + ": it was undone, and its plan goes on without it (as recorded)"
	}
	if r.Outcome == api.OutcomeUnknown {
		return "action " + r.Action + ": its process has not said what happened (as recorded)"
	}
	text := "action " + r.Action
	for _, said := range []string{cmp.Or(r.Code, r.Outcome), r.Message} {
		if said != "" {
			text += ": " + said
		}
	}
	if r.Differs != "" {
		text += " with another " + r.Differs
	}
	return text + " (as recorded)"
}

// Is reports whether the error that was recorded was target.
func (r *Recorded) Is(target error) bool {
	if r.Undone && target == ErrPartUndone {
		return true
	}
	switch r.Code {
	case codeNotTaken:
		return target == ErrNotTaken
	case codeBlocked, codeRedirected:
		return target == ErrBlocked
	case codeNoVerdict:
		return target == ErrNoVerdict
	case codeUndone:
		return target == ErrPartUndone
	case codeNotStarted:
		return target == ErrUnwinding
	case codeInterrupted, codePanic:
		return target == ErrInterrupted
	case codeDeadline:
		return target == context.DeadlineExceeded
	case codeCancelled:
		return target == context.Canceled
	}
	return false
}
