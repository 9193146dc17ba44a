package main

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// TestAGatewayOrWorkerThatMayNotServeEnds, with what is missing: one that went on would say that it
// serves what no one reaches.
func TestAGatewayOrWorkerThatMayNotServeEnds(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.0.0.1:0")
	s.Ask(t, "default", "tenant", "add", "beta").Wants(t, "a tenant", cli.ExitGood)
	agent, worker := s.User(t, "bob", "agent"), s.User(t, "w1", "worker", "--serve", "mcp.other")
	for _, c := range []struct {
		does, creds string
		flags       []string
		says        []string
	}{
		{"worker", agent, []string{"worker"}, []string{"agent bob", "--role worker --serve mcp.demo-"}},
		{"worker", worker, []string{"worker"}, []string{"worker w1", "--role worker --serve mcp.demo-"}},
		{"gateway", agent, []string{"--agent", "alice"}, []string{"agent bob", "agent alice", "--role agent"}},
		{"gateway", agent, []string{"--tenant", "beta"}, []string{"agent bob", "tenant beta", "--role agent"}},
		{"gateway", worker, nil, []string{"worker w1", "--role agent"}},
	} {
		args := append([]string{"mcp"}, c.flags...)
		args = append(args, "--server", s.URL, "--creds", c.creds, "--server-name", "demo", "--root", t.TempDir(), "--",
			"env", cmdtest.AsCommand+"=1", cmdtest.Program(t), "demo-files", t.TempDir())
		cmdtest.Run(t, args...).Wants(t, c.does, cli.ExitNotAllowed, c.says...)
	}
}

// TestAGatewayThatUndoesNothingNamesItsWorker when it starts.
func TestAGatewayThatUndoesNothingNamesItsWorker(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.0.0.1:0")
	files := t.TempDir()
	for _, flags := range [][]string{{"--creds", s.User(t, "bob", "agent")}, {"--no-undo"}} {
		args := append([]string{"mcp", "--server", s.URL, "--server-name", "demo", "--root", files}, flags...)
		cmdtest.Run(t, append(args, "--", "env", cmdtest.AsCommand+"=1", cmdtest.Program(t), "demo-files", files)...).
			Wants(t, "a gateway", cli.ExitGood, "this gateway undoes nothing itself",
				"sagenbaum mcp worker --server-name demo --root "+files+" -- env ")
	}
}
