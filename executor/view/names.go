package view

import (
	"time"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

func questionName(q pb.Question) string {
	return [...]string{"", "effect", "undo", "verify", "unchanged", "delivered"}[q]
}

// onUndoFailureName is what an unwind does about what a quarantined action came after.
func onUndoFailureName(o pb.OnUndoFailure, lastGoes bool) string {
	switch {
	case o == pb.OnUndoFailure_ON_UNDO_FAILURE_CONTINUE:
		return "continue"
	case lastGoes:
		return "halt_unless_last"
	}
	return "halt"
}

func className(c pb.Class) string {
	return [...]string{"undeclared", "compensable", "irreversible", "effectless"}[c]
}

// instant is an instant (unix ns) as texts have it.
func instant(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339) }

// withNote is what something waits for, with what is noted of it.
func withNote(text, note string) string {
	if text == "" || note == "" {
		return text + note
	}
	return text + ": " + note
}
