package cmdtest

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// TryDial is Dial where the server may be about to end; the caller closes the connection.
func TryDial(url string, options ...nats.Option) (*nats.Conn, error) {
	return AsLocal(url, append(options, nats.MaxReconnects(-1),
		nats.ReconnectWait(20*time.Millisecond))...)
}

// Dial connects a test's own client to a server. It comes back when the server does.
func Dial(t *testing.T, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	conn, err := TryDial(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// OpenPlan leaves an open plan with one irreversible action in the ledger, which nothing but its
// owner, operator1, can end once it is cancelled.
func OpenPlan(t *testing.T, conn *nats.Conn, tenant, id string) {
	t.Helper()
	leave(t, conn, tenant, coordinator.PlanSpec{ID: id, Owner: "operator1"},
		contract.Contract{Capability: "mail.send", Class: contract.Irreversible})
}

// UnservedPlan leaves an open plan in a tenant, whose undo, room.free, no worker serves.
func UnservedPlan(t *testing.T, conn *nats.Conn, tenant, id string) {
	t.Helper()
	leave(t, conn, tenant, coordinator.PlanSpec{ID: id},
		contract.Contract{Capability: "room.book", Class: contract.Compensable,
			Inverse: &contract.Inverse{Call: "room.free"}})
}

// leave has an agent do one action, and end without an end of its plan.
func leave(t *testing.T, conn *nats.Conn, tenant string, spec coordinator.PlanSpec,
	does contract.Contract) {
	t.Helper()
	ctx := t.Context()
	agent, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: tenant, Agent: "tester",
		Contracts: []contract.Contract{does}})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := agent.Begin(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	action := coordinator.Action{Capability: does.Capability}
	if err := plan.Report(ctx, action, coordinator.Outcome{}); err != nil {
		t.Fatal(err)
	}
	if err := agent.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// Trouble leaves a tenant with one plan in quarantine, stuck, and one whose undo finds no worker,
// lonely.
func Trouble(t *testing.T, s *Served, tenant string) {
	t.Helper()
	conn := Dial(t, s.URL)
	OpenPlan(t, conn, tenant, "stuck")
	UnservedPlan(t, conn, tenant, "lonely")
	s.Ask(t, tenant, "plan", "cancel", "stuck", "--reason", "sold out", "--wait").Wants(t, "cancel",
		cli.ExitLook)
	s.Ask(t, tenant, "plan", "cancel", "lonely", "--reason", "sold out").Wants(t, "cancel",
		cli.ExitGood)
}

// Freeing has a worker serve what undoes room.book.
func Freeing(t *testing.T, conn *nats.Conn, tenant string) {
	t.Helper()
	w, err := worker.New(worker.Config{Conn: conn, Tenant: tenant, Name: "rooms"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(context.Background()) })
	if err := w.Handle("room.free", Done); err != nil {
		t.Fatal(err)
	}
}

// Done is a worker's handler that answers done and does nothing.
func Done(context.Context, api.Command) (worker.Result, error) { return worker.Result{}, nil }
