// Package turn is the loop of one tenant's executor as a value: what was read, answered
// and acknowledged goes in, and what has to be done comes out, with the order in which it
// must be done. It reads no clock, draws nothing and does no I/O, so whoever simulates it
// drives the loop that ships. etcd's raft has the same shape: a RawNode and its Ready.
//
// [Session] is one session of a tenant. It owns [Machine], which folds, decides, and holds the
// term, and [Outbound], which is what a holder has on its way: [Flights] are the commands that it
// has sent and that have no end yet, [Pages] the pages that no owner has taken, [Erasures] the keys
// that are not destroyed. A step of the machine comes out as a [Ready], and the session carries it
// out, in the one order that Ready describes. [Clock] guards the instant at which it decides, and
// [Halt] is what a restart must not forget.
//
// Two loops of the module are no values of this kind. The coordinator's committer collects
// records of one process and appends them in groups; it decides nothing, and the ledger
// settles what a retry means. A worker's flight is one call of a function of its user,
// with what the library must not lose around it; its clock and its goroutine are the
// user's. What both may do to the ledger is what the simulator's agents and workers do.
//
// The caller, called the shell below, is executor/host over NATS and a disk, and executor/sim over
// a world that fails. It decides nothing about order: it has the [Effects] of a session, and the
// [Dispatcher], [Pager] and [Eraser] of a term. A turn of it is
//
//	for each message that is there, at most until s.Full():
//		s.Begin(sequence, size)
//		s.Fold(entry), for each entry
//	s.Turn(effects): steps, each carried out, until there is nothing to do at once
//	s.Write(now, wanted, copied, rows): the second copy of the ledger, then the state
//
// and it takes one when a message is there, after it has given the session an answer of a worker
// (Answer), the result of an append (Acknowledged), or news of its leadership (Lead), when a page
// was taken or a key destroyed, and when the time of [Effects].Wake has come.
package turn
