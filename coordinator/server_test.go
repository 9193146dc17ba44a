package coordinator_test

import (
	"context"
	"encoding/json"
	"os"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
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
	<-h.Ready()
	awaitHolder(nc)
	return nc, func() {
		cancel()
		<-ended
		must(h.Close())
		nc.Close()
		srv.Close()
		must(os.RemoveAll(dir))
	}
}

// awaitHolder returns when the executor holds the tenant: before its first term a ledger is read as
// the earliest holders did, who refuse what they do not know.
func awaitHolder(nc *nats.Conn) {
	for {
		m, err := nc.Request(api.TenantStatus.Subject("default"), []byte("{}"), testenv.Patience)
		must(err)
		var answer api.StatusAnswer
		must(json.Unmarshal(m.Data, &answer))
		if answer.Status.Mode == "holding" {
			return
		}
	}
}
