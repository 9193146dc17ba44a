package audit_test

import pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

// lastForgeries are ledgers in which an unwind goes past an irreversible act that stops it, or stops
// at one that does not.
var lastForgeries = []forgery{
	{"past an irreversible act in the middle", "I21", func(s *scribe) {
		s.lastAct(pb.OnUndoFailure_ON_UNDO_FAILURE_HALT_UNLESS_LAST, "b", "a", "b", "c")
		s.forge(s.dispatch("a", keyOf("a"), 1))
	}, false},
	{"past an irreversible last act where the plan halts", "I21", func(s *scribe) {
		s.lastAct(pb.OnUndoFailure_ON_UNDO_FAILURE_HALT, "b", "a", "b")
		s.forge(s.dispatch("a", keyOf("a"), 1))
	}, false},
	{"an end before what an irreversible last act came after is undone", "I23", func(s *scribe) {
		s.lazy = true
		s.lastAct(pb.OnUndoFailure_ON_UNDO_FAILURE_HALT_UNLESS_LAST, "b", "a", "b")
		s.forge(ended(pb.PlanEnd_PLAN_END_QUARANTINED, "a", "b"))
	}, false},
}
