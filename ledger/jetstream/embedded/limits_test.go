package embedded_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// Only agents and sources count, and those who undo, and agents that replay, always get in.
func TestConnectionsAreLimitedForAgentsAndSourcesAlone(t *testing.T) {
	users := testenv.Users(t,
		access.User{Name: "agent", Role: access.Agent, Tenant: "t"},
		access.User{Name: "source", Role: access.Source, Tenant: "t"},
		access.User{Name: "replays", Role: access.Agent, Tenant: "t", Run: true},
		access.User{Name: "undoes", Role: access.Worker, Tenant: "t",
			Capabilities: []string{"test.undo"}})
	server := start(t, embedded.Config{Dir: t.TempDir(), Port: -1, Users: users.Directory,
		Connections: func(string) uint64 { return 2 }})
	for _, step := range []struct {
		name string
		in   bool
	}{{"undoes", true}, {"undoes", true}, {"replays", true}, {"replays", true}, {"agent", true},
		{"source", true}, {"agent", false}, {"source", false}, {"replays", true}, {"undoes", true}} {
		conn, err := nats.Connect(server.URL(), users.As(step.name)...)
		if err == nil {
			t.Cleanup(conn.Close)
		}
		if in := err == nil; in != step.in {
			t.Fatalf("%s is let in: %t, want %t: %v", step.name, in, step.in, err)
		}
	}
}

// Who is over the limit is told that, and not that its credentials are wrong. The log is told once,
// and again after the user was let in.
func TestWhoIsOverTheLimitOfConnectionsIsToldSo(t *testing.T) {
	var log strings.Builder // read after the server has ended
	users := testenv.Users(t, access.User{Name: "agent", Role: access.Agent, Tenant: "t"})
	server := start(t, embedded.Config{Dir: t.TempDir(), Port: -1, Users: users.Directory,
		Connections: func(string) uint64 { return 1 }, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for range 2 {
		conn, err := nats.Connect(server.URL(), users.As("agent")...)
		for late := time.After(testenv.Patience); err != nil; { // the one before is about to end
			select {
			case <-late:
				t.Fatal(err)
			case <-time.After(time.Millisecond):
				conn, err = nats.Connect(server.URL(), users.As("agent")...)
			}
		}
		for range 40 {
			again, err := nats.Connect(server.URL(), users.As("agent")...)
			if err == nil {
				again.Close()
			}
			if err == nil || !strings.Contains(err.Error(), nats.MAX_ACCOUNT_CONNECTIONS_ERR) {
				t.Fatalf("the second connection: %v", err)
			}
		}
		conn.Close()
	}
	server.Close()
	said := log.String()
	if n := strings.Count(said, "its tenant has 1 of 1 connections"); n != 2 ||
		!strings.Contains(said, "sagenbaum tenant limits t --connections") {
		t.Errorf("it is said %d times, want 2: %s", n, said)
	}
	if n := strings.Count(said, nats.MAX_ACCOUNT_CONNECTIONS_ERR); n > 40 {
		t.Errorf("%d lines of the server", n)
	}
}

// A connection of a tenant has a bound of subscriptions, so that one agent does not take the memory of
// all; the process's own has none.
func TestSubscriptionsOfAConnectionAreBounded(t *testing.T) {
	users := testenv.Users(t, access.User{Name: "a", Role: access.Agent, Tenant: "t"})
	server := start(t, embedded.Config{Dir: t.TempDir(), Port: -1, Users: users.Directory})
	told := make(chan error, 1)
	agent, err := nats.Connect(server.URL(), append(users.As("a"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			select {
			case told <- err:
			default:
			}
		}))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(agent.Close)
	host, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Close)
	for i, conn := range []*nats.Conn{host, agent} {
		for range 10_001 {
			if _, err := conn.Subscribe("_INBOX.a.x", func(*nats.Msg) {}); err != nil {
				t.Fatal(err)
			}
		}
		if err := conn.FlushTimeout(testenv.Patience); err != nil {
			t.Fatal(err)
		}
		if refused := errors.Is(conn.LastError(), nats.ErrMaxSubscriptionsExceeded); refused != (i == 1) {
			t.Errorf("connection %d: %v", i, conn.LastError())
		}
	}
	select {
	case err := <-told:
		if !errors.Is(err, nats.ErrMaxSubscriptionsExceeded) {
			t.Error(err)
		}
	case <-time.After(testenv.Patience):
		t.Error("the agent is not told")
	}
}
