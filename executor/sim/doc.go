// Package sim is a world by seed in which the real executor, ledger and triggers
// run: agents, sources, supervisors, operators, workers with an outside world whose
// effects are counted, and one to three hosts that crash, pause, come back and
// disagree about who holds the tenant. JetStream is ledger.Memory behind a network
// that delays, reorders, loses and doubles.
//
// A seed decides everything. There is one heap of events in virtual time and one
// generator for each subsystem and each plan, so that leaving out a plan or a fault
// leaves the rest as it was. Nothing here reads a clock or starts a goroutine: two
// runs of a seed have the same trace hash (I9).
//
// Checks run after every record and at the end. They look at the records, at the
// provider's own ledger and at what hosts send, never at the rows of the executor,
// except to compare two folds with each other.
//
//	result := sim.Run(sim.Options{Seed: 7})
//	for _, v := range result.Violations { ... }
package sim
