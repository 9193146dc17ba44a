package main

import (
	"net/url"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// TestWorkThatAServerHasLostIsWaitedForNoMore: a question that was under way when the server was
// killed is never answered, and the wait for it may be an hour.
func TestWorkThatAServerHasLostIsWaitedForNoMore(t *testing.T) {
	t.Parallel()
	config := embedded.Config{Dir: t.TempDir(), Port: -1, NoSync: true}
	server, err := embedded.Start(config)
	must(t, err)
	at, err := url.Parse(server.URL())
	must(t, err)
	config.Port, err = strconv.Atoi(at.Port())
	must(t, err)
	conn := cmdtest.Dial(t, server.URL())
	answers(t, conn, api.QuerySubject("default", "status"), inMode(api.ModeHolding))
	asked := make(chan struct{}, 1)
	_, err = conn.Subscribe(api.AdminSubject("default", ">"), func(*nats.Msg) { asked <- struct{}{} })
	must(t, err)
	must(t, conn.Flush())
	done := make(chan cmdtest.Result, 1)
	go func() { // ends with the command
		done <- cmdtest.Run(t, "ledger", "scrub", "--server", at.String(), "--wait-timeout", "15s")
	}()
	<-asked
	server.Close()
	server, err = embedded.Start(config)
	must(t, err)
	t.Cleanup(server.Close)
	r := <-done
	r.Wants(t, "ledger scrub", cli.ExitNoServer, "is back", "whether it was done is not known",
		"next: sagenbaum status, then ask again")
}
