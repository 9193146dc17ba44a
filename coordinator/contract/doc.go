// Package contract is contracts as data: what a capability does, what undoes it, and how.
//
// # Model
//
// A Contract is a value, written in Go or in a YAML file. The digest of its canonical form is its
// content address. Package compile, below this one, checks a contract and prepares it for the
// ledger; a registration freezes what it gives, so that a later contract changes no compensation
// that is held.
//
// # Format
//
// A file has one or more documents with apiVersion sagenbaum/v1 and kind Contract. Parse is
// strict, and Format writes what Parse reads; Diff names the fields in which two contracts
// differ. The canonical form is JSON: see Contract.Canonical.
//
// # Example
//
//	sources, err := contract.LoadDir(os.DirFS("contracts"))
//	findings := compile.Lint(sources)
//
// docs/guide/contracts.md is the format for its users.
package contract
