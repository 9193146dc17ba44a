// Package contract is contracts as data: what a capability does, what undoes it,
// and how.
//
// # Model
//
// A Contract is a value, written in Go or in a YAML file. Compile checks it once
// and gives the form that registrations take; the digest of its canonical form is
// its content address. A registration freezes both, so that a later contract
// touches no held compensation.
//
// # Format
//
// A file has one or more documents with apiVersion sagenbaum/v1 and kind Contract;
// Parse is strict, Lint says everything that is wrong with its line and column and
// runs the examples in the file. The canonical form is JSON: see Contract.Canonical.
//
// # Example
//
//	sources, err := contract.LoadDir(os.DirFS("contracts"))
//	compiled, err := contract.Compile(sources[0].Contract, triggers.NewCache(1024))
//
// docs/guide/contracts.md is the format for its users.
package contract
