// Package turn is the loop of one tenant's executor as a value: what was read, answered
// and acknowledged goes in, and what has to be done comes out, with the order in which it
// must be done. It reads no clock, draws nothing and does no I/O, so whoever simulates it
// drives the loop that ships. etcd's raft has the same shape: a RawNode and its Ready.
//
// [Machine] folds, decides, and holds the term. [Flights] are the commands that a holder
// has sent and that have no end yet. [Clock] guards the instant at which it decides.
//
// The caller, called the shell below, is executor/host over NATS and a disk, and
// executor/sim over a world that fails. A turn of it is
//
//	for each message that is there, at most until m.Full():
//		m.Begin(sequence, size)
//		m.Fold(entry), for each entry
//	what was folded is made durable: m.Flush(), after whatever must be durable before it
//	for {
//		r := m.Step(now, inputs)
//		carry out r, in the order of its fields
//		if !r.More { break }
//	}
package turn
