// Package executor is the pure core that decides what is undone.
//
// A tenant's State is a fold of its ledger: Apply takes one record after the
// other and is total, so that any bytes fold without a panic and what breaks a
// rule is refused or void with a reason. Decide looks at the state and an epoch
// and returns records to append; it never acts. The host (executor/host) appends
// them, reads them back, folds them, and only then sends the commands that Apply
// found valid: append, then act; valid where it lands, not where it was decided.
//
// Nothing here reads a clock, draws a random number, starts a goroutine or
// ranges over a map. The same records give the same state rows, byte for byte,
// whatever the batching, restarts or rebuilds in between (invariant I7).
package executor

// FoldVersion names the rules of this fold. It changes when the same records
// would give another state.
const FoldVersion = 16
