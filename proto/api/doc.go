// Package api is the JSON beside the ledger: what hosts, agents, workers, owners and operators
// say to each other over NATS, the subjects on which they do, and what the command line prints
// with -o json. None of it is a record: what counts is in the ledger, and a message that is lost
// is sent or asked for again.
//
//	undo.<tenant>.<capability>          Command: undo one action            -> Reply
//	ask.<tenant>.<capability>           Command: a question about one       -> Reply
//	page.<tenant>.<hook>                Page: a call to an owner
//	notice.<tenant>.<agent>.<plan>      Notice: what became of a plan
//	yield.<tenant>.<agent>.<process>    Yield: another process of it resumes a plan
//	query.<tenant>.<verb>               a question of the query API         -> its answer
//	query.<tenant>.history.<agent>      HistoryQuery                        -> HistoryAnswer
//	query.<tenant>.preview.<agent>      PreviewQuery                        -> PreviewAnswer
//	admin.<tenant>.<verb>               a request of operators              -> its answer
//	key.<tenant>.<agent>                KeyQuery                            -> KeyAnswer
//
// States of plans in these messages are the State constants of package ledger. Times are unix
// nanoseconds, 0 for "not yet" or "none"; addresses are as ledger.FormatAddress. The package
// imports the standard library only, and so does whoever needs no more than the messages:
// docs/workers.md and docs/cli.md describe them for other languages.
package api
