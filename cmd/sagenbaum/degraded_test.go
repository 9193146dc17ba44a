package main

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// TestADegradedHostWithoutJetStreamIsOneFinding: the disk is full as serve starts, and the server
// that answers meanwhile has no streams.
func TestADegradedHostWithoutJetStreamIsOneFinding(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1, NoStreams: true})
	must(t, err)
	t.Cleanup(server.Close)
	s, err := host.NewStandIn(host.StandInConfig{Conn: cmdtest.Dial(t, server.URL()),
		Tenants: []string{"default"}, Problem: "no space left"})
	must(t, err)
	t.Cleanup(s.Close)
	r := cmdtest.Run(t, "doctor", "--server", server.URL())
	r.Wants(t, "doctor", cli.ExitLook)
	if strings.Count(r.Stdout, "FAIL") != 1 || !strings.Contains(r.Stdout, "FAIL executor") {
		t.Errorf("doctor says\n%s", r.Stdout)
	}
	r = cmdtest.Run(t, "tenant", "ls", "--server", server.URL())
	r.Wants(t, "tenant ls", cli.ExitLook)
	if !strings.Contains(r.Stdout, "degraded") {
		t.Errorf("tenant ls says\n%s", r.Stdout)
	}
}
