package jetstream_test

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// runNATS runs a server as an operator might have configured it and connects.
func runNATS(t *testing.T, options *natsd.Options, connect ...nats.Option) *nats.Conn {
	t.Helper()
	options.Host, options.Port, options.NoSigs, options.NoLog = "127.0.0.1", -1, true, true
	server, err := natsd.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	server.Start()
	t.Cleanup(func() {
		server.Shutdown()
		server.WaitForShutdown()
	})
	if !server.ReadyForConnections(10 * time.Second) {
		t.Fatal("not ready")
	}
	conn, err := nats.Connect(server.ClientURL(), connect...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// oldServer dials a server that only says hello, as version 2.10 does.
type oldServer struct{}

func (oldServer) Dial(_, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		const hello = `INFO {"server_id":"OLD","server_name":"old","version":"2.10.29","headers":true,"max_payload":1048576,"jetstream":true}` + "\r\n"
		if _, err := server.Write([]byte(hello)); err != nil {
			return
		}
		for lines := bufio.NewScanner(server); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "PING") {
				if _, err := server.Write([]byte("PONG\r\n")); err != nil {
					return
				}
			}
		}
	}()
	return client, nil
}
