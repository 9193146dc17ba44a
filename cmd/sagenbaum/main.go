// Command sagenbaum is the server, the command line and the demo in one binary.
//
//	sagenbaum serve      run a NATS server with JetStream and the executor
//	sagenbaum demo       see it undo a coding agent's real git work
//	sagenbaum plan ls    look at plans
//
// docs/cli.md explains every command; exit codes are in exit.go.
package main

import (
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

func main() { cli.Main(newRoot()) }
