// Package rows is the state of one tenant as it is stored: ordered keys, the tables
// that they belong to, and the digest over all of them.
//
// KV is the ordered store that the fold writes to, Tx a transaction over it. A fork of a
// Tx is an overlay: it reads through to what it was forked from and keeps its writes to
// itself. Every table is declared once, in tables.go, with its key prefix, the layout of
// its keys and the type of its values.
//
// The package knows what a row looks like and not what it means. No rule of the fold, no
// cache of decoded rows and no queue of things to do belongs here.
package rows
