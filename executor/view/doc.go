// Package view is what people and programs ask of a tenant, and what they are shown: the
// bodies of the query API and the -o json of the command line.
//
// Questions are NATS requests on api.QuerySubject, answered in JSON by the host that
// holds the tenant; docs/cli.md lists the verbs. Every answer may carry an error instead.
// Times are unix nanoseconds, 0 for "not yet" or "none"; addresses are as
// ledger.FormatAddress.
package view
