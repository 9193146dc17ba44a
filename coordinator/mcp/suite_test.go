package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// asClient makes the test binary a client of MCP's conformance suite: the SDK's own one before a
// gateway whose server is the suite's, at the URL that is its argument. It is a through in JSON.
const asClient = "SAGENBAUM_TEST_AS_CLIENT_OF_THE_SUITE"

// through is what such a client needs beside.
type through struct {
	Turns  string // address: a connection is answered when it is its turn, and ends with the test
	NATS   string
	Client string // program
	State  string
}

// beClient runs the client when it is its turn, and says at the end of it what has failed.
func beClient(as, url string) error {
	var c through
	if err := json.Unmarshal([]byte(as), &c); err != nil {
		return err
	}
	turn, err := net.Dial("tcp", c.Turns)
	if err != nil {
		return err
	}
	defer turn.Close()
	if _, err := turn.Read(make([]byte, 1)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	go func() { // ends with the test or this process
		_, _ = io.Copy(io.Discard, turn)
		cancel()
	}()
	if err = c.run(ctx, url); err != nil {
		_, said := fmt.Fprintf(turn, "%s: %v", os.Getenv("MCP_CONFORMANCE_SCENARIO"), err)
		err = errors.Join(err, said)
	}
	return err
}

func (c through) run(ctx context.Context, url string) error {
	conn, err := nats.Connect(c.NATS)
	if err != nil {
		return err
	}
	defer conn.Close()
	server, err := mcp.NewServer(mcp.ServerConfig{Name: "suite", URL: url, State: c.State})
	if err != nil {
		return err
	}
	gateway, err := mcp.New(ctx, mcp.Config{Conn: conn, Tenant: "default", Agent: "mcp",
		Unknown: mcp.RecordUnknown, Servers: []*mcp.Server{server},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	front := httptest.NewServer(gateway.Handler(""))
	client := exec.CommandContext(ctx, c.Client, front.URL)
	client.Env = append(os.Environ(), asClient+"=")
	client.Stdout, client.Stderr = os.Stdout, os.Stderr
	err = errors.Join(client.Run(), gateway.Close())
	front.CloseClientConnections()
	front.Close()
	return err
}
