// Package turn is the loop of one tenant's executor as a value: what was read, answered
// and acknowledged goes in, and what has to be done comes out, with the order in which it
// must be done. It reads no clock, draws nothing and does no I/O, so whoever simulates it
// drives the loop that ships. etcd's raft has the same shape: a RawNode and its Ready.
//
// [Machine] folds, decides, and holds the term. [Flights] are the commands that a holder
// has sent and that have no end yet, [Pages] the pages that no owner has taken, [Erasures]
// the keys that are not destroyed. [Clock] guards the instant at which it decides, and
// [Halt] is what a restart must not forget.
//
// Two loops of the module are no values of this kind. The coordinator's committer collects
// records of one process and appends them in groups; it decides nothing, and the ledger
// settles what a retry means. A worker's flight is one call of a function of its user,
// with what the library must not lose around it; its clock and its goroutine are the
// user's. What both may do to the ledger is what the simulator's agents and workers do.
//
// The caller, called the shell below, is executor/host over NATS and a disk, and
// executor/sim over a world that fails. A turn of it is
//
//	for each message that is there, at most until m.Full():
//		m.Begin(sequence, size)
//		m.Fold(entry), for each entry
//	for {
//		r := m.Step(now, inputs)
//		carry out r, in the order of its fields
//		if !r.More { break }
//	}
//	m.Write(now, wanted, copied, rows): the second copy of the ledger, then the state
package turn
