// Command sagenbaum is the server, the command line and the demo in one binary.
//
//	sagenbaum serve      run a NATS server with JetStream and the executor
//	sagenbaum demo       see it undo a coding agent's real git work
//	sagenbaum plan ls    look at plans
//
// docs/cli.md explains every command; exit codes are in exit.go.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// execute runs one command line. Answers go to stdout, everything else to stderr.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return cli.Finish(stderr, root.ExecuteContext(ctx))
}
