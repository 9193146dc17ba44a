// Package served starts servers for tests that need no more of one than that it is there.
package served

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
)

// NATS is a server with an empty store on a free port, which lets everyone in, and a connection
// with every right. Both end with the test.
func NATS(t testing.TB) (*embedded.Server, *nats.Conn) {
	t.Helper()
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	conn, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return server, conn
}
