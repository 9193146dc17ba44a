package coordinator_test

import (
	"context"
	"os"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
)

// serverAndExecutor starts both in this process, as `sagenbaum serve` does.
func serverAndExecutor() (*nats.Conn, func()) {
	dir, err := os.MkdirTemp("", "sagenbaum")
	must(err)
	srv, err := embedded.Start(embedded.Config{Dir: dir + "/nats", Port: -1})
	must(err)
	nc, err := srv.Connect()
	must(err)
	h, err := host.New(host.Config{Conn: nc, Tenants: []string{"default"}, Dir: dir + "/state",
		DurableServer: srv.DurableID()})
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { // ends with cancel
		defer close(ended)
		_ = h.Run(ctx) // ctx's error
	}()
	h.Await(ctx) // until then no holder says what it knows, and newer pairs are refused
	return nc, func() {
		cancel()
		<-ended
		must(h.Close())
		nc.Close()
		srv.Close()
		must(os.RemoveAll(dir))
	}
}
