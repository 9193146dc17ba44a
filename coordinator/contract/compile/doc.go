// Package compile checks contracts and prepares them for the ledger.
//
// Contract checks one contract once, with every expression in it, and returns a Compiled: the
// records of a registration, and what is computed before the forward crosses. Lint returns all
// that is wrong with the contracts of a directory, or probably not meant, each with its line and
// column, and runs the examples in the files.
//
// # Example
//
//	sources, err := contract.LoadDir(os.DirFS("contracts"))
//	compiled, err := compile.Contract(sources[0].Contract, triggers.NewCache(1024))
package compile
