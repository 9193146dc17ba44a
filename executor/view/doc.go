// Package view is what people and programs ask of a tenant, and what they are shown: the
// bodies of the query API and the -o json of the command line, and the Reader that answers
// them from the rows of a flushed state. It reads through executor.Reading where a rule of
// the fold is asked for, decides nothing, and nothing that decides imports it.
//
// Questions are NATS requests on api.QuerySubject, answered in JSON by the host that
// holds the tenant; docs/cli.md lists the verbs. Every answer may carry an error instead.
// Times are unix nanoseconds, 0 for "not yet" or "none"; addresses are as
// ledger.FormatAddress.
package view
