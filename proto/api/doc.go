// Package api is the JSON beside the ledger: what hosts, agents, workers and owners say to
// each other over NATS, and the subjects on which they do. None of it is a record: what
// counts is in the ledger, and a message that is lost is sent or asked for again.
//
//	undo.<tenant>.<capability>          Command: undo one action            -> Reply
//	ask.<tenant>.<capability>           Command: a question about one       -> Reply
//	page.<tenant>.<hook>                Page: a call to an owner
//	notice.<tenant>.<agent>.<plan>      Notice: what became of a plan
//	query.<tenant>.plan.outcome         OutcomeQuery                        -> OutcomeAnswer
//	query.<tenant>.history.<agent>      HistoryQuery                        -> HistoryAnswer
//	query.<tenant>.preview.<agent>      PreviewQuery                        -> PreviewAnswer
//	key.<tenant>.<agent>                KeyQuery                            -> KeyAnswer
//
// States of plans in these messages are the State constants of package ledger. The
// package imports the standard library only, and so does whoever needs no more than the
// messages: docs/workers.md describes them for other languages.
package api
