// Package triggers is the trigger language: conditions in CEL over three-valued
// truth, held open as leases, and the bindings that give a compensation its
// arguments.
//
// # Model
//
// A condition reads the frozen action, its plan, the verdict on the action and
// facts. It is true, false or unknown: true fires, unknown waits, false does
// not fire. Unknown is not an error; it says what it waits for. Truth combines
// by strong Kleene logic: a value that decides alone decides, whatever else is
// unknown.
//
// There is no "now". Time enters through functions that also tell when their
// answer will flip, so an evaluation ends with the next instant at which time
// alone could change it (Result.WakeNs). A deadline is after(plan.deadline)
// and nothing else, be it 50 ms or three weeks away.
//
// An evaluation is a function of the folded state and the epoch: the
// package has no clock, no randomness and no goroutine, and does not depend on
// the order of a Go map. The only import of cel-go is here.
//
// # Format
//
// The text of a condition is CEL, at most 4 KiB. Its digest
// is the SHA-256 of "sagenbaum condition 1\n" and the text without comments and
// without space that separates nothing (see Normalise).
//
// # Example
//
//	cache := triggers.NewCache(1024)
//	condition, err := cache.Condition(`plan.status == "failed"`)
//	result := condition.Evaluate(scope, view)
//	if result.Truth == triggers.True { ... }
//
// docs/triggers.md is the language for its users.
package triggers
