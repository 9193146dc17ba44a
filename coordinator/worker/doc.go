// Package worker serves compensations from Go: it registers a handler per
// capability and answers the executor's commands and questions over core NATS. Its
// package agentloop is a handler that runs a model with several tools. Any NATS client
// in any language can do the same; docs/workers.md has the subjects and the JSON.
//
// # Model
//
// A command may arrive more than once: after a lost answer, a restart, or a
// timeout whose work went on. Every attempt carries the same Key, so
// a handler gives that key to the tool it calls, or first looks whether the
// effect is there. "Gone already" is done. The worker also joins attempts that
// overlap in this process, which saves work and guarantees nothing.
//
// A handler says how it ended by its error:
//
//	nil             done: undone, now or under this key before
//	Stop(err)       trying again will not help: the owner decides
//	Working(until)  not finished: Report follows, or the command comes again
//	any other       failed: the contract's next attempt may succeed
//
// Answer serves questions, which change nothing: probes, checks after an undo, and
// before-images. A question about an undo that is at work in this process waits for
// its end.
//
// A worker decides nothing else: order, delay and number of attempts are the
// executor's.
package worker
