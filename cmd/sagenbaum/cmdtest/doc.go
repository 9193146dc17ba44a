// Package cmdtest runs the command sagenbaum as processes of its own, for tests: command lines and
// how they end, servers that can be killed, frozen and started again, and what agents leave in
// them. Its functions fail the test that they are given.
//
// It is used by the tests of the command, which run in `go test ./...`, and by the exercises below
// cmd/sagenbaum/exercise, which do not.
package cmdtest
