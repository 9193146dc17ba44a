// Package view answers what people and programs ask of a tenant: the Reader fills the answers,
// which package proto/api declares, from the rows of a flushed state. It reads through
// executor.Reading where a rule of the fold is asked for, decides nothing, and nothing that
// decides imports it.
//
// Questions are NATS requests on api.QuerySubject, answered in JSON by the host that
// holds the tenant; docs/cli.md lists the verbs.
package view
